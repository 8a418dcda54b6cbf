"""NVLinks and fabric: what raises each state, what ends it, and what need not be asked."""

from typing import Any

import msgspec
import pytest

from checks.gpu_health import Fabric
from checks.nvlink import CHECK, NvLinkMemory
from checks.nvlink_words import numbers
from checks.observation import GpuReading, NvmlRead
from checks.pci_reading import PciDevice, PciRead
from tests.checks import nvml
from tests.checks.nvlink import A100_PCIE, B200, DOWN, H100, HEALTHY_MASK, eight, gpu, links, watched


@pytest.mark.parametrize(
    ("sick", "reason", "detail"),
    [
        pytest.param(DOWN, "NvLinkDown", "links 3-4, 7 inactive", id="links that are inactive"),
        pytest.param(
            gpu(0, links([5], state=3)),
            "NvLinkDown",
            "link 5 active with traffic disabled",
            id="a link whose traffic is disabled",
        ),
        pytest.param(
            gpu(0, links(count=17)),
            "NvLinkCountBelowExpected",
            f"17 NVLinks; 18 are expected (all {H100})",
            id="a link that is not there at all",
        ),
        pytest.param(
            gpu(0, links(mbps=13281)),
            "NvLinkSpeedReduced",
            "links 0-17 at 13281 of 26562 MB/s",
            id="links at half their rate",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=1)),
            "FabricNotReady",
            "the registration with the fabric is not started",
            id="a registration that does not start",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=2)),
            "FabricNotReady",
            "the registration with the fabric is in progress",
            id="a registration that does not end",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, status=999)),
            "FabricFailed",
            "the registration with the fabric failed with code 999",
            id="a registration that failed",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x19A)),
            "FabricUnhealthy",
            "a route is unhealthy",
            id="an unhealthy route",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x5AA)),
            "FabricUnhealthy",
            "incorrect configuration: too few NVLinks",
            id="an incorrect configuration",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x9AA)),
            "FabricUnhealthy",
            "incorrect configuration: value 9",
            id="an incorrect configuration that is new to us",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=HEALTHY_MASK, summary=2)),
            "FabricUnhealthy",
            "the summary of its health says unhealthy",
            id="a summary alone",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x1A9, summary=2)),
            "FabricLimited",
            "the bandwidth is degraded",
            id="degraded bandwidth",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=HEALTHY_MASK, summary=3)),
            "FabricLimited",
            "the summary of its health says limited capacity",
            id="limited capacity",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x81AA)),
            "FabricUnmanaged",
            "the fabric manager is disconnected",
            id="a manager that is disconnected",
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x21AA)),
            "FabricUnmanaged",
            "no partition is assigned",
            id="no partition",
        ),
    ],
)
def test_each_state_is_found_and_ends(sick: GpuReading, reason: str, detail: str) -> None:
    """A state that lasts is a finding on that GPU; a sound round that lasts ends it."""
    watch = watched(eight(sick))
    (finding,) = watch.judgement.findings
    assert (finding.reason, finding.detail, finding.part.pci) == (reason, detail, nvml.pci(0))
    watch.waits(120, eight())
    assert watch.shown == "False NvLinksHealthy"
    assert watch.reasons == []


@pytest.mark.parametrize(
    ("sick", "seconds"),
    [
        pytest.param(DOWN, 90, id="a link that went away for a moment"),
        pytest.param(gpu(0, links([0]), Fabric(state=2)), 240, id="a boot"),
    ],
)
def test_what_passes_is_no_finding(sick: GpuReading, seconds: float) -> None:
    """Neither is anything said to be well meanwhile."""
    watch = watched(eight(sick), seconds)
    assert watch.reasons == []
    assert watch.shown == ""
    assert watch.judgement.not_yet
    assert watch.waits(120, eight()).shown == "False NvLinksHealthy"


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(eight(), id="H100"),
        pytest.param(eight(gpu(0, links(range(18), state=2))), id="links that sleep"),
        pytest.param(eight(gpu(0, links(mbps=25000))), id="a rate as it is published"),
        pytest.param(
            eight(model=B200, nvlinks=links(mbps=53125, effective_ber=0xFFF, symbol_ber=0xFEE)),
            id="B200 whose error rates are at their floors",
        ),
        pytest.param(
            eight(
                model="NVIDIA A100-SXM4-80GB",
                nvlinks=links(count=12, mbps=25000),
                fabric=None,
                absent=("fabric",),
            ),
            id="A100, which has no fabric state",
        ),
        pytest.param(eight(model="NVIDIA Z9 HBM9"), id="a model that no table knows"),
    ],
)
def test_sound_machines(read: NvmlRead) -> None:
    """Nothing is found."""
    watch = watched(read)
    assert watch.shown == "False NvLinksHealthy"
    assert watch.reasons == []


