"""PCIe links: what raises each reason, what ends it, and what nobody can say or need not ask."""

from typing import Any

import msgspec
import pytest

from checks.gpu_health import NvmlRefusal
from checks.observation import NvmlRead, Observation
from checks.pci_reading import PciRead
from checks.pcie import CHECK, PcieMemory
from tests.checks import nvml
from tests.checks.pcie import (
    AWAKE,
    DOWNSTREAM,
    GPU,
    GPU_PCI,
    NVSWITCH,
    PORT,
    QUIET,
    ROOT,
    UPSTREAM,
    bus,
    device,
    gpu,
    told,
    unread,
    watch,
)

WELL = "False PcieLinksHealthy"


@pytest.mark.parametrize(
    ("changed", "changes", "reason", "detail", "pci"),
    [
        pytest.param(
            GPU,
            {"width": 8, "slot": "7"},
            "PcieWidthReduced",
            f"x8 of x16 on the link between {GPU} in slot 7 and the bridge {DOWNSTREAM}",
            GPU_PCI,
            id="a narrow GPU",
        ),
        pytest.param(
            UPSTREAM,
            {"width": 4},
            "PcieWidthReduced",
            f"x4 of x16 on the link between {UPSTREAM} and the bridge {ROOT}",
            GPU_PCI,
            id="a narrow link above a GPU",
        ),
        pytest.param(
            UPSTREAM,
            {"speed": 80},
            "PcieSpeedReduced",
            f"8 GT/s of 32 GT/s on the link between {UPSTREAM} and the bridge {ROOT}",
            GPU_PCI,
            id="a slow link above a GPU",
        ),
        pytest.param(
            NVSWITCH,
            {"speed": 25},
            "PcieSpeedReduced",
            f"2.5 GT/s of 32 GT/s on the link between {NVSWITCH} and the bridge {PORT}",
            "0000:06:00",
            id="a slow NVSwitch",
        ),
        pytest.param(
            NVSWITCH, {"width": 1}, "PcieWidthReduced", "x1 of x16", "0000:06:00", id="a narrow NVSwitch"
        ),
        pytest.param(
            GPU, {"config_ones": True}, "PcieDeviceUnresponsive", "has left the bus", GPU_PCI, id="all ones"
        ),
        pytest.param(
            GPU,
            {"width": 63, "speed": None},
            "PcieDeviceUnresponsive",
            "link registers read all ones",
            GPU_PCI,
            id="width 63",
        ),
        pytest.param(
            UPSTREAM,
            {"config_ones": True},
            "PcieDeviceUnresponsive",
            f"the bridge {UPSTREAM} above it does not answer",
            GPU_PCI,
            id="a bridge that left",
        ),
        pytest.param(
            DOWNSTREAM,
            {"max_width": 8, "width": 8},
            "PcieSlotLimited",
            f"the bridge {DOWNSTREAM} can do x8, the device x16",
            GPU_PCI,
            id="a slot of eight lanes",
        ),
        pytest.param(
            DOWNSTREAM,
            {"max_speed": 160},
            "PcieSlotLimited",
            "can do 16 GT/s, the device 32 GT/s",
            GPU_PCI,
            id="a slot of an earlier generation",
        ),
    ],
)
def test_each_state_of_the_bus_is_found_and_ends(
    changed: str, changes: dict[str, Any], reason: str, detail: str, pci: str
) -> None:
    """A state that lasts is a finding on that device; a sound look that lasts ends it."""
    seen = watch().waits(240, bus(changed, **changes), told())
    (finding,) = seen.judgement.findings
    assert (finding.reason, finding.part.pci) == (reason, pci)
    assert detail in finding.detail
    assert seen.waits(120, bus(), told()).reasons == []
    assert seen.shown == WELL


