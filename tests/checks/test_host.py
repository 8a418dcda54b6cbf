"""The host as it is judged: warnings alone, each of them in, out and not evaluated."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.finding import Effect, Severity
from checks.gpu_health import Clocks, GpuHealth, NvmlRefusal
from checks.host import CHECK, restore
from checks.host_reading import FABRIC_MANAGER, HOST, KUBELET, HostRead
from checks.observation import NvmlRead, Observation, SourceFailed
from checks.pci_reading import PciDevice, PciRead
from tests.checks.kernel import NEXT_BOOT, at, record
from tests.checks.nvml import Watched, gpu, read

FINE = HostRead(
    seen_at=at(0),
    acs=(),
    modules=("nvidia", "nvidia_peermem"),
    d_state=(),
    stuck=0,
    edac_corrected=5,
    edac_uncorrected=0,
    clock_synchronised=True,
    services={"containerd": True, KUBELET: True, FABRIC_MANAGER: True},
)
replace = msgspec.structs.replace


def host(**fields: Any) -> HostRead:
    return replace(FINE, **fields)


def services(**down: bool) -> HostRead:
    named = {"containerd": True, KUBELET: True, FABRIC_MANAGER: True}
    return host(services={name: down.get(name.replace("-", "_"), up) for name, up in named.items()})


def bus(*, virtual: bool = False, hcas: int = 1, nvswitches: int = 1) -> PciRead:
    roles = ["hca"] * hcas + ["nvswitch"] * nvswitches
    devices = tuple(PciDevice(address=f"0000:{n:02x}:00.0", role=role) for n, role in enumerate(roles))
    return PciRead(seen_at=at(0), devices=devices, virtual_machine=virtual)


def persistence(on: bool | None) -> NvmlRead:
    return read(replace(gpu(0), health=GpuHealth(clocks=Clocks(persistence=on))))


def watched(**settings: Any) -> Watched:
    return Watched(CHECK, bus=1, **settings).set(looked_at=(HOST,)).hears(bus())


STUCK = host(stuck=40, d_state=tuple((n, "python") for n in range(40)))


@pytest.mark.parametrize(
    ("bad", "good", "reason"),
    [
        pytest.param(persistence(False), persistence(True), "PersistenceModeOff", id="persistence mode"),
        pytest.param(host(acs=("0000:0b:00.0",)), FINE, "AcsRedirectsPeerTraffic", id="ACS"),
        pytest.param(host(modules=("nvidia",)), FINE, "PeermemNotLoaded", id="peermem"),
        pytest.param(STUCK, FINE, "ProcessesStuck", id="processes"),
        pytest.param(host(clock_synchronised=False), FINE, "ClockNotSynchronised", id="the clock"),
        pytest.param(services(nv_fabricmanager=False), FINE, "FabricManagerDown", id="fabric manager"),
        pytest.param(services(containerd=False), FINE, "ContainerRuntimeDown", id="the container runtime"),
        pytest.param(services(kubelet=False), FINE, "KubeletDown", id="kubelet"),
    ],
)
def test_every_warning_comes_and_goes(bad: Observation, good: Observation, reason: str) -> None:
    """It takes a while to come, and ends when it was well for a while."""
    one = watched(peermem_expected=True).waits(120, bad)
    assert one.reasons == []
    assert one.waits(900, bad).reasons == [reason]
    assert one.waits(60, good).reasons == [reason]
    assert one.waits(120, good).reasons == []


@pytest.mark.parametrize(
    ("field", "few", "many", "reason"),
    [
        pytest.param("edac_corrected", 99, 100, "HostMemoryCorrected", id="corrected"),
        pytest.param("edac_uncorrected", 0, 1, "HostMemoryUncorrected", id="uncorrected"),
    ],
)
def test_memory_errors_count_by_their_growth_within_a_day(
    field: str, few: int, many: int, reason: str
) -> None:
    """What was there before is nobody's news; a calm day, a clearing or a boot ends it."""
    before = getattr(FINE, field)

    def counts(grown: int) -> HostRead:
        return host(**{field: before + grown})

    one = watched().waits(60, FINE).waits(60, counts(few))
    assert one.reasons == []
    assert one.waits(60, counts(many)).reasons == [reason]
    assert one.is_cleared().waits(600, counts(many)).reasons == []
    assert one.waits(60, counts(2 * many)).reasons == [reason], "errors after the clearing count"
    day_s = CHECK.default_settings["memory_window_seconds"]
    assert one.waits(day_s * 9 // 10, counts(2 * many)).reasons == [reason]
    assert one.waits(day_s // 5, counts(2 * many)).reasons == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            "mce: [Hardware Error]: Machine check events logged", "HardwareErrorLogged", id="a machine check"
        ),
        pytest.param(
            "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0",
            "HardwareErrorLogged",
            id="the firmware's report",
        ),
        pytest.param(
            "watchdog: BUG: soft lockup - CPU#3 stuck for 23s! [kworker:7]",
            "KernelLockup",
            id="a soft lockup",
        ),
        pytest.param("rcu: INFO: rcu_sched self-detected stall on CPU", "KernelLockup", id="a stall"),
    ],
)
def test_a_line_of_the_kernel_is_a_warning_for_an_hour(text: str, reason: str) -> None:
    """With the line as its proof; a process cannot write it, and a clearing ends it."""
    one = watched().hears(record(1, text)).waits(30, FINE)
    assert one.reasons == [reason]
    assert one.judgement.findings[0].evidence == (text,)
    assert one.waits(4000, FINE).reasons == []
    assert one.hears(record(2, text, facility=3)).waits(60, FINE).reasons == []
    assert (
        one.hears(record(9000, text)).is_cleared().set(cleared_before=at(9000)).waits(60, FINE).reasons == []
    )