@pytest.mark.parametrize(
    ("read", "why"),
    [
        pytest.param(
            eight(nvlinks=links(range(18)), mig=True), "NVLinks read as down while MIG is enabled", id="MIG"
        ),
        pytest.param(
            eight(model=A100_PCIE, nvlinks=links(range(12), count=12), fabric=None, absent=("fabric",)),
            "nothing says that one should be",
            id="PCIe cards without a bridge",
        ),
        pytest.param(
            eight(model="NVIDIA L40S", nvlinks=None, fabric=None, absent=("nvlinks", "fabric")),
            "does not tell its NVLinks",
            id="cards that do not tell of NVLink",
        ),
        pytest.param(
            eight(model="NVIDIA L40S", nvlinks=links(count=0), fabric=Fabric(state=1)),
            "it has no NVLink",
            id="cards that count no NVLink",
        ),
        pytest.param(
            eight(model="NVIDIA GB200", nvlinks=links(mbps=53125), fabric=Fabric(state=1), c2c=10),
            "managed from outside the node",
            id="GB200, where no Fabric Manager runs",
        ),
        pytest.param(eight(fabric=Fabric(state=0)), "belongs to no fabric", id="a GPU of no fabric"),
        pytest.param(
            eight(model="NVIDIA H100 NVL", fabric=Fabric(state=1)), "linked without NVSwitches", id="H100 NVL"
        ),
    ],
)
def test_what_is_not_evaluated(read: NvmlRead, why: str) -> None:
    """It is listed and blocks nothing."""
    watch = watched(read)
    assert watch.shown == "False NvLinksHealthy"
    assert any(why in row for row in watch.rows)
    assert watch.reasons == []


def test_a_gpu_alone_needs_no_links_and_one_whose_peers_are_silent_does() -> None:
    """A partition of one GPU has none; eight GPUs of which seven are left alone is no such partition."""
    alone = gpu(0, links(range(18)), Fabric(state=1))
    watch = watched(nvml.read(alone), bus=1)
    assert (watch.shown, watch.reasons) == ("False NvLinksHealthy", [])
    quiet = [nvml.gpu(number, quiet="XID 119") for number in range(1, 8)]
    watch = watched(nvml.read(gpu(0, links([2])), *quiet))
    assert watch.reasons == ["NvLinkDown"]


def test_an_instance_type_demands_links_even_where_the_gpu_has_none() -> None:
    """A driver that does not say how many there are says nothing against that."""
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    read = eight(gpu(0, links(count=0)))
    assert watched(read, labels=labels).reasons == ["NvLinkCountBelowExpected"]
    assert "instance type p5.48xlarge" in watched(read, labels=labels).message
    assert watched(read).reasons == []
    untold = watched(eight(gpu(0, None, absent=("nvlinks",))), labels=labels)
    assert (untold.shown, untold.reasons) == ("False NvLinksHealthy", [])


@pytest.mark.parametrize(
    ("devices", "is_guest", "reasons"),
    [
        pytest.param((), False, [], id="linked to each other"),
        pytest.param(
            (PciDevice(address="0000:05:00.0", role="nvswitch"),), False, ["FabricNotReady"], id="NVSwitches"
        ),
        pytest.param((), True, ["FabricNotReady"], id="a guest, which sees no NVSwitch"),
    ],
)
def test_a_board_without_nvswitches_has_no_fabric_manager(
    devices: tuple[PciDevice, ...], is_guest: bool, reasons: list[str]
) -> None:
    """Its links are judged all the same."""
    watch = nvml.Watched(CHECK)
    bus = PciRead(seen_at=watch.context.now, devices=devices, virtual_machine=is_guest)
    assert watch.waits(600, bus, eight(fabric=Fabric(state=1))).reasons == reasons


