"""What NVML's fabric information means: the registration of a GPU with its fabric manager, and its health mask. Pure.

The mask is no set of flags: each field of two bits is 0 (not supported), 1 (true, which is bad) or 2 (false, which is good),
and bits 8-11 hold one value, of which 1 is the good one (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*). A sound GPU therefore shows
a mask such as 0x1aa; taking every mask that is not zero for a fault is a known mistake of other tools.

**Not started** is normal where no Fabric Manager runs on the node: with a link by C2C (GB200, GB300: NVLink's manager is on
the switch trays), on a card without NVLink or bridged by hand (PCIe, NVL), on a board of four GPUs that are linked to each
other without NVSwitches, and for a GPU alone. Elsewhere from Hopper on, CUDA does not start before registration is complete
(error 802), so that is a node that can do nothing.
"""

from collections.abc import Iterator

from checks.finding import Part, Reason
from checks.gpu_health import Fabric, GpuHealth
from checks.nvlink_reasons import (
    FABRIC_FAILED,
    FABRIC_LIMITED,
    FABRIC_NOT_READY,
    FABRIC_REASONS,
    FABRIC_UNHEALTHY,
    FABRIC_UNMANAGED,
)
from checks.nvml_look import group_missing
from checks.observation import GpuReading
from checks.polled import Said, Word

HOPPER = 9  # NVML_DEVICE_ARCH_HOPPER
NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = range(4)
STATES = {NOT_STARTED: "not started", IN_PROGRESS: "in progress"}
SUMMARY_UNHEALTHY, SUMMARY_LIMITED = 2, 3
TRUE, FALSE = 1, 2

DEGRADED_BANDWIDTH, PARTITION_ASSIGNED, MANAGER_LINK = 0, 12, 14
UNHEALTHY = {
    2: "a route is being recovered",
    4: "a route is unhealthy",
    6: "an access timed out and is recovered",
}
CONFIGURATION, CONFIGURATION_NONE = 8, 1
CONFIGURATIONS = {
    2: "wrong system GUID",
    3: "wrong serial number of the chassis",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible firmware of the GPU",
    7: "invalid location",
    8: "invalid state of the GPU",
}


def has_no_manager(gpu: GpuReading, health: GpuHealth, *, alone: bool, switchless: bool) -> str:
    """Say why no Fabric Manager on this node has to know this GPU; empty where one has to.

    `switchless`: this is no virtual machine and no NVSwitch is on its bus. Those of Blackwell never are.
    """
    links = health.nvlinks
    c2c = health.pcie.c2c_links if health.pcie is not None else None
    if c2c or any(word in gpu.model for word in ("GB200", "GB300", "GH200")):
        return "its fabric is managed from outside the node (C2C), so a registration that has not started says nothing"
    if "nvlinks" in health.absent or (links is not None and links.count == 0):
        return "it has no NVLink, so it need not register with a fabric"
    if "PCIE" in gpu.model.upper() or gpu.model.endswith(" NVL"):
        return "cards of this model are linked without NVSwitches, so they register with no fabric"
    if switchless and health.architecture == HOPPER:
        return "no NVSwitch is on the bus of this machine, so its GPUs are linked to each other directly"
    return "a GPU alone on its node need not register with a fabric" if alone else ""


def is_starting(health: GpuHealth) -> bool:
    """Tell a GPU whose registration has not come to an end: its links may not be trained yet."""
    return health.fabric is not None and health.fabric.state in STATES


