"""What this machine's parts are: the inventory of sysfs, and over it, by PCI address, what NVML told of each GPU. Pure.

What was learned of a GPU in this boot stays: one call that fails takes no serial number away. A GPU that NVML counts and
sysfs does not show is a part as well.
"""

from collections.abc import Iterable, Mapping

import msgspec

from agent.host.inventory import Gpu, Inventory
from checks.finding import Part, PartKind
from checks.observation import GpuReading, NvmlFailed, NvmlRead, Observation
from kube.nodehealth import PartState


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML has told so far: `gpus` by PCI address; `driver` is empty while NVML cannot say its version."""

    driver: str = ""
    gpus: Mapping[str, GpuReading] = {}


def learn(known: Known, observations: Iterable[Observation]) -> Known:
    """Take what NVML said last."""
    for seen in observations:
        match seen:
            case NvmlRead():
                known = _take(known, seen)
            case NvmlFailed():
                known = msgspec.structs.replace(known, driver="")
            case _:
                pass
    return known


def _take(known: Known, read: NvmlRead) -> Known:
    gpus = dict(known.gpus)
    for gpu in read.gpus:
        if gpu.pci:
            gpus[gpu.pci] = _over(gpu, gpus.get(gpu.pci, gpu))
    return Known(driver=read.driver, gpus=gpus)


def _over(new: GpuReading, held: GpuReading) -> GpuReading:
    """Give what is known of one GPU: the new words, and the old ones where there is no new one."""
    return GpuReading(
        index=new.index,
        pci=new.pci,
        uuid=new.uuid or held.uuid,
        serial=new.serial or held.serial,
        model=new.model or held.model,
        minor=held.minor if new.minor is None else new.minor,
        mig=held.mig if new.mig is None else new.mig,
        mig_devices=held.mig_devices if new.mig is None else new.mig_devices,
        memory_mib=held.memory_mib if new.memory_mib is None else new.memory_mib,
    )


def parts_of(inventory: Inventory, known: Known) -> tuple[PartState, ...]:
    """Give all parts, in PCI order, those that only NVML knows last."""
    shown = {gpu.part.pci for gpu in inventory.gpus}
    return (
        *(_state(gpu, known.gpus.get(gpu.part.pci)) for gpu in inventory.gpus),
        *(_state(None, reading) for pci, reading in sorted(known.gpus.items()) if pci not in shown),
    )


def _state(gpu: Gpu | None, reading: GpuReading | None) -> PartState:
    part = gpu.part if gpu is not None else Part(kind=PartKind.GPU)
    model = gpu.model if gpu is not None else ""
    if reading is None:
        reading = GpuReading(index=part.index or 0, pci=part.pci)
    return PartState(
        kind=part.kind.value,
        pci=reading.pci,
        uuid=reading.uuid or part.uuid,
        index=reading.index,
        serial=reading.serial or part.serial,
        name=part.name,
        model=reading.model or model,
        mig=reading.mig,
        memory_mib=reading.memory_mib,
    )


def identity(state: PartState) -> Part:
    """Give what identifies the part, as checks and findings name it."""
    return Part(
        kind=PartKind(state.kind),
        pci=state.pci,
        uuid=state.uuid,
        index=state.index,
        serial=state.serial,
        name=state.name,
    )