def test_links_that_were_there_are_missed() -> None:
    """Whatever the driver says now that it has none."""
    watch = watched(eight())
    watch.waits(300, eight(gpu(0, links(count=0))))
    assert watch.reasons == ["NvLinkCountBelowExpected"]
    assert watch.waits(120, eight()).shown == "False NvLinksHealthy"
    untold = watch.waits(90, eight(gpu(0, None, absent=("nvlinks",))))
    assert untold.shown == "Unknown NvLinkUnreadable"


def test_a_bridged_card_is_expected_to_keep_the_links_that_it_showed() -> None:
    """Nobody but this GPU itself said that they should be active."""
    plugged: dict[str, Any] = {"model": A100_PCIE, "fabric": None, "absent": ("fabric",)}
    watch = watched(eight(**plugged, nvlinks=links(count=12)))
    assert watch.shown == "False NvLinksHealthy"
    watch.waits(300, eight(gpu(0, links([1], count=12), **plugged), **plugged, nvlinks=links(count=12)))
    assert watch.reasons == ["NvLinkDown"]


@pytest.mark.parametrize(
    ("read", "reason", "says"),
    [
        pytest.param(
            eight(nvlinks=links(range(18))), "NvLinkDown", "all 8 GPUs of this node: links 0-17", id="links"
        ),
        pytest.param(
            eight(fabric=Fabric(state=1)),
            "FabricNotReady",
            "all 8 GPUs of this node: the registration",
            id="fabric",
        ),
        pytest.param(
            eight(nvlinks=links(range(18)), fabric=Fabric(state=1)),
            "FabricNotReady",
            "Fabric Manager",
            id="both",
        ),
    ],
)
def test_what_all_gpus_say_is_said_once(read: NvmlRead, reason: str, says: str) -> None:
    """It is the manager of the fabric, and no eight GPUs."""
    watch = watched(read)
    (finding,) = watch.judgement.findings
    assert (finding.reason, finding.part.kind) == (reason, "node")
    assert says in watch.message
    assert watch.waits(120, eight()).shown == "False NvLinksHealthy"


def test_a_finding_outlives_the_agent_and_not_the_boot() -> None:
    """Its memory is JSON and small; NodeHealth's account is taken up where that was lost."""
    watch = watched(eight(DOWN, nvlinks=links(replay=0, recovery=0, crc_flit=0, crc_data=0)))
    held = watch.judgement.memory
    text = msgspec.json.encode(held)
    assert len(text) < 8192
    assert msgspec.json.decode(text, type=NvLinkMemory) == held
    again = nvml.Watched(CHECK)
    assert CHECK.restore is not None
    again.judgement = msgspec.structs.replace(
        again.judgement, memory=CHECK.restore(watch.judgement.findings, None)
    )
    again.hears()
    assert again.reasons == ["NvLinkDown"]
    watch.set(boot_id="another")
    watch.hears(eight())
    assert watch.reasons == []


def test_a_clearing_ends_it_and_the_same_state_raises_it_again() -> None:
    """As everywhere."""
    watch = watched(eight(DOWN)).is_cleared()
    assert watch.hears().reasons == []
    assert watch.waits(300, eight(DOWN)).reasons == ["NvLinkDown"]


def test_one_look_waits_for_nothing() -> None:
    """`--once` has nobody who comes back."""
    watch = nvml.Watched(CHECK, **CHECK.single_look)
    assert watch.hears(eight(DOWN)).shown == "True NvLinkDown"


def test_link_numbers() -> None:
    """Runs are written as such."""
    assert (numbers([3]), numbers([0, 1, 2, 5])) == ("link 3", "links 0-2, 5")