def fabric_words(health: GpuHealth, part: Part, no_manager: str) -> Iterator[Word]:
    """Say of a GPU how it stands with its fabric; `no_manager` is what `has_no_manager` says."""
    fabric = health.fabric
    if fabric is None:
        missing = group_missing(
            health, "fabric", FABRIC_NOT_READY, part, "the state of its fabric", always_asked=True
        )
        yield from _not_shown(part, missing.detail) if missing.said is Said.NOT_SHOWN else [missing]
    elif fabric.state == NOT_SUPPORTED:
        yield from _not_shown(part, "this GPU belongs to no fabric")
    elif fabric.state == NOT_STARTED and no_manager:
        yield from _not_shown(part, no_manager)
    elif fabric.state in STATES:
        word = f"the registration with the fabric is {STATES[fabric.state]}"
        yield _bad(FABRIC_NOT_READY, part, word, fabric)
    elif fabric.state != COMPLETED:
        word = f"the state of its fabric is {fabric.state}, which has no meaning here"
        yield Word(said=Said.UNREADABLE, reason=FABRIC_NOT_READY, part=part, detail=word)
    else:
        yield Word(said=Said.GOOD, reason=FABRIC_NOT_READY, part=part)
        yield from _registered(fabric, part)


def _registered(fabric: Fabric, part: Part) -> Iterator[Word]:
    if fabric.status != 0:
        word = f"the registration with the fabric failed with code {fabric.status}"
        yield _bad(FABRIC_FAILED, part, word, fabric)
        return
    yield Word(said=Said.GOOD, reason=FABRIC_FAILED, part=part)
    odd = _odd(fabric.mask)
    if odd:
        yield Word(said=Said.UNREADABLE, reason=FABRIC_UNHEALTHY, part=part, detail=odd)
    for reason, words in (
        (FABRIC_UNHEALTHY, _unhealthy(fabric)),
        (FABRIC_LIMITED, _limited(fabric)),
        (FABRIC_UNMANAGED, _unmanaged(fabric)),
    ):
        if words:
            yield _bad(reason, part, "; ".join(words), fabric)
        elif not (odd and reason is FABRIC_UNHEALTHY):
            yield Word(said=Said.GOOD, reason=reason, part=part)


def _unhealthy(fabric: Fabric) -> list[str]:
    words = [what for shift, what in UNHEALTHY.items() if _field(fabric.mask, shift) == TRUE]
    configuration = fabric.mask >> CONFIGURATION & 0xF
    if configuration > CONFIGURATION_NONE:
        what = CONFIGURATIONS.get(configuration, f"value {configuration}")
        words.append(f"incorrect configuration: {what}")
    if not words and fabric.summary == SUMMARY_UNHEALTHY and not _limited(fabric):
        words.append("the summary of its health says unhealthy")
    return words


def _limited(fabric: Fabric) -> list[str]:
    words = []
    if _field(fabric.mask, DEGRADED_BANDWIDTH) == TRUE:
        words.append("the bandwidth is degraded")
    if fabric.summary == SUMMARY_LIMITED:
        words.append("the summary of its health says limited capacity")
    return words


def _unmanaged(fabric: Fabric) -> list[str]:
    words = []
    if _field(fabric.mask, PARTITION_ASSIGNED) == FALSE:
        words.append("no partition is assigned")
    if _field(fabric.mask, MANAGER_LINK) == FALSE:
        words.append("the fabric manager is disconnected")
    return words


def _odd(mask: int) -> str:
    fields = [DEGRADED_BANDWIDTH, *UNHEALTHY]
    odd = [shift for shift in fields if _field(mask, shift) == TRUE | FALSE]
    return (
        f"bits {odd[0]} and {odd[0] + 1} of the fabric's health mask hold 3, which has no meaning"
        if odd
        else ""
    )


def _field(mask: int, shift: int) -> int:
    return mask >> shift & 3


def _not_shown(part: Part, why: str) -> list[Word]:
    return [Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why) for reason in FABRIC_REASONS]


def _bad(reason: Reason, part: Part, detail: str, fabric: Fabric) -> Word:
    evidence = f"state {fabric.state} status {fabric.status} mask {fabric.mask:#x} summary {fabric.summary}"
    return Word(said=Said.BAD, reason=reason, part=part, detail=detail, evidence=(evidence,))