@pytest.mark.parametrize(
    ("seen", "row"),
    [
        pytest.param(
            [bus(virtual=True), FINE], "AcsRedirectsPeerTraffic: this is a virtual machine", id="a guest"
        ),
        pytest.param([bus(hcas=0), FINE], "AcsRedirectsPeerTraffic: no HCA was seen", id="no HCA"),
        pytest.param([host(acs=None)], "AcsRedirectsPeerTraffic: no PCIe switch", id="no switch"),
        pytest.param([bus(nvswitches=0), FINE], "FabricManagerDown: no NVSwitch was seen", id="no NVSwitch"),
        pytest.param([FINE], "PeermemNotLoaded: nobody says", id="peermem is not asked for"),
        pytest.param([host(edac_corrected=None)], "HostMemoryCorrected: no driver watches", id="no EDAC"),
        pytest.param(
            [host(edac_uncorrected=None)], "HostMemoryUncorrected: no driver watches", id="no EDAC, either"
        ),
        pytest.param([host(clock_synchronised=None)], "ClockNotSynchronised: the kernel", id="no adjtimex"),
        pytest.param([host(services={})], "ContainerRuntimeDown: no container runtime", id="no runtime"),
        pytest.param([host(services={})], "KubeletDown: kubelet has no socket", id="no kubelet"),
        pytest.param([host(stuck=None)], "ProcessesStuck: uninterruptible sleep", id="no process list"),
        pytest.param(
            [host(acs=None, errors={"acs": "EPERM"})],
            "acs could not be read: EPERM",
            id="a file that cannot be read",
        ),
        pytest.param(
            [FINE, persistence(None)], "does not show its persistence mode", id="NVML does not tell"
        ),
    ],
)
def test_what_is_not_evaluated_is_listed(seen: list[Observation], row: str) -> None:
    """With its cause, and no warning comes of it."""
    one = watched().waits(1200, *seen)
    assert any(row in why for why in one.rows), one.rows
    assert one.reasons == []


def test_what_cannot_be_read_any_more_stands() -> None:
    """Nobody saw it end."""
    one = watched().waits(960, host(clock_synchronised=False))
    unread = host(clock_synchronised=None, errors={"clock_synchronised": "EPERM"})
    assert one.waits(900, unread).reasons == ["ClockNotSynchronised"]
    failed = SourceFailed(source=HOST, error="EIO", tries=3, seen_at=at(0))
    assert one.waits(900, failed).reasons == ["ClockNotSynchronised"]
    refused = NvmlRefusal(call="nvmlDeviceGetPersistenceMode", code=999, name="Unknown")
    silent = read(replace(gpu(0), health=GpuHealth(errors={"clocks": refused})))
    gpus = watched().waits(900, persistence(False))
    assert gpus.waits(900, silent).reasons == ["PersistenceModeOff"]


