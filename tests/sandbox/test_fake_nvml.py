"""The fake NVML as nvidia-ml-py sees it: GPUs of each model, each call with each code, lost and missing GPUs, versions."""

import re
import subprocess
from pathlib import Path

import pynvml
import pytest

from sandbox.fake_nvml import CALLS, MODELS, FakeDriver, build, make_gpus
from sandbox.fake_nvml.symbols import SOURCES
from sandbox.go_modules import MissingProgramError
from tests.sandbox.nvml_calls import TO_DRIVER, TO_GPU
from tests.sandbox.nvml_program import built_or_skip, run

NOT_SUPPORTED, NOT_LOADED, LOST, RESET_REQUIRED, MISMATCH = 3, 9, 15, 16, 18

# What each model does not have although others do; every model lacks what comes with MIG devices, samples or old memory.
LACKS = {
    "NVIDIA H100 80GB HBM3": {"nvmlDeviceGetPlatformInfo"},
    "NVIDIA A100-SXM4-80GB": {
        "nvmlDeviceGetPlatformInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    },
    "NVIDIA B200": {"nvmlDeviceGetPlatformInfo", "nvmlDeviceGetNvLinkErrorCounter"},
    "NVIDIA GB200": {"nvmlDeviceGetNvLinkErrorCounter"},
    "Tesla V100-SXM2-32GB": {
        "nvmlDeviceGetPlatformInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetRemappedRows_v2",
        "nvmlDeviceGetRowRemapperHistogram",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    },
    "NVIDIA L4": {
        "nvmlDeviceGetPlatformInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetRepairStatus",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        *(name for name in CALLS if "NvLink" in name),
    },
}
ALL_LACK = {
    "nvmlDeviceGetBankRemapperStatus_v1",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
}

REMAPS_ROWS_LACK = {
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetRetiredPagesPendingStatus",
}

# Struct of the fake -> class of the binding.
STRUCTS = {
    "pci_info": pynvml.nvmlPciInfo_t,
    "pci_info_ext": pynvml.nvmlPciInfoExt_v1_t,
    "platform_info": pynvml.c_nvmlPlatformInfo_v2_t,
    "memory_info": pynvml.c_nvmlMemory_t,
    "memory_info_v2": pynvml.c_nvmlMemory_v2_t,
    "remapped_rows_v2": pynvml.c_nvmlRemappedRowsInfo_v2_t,
    "row_remapper_histogram": pynvml.c_nvmlRowRemapperHistogramValues,
    "bank_remapper_status": pynvml.c_nvmlEccBankRemapperStatus_v1_t,
    "sram_status": pynvml.c_nvmlEccSramErrorStatus_v1_t,
    "repair_status": pynvml.c_nvmlRepairStatus_t,
    "unrepairable_memory": pynvml.c_nvmlUnrepairableMemory_v1_t,
    "fabric_info_v2": pynvml.c_nvmlGpuFabricInfo_v2_t,
    "fabric_info_v3": pynvml.c_nvmlGpuFabricInfo_v3_t,
    "field_value": pynvml.c_nvmlFieldValue_t,
    "temperature": pynvml.c_nvmlTemperature_v1_t,
    "margin_temperature": pynvml.c_nvmlMarginTemperature_v1_t,
    "utilization": pynvml.c_nvmlUtilization_t,
    "device_attributes": pynvml.c_nvmlDeviceAttributes,
    "process_info": pynvml.c_nvmlProcessInfo_v3_t,
    "process_sample": pynvml.c_nvmlProcessUtilizationSample_t,
    "event_data": pynvml.c_nvmlEventData_t,
    "system_event_set_request": pynvml.c_nvmlSystemEventSetCreateRequest_v1_t,
    "system_register_request": pynvml.c_nvmlSystemRegisterEventRequest_v1_t,
    "system_event_data": pynvml.c_nvmlSystemEventData_v1_t,
    "system_wait_request": pynvml.c_nvmlSystemEventSetWaitRequest_v1_t,
    "memory_limits_set": pynvml.c_nvmlSetMemoryLimits_v1_t,
    "memory_limits_get": pynvml.c_nvmlGetMemoryLimits_v1_t,
}
BODY = r"struct %s \{.*?\n(.*?)\n\};"
MEMBER = r"(\w+)(?:\[\d+\])?\s*(?=[,;])"


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "root", make_gpus(2), version="615.71.09", built=built_or_skip())


