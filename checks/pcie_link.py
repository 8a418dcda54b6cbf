"""Why a PCIe link is worse than it could be, told from sysfs of the device and of the bridges above it. Pure.

A link has two ends, and each shows the same current speed and width. What it could be is the lesser of what both ends can:
a card that can do more than its slot is limited by the slot, and that is no fault of the link (`limited`).

Above the own link of a device there may be more: a switch's upstream port has a link to the port above it, and so on to the
root port. A PCIe switch shows two bridges for each level (downstream and upstream port, PCI Express Base Specification,
"Switch"), between which there is no link, so the bridges above a device are, from below: the other end of its own link, then
pairs of ends. A narrow link up there slows all devices below it, although each of them trained well; it is named.

Values that are no link: width 63 is a register that reads all ones, which is a device that does not answer; width 0 and an
unknown speed are a link that is not trained, or a device that has none.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from checks.pci_reading import PciDevice, PciRead

ALL_ONES_WIDTH = 63
WIDTHS = (1, 2, 4, 8, 12, 16, 32)  # all that the specification has
MOST_ABOVE = 16


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with the way to one device, each empty where nothing is: words without live values but the link's own.

    `slow` is about the own link, `slow_above` about links above. `unread`: a file that is there gave no value that can be
    judged. `not_shown`: this device says nothing of a link.
    """

    unresponsive: str = ""
    narrow: str = ""
    slow: str = ""
    narrow_above: str = ""
    slow_above: str = ""
    limited: str = ""
    unread: str = ""
    not_shown: str = ""


def by_address(read: PciRead) -> dict[str, PciDevice]:
    """Give the devices of a look by their address."""
    return {device.address: device for device in read.devices}


def chain_of(device: PciDevice, devices: Mapping[str, PciDevice], read: PciRead) -> tuple[PciDevice, ...]:
    """Give the bridges above a device, the nearest first; none in a virtual machine, whose bridges are made up."""
    above: list[PciDevice] = []
    held: PciDevice | None = device
    while not read.virtual_machine and held is not None and held.parent and len(above) < MOST_ABOVE:
        held = devices.get(held.parent)
        if held is not None and held not in above:
            above.append(held)
        else:
            break
    return tuple(above)


def why_degraded(device: PciDevice, chain: Sequence[PciDevice]) -> str:
    """Say what is wrong with the PCIe link of a device that never lowers its speed by itself (HCA, NVSwitch); empty if well.

    What could not be read is no fault: see `link_state` for that.
    """
    link = link_state(device, chain)
    words = (link.unresponsive, link.narrow, link.slow, link.narrow_above, link.slow_above)
    return "; ".join(word for word in words if word)


def link_state(device: PciDevice, chain: Sequence[PciDevice]) -> LinkState:
    """Judge the way to a device; `chain` are the bridges above it, the nearest first, as `chain_of` gives them."""
    if why := _why_unresponsive(device, chain):
        return LinkState(unresponsive=why)
    port = chain[0] if chain else None
    unread, not_shown = _why_no_width(device)
    above = tuple(_links_above(chain))
    return LinkState(
        narrow="" if unread or not_shown else _narrow(device, port),
        slow=_slow(device, port),
        narrow_above="; ".join(word for lower, upper in above if (word := _narrow(lower, upper))),
        slow_above="; ".join(word for lower, upper in above if (word := _slow(lower, upper))),
        limited=_limited(device, port),
        unread=unread,
        not_shown=not_shown,
    )


def generation(speed: int | None) -> int | None:
    """Give the PCIe generation of a speed in tenths of GT/s, None for what is none."""
    return {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6, 1280: 7}.get(speed or 0)


def _why_unresponsive(device: PciDevice, chain: Sequence[PciDevice]) -> str:
    if device.config_ones:
        return _beside("its config space reads all ones, so it has left the bus", device)
    if device.width == ALL_ONES_WIDTH:
        return _beside("its link registers read all ones, so it does not answer", device)
    for bridge in chain:
        if bridge.config_ones or bridge.width == ALL_ONES_WIDTH:
            return f"the bridge {_named(bridge)} above it does not answer"
    port = chain[0] if chain else None
    if port is not None and port.width == 0 and device.config_ones is None and device.width in {0, None}:
        return f"the link below the bridge {_named(port)} is down"
    return ""


def _why_no_width(device: PciDevice) -> tuple[str, str]:
    """Say why the width cannot be judged: unread, or not shown."""
    if device.width is None and device.errors:
        return device.errors[0], ""
    if device.width is None or device.width == 0:
        return "", "this device shows no PCIe link width"
    if device.width not in WIDTHS:
        return f"current_link_width is {device.width}, which is no width of a PCIe link", ""
    if device.max_width not in WIDTHS:
        return "", "this device does not show how wide its PCIe link could be"
    return "", ""


def _links_above(chain: Sequence[PciDevice]) -> Iterator[tuple[PciDevice, PciDevice]]:
    """Give the links above the own one, as (lower end, upper end); none where the bridges are no whole levels."""
    if len(chain) % 2 == 1:
        yield from zip(chain[1::2], chain[2::2], strict=True)


def _narrow(device: PciDevice, port: PciDevice | None) -> str:
    could = [end.max_width for end in (device, port) if end is not None and end.max_width in WIDTHS]
    best = min(could, default=0)
    if device.width not in WIDTHS or device.width >= best:
        return ""
    return f"x{device.width} of x{best} on the link {_ends(device, port)}"


def _slow(device: PciDevice, port: PciDevice | None) -> str:
    could = [end.max_speed for end in (device, port) if end is not None and end.max_speed]
    best = min(could, default=0)
    if not device.speed or device.speed >= best:
        return ""
    return f"{_gts(device.speed)} of {_gts(best)} on the link {_ends(device, port)}"


def _limited(device: PciDevice, port: PciDevice | None) -> str:
    if port is None:
        return ""
    words = []
    if port.max_width in WIDTHS and device.max_width in WIDTHS and port.max_width < device.max_width:
        words.append(f"x{port.max_width}, the device x{device.max_width}")
    if port.max_speed and device.max_speed and port.max_speed < device.max_speed:
        words.append(f"{_gts(port.max_speed)}, the device {_gts(device.max_speed)}")
    return f"the bridge {_named(port)} can do {' and '.join(words)}" if words else ""


def _ends(device: PciDevice, port: PciDevice | None) -> str:
    if port is None:
        return f"of {_named(device)}"
    return f"between {_named(device)} and the bridge {_named(port)}"


def _named(device: PciDevice) -> str:
    return f"{device.address} in slot {device.slot}" if device.slot else device.address


def _beside(words: str, device: PciDevice) -> str:
    return f"{words} ({_named(device)})"


def _gts(tenths: int) -> str:
    """Write tenths of GT/s as `32 GT/s` or `2.5 GT/s`."""
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth} GT/s" if tenth else f"{whole} GT/s"
