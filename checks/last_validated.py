"""The last validated count: the most GPUs that were counted while every one of them answered. Pure.

It survives restarts and boots, and is what finds the GPU that is missing when a machine comes up again. It never sinks
because a GPU is gone. Only two things lower it: a person who cleared the node (`kubectl-nodemend repaired`, which says that
what is there is what should be there), after which the next whole round counts anew, or a whole round that meets
NodeHealth.spec.expected, which says by number how many there should be. A repair's own clearing lowers nothing.
"""

from datetime import datetime

import msgspec

from checks.nvml_error import OnGpu, meaning
from checks.observation import GpuReading, NvmlRead


class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """`gpus` at the addresses `pci`, first counted so `at`. `accepted` is the newest person's clearing that was acted on.

    `ports` and `rate_mbps` are the compute fabric's, first seen `ports_at`; `ports_accepted` as `accepted`. They are no
    business of `validated`, which keeps what stands there: see `with_fabric`.
    """

    gpus: int
    at: datetime
    pci: tuple[str, ...] = ()
    accepted: datetime | None = None
    ports: int | None = None
    rate_mbps: int | None = None
    ports_at: datetime | None = None
    ports_accepted: datetime | None = None


def validated(
    before: Validated | None,
    read: NvmlRead,
    *,
    bus: tuple[str, ...] | None,
    demanded: int | None,
    accepted: datetime | None,
) -> Validated | None:
    """Give the count after one more round.

    `bus` are the GPUs that sysfs shows (None: not read), `demanded` what NodeHealth.spec.expected asks for, `accepted` when
    a person last cleared the node.
    """
    if not is_whole(read, bus):
        return before
    counted = Validated(
        gpus=read.count,
        at=read.seen_at,
        pci=tuple(sorted(gpu.pci for gpu in read.gpus)),
        accepted=accepted,
    )
    if before is not None:
        fabric = {
            name: getattr(before, name) for name in ("ports", "rate_mbps", "ports_at", "ports_accepted")
        }
        counted = msgspec.structs.replace(counted, **fabric)
    if before is None or counted.gpus > before.gpus:
        return counted
    void = accepted is not None and accepted != before.accepted and before.at <= accepted
    if counted.gpus == before.gpus:
        return counted if void else msgspec.structs.replace(before, pci=counted.pci)
    return counted if void or (demanded is not None and counted.gpus >= demanded) else before


def with_fabric(
    held: Validated, ports: int, rate_mbps: int, at: datetime | None, accepted: datetime | None
) -> Validated:
    """Give what is validated once the compute fabric showed so many ports at this rate (0: not known) while all was well.

    A loss lowers nothing. `at` is when that was seen last, None for never; a person's clearing at `accepted` makes void what
    was seen before it.
    """
    if accepted is not None and accepted != held.ports_accepted:
        is_void = held.ports_at is None or held.ports_at <= accepted
        held = msgspec.structs.replace(held, ports_accepted=accepted)
        if is_void:
            held = msgspec.structs.replace(held, ports=None, rate_mbps=None, ports_at=None)
    if at is None or (accepted is not None and at <= accepted):
        return held
    most = (max(ports, held.ports or 0), max(rate_mbps, held.rate_mbps or 0) or None)
    if most == (held.ports, held.rate_mbps):
        return held
    return msgspec.structs.replace(held, ports=most[0], rate_mbps=most[1], ports_at=at)


def is_whole(read: NvmlRead, bus: tuple[str, ...] | None) -> bool:
    """Tell a round in which every GPU answered, and which named those GPUs that the PCI bus shows."""
    answered = {gpu.pci for gpu in read.gpus if _answered(gpu)}
    return read.count == len(answered) > 0 and (bus is None or answered == set(bus))


def _answered(gpu: GpuReading) -> bool:
    troubled = any(meaning(error).gpu is not OnGpu.NOT_SHOWN for error in gpu.errors)
    return bool(gpu.pci) and not gpu.quiet and not troubled