def test_structs_are_laid_out_as_the_binding_has_them(tmp_path: Path) -> None:
    """Size of every struct, place of every member, and a clean compilation of the header."""
    built_or_skip()
    text = (SOURCES / "nvml_types.h").read_text()
    lines = ["#include <stddef.h>", "#include <nvml_types.h>"]
    for name, theirs in STRUCTS.items():
        lines.append(
            f"_Static_assert(sizeof(struct {name}) == {pynvml.sizeof(theirs)}, {name!r});".replace("'", '"')
        )
        body = re.search(BODY % name, text, re.DOTALL)
        assert body, name
        members = re.findall(MEMBER, re.sub(r"/\*.*?\*/", "", body[1]))
        if len(members) == len(theirs._fields_):  # else some of them are a struct in that class
            places = (getattr(theirs, field[0]).offset for field in theirs._fields_)
            lines += [
                f"_Static_assert(offsetof(struct {name}, {member}) == {place}, {name!r});".replace("'", '"')
                for member, place in zip(members, places, strict=True)
            ]
    (tmp_path / "sizes.c").write_text("\n".join(lines) + "\n")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{SOURCES}", "sizes.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(lines) > 150


def test_every_exported_call_is_in_the_tables() -> None:
    """A call that is added must be tried with each code, too."""
    assert set(TO_DRIVER) | set(TO_GPU) == set(CALLS) - {"nvmlErrorString"}


def test_without_gcc_the_line_that_installs_it_is_named(tmp_path: Path) -> None:
    """No traceback, no guess: what is missing, and how to get it."""
    with pytest.raises(MissingProgramError, match="apt-get install gcc"):
        build(lambda _: None, {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})


@pytest.mark.parametrize("model", LACKS)
def test_a_well_gpu_answers_as_its_model_does(tmp_path: Path, model: str) -> None:
    """Who it is comes through the binding, and exactly what the model lacks is NotSupported."""
    driver = FakeDriver(tmp_path, make_gpus(1, model), version="615.71.09", built=built_or_skip())
    gpu = make_gpus(1, model)[0]
    program = """
        from tests.sandbox.nvml_calls import codes
        codes(h)
        say([nvmlDeviceGetName(h), nvmlDeviceGetUUID(h), nvmlDeviceGetPciInfo(h).busId, codes(h)])
    """
    name, uuid, pci, codes = run(driver, program)
    assert (name, uuid, pci) == (gpu.model, gpu.uuid, "00000000:18:00.0")
    assert {call for call, code in codes.items() if code == NOT_SUPPORTED} == LACKS[model] | ALL_LACK | (
        REMAPS_ROWS_LACK if "V100" not in model else set()
    )
    others = {call: code for call, code in codes.items() if code not in (0, NOT_SUPPORTED)}
    no_hole = (
        {}
        if "nvmlDeviceGetMigDeviceHandleByIndex" in LACKS[model]
        else {"nvmlDeviceGetMigDeviceHandleByIndex": 6}
    )
    assert others == no_hole | {
        "nvmlEventSetWait_v2": 10,
        "nvmlDeviceRegisterEvents": 10,
        "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": 2,
        "nvmlDeviceGetProcessUtilization": 6,
    }


def test_every_model_can_be_read(tmp_path: Path) -> None:
    """All models on one node, as no real one has them: each under its own handle."""
    gpus = [make_gpus(1, model, first=index)[0] for index, model in enumerate(MODELS)]
    driver = FakeDriver(tmp_path, gpus, built=built_or_skip())
    names = run(
        driver, "say([nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(i)) for i in range(nvmlDeviceGetCount())])"
    )
    assert names == list(MODELS)


def test_every_call_gives_every_code(driver: FakeDriver) -> None:
    """Whatever a call would say otherwise, it says what it was told to; afterwards it works again."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        from tests.sandbox.nvml_calls import TO_DRIVER, TO_GPU, code_of
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        wrong = []
        for name, call in (TO_DRIVER | TO_GPU).items():
            before = code_of(call, h)
            for wanted in (2, 3, 9, 13, 15, 18, 77, 999):
                driver.answer(name, wanted)
                came = code_of(call, h)
                driver.heal(name)
                if came != wanted and not (name == "nvmlSystemEventSetWait" and wanted == 10):
                    wrong.append((name, wanted, came))
            if name.endswith(("Free", "Shutdown")):
                continue  # the one that was refused is still there
            if code_of(call, h) != before:
                wrong.append((name, "afterwards"))
        say(wrong)
    """
    assert run(driver, program) == []


def test_a_code_for_one_gpu_is_not_the_others(driver: FakeDriver) -> None:
    """One GPU fails in every call, its handle's lookup included, and the other in none."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        from tests.sandbox.nvml_calls import TO_GPU, code_of
        handles = [h, nvmlDeviceGetHandleByIndex(1)]
        before = {name: code_of(call, handles[1]) for name, call in TO_GPU.items()}
        FakeDriver.attach(Path(sys.argv[1]).parents[3]).answer("*", 999, 0)
        say([sorted({code_of(call, h) for call in TO_GPU.values()}),
             [name for name, call in TO_GPU.items() if code_of(call, handles[1]) != before[name] and "Limits" not in name]])
    """
    assert run(driver, program) == [[999], []]


