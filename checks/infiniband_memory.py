"""What the check of the RDMA ports keeps between looks and over restarts of the agent; all of it belongs to one boot."""

from datetime import datetime

import msgspec

from checks.infiniband_reading import HcaReading, InfinibandRead
from checks.polled import PolledMemory, Said
from checks.rates import Series

MOST_PORTS = 128
"""More than any machine holds; AWS p5 has 32 EFA devices, and virtual functions are not read."""


class PortMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One port. `active`: it was so at some look of this boot. `layer`: its first link layer. `down_at_ms`: when it was
    first seen down, by the watched time, where it is down now. `outages`: how often it was seen down for long and then
    active.
    """

    active: bool = False
    layer: str = ""
    down_at_ms: int | None = None
    outages: int = 0


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the compute fabric that was seen in this boot; `legs` are the most that its bond had."""

    pci: str = ""
    guid: str = ""
    ports: int = 1
    legs: tuple[str, ...] = ()


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the compute fabric showed since `at`: active ports, and the rate that most of them have (0: not known)."""

    active: int
    rate_mbps: int
    at: datetime


class InfinibandMemory(msgspec.Struct, frozen=True, kw_only=True):
    """`short`, `hour` and `long` are counters by `<port> <counter>`, for windows of minutes, an hour and half a day.

    `shown` is what stands now; `validated` what stood when all was well the last time and as many as expected were there.
    `links` is what the newest look at the PCI bus said of each device's link, by address: what kind of word, and the word.
    `wanted`: whether somebody expects ports here; None before the first look.
    `here`: the node has, or had in this boot, a port of the compute fabric or of a storage rail.
    """

    polled: PolledMemory = PolledMemory()
    short: dict[str, Series] = {}
    hour: dict[str, Series] = {}
    long: dict[str, Series] = {}
    ports: dict[str, PortMemory] = {}
    devices: dict[str, DeviceMemory] = {}
    routed: tuple[str, ...] = ()
    links: dict[str, tuple[Said, str]] = {}
    here: bool = False
    wanted: bool | None = None
    shown: Shown | None = None
    validated: Shown | None = None


def followed(memory: InfinibandMemory, read: InfinibandRead) -> tuple[InfinibandMemory, set[str]]:
    """Let what is known of each port go with its card, and give the names whose counters are to begin anew.

    A driver that is loaded anew may give the names anew: `mlx5_3` is another card then, with counters of its own.
    """
    now = {device.name: device.pci for device in read.devices if device.pci}
    names = {pci: name for name, pci in now.items()}
    known = {name: held.pci for name, held in memory.devices.items() if held.pci}
    other = {name for name, pci in known.items() if now.get(name, pci) != pci}
    moved = {old: names[pci] for old, pci in known.items() if pci in names and now.get(old) != pci}
    if not other and not moved:
        return memory, set()
    ports: dict[str, PortMemory] = {}
    for part, held in memory.ports.items():
        name, _, number = part.rpartition("/")
        if name in moved or name not in other:
            ports[f"{moved.get(name, name)}/{number}"] = held
    return msgspec.structs.replace(memory, ports=ports), {*other, *moved, *moved.values()}


def most_legs(device: HcaReading, held: DeviceMemory | None) -> tuple[str, ...]:
    """Give the legs of a device's bond, or those that it had where it has fewer now."""
    legs = tuple(name for name, _ in device.legs)
    same = held is not None and held.pci == device.pci
    return held.legs if held is not None and same and len(held.legs) > len(legs) else legs
