"""Builders of what sysfs and NVML say of PCIe: a GPU behind a switch, an NVSwitch on a root port, sound but for a change."""

from typing import Any

import msgspec

from checks.gpu_health import GpuHealth, Pcie
from checks.observation import GpuReading, Observation, SourceFailed
from checks.pci_reading import PCI, PciDevice, PciRead
from checks.pcie import CHECK
from tests.checks import nvml
from tests.checks.kernel import at

ROOT, UPSTREAM, DOWNSTREAM = "0000:0e:01.0", "0000:0e:02.0", "0000:0f:00.0"
GPU, GPU_PCI = "0000:10:00.0", nvml.pci(0)
PORT, NVSWITCH = "0000:05:00.0", "0000:06:00.0"
QUIET = {"correctable.RxErr": 0, "fatal.DLP": 0, "nonfatal.CmpltTO": 0, "nonfatal.UnsupReq": 0}
AWAKE = Pcie(
    generation=5,
    width=16,
    max_generation=5,
    max_width=16,
    device_max_generation=5,
    pstate_before=0,
    pstate_after=0,
    bus_type=2,
    c2c_links=0,
    counters={"replay": 0, "fatal": 0, "non_fatal": 0},
)


def device(address: str, role: str = "bridge", parent: str = "", **changes: Any) -> PciDevice:
    sound = PciDevice(
        address=address,
        role=role,
        vendor=0x10DE if role != "bridge" else 0x8086,
        device=0x2330,
        speed=320,
        max_speed=320,
        width=16,
        max_width=16,
        parent=parent,
        aer=QUIET,
        config_ones=False,
    )
    return msgspec.structs.replace(sound, **changes)


SOUND = {
    ROOT: device(ROOT),
    UPSTREAM: device(UPSTREAM, parent=ROOT),
    DOWNSTREAM: device(DOWNSTREAM, parent=UPSTREAM),
    GPU: device(GPU, "gpu", DOWNSTREAM),
    PORT: device(PORT),
    NVSWITCH: device(NVSWITCH, "nvswitch", PORT),
}


def bus(changed: str = "", *, guest: bool = False, **changes: Any) -> PciRead:
    """Build a look at the bus in which one device is another than a sound one."""
    devices = dict(SOUND)
    if changed:
        devices[changed] = msgspec.structs.replace(devices[changed], **changes)
    return PciRead(
        seen_at=at(0), devices=tuple(one for _, one in sorted(devices.items())), virtual_machine=guest
    )


def unread(error: str = "Input/output error", tries: int = 1) -> SourceFailed:
    return SourceFailed(source=PCI, error=error, tries=tries, seen_at=at(0))


def gpu(pcie: Pcie | None = AWAKE, **health: Any) -> GpuReading:
    return msgspec.structs.replace(nvml.gpu(0), health=GpuHealth(pcie=pcie, **health))


def told(**changes: Any) -> Observation:
    """Build a round of NVML of the one GPU."""
    return nvml.read(gpu(msgspec.structs.replace(AWAKE, **changes)))


def watch(*, looked_at: tuple[str, ...] = (PCI,), asked: bool = True, **settings: Any) -> nvml.Watched:
    """Give a machine with one GPU; `asked`: NVML is."""
    return nvml.Watched(CHECK, bus=1, nvml=asked, **settings).set(looked_at=looked_at)