def test_a_lost_gpu_says_so_in_every_call(driver: FakeDriver) -> None:
    """It is counted still, nothing of it can be read, and one call can be let through."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        from tests.sandbox.nvml_calls import TO_GPU, code_of
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        driver.lose(0)
        lost = [nvmlDeviceGetCount(), sorted({code_of(call, h) for call in TO_GPU.values()})]
        driver.answer("nvmlDeviceGetUUID", 0, 0)
        let_through = code(nvmlDeviceGetUUID, h)
        driver.heal()
        say([*lost, let_through, code(nvmlDeviceGetName, h)])
    """
    assert run(driver, program) == [2, [LOST], 0, 0]


def test_a_gpu_that_wants_a_reset_still_says_who_it_is(driver: FakeDriver) -> None:
    """Identity and the recovery action come; readings do not."""
    driver.require_reset(0)
    program = """
        say([len(nvmlDeviceGetUUID(h)), nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal,
             code(nvmlDeviceGetRemappedRows, h), code(nvmlDeviceGetMemoryInfo, h)])
    """
    assert run(driver, program) == [40, 1, RESET_REQUIRED, RESET_REQUIRED]


def test_a_missing_gpu_is_not_counted_and_the_indices_move(driver: FakeDriver) -> None:
    """As at a boot that did not find it: by UUID it is NotFound, its old handle is stale."""
    one, other = (gpu.uuid for gpu in make_gpus(2))
    program = f"""
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        driver.remove(0)
        gone = [nvmlDeviceGetCount(), nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(0)), code(nvmlDeviceGetHandleByIndex, 1),
                code(nvmlDeviceGetHandleByUUID, {one!r}.encode()), code(nvmlDeviceGetUUID, h)]
        driver.put_back(0)
        say([gone, nvmlDeviceGetCount(), nvmlDeviceGetUUID(h), nvmlDeviceGetHandleByIndex(0).__class__ == h.__class__])
    """
    assert run(driver, program) == [[1, other, 2, 6, 2], 2, one, True]


def test_a_node_without_gpus(tmp_path: Path) -> None:
    """The driver is there and counts none; only the flag that allows it lets the library begin."""
    driver = FakeDriver(tmp_path, built=built_or_skip())
    program = "say([code(nvmlInit), code(nvmlInitWithFlags, 1), nvmlDeviceGetCount(), code(nvmlDeviceGetHandleByIndex, 0)])"
    assert run(driver, program, init=False) == [6, 0, 0, 2]


def test_the_driver_as_a_whole(driver: FakeDriver) -> None:
    """Not initialised, unloaded, another version, a call that an older one lacks."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        story = [code(nvmlDeviceGetCount), code(nvmlShutdown)]
        driver.unload(); story.append(code(nvmlInit))
        driver.load(); story.append(code(nvmlInit))
        driver.driver("570.1"); story.append(nvmlSystemGetDriverVersion())
        driver.unload(); story.append(code(nvmlSystemGetDriverVersion))
        driver.load(); driver.omit("nvmlDeviceGetCount_v2")
        try:
            nvmlDeviceGetCount()
        except NVMLError_FunctionNotFound:
            story.append("not there")
        story.append(nvmlErrorString(15))
        say(story)
    """
    assert run(driver, program, init=False) == [
        1,
        1,
        NOT_LOADED,
        0,
        "570.1",
        NOT_LOADED,
        "not there",
        "GPU is lost",
    ]


def test_a_driver_upgrade_needs_a_fresh_process(driver: FakeDriver) -> None:
    """Whoever had loaded the library before is out, even after shutdown and init; a new process is not."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        FakeDriver.attach(Path(sys.argv[1]).parents[3]).mismatch("620.1")
        say([code(nvmlDeviceGetCount), code(nvmlDeviceGetName, h), code(nvmlShutdown), code(nvmlInit)])
    """
    assert run(driver, program) == [MISMATCH, MISMATCH, 0, MISMATCH]
    assert run(driver, "say(nvmlSystemGetDriverVersion())") == "620.1"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda driver: driver.answer("nvmlDeviceGetNames", 3), "no call of the fake NVML"),
        (lambda driver: driver.lose(7), "has no GPU 7"),
        (lambda driver: driver.set(0, "two words", 1), "must be one word"),
        (lambda driver: driver.set(0, "name", "two\nlines"), "must be one line"),
        (lambda driver: FakeDriver(driver.root, make_gpus(1, "NVIDIA Z9")), "knows no model"),
    ],
    ids=["unknown call", "unknown GPU", "attribute of two words", "value of two lines", "unknown model"],
)  # fmt: skip
def test_a_mistake_is_refused_and_changes_nothing(driver: FakeDriver, wrong: object, words: str) -> None:
    """The text names what was wrong; the state stays as it was."""
    before = driver.state_file.read_text()
    assert callable(wrong)
    with pytest.raises(ValueError, match=words):
        wrong(driver)
    assert driver.state_file.read_text() == before