def test_a_port_whose_link_is_down_takes_what_is_below_it_along() -> None:
    """Width 0 above, and a device that shows nothing."""
    looks = PciRead(
        seen_at=bus().seen_at,
        devices=(device(PORT, width=0), device(GPU, "gpu", PORT, width=None, speed=None, config_ones=None)),
    )
    seen = watch().waits(120, looks, told())
    assert seen.reasons == ["PcieDeviceUnresponsive"]
    assert f"the link below the bridge {PORT} is down" in seen.message


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        pytest.param({"width": 8}, "PcieWidthReduced", "x8 of x16", id="width"),
        pytest.param({"generation": 1}, "PcieSpeedReduced", "generation 1 of 5", id="generation"),
        pytest.param(
            {"device_max_generation": 6}, "PcieSlotLimited", "generation 5, the device 6", id="slot"
        ),
    ],
)
def test_each_state_that_nvml_tells(changes: dict[str, Any], reason: str, detail: str) -> None:
    """Without sysfs, too: both sources say it."""
    for looked_at in (("pci",), ()):
        seen = watch(looked_at=looked_at).waits(240, bus(), told(**changes))
        (finding,) = seen.judgement.findings
        assert (finding.reason, finding.part.uuid) == (reason, nvml.uuid(0))
        assert detail in finding.detail
        assert seen.waits(120, bus(), told()).reasons == []


@pytest.mark.parametrize(
    "bracket",
    [
        pytest.param({"pstate_before": 8, "pstate_after": 8}, id="asleep"),
        pytest.param({"pstate_before": 8}, id="it woke up meanwhile"),
        pytest.param({"pstate_after": 8}, id="it went to sleep meanwhile"),
        pytest.param({"pstate_after": None}, id="nobody knows"),
    ],
)
def test_the_generation_counts_only_while_the_gpu_is_awake(bracket: dict[str, Any]) -> None:
    """Asleep it neither raises nor ends anything."""
    idle = told(generation=1, **bracket)
    assert watch().waits(600, bus(GPU, speed=25), idle).shown == WELL
    slow = watch().waits(240, bus(), told(generation=3))
    assert slow.waits(600, bus(), told(generation=5, **bracket)).shown == "True PcieSpeedReduced"


@pytest.mark.parametrize(
    ("before", "after", "reason", "detail"),
    [
        pytest.param({}, {"fatal.DLP": 1}, "PcieFatalErrors", f"DLP at {GPU}", id="a fatal error"),
        pytest.param(
            {}, {"nonfatal.CmpltTO": 1}, "PcieNonFatalErrors", f"CmpltTO at {GPU}", id="a non-fatal error"
        ),
        pytest.param({}, {"nonfatal.UnsupReq": 50}, "", "", id="what software should not have asked"),
        pytest.param({}, {"correctable.RxErr": 310}, "", "", id="as many as the link may mend"),
        pytest.param({}, {"correctable.RxErr": 311}, "PcieCorrectableStorm", GPU, id="one more"),
        pytest.param({"fatal.DLP": 9}, {"fatal.DLP": 9}, "", "", id="what was counted before"),
        pytest.param({"fatal.DLP": 9}, {"fatal.DLP": 1}, "PcieFatalErrors", "DLP", id="what began anew"),
        pytest.param({}, {"fatal.NewErr": 1}, "PcieFatalErrors", "NewErr", id="a name that is new"),
    ],
)
def test_errors_of_a_gpu(before: dict[str, int], after: dict[str, int], reason: str, detail: str) -> None:
    """They count by growth, and end when an hour passed without new ones."""
    seen = watch().waits(60, bus(GPU, aer={**QUIET, **before}), told())
    seen.waits(30, bus(GPU, aer={**QUIET, **after}), told())
    assert seen.reasons == ([reason] if reason else [])
    if reason:
        assert detail in seen.judgement.findings[0].detail
        assert GPU in seen.judgement.findings[0].evidence[0]
    seen.waits(3900, bus(GPU, aer={**QUIET, **after}), told())
    assert seen.reasons == []


@pytest.mark.parametrize(
    ("changed", "name", "pci", "detail"),
    [
        pytest.param(
            DOWNSTREAM, "fatal.DLP", GPU_PCI, f"DLP at {DOWNSTREAM}", id="the other end of the link"
        ),
        pytest.param(ROOT, "fatal.TLP", GPU_PCI, f"TLP at {ROOT}", id="a root port far above"),
        pytest.param(
            PORT, "rootport.fatal", "0000:06:00", "the root port's total", id="a root port right above"
        ),
    ],
)
def test_a_partner_may_be_the_one_that_counts(changed: str, name: str, pci: str, detail: str) -> None:
    """The finding is on the device below, and says where it was counted."""
    seen = watch().waits(30, bus(changed, aer={**QUIET, name: 0}), told())
    seen.waits(30, bus(changed, aer={**QUIET, name: 2}), told())
    (finding,) = seen.judgement.findings
    assert (finding.reason, finding.part.pci) == ("PcieFatalErrors", pci)
    assert detail in finding.detail


