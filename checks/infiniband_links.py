"""The PCIe links of the RDMA devices of the compute fabric, as the looks at the PCI bus tell them. Pure."""

from collections.abc import Iterator, Mapping

from checks import infiniband_reasons as reasons
from checks.infiniband_ports import part_of
from checks.infiniband_reading import HcaReading
from checks.pci_reading import PciRead
from checks.pcie_link import by_address, chain_of, link_state, why_degraded
from checks.polled import Said, Word

VIRTUAL = "it is a virtual machine, which does not see the card's slot"


def links_of(read: PciRead) -> dict[str, tuple[Said, str]]:
    """Give what kind of word there is about the link of each card, and the word, by address."""
    devices = by_address(read)
    links: dict[str, tuple[Said, str]] = {}
    for address, device in devices.items():
        if device.role != "hca" or device.virtual:
            continue
        chain = chain_of(device, devices, read)
        link, why = link_state(device, chain), why_degraded(device, chain)
        if read.virtual_machine:
            links[address] = (Said.NOT_SHOWN, VIRTUAL)
        elif why:
            links[address] = (Said.BAD, why)
        elif link.unread:
            links[address] = (Said.UNREADABLE, link.unread)
        else:
            links[address] = (Said.NOT_SHOWN, link.not_shown) if link.not_shown else (Said.GOOD, "")
    return links


def link_words(device: HcaReading, links: Mapping[str, tuple[Said, str]]) -> Iterator[Word]:
    """Give the word about the link of a device of the compute fabric; none where the bus was not looked at."""
    link = links.get(device.pci)
    if link is not None:
        yield Word(said=link[0], reason=reasons.HCA_PCIE, part=part_of(device), detail=link[1])
