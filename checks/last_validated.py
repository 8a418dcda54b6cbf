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

    `ports` and `rate_mbps` are the compute fabric's, which is no business of `validated`: it keeps what stands there.
    """

    gpus: int
    at: datetime
    pci: tuple[str, ...] = ()
    accepted: datetime | None = None
    ports: int | None = None
    rate_mbps: int | None = None


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
        ports=before.ports if before is not None else None,
        rate_mbps=before.rate_mbps if before is not None else None,
    )
    if before is None or counted.gpus > before.gpus:
        return counted
    void = accepted is not None and accepted != before.accepted and before.at <= accepted
    if counted.gpus == before.gpus:
        return counted if void else msgspec.structs.replace(before, pci=counted.pci)
    return counted if void or (demanded is not None and counted.gpus >= demanded) else before


def is_whole(read: NvmlRead, bus: tuple[str, ...] | None) -> bool:
    """Tell a round in which every GPU answered, and which named those GPUs that the PCI bus shows."""
    answered = {gpu.pci for gpu in read.gpus if _answered(gpu)}
    return read.count == len(answered) > 0 and (bus is None or answered == set(bus))


def _answered(gpu: GpuReading) -> bool:
    troubled = any(meaning(error).gpu is not OnGpu.NOT_SHOWN for error in gpu.errors)
    return bool(gpu.pci) and not gpu.quiet and not troubled
