"""RDMA devices that should be there and are not: seen in this boot and gone, or fewer ports than expected. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from checks import infiniband_reasons as reasons
from checks.finding import NODE, Part
from checks.infiniband_expected import Expected
from checks.infiniband_memory import DeviceMemory
from checks.infiniband_ports import device_part, not_shown, part_of, words
from checks.infiniband_reading import InfinibandRead, PciHca
from checks.infiniband_roles import For, Role
from checks.polled import Word

_TAKEN = "RDMA devices belong to one network namespace each here; a pod may have it"


def missing_words(
    read: InfinibandRead,
    roles: Mapping[str, Role],
    known: Mapping[str, DeviceMemory],
    expected: Expected,
    ports: int,
) -> Iterator[Word]:
    """Judge which devices are missing. `known`: those of the compute fabric in this boot; `ports`: how many it has now."""
    for device in read.devices:
        if roles[device.name].what is For.COMPUTE:
            yield words(reasons.HCA_MISSING, part_of(device), "")
    is_enough = expected.ports is not None and ports >= expected.ports
    gone = gone_of(read, known)
    for name, held in gone.items():
        yield _gone(device_part(name, held.pci, held.guid), held, read, excused=is_enough)
    if expected.ports is not None:
        short = expected.ports - ports - sum(held.ports for held in gone.values())
        yield _count(read, expected, ports, short)


def gone_of(read: InfinibandRead, known: Mapping[str, DeviceMemory]) -> dict[str, DeviceMemory]:
    """Give those that are not there, not even under another name."""
    names = {device.name for device in read.devices}
    addresses = {device.pci for device in read.devices if device.pci}
    return {name: held for name, held in known.items() if name not in names and held.pci not in addresses}


def _gone(part: Part, held: DeviceMemory, read: InfinibandRead, *, excused: bool) -> Word:
    on_bus = held.pci in {hca.pci for hca in read.pci_hcas}
    if on_bus and read.exclusive:
        return not_shown(reasons.HCA_MISSING, part, _TAKEN)
    bus = "its PCI device is still there" if on_bus else "so is its PCI device"
    return words(
        reasons.HCA_MISSING, part, "" if excused else f"it was there in this boot and is gone, {bus}"
    )


def _count(read: InfinibandRead, expected: Expected, ports: int, short: int) -> Word:
    without = without_rdma(read)
    if short > 0 and read.exclusive and len(without) >= short:
        return not_shown(reasons.HCA_MISSING, NODE, _TAKEN)
    detail = f"{ports} of {expected.ports} expected ports are here ({expected.ports_source})"
    lines = [f"{hca.pci} is on the PCI bus without an RDMA device" for hca in without]
    return words(reasons.HCA_MISSING, NODE, detail if short > 0 else "", lines[:8])


def without_rdma(read: InfinibandRead) -> Sequence[PciHca]:
    """Give the PCI devices that have no RDMA device and were not handed to a virtual machine."""
    addresses = {device.pci for device in read.devices}
    return [hca for hca in read.pci_hcas if hca.pci not in addresses and not hca.driver.startswith("vfio")]


def without_rdma_words(read: InfinibandRead) -> Iterator[Word]:
    """Judge InfiniBand cards that have no RDMA device; an Ethernet NIC may well be used without one."""
    without = set() if read.exclusive else {hca.pci for hca in without_rdma(read)}
    for hca in read.pci_hcas:
        if hca.infiniband:
            bound = f"the driver {hca.driver} has it" if hca.driver else "no driver has it"
            part = device_part(hca.pci, hca.pci, "")
            yield words(reasons.WITHOUT_RDMA, part, bound if hca.pci in without else "")
