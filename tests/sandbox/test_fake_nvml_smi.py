"""The stand-in for nvidia-smi: what it lists and answers, the reset, and everything that refuses one."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.sandbox.nvml_program import built_or_skip, go_on, nvidia_smi, run, running, said

ONE, OTHER = make_gpus(2)
RESET = "GPU 00000000:18:00.0 was successfully reset.\n"


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    driver = FakeDriver(tmp_path / "root", make_gpus(2), built=built_or_skip())
    for gpu in range(2):
        driver.set(gpu, "persistence", 0)
    return driver


def test_it_lists_gpus_and_answers_queries(driver: FakeDriver) -> None:
    """As the real one prints them; a field that it does not know is named."""
    listed = "".join(f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})\n" for gpu in (ONE, OTHER))
    assert nvidia_smi(driver, "-L") == (0, listed)
    query = "--query-gpu=index,uuid,pci.bus_id,persistence_mode,mig.mode.current,gpu_recovery_action,remapped_rows.pending"
    assert nvidia_smi(driver, query, "--format=csv,noheader", "-i", OTHER.uuid) == (
        0,
        f"1, {OTHER.uuid}, 00000000:2A:00.0, Disabled, Disabled, None, 0\n",
    )
    assert nvidia_smi(driver, "--query-gpu=driver_version,count", "--format=csv") == (
        0,
        "driver_version,count\n580.95.05, 2\n580.95.05, 2\n",
    )
    code, words = nvidia_smi(driver, "--query-gpu=colour", "--format=csv,noheader")
    assert (code, 'Field "colour" is not a valid field' in words) == (2, True)
    assert nvidia_smi(driver, "--unknown")[0] == 2


@pytest.mark.parametrize(
    "name",
    ["0", ONE.uuid, "00000000:18:00.0", "0000:18:00.0"],
    ids=["index", "UUID", "address", "short address"],
)
def test_a_gpu_can_be_named_in_each_way(driver: FakeDriver, name: str) -> None:
    """The reset is of that GPU alone."""
    assert nvidia_smi(driver, "--gpu-reset", "-i", name) == (0, RESET)
    assert (driver.resets(0), driver.resets(1)) == (1, 0)


def test_a_reset_clears_what_a_reset_clears(driver: FakeDriver) -> None:
    """Pending remaps, ResetRequired, recovery action, volatile errors, what was to last until a reset; the rest stays."""
    driver.require_reset(0)
    driver.set(0, "remapped_rows", (1, 2, 1, 1))
    driver.set(0, "sram", range(12))
    driver.set(0, "ecc.1.0.2", 4)
    driver.set(0, "ecc.1.1.2", 5)
    driver.set(0, "mig_mode", (0, 1))
    driver.answer("nvmlDeviceGetSerial", 999, 0, until_reset=True)
    driver.answer("nvmlDeviceGetVbiosVersion", 4, 0)
    driver.hang("nvmlDeviceGetName", 0, until_reset=True)
    driver.require_reset(1)
    driver.process(1, 77)
    before = driver.state()
    assert nvidia_smi(driver, "-r", "-i", "0") == (0, RESET)
    after = driver.state()
    changed = {
        name: after.gpus[0].get(name)
        for name, value in before.gpus[0].items()
        if after.gpus[0].get(name) != value
    }
    assert changed == {
        "reset_required": "0",
        "recovery_action": "0",
        "resets": "1",
        "remapped_rows": "1 2 0 1",
        "sram": "0 1 2 0 0 0 6 7 8 9 10 11",
        "ecc.1.0.2": None,
        "mig_mode": "1 1",
    }
    assert after.gpus[1] == before.gpus[1]
    assert after.rules == ["rule nvmlDeviceGetVbiosVersion 0 answer 4 heal"]
    assert after.settings == before.settings
    assert run(driver, "say([nvmlDeviceGetRemappedRows(h), code(nvmlDeviceGetSerial, h)])") == [
        [1, 2, 0, 1],
        0,
    ]


def test_persistence_mode_is_switched_and_refuses_a_reset(driver: FakeDriver) -> None:
    """It counts as a client; switching it off frees the GPU, and once more says that it is off already."""
    assert nvidia_smi(driver, "-pm", "1", "-i", "0") == (
        0,
        "Enabled persistence mode for GPU 00000000:18:00.0.\nAll done.\n",
    )
    code, words = nvidia_smi(driver, "--gpu-reset", "-i", "0")
    assert code == 255
    assert words.startswith(
        "The following GPUs could not be reset:\n  GPU 00000000:18:00.0: In use by another client\n\n1 device is "
    )
    assert nvidia_smi(driver, "-pm", "0", "-i", ONE.uuid)[1].startswith(
        "Disabled persistence mode for GPU 00000000:18"
    )
    assert nvidia_smi(driver, "-pm", "DISABLED", "-i", "0")[1].startswith(
        "Persistence mode is already Disabled"
    )
    assert nvidia_smi(driver, "--gpu-reset", "-i", "0") == (0, RESET)


def test_a_client_of_the_library_refuses_a_reset(driver: FakeDriver) -> None:
    """Whoever is initialised holds every GPU; after shutdown the reset works, whether or not the process is there still."""
    with running(
        driver, 'say("ready")\nsys.stdin.readline()\nnvmlShutdown()\nsay("gone")\nsys.stdin.readline()\n'
    ) as process:
        said(process)
        assert nvidia_smi(driver, "--gpu-reset", "-i", "0")[0] == 255
        assert driver.resets() == 0
        go_on(process)
        said(process)
        assert nvidia_smi(driver, "--gpu-reset", "-i", "0") == (0, RESET)


REFUSALS: dict[str, tuple[Callable[[FakeDriver], None], int, str]] = {
    "a process is on the GPU": (lambda driver: driver.process(0, 4711), 255, "In use by another client"),
    "MIG devices exist": (lambda driver: driver.mig(0, on=True), 255, "In use by another client"),
    "the GPU can only be reset with its peers": (
        lambda driver: driver.set(0, "reset_together", 1),
        3,
        "Resetting GPU 00000000:18:00.0 is not supported.",
    ),
    "the GPU is lost": (lambda driver: driver.lose(0), 15, "GPU is lost"),
    "the GPU is not there": (lambda driver: driver.remove(0), 6, "No devices were found"),
    "there is no driver": (lambda driver: driver.unload(), 9, "couldn't communicate with the NVIDIA driver"),
    "the reset itself fails": (
        lambda driver: driver.answer("nvidia-smi-reset", 999, 0),
        255,
        "Unknown Error",
    ),
    "the program cannot start": (lambda driver: driver.answer("nvidia-smi", 18), 18, "version mismatch"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_reset_is_refused(driver: FakeDriver, why: str) -> None:
    """With the real program's words and code, and nothing is changed."""
    prepare, expected, words = REFUSALS[why]
    prepare(driver)
    before = driver.state_file.read_text()
    code, printed = nvidia_smi(driver, "--gpu-reset", "-i", ONE.uuid)
    assert (code, words in printed) == (expected, True), printed
    assert driver.state_file.read_text() == before