def test_one_runtime_that_answers_is_enough() -> None:
    """Another may have left its socket behind."""
    both = host(services={"containerd": True, "crio": False, KUBELET: True})
    assert watched().waits(900, both).reasons == []


def test_it_never_turns_anything_true() -> None:
    """No reason is a fault, none takes anything away, and there is no condition to turn."""
    assert CHECK.condition == ""
    assert CHECK.unknown_reasons == ()
    assert {(reason.severity, reason.effect) for reason in CHECK.reasons} == {(Severity.WARNING, Effect.NONE)}


def test_a_switched_off_source_is_listed() -> None:
    """And nothing else is said, not even of NVML."""
    one = Watched(CHECK, bus=1).waits(900, STUCK, persistence(False))
    assert (one.reasons, one.rows) == ([], ["the source 'host' is switched off in the agent's configuration"])


def test_nvml_that_is_switched_off_hides_persistence_alone() -> None:
    """The rest is judged."""
    one = watched().set(nvml=False).waits(900, STUCK, persistence(False))
    assert one.reasons == ["ProcessesStuck"]


def test_findings_are_read_back_and_end_with_the_boot() -> None:
    """A restarted agent whose state is lost goes on with what NodeHealth held."""
    findings = watched().waits(900, STUCK, persistence(False)).judgement.findings
    one = watched()
    one.judgement = replace(one.judgement, memory=restore(findings, one.judgement.memory))
    assert one.waits(30, STUCK, persistence(False)).reasons == ["PersistenceModeOff", "ProcessesStuck"]
    assert one.set(boot_id=NEXT_BOOT).waits(30, FINE).reasons == []


def test_a_single_look_waits_for_nothing() -> None:
    """`--once` comes back no second time."""
    one = watched(**CHECK.single_look).hears(host(clock_synchronised=False), persistence(False))
    assert one.reasons == ["ClockNotSynchronised", "PersistenceModeOff"]


def test_every_setting_says_why() -> None:
    """Its default has a reason."""
    assert CHECK.why_settings.keys() == CHECK.default_settings.keys()


NUMBERS = st.none() | st.integers(-(2**65), 2**65)
READINGS = st.builds(
    HostRead,
    seen_at=st.just(at(0)),
    acs=st.none() | st.lists(st.text(max_size=5), max_size=2).map(tuple),
    modules=st.none() | st.lists(st.sampled_from(["nvidia", "nvidia_peermem"]), max_size=2).map(tuple),
    d_state=st.none() | st.lists(st.tuples(st.integers(), st.text(max_size=5)), max_size=2).map(tuple),
    stuck=NUMBERS,
    edac_corrected=NUMBERS,
    edac_uncorrected=NUMBERS,
    clock_synchronised=st.none() | st.booleans(),
    services=st.none()
    | st.dictionaries(st.sampled_from(["containerd", KUBELET, FABRIC_MANAGER, "x"]), st.booleans()),
    errors=st.dictionaries(st.sampled_from(["acs", "d_state", "services", "x"]), st.text(max_size=5)),
)
SEEN = st.one_of(
    READINGS,
    st.builds(bus, virtual=st.booleans(), hcas=st.integers(0, 2), nvswitches=st.integers(0, 2)),
    st.sampled_from([True, False, None]).map(persistence),
    st.builds(record, st.integers(1, 9), st.text(max_size=9) | st.just("mce: [Hardware Error]: x")),
    st.builds(
        SourceFailed,
        source=st.just(HOST),
        error=st.text(max_size=5),
        tries=st.just(1),
        seen_at=st.just(at(0)),
    ),
)


@given(st.lists(st.tuples(st.lists(SEEN, max_size=3), st.sampled_from([30, 120, 600])), max_size=5))
def test_no_reading_raises_and_nothing_but_warnings_comes_of_it(
    history: list[tuple[list[Observation], int]],
) -> None:
    """The memory survives a file."""
    one = watched(peermem_expected=True)
    for seen, seconds in history:
        one.waits(seconds, *seen)
        assert {finding.severity for finding in one.judgement.findings} <= {Severity.WARNING}
        memory = msgspec.json.encode(one.judgement.memory)
        assert msgspec.json.decode(memory, type=CHECK.memory_type) == one.judgement.memory
