"""Parts and readings of the fake NVML: MIG devices, processes, links, field values, memory and its limits."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sandbox.fake_nvml import FakeDriver, Instance, make_gpus
from tests.sandbox.nvml_program import built_or_skip, go_on, run, running, said

NOT_SUPPORTED, INVALID = 3, 2
FIELDS = """
    def fields(*ids):
        def value(one):
            return one.value.ullVal if one.valueType == 3 else one.value.dVal if one.valueType == 0 else one.value.uiVal
        return [value(one) if one.nvmlReturn == 0 else f"code {one.nvmlReturn}" for one in nvmlDeviceGetFieldValues(h, ids)]
"""
MOST = (1 << 64) - 1


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "root", make_gpus(2), version="615.71.09", built=built_or_skip())


# MIG


def test_mig_devices_are_children_with_holes(driver: FakeDriver) -> None:
    """Slot 2 is a hole; each child says whose it is, and what only the whole GPU has is NotSupported."""
    driver.mig(0, on=True)
    program = """
        story = [nvmlDeviceGetMigMode(h), nvmlDeviceGetMaxMigDeviceCount(h)]
        story.append([code(nvmlDeviceGetMigDeviceHandleByIndex, h, i) for i in range(8)])
        child = nvmlDeviceGetMigDeviceHandleByIndex(h, 3)
        again = nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(child).encode())
        parent = nvmlDeviceGetDeviceHandleFromMigDeviceHandle(child)
        story += [nvmlDeviceGetUUID(child)[:4], nvmlDeviceGetName(child), nvmlDeviceGetUUID(parent) == nvmlDeviceGetUUID(h)]
        story += [nvmlDeviceGetGpuInstanceId(again), nvmlDeviceGetComputeInstanceId(child)]
        story += [nvmlDeviceIsMigDeviceHandle(child).value, nvmlDeviceGetAttributes(child).memorySizeMB]
        story += [code(nvmlDeviceGetPowerUsage, child), code(nvmlDeviceGetSerial, h)]
        say(story)
    """
    assert run(driver, program) == [
        [1, 1],
        7,
        [0, 0, 6, 0, 6, 6, 6, INVALID],
        "MIG-",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        True,
        13,
        0,
        1,
        9728,
        NOT_SUPPORTED,
        0,
    ]


def test_mig_hides_what_belongs_to_the_whole_gpu(driver: FakeDriver) -> None:
    """Row remaps are NotSupported while instances exist, links read as down; off again, all is back."""
    program = (
        FIELDS
        + """
    from pathlib import Path
    from sandbox.fake_nvml import FakeDriver
    driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
    def look():
        return [code(nvmlDeviceGetRemappedRows, h), code(nvmlDeviceGetRowRemapperHistogram, h),
                nvmlDeviceGetNvLinkState(h, 0), fields(144, (165, 0), 91)]
    story = [look()]
    driver.mig(0, on=True)
    child = nvmlDeviceGetMigDeviceHandleByIndex(h, 0)
    story.append(look())
    driver.mig(0, on=False)
    say([*story, look(), code(nvmlDeviceGetName, child)])
    """
    )
    well = [0, 0, 1, [0, 1, 18]]
    hidden = [NOT_SUPPORTED, NOT_SUPPORTED, 0, ["code 3", 0, 18]]
    assert run(driver, program) == [well, hidden, well, INVALID]


def test_a_board_without_mig_refuses_it(tmp_path: Path) -> None:
    """NVML says NotSupported, and so does the hand that would switch it on."""
    driver = FakeDriver(tmp_path, make_gpus(1, "NVIDIA L4"), built=built_or_skip())
    with pytest.raises(ValueError, match="has no MIG"):
        driver.mig(0, on=True)
    assert run(driver, "say([code(nvmlDeviceGetMigMode, h), nvmlDeviceGetMaxMigDeviceCount(h)])") == [
        NOT_SUPPORTED,
        0,
    ]


# Processes


def test_processes_are_listed_by_kind_and_instance(driver: FakeDriver) -> None:
    """The whole GPU lists all of a kind, a MIG device its own; memory may be unknown."""
    driver.mig(0, on=True, instances=[Instance(slot=0, gpu_instance=7), Instance(slot=1, gpu_instance=8)])
    for pid in range(100, 110):
        driver.process(0, pid, gpu_instance=7 if pid < 103 else 8, compute_instance=0, memory=MOST)
    driver.process(0, 7, kind="g")
    driver.process(1, 8, kind="m", memory=5)
    driver.end_process(0, 109)
    program = """
        def pids(found): return [[one.pid, one.usedGpuMemory] for one in found]
        child = nvmlDeviceGetMigDeviceHandleByIndex(h, 0)
        other = nvmlDeviceGetHandleByIndex(1)
        say([len(nvmlDeviceGetComputeRunningProcesses(h)), pids(nvmlDeviceGetComputeRunningProcesses_v3(child)),
             pids(nvmlDeviceGetGraphicsRunningProcesses_v3(h)), pids(nvmlDeviceGetMPSComputeRunningProcesses_v3(other)),
             pids(nvmlDeviceGetComputeRunningProcesses_v3(other))])
    """
    mine = [[pid, None] for pid in (100, 101, 102)]
    assert run(driver, program) == [9, mine, [[7, 1 << 30]], [[8, 5]], []]


def test_process_samples(driver: FakeDriver) -> None:
    """Those newer than what was seen; NotFound without any."""
    driver.set(0, "utilization.42", (1000, 90, 40, 0, 0))
    program = """
        say([[[one.pid, one.smUtil] for one in nvmlDeviceGetProcessUtilization(h, 0)],
             code(nvmlDeviceGetProcessUtilization, h, 1000)])
    """
    assert run(driver, program) == [[[42, 90]], 6]


# Links and field values


def test_links_end_with_invalid_argument(driver: FakeDriver) -> None:
    """Beyond the last link no NotSupported comes, while the capability claims 36; a link can sleep or be down."""
    driver.set(0, "nvlink_states", (1, 0, 2, *(1,) * 15))
    program = (
        FIELDS
        + """
    say([[nvmlDeviceGetNvLinkState(h, i) for i in range(3)], code(nvmlDeviceGetNvLinkState, h, 18),
         nvmlDeviceGetNvLinkCapability(h, 35, 0), fields(91, (165, 1), (165, 2), (165, 18), (164, 0), (166, 0)),
         nvmlDeviceGetNvLinkRemoteDeviceType(h, 0), nvmlDeviceGetNvLinkRemotePciInfo(h, 0).busId])
    """
    )
    assert run(driver, program) == [
        [1, 0, 1],
        INVALID,
        1,
        [18, 0, 2, "code 2", 26_562, 6],
        2,
        "00000000:C5:00.0",
    ]


def test_fields_can_be_anything(driver: FakeDriver) -> None:
    """Of any type, for one scope or all, or a code of their own; unknown ones are NotSupported one by one."""
    driver.field(0, 230, 4)
    driver.field(0, 191, 1.5, kind="double")
    driver.field(0, 163, 1 << 40, scope=2, kind="ulonglong")
    driver.field(0, 145, 0, code=999)
    driver.field(0, 165, 3, scope=7)
    program = FIELDS + "    say(fields(230, 191, (163, 2), (163, 1), 145, (165, 7), (165, 8), 272, 176))\n"
    assert run(driver, program) == [4, 1.5, 1 << 40, 0, "code 999", 3, 1, "code 3", 0]


@pytest.mark.parametrize("touches", [0, 1], ids=["as documented", "one past the end"])
def test_one_entry_past_the_end_is_touched_only_when_asked(driver: FakeDriver, touches: int) -> None:
    """A caller with one entry too many sees it written, as real drivers are suspected to do for NVLink fields."""
    driver.setting("touch_past_end", touches)
    program = """
        values = (c_nvmlFieldValue_t * 3)()
        values[0].fieldId, values[1].fieldId, values[2].nvmlReturn = 230, 91, 77
        pynvml.nvmlLib.nvmlDeviceGetFieldValues(h, 2, ctypes.byref(values))
        say(values[2].nvmlReturn)
    """
    assert run(driver, program) == (0 if touches else 77)


def test_the_fabric_struct_of_an_older_driver(driver: FakeDriver) -> None:
    """Version 3 is refused as unknown, version 2 answers without a summary."""
    ask = """
        old, new = c_nvmlGpuFabricInfo_v2_t(), c_nvmlGpuFabricInfo_v3_t()
        say([code(nvmlDeviceGetGpuFabricInfoV, h, ctypes.byref(new)), new.healthSummary,
             code(nvmlDeviceGetGpuFabricInfoV, h, ctypes.byref(old)), old.state, old.healthMask])
    """
    assert run(driver, ask) == [0, 1, 0, 3, 0x1AA]
    driver.setting("fabric_version", 2)
    assert run(driver, ask) == [25, 0, 0, 3, 0x1AA]


def test_memory_errors_add_up(driver: FakeDriver) -> None:
    """Places sum up in the total, unless that is set; remaps, SRAM and retired pages come as set."""
    driver.set(0, "ecc.1.0.2", 4)
    driver.set(0, "ecc.1.0.3", 1)
    driver.set(0, "ecc.0.1", 9)
    driver.set(0, "remapped_rows", (1, 2, 1, 0))
    driver.set(0, "sram", (0, 1, *(0,) * 9, 1))
    driver.set(0, "retired_pages.1", (0x1000, 0x2000))
    driver.set(0, "repair", "!999")
    program = """
        status = c_nvmlEccSramErrorStatus_v1_t()
        nvmlDeviceGetSramEccErrorStatus(h, ctypes.byref(status))
        say([nvmlDeviceGetTotalEccErrors(h, 1, 0), nvmlDeviceGetMemoryErrorCounter(h, 1, 0, 2),
             nvmlDeviceGetTotalEccErrors(h, 0, 1),
             nvmlDeviceGetRemappedRows(h), [status.aggregateUncSecDed, status.bThresholdExceeded],
             nvmlDeviceGetRetiredPages(h, 1), len(nvmlDeviceGetRetiredPages_v2(h, 1)), code(nvmlDeviceGetRepairStatus, h)])
    """
    assert run(driver, program) == [5, 4, 9, [1, 2, 1, 0], [1, 1], [0x1000, 0x2000], 2, 999]


# Memory limits

LIMITS = """
    import tempfile
    def put(path, soft, hard):
        return code(nvmlDeviceSetMemoryLimits_v1, h, c_nvmlSetMemoryLimits_v1_t(path.encode(), soft, hard))
    def get(path):
        limits = c_nvmlGetMemoryLimits_v1_t(path.encode(), 0, 0, 0)
        error = code(nvmlDeviceGetMemoryLimits_v1, h, limits)
        return error or [limits.softLimit, limits.hardLimit, limits.currentUsed]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="limits are root's to set")