def test_gpus_that_need_each_other_are_reset_together(tmp_path: Path) -> None:
    """A100 with NVSwitch: one alone is refused, all at once are not."""
    driver = FakeDriver(tmp_path, make_gpus(3, "NVIDIA A100-SXM4-80GB"), built=built_or_skip())
    assert nvidia_smi(driver, "-pm", "0")[0] == 0
    assert nvidia_smi(driver, "-r", "-i", "0,2")[0] == 3
    assert nvidia_smi(driver, "-r", "-i", "0,1,2")[0] == 0
    assert nvidia_smi(driver, "-r")[0] == 0
    assert driver.resets() == 6


def test_a_reset_may_lie(driver: FakeDriver) -> None:
    """It says that it worked and did nothing, as seen in the field: only a look at the GPU proves a reset."""
    driver.require_reset(0)
    driver.set(0, "reset_works", 0)
    assert nvidia_smi(driver, "-r", "-i", "0") == (0, RESET)
    assert (driver.resets(0), driver.state().gpus[0]["reset_required"]) == (1, "1")


def test_a_reset_may_hang(driver: FakeDriver) -> None:
    """Until it is healed; nothing happened before."""
    driver.hang("nvidia-smi-reset", 0)
    process = subprocess.Popen([driver.nvidia_smi, "-r", "-i", "0"], stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(0.3)
        assert process.poll() is None
        assert driver.resets() == 0
        driver.heal()
        assert process.communicate(timeout=10)[0] == RESET
    finally:
        process.kill()
        process.communicate()


def test_a_boot_clears_more_than_a_reset(driver: FakeDriver) -> None:
    """What fell off the bus is back, what was removed is not; persistence mode is on again."""
    driver.lose(0)
    driver.remove(1)
    driver.set(0, "remapped_rows", (0, 1, 1, 0))
    driver.process(0, 9)
    driver.event(0, 8, 79)
    driver.unload()
    driver.boot()
    assert run(
        driver, "say([nvmlDeviceGetCount(), nvmlDeviceGetRemappedRows(h), nvmlDeviceGetPersistenceMode(h)])"
    ) == [
        1,
        [0, 1, 0, 0],
        1,
    ]
    assert driver.state().events == []
