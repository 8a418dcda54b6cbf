"""The fake NVML's answers about health that fields and functions share: what is set once is told by both."""

from pathlib import Path

from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.sandbox.nvml_program import built_or_skip, run

PROGRAM = """
    def fields(device, *ids):
        seen = nvmlDeviceGetFieldValues(device, ids)
        return [-one.nvmlReturn if one.nvmlReturn else one.value.ullVal for one in seen]
    def links(device):
        return [fields(device, 46, 111, (161, 0), (161, 9), 53, (162, 9), 96, (163, 6), 107, 148, 119),
                nvmlDeviceGetNvLinkErrorCounter(device, 9, 0)]
    gpus = [nvmlDeviceGetHandleByIndex(index) for index in range(nvmlDeviceGetCount())]
"""


def test_errors_of_links_are_told_by_the_fields_of_their_generation(tmp_path: Path) -> None:
    """An A100 has fields of each link, an H100 also those with a scope, a B200 neither."""
    models = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA B200")
    gpus = [make_gpus(1, model, first=index)[0] for index, model in enumerate(models)]
    driver = FakeDriver(tmp_path, gpus, built=built_or_skip())
    for gpu in range(2):
        driver.set(gpu, "nvlink_errors.0", range(100, 112))
        driver.set(gpu, "nvlink_errors.1", range(200, 212))
        driver.set(gpu, "nvlink_errors.2", range(300, 312))
    say = PROGRAM + "    say([links(gpus[0]), links(gpus[1]), fields(gpus[2], 46, (161, 0), 148)])\n"
    lanes = [100, 109, -3, -3, 200, -3, 306, -3, 0, 0, 211]
    scoped = [100, 109, 100, 109, 200, 209, 306, 306, 0, 0, 211]
    assert run(driver, say) == [[lanes, 109], [scoped, 109], [-3, -3, -3]]


def test_totals_of_memory_are_told_by_fields_too(tmp_path: Path) -> None:
    """ECC by kind and time, retired pages by cause; what a V100 counts an H100 has no field for, and clocks are told."""
    gpus = [
        make_gpus(1, model, first=index)[0]
        for index, model in enumerate(("Tesla V100-SXM2-32GB", "NVIDIA H100 80GB HBM3"))
    ]
    driver = FakeDriver(tmp_path, gpus, built=built_or_skip())
    driver.set(0, "ecc.1.0.2", 4)
    driver.set(0, "ecc.0.1", 9)
    driver.set(0, "retired_pages.1", (0x1000, 0x2000))
    driver.set(0, "retired_pending", 1)
    driver.set(1, "clock_sm", 1200)
    say = (
        PROGRAM
        + """
    story = [fields(gpus[0], 3, 4, 5, 6, 29, 30, 31), fields(gpus[1], 4, 30, 31)]
    clocks = [nvmlDeviceGetClockInfo(gpus[1], 1), nvmlDeviceGetMaxClockInfo(gpus[1], 1),
              nvmlDeviceGetApplicationsClock(gpus[1], 1), code(nvmlDeviceGetClockInfo, gpus[1], 2)]
    say([*story, clocks])
    """
    )
    assert run(driver, say) == [[0, 4, 9, 0, 0, 2, 1], [0, -3, -3], [1200, 1980, 1980, 3]]


def test_a_boot_forgets_what_counts_since_the_driver_was_loaded(tmp_path: Path) -> None:
    """Errors of links, and that pages wait for it; the pages themselves stay retired."""
    driver = FakeDriver(tmp_path, make_gpus(1, "Tesla V100-SXM2-32GB"), built=built_or_skip())
    driver.set(0, "retired_pages.0", (0x1000,))
    driver.set(0, "retired_pending", 1)
    driver.set(0, "nvlink_errors.0", (1, 2, 3, 4, 5, 6))
    driver.boot()
    values = driver.state().gpus[0]
    assert (values["retired_pages.0"], values["retired_pending"]) == ("4096", "0")
    assert values["nvlink_errors.0"] == "0 0 0 0 0 0"