def test_memory_limits_are_kept_by_cgroup(driver: FakeDriver, tmp_path: Path) -> None:
    """Set, read back by another process, changed, cleared; another GPU has none of it."""
    group = tmp_path / "cgroup of a pod"
    group.mkdir()
    first = run(driver, LIMITS + f"    say([put({str(group)!r}, 1 << 30, 2 << 30), get({str(group)!r})])\n")
    assert first == [0, [1 << 30, 2 << 30, 0]]
    assert driver.memory_limits(0) == {str(group): (1 << 30, 2 << 30, 0)}
    assert driver.memory_limits(1) == {}
    driver.use_memory(0, str(group), 77)
    program = f"""
    group = {str(group)!r}
    story = [get(group), put(group, 0, {MOST} - 1), put(group, 0, 3 << 30), get(group)]
    say([*story, put(group, 0, {MOST}), get(group)])
    """
    assert run(driver, LIMITS + program) == [[1 << 30, 2 << 30, 77], INVALID, 0, [0, 3 << 30, 77], 0, 6]
    assert driver.memory_limits(0) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="limits are root's to set")
@pytest.mark.parametrize(
    ("prepare", "asked", "code"),
    [
        (lambda _: None, ("/", 2 << 30, 1 << 30), 2),
        (lambda _: None, ("/", 0, 1 << 40), 2),
        (lambda _: None, ("relative", 0, 1 << 30), 2),
        (lambda _: None, ("/no/such/cgroup", 0, 1 << 30), 17),
        (lambda driver: driver.mig(0, on=True), ("/", 0, 1 << 30), 3),
        (lambda driver: driver.driver("580.95.05"), ("/", 0, 1 << 30), 13),
        (lambda driver: driver.lose(0), ("/", 0, 1 << 30), 15),
    ],
    ids=[
        "soft over hard",
        "more than the GPU has",
        "no absolute path",
        "no such cgroup",
        "MIG",
        "driver too old",
        "lost",
    ],
)
def test_memory_limits_are_refused(
    driver: FakeDriver, prepare: object, asked: tuple[str, int, int], code: int
) -> None:
    """Each with the code of the real driver."""
    assert callable(prepare)
    with running(
        driver, LIMITS + f'    say("ready")\n    sys.stdin.readline()\n    say(put(*{asked!r}))\n'
    ) as process:
        assert said(process) == "ready"
        prepare(driver)
        go_on(process)
        assert said(process) == code
    assert driver.memory_limits(0) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_memory_limits_are_roots_to_set_and_everyones_to_read() -> None:
    """NoPermission for others; reading needs none."""
    change = "os.seteuid(65534)"
    program = LIMITS + f'    put("/", 0, 1 << 30)\n    {change}\n    say([put("/", 0, 2 << 30), get("/")])\n'
    with TemporaryDirectory() as folder:  # pytest's own is closed to others
        Path(folder).chmod(0o755)
        driver = FakeDriver(Path(folder), make_gpus(1), version="615.71.09", built=built_or_skip())
        assert run(driver, program) == [4, [0, 1 << 30, 0]]