def test_a_root_port_with_more_below_it_blames_nobody_by_its_total() -> None:
    """The totals of a port above a switch are about all that is below."""
    seen = watch().waits(30, bus(ROOT, aer={"rootport.fatal": 0}), told())
    assert seen.waits(60, bus(ROOT, aer={"rootport.fatal": 5}), told()).reasons == []


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        pytest.param({"replay": 310}, "", id="as many replays as the link may need"),
        pytest.param({"replay": 311}, "PcieReplayStorm", id="one more"),
        pytest.param({"fatal": 1}, "PcieFatalErrors", id="a fatal error"),
        pytest.param({"non_fatal": 1}, "PcieNonFatalErrors", id="a non-fatal error"),
        pytest.param({"unsupported_request": 9, "nak_received": 10**9}, "", id="what is not judged"),
    ],
)
def test_what_nvml_counts(counters: dict[str, int], reason: str) -> None:
    """By growth, too; without counters for an hour it is over."""
    begun = {**AWAKE.counters, **dict.fromkeys(counters, 0)}
    seen = watch().waits(60, bus(), told(counters=begun))
    seen.waits(30, bus(), told(counters={**begun, **counters}))
    assert seen.reasons == ([reason] if reason else [])
    assert seen.waits(3900, bus(), told(counters={**begun, **counters})).reasons == []


@pytest.mark.parametrize(
    ("look", "round_", "why"),
    [
        pytest.param(
            bus(GPU, width=1, max_width=16),
            told(c2c_links=10, generation=1, max_generation=6, width=1),
            "attached by NVLink-C2C",
            id="C2C links",
        ),
        pytest.param(
            bus(GPU, width=1), told(bus_type=0, generation=1, width=1), "attached by NVLink-C2C", id="no PCIe"
        ),
        pytest.param(
            bus(GPU, width=None, max_width=None, aer={}),
            told(),
            "shows no PCIe link width",
            id="no link files",
        ),
        pytest.param(bus(guest=True), told(device_max_generation=6), "", id="a guest's slot"),
        pytest.param(bus(DOWNSTREAM, max_width=1, guest=True), told(), "", id="a guest's bridges"),
        pytest.param(bus(GPU, virtual=True, width=4), told(), "", id="a virtual function"),
        pytest.param(
            bus(), nvml.read(gpu(None, absent=("pcie",))), "does not show its PCIe link", id="an old driver"
        ),
        pytest.param(bus(), told(counters={}), "counts no PCIe replays", id="no replay counter"),
    ],
)
def test_what_is_not_evaluated(look: PciRead, round_: NvmlRead, why: str) -> None:
    """It is listed and blocks nothing."""
    seen = watch().waits(300, look, round_)
    assert seen.shown == WELL
    assert seen.reasons == []
    assert any(why in row for row in seen.rows) or not why


def test_what_is_known_of_c2c_only_later_ends_what_was_suspected() -> None:
    """NVML may speak after sysfs."""
    narrow = bus(GPU, width=1)
    seen = watch().waits(60, narrow)
    assert seen.judgement.not_yet
    assert seen.waits(300, narrow, told(c2c_links=10)).shown == WELL


