"""From what the child said of the GPUs to a reading of all of them: who stands where, and who was left alone. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from agent.nvml_wire import GpuSaid, HealthSaid, LinksSaid, RoundSaid
from checks.finding import Part, PartKind
from checks.gpu_health import GpuHealth, NvLink, NvLinks
from checks.observation import GpuReading, NvmlRead


class Readings:
    """What was read of each GPU in this boot, by PCI address, over what sysfs shows."""

    def __init__(self) -> None:
        self._held: dict[str, GpuReading] = {}
        self._shown: tuple[Part, ...] = ()

    def shown(self, gpus: Sequence[Part]) -> None:
        """Take what sysfs shows: it knows addresses even of GPUs that never answered, in the order of the index."""
        self._shown = tuple(gpus)

    def places(self) -> dict[str, int]:
        """Give the index of each GPU that is known, by PCI address: NVML's own where it was read, else its place."""
        places = {part.pci: part.index or 0 for part in self._shown if part.pci}
        return places | {pci: gpu.index for pci, gpu in self._held.items()}

    def part(self, pci: str) -> Part:
        """Name the GPU at an address as well as can be."""
        held = self._held.get(pci)
        shown = next((part for part in self._shown if part.pci == pci), Part(kind=PartKind.GPU, pci=pci))
        if held is None:
            return shown
        return msgspec.structs.replace(
            shown, uuid=held.uuid or shown.uuid, index=held.index, serial=held.serial or shown.serial
        )

    def at(self, index: int) -> str:
        """Give the PCI address of the GPU with this index, empty where that is not known or not one."""
        found = [pci for pci, place in self.places().items() if place == index]
        return found[0] if len(found) == 1 else ""

    def take(self, said: RoundSaid, quiet: Mapping[str, str], *, child: int, at: datetime) -> NvmlRead:
        """Give the whole round: the answers, and for each GPU that was left alone what was last known of it."""
        named = {gpu.pci for gpu in said.gpus}
        answers = [self._answer(gpu, named) for gpu in said.gpus]
        for gpu in answers:
            if gpu.pci and not gpu.errors:
                self._held[gpu.pci] = msgspec.structs.replace(gpu, health=None)
        silent = [
            self._silent(pci, why) for pci, why in quiet.items() if pci in self.places() and pci not in named
        ]
        return NvmlRead(
            seen_at=at,
            child=child,
            driver=said.driver,
            library=said.library,
            count=said.count,
            gpus=tuple(sorted((*answers, *silent), key=lambda gpu: (gpu.index, gpu.pci))),
        )

    def _answer(self, gpu: GpuSaid, named: set[str]) -> GpuReading:
        pci = gpu.pci or self.at(gpu.index)
        return GpuReading(
            index=gpu.index,
            pci=gpu.pci or ("" if pci in named else pci),
            uuid=gpu.uuid,
            serial=gpu.serial,
            model=gpu.model,
            minor=gpu.minor,
            mig=gpu.mig,
            mig_devices=gpu.mig_devices,
            memory_mib=gpu.memory_mib,
            recovery=gpu.recovery,
            errors=gpu.errors,
            health=health_of(gpu.health) if gpu.health is not None else None,
        )

    def _silent(self, pci: str, why: str) -> GpuReading:
        part, held = self.part(pci), self._held.get(pci)
        return GpuReading(
            index=self.places()[pci],
            pci=pci,
            uuid=part.uuid,
            serial=part.serial,
            model=held.model if held is not None else "",
            minor=held.minor if held is not None else None,
            mig=held.mig if held is not None else None,
            mig_devices=held.mig_devices if held is not None else (),
            memory_mib=held.memory_mib if held is not None else None,
            quiet=why,
        )


def health_of(said: HealthSaid) -> GpuHealth:
    """Give what a GPU said of its health as the checks take it."""
    return GpuHealth(
        remapped=said.remapped,
        retired=said.retired,
        ecc=said.ecc,
        nvlinks=_links(said.nvlinks) if said.nvlinks is not None else None,
        fabric=said.fabric,
        pcie=said.pcie,
        clocks=said.clocks,
        architecture=said.architecture,
        errors=said.errors,
        absent=said.absent,
    )


def _links(said: LinksSaid) -> NvLinks:
    links = tuple(
        NvLink(
            index=index,
            state=link.state,
            mbps=link.mbps,
            counters={
                name: value for name, value in zip(said.names, link.values, strict=False) if value is not None
            },
        )
        for index, link in enumerate(said.links)
    )
    return NvLinks(count=said.count, version=said.version, links=links)