def test_speeds_in_sysfs_can_be_switched_off() -> None:
    """Where firmware lowers them by load."""
    seen = watch(sysfs_speed=False).waits(300, bus(UPSTREAM, speed=80), told())
    assert (seen.shown, seen.reasons) == (WELL, [])
    assert any("sysfs_speed" in row for row in seen.rows)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        pytest.param((unread(),), "the PCI bus cannot be read: Input/output error", id="sysfs"),
        pytest.param((bus(), nvml.failed()), "NVML cannot be used", id="NVML"),
        pytest.param(
            (bus(GPU, width=None, errors=("current_link_width: Invalid argument",)), told()),
            "current_link_width: Invalid argument",
            id="a file",
        ),
        pytest.param((bus(GPU, width=7), told()), "current_link_width is 7", id="a width that is none"),
        pytest.param(
            (
                bus(),
                nvml.read(gpu(None, errors={"pcie": NvmlRefusal(call="nvmlX", code=999, name="Unknown")})),
            ),
            "its PCIe link: nvmlX gives Unknown (999)",
            id="a call",
        ),
        pytest.param(
            (bus(), nvml.read(gpu(errors={"pcie": NvmlRefusal(call="nvmlX", code=999, name="Unknown")}))),
            "its PCIe link: nvmlX gives Unknown",
            id="one call of several",
        ),
        pytest.param(
            (
                bus(NVSWITCH, speed=None, errors=("current_link_speed: Invalid argument",)),
                told(),
            ),
            "current_link_speed: Invalid argument",
            id="the speed of an NVSwitch",
        ),
    ],
)
def test_what_cannot_be_read_is_unknown_after_three_looks(said: tuple[Observation, ...], says: str) -> None:
    """The other source does not hide it, and it passes with its cause."""
    seen = watch().waits(30, bus(), told())
    assert seen.waits(60, *said).shown == WELL
    assert seen.waits(60, *said).shown == "Unknown PcieUnreadable"
    assert says in seen.message
    assert seen.waits(90, bus(), told()).shown == WELL


def test_sources_that_are_switched_off_say_nothing() -> None:
    """One of them is enough for the class to exist; both off it does not."""
    assert watch(asked=False).waits(240, bus(GPU, width=8)).shown == "True PcieWidthReduced"
    neither = watch(looked_at=(), asked=False).waits(240, bus(GPU, width=8))
    assert (neither.shown, neither.reasons, len(neither.rows)) == ("", [], 2)


def test_both_sources_say_one_thing_once() -> None:
    """The finding is sysfs', which names the bridge, and stands until both say that it is over."""
    seen = watch().waits(240, bus(GPU, width=8), told(width=8))
    (finding,) = seen.judgement.findings
    assert DOWNSTREAM in finding.detail
    assert seen.waits(120, bus(), told(width=8)).reasons == ["PcieWidthReduced"]
    assert seen.waits(120, bus(), told()).reasons == []


@pytest.mark.parametrize(
    ("look", "round_"),
    [
        pytest.param(bus(GPU, width=8), told(), id="from sysfs"),
        pytest.param(bus(), told(generation=3), id="from NVML"),
    ],
)
def test_a_finding_outlives_the_agent_and_not_the_boot(look: PciRead, round_: NvmlRead) -> None:
    """Its memory is JSON; NodeHealth's account is taken up where that was lost, and ends by its own source."""
    seen = watch().waits(240, look, round_)
    held = seen.judgement.memory
    assert msgspec.json.decode(msgspec.json.encode(held), type=PcieMemory) == held
    again = watch()
    assert CHECK.restore is not None
    again.judgement = msgspec.structs.replace(
        again.judgement, memory=CHECK.restore(seen.judgement.findings, None)
    )
    again.hears()
    assert again.reasons == seen.reasons
    assert again.waits(120, bus(), told()).reasons == []
    seen.set(boot_id="another")
    assert seen.hears(bus(), told()).reasons == []


def test_a_repair_deals_with_what_was_counted_before_it() -> None:
    """Else the window would find it again, from either source."""
    sick = (bus(GPU, aer={**QUIET, "fatal.DLP": 1}), told(counters={"replay": 999, "fatal": 1}))
    seen = watch().waits(60, bus(), told()).waits(30, *sick)
    assert seen.reasons == ["PcieFatalErrors", "PcieReplayStorm"]
    assert seen.gpu_is_cleared(0).waits(60, *sick).reasons == []


def test_a_clearing_and_a_single_look() -> None:
    """A clearing ends what stands until it is seen again; `--once` waits for nothing."""
    seen = watch().waits(240, bus(GPU, width=8), told()).is_cleared()
    assert seen.hears().reasons == []
    assert seen.waits(240, bus(GPU, width=8), told()).reasons == ["PcieWidthReduced"]
    assert watch(**CHECK.single_look).hears(bus(GPU, width=8), told()).shown == "True PcieWidthReduced"
