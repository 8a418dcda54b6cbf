"""What each RDMA device is for: the compute fabric, storage, management, or not looked at. Pure.

What the configuration says of a device decides. Of the others these are taken out of the compute fabric, in this order:

1. virtual functions and sub-functions, and what the configuration excludes;
2. a device whose interface, or whatever stands above it, has the default route, or had it in this boot: a management port
   that goes down loses its route, and must not turn into a compute port for that. The route may also go over IPoIB on a
   compute port: one of InfiniBand is taken out only where as many as expected are left;
3. a bonded device, where there are others: a storage or management NIC with two legs;
4. a device on a NUMA node without a GPU, where enough others are left;
5. a device of another kind than most: of those left, the compute fabric is the largest group of one link layer, type and
   board. Where that group has too few ports for what is expected, boards of the same type with the same number of functions
   on a card count as one kind, since a card that was replaced may carry another board number. A card that is missing is
   thereby never made up for by a storage card of the same make. Of groups that are equally large the one counts that was
   the compute fabric in this boot, then InfiniBand, then the faster one.

A kind is told from what does not change when a link goes down. Facts: NVSentinel leaves out by default route, NUMA node and
virtual function; GPUd's recorded H100 node has eight ConnectX-7 beside a bonded BlueField-3.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from checks.infiniband_rate import ACTIVE, rate_of, state_of
from checks.infiniband_reading import HcaReading, InfinibandRead

_Kind = tuple[str, ...]


class For(StrEnum):
    """What a device is for; the values of the first three are the words of the configuration."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    NOTHING = "nothing"


class Role(msgspec.Struct, frozen=True):
    """`why` says it for people, where the device is not of the compute fabric."""

    what: For
    why: str = ""


def has_default_route(device: HcaReading) -> bool:
    """Tell a device that carries the node's default route now."""
    return any(netdev.default_route for netdev in device.netdevs)


def roles_of(
    read: InfinibandRead,
    routed: Iterable[str],
    layers: Mapping[str, str],
    expected: int | None,
    known: Collection[str] = (),
) -> Mapping[str, Role]:
    """Give the role of every device by name.

    `routed`: those that had the default route in this boot; `layers`: the link layer that each had first; `known`: those
    that were of the compute fabric in this boot.
    """
    roles = {device.name: role for device in read.devices if (role := _told(device)) is not None}
    left = [device for device in read.devices if device.name not in roles]
    said = sum(_ports(device) for device in read.devices if roles.get(device.name, _NO).what is For.COMPUTE)
    wanted = max(1, (expected or 0) - said)
    roles |= _by_route(left, set(routed), layers, None if expected is None else wanted)
    left = [device for device in left if device.name not in roles]
    roles |= _bonded(left)
    left = [device for device in left if device.name not in roles]
    roles |= _far(left, read, wanted)
    left = [device for device in left if device.name not in roles]
    roles |= _of_another_kind(left, read, layers, wanted, known)
    return {device.name: roles.get(device.name, Role(For.COMPUTE)) for device in read.devices}


_NO = Role(For.NOTHING)


def _told(device: HcaReading) -> Role | None:
    if device.left_out:
        return Role(For.NOTHING, device.left_out)
    if device.role in set(For):
        what = For(device.role)
        return Role(what, "" if what is For.COMPUTE else f"the configuration says that it is for {what}")
    return None


def _by_route(
    left: Sequence[HcaReading], once_routed: set[str], layers: Mapping[str, str], wanted: int | None
) -> dict[str, Role]:
    out = [device for device in left if has_default_route(device) or device.name in once_routed]
    if wanted is None or sum(map(_ports, left)) - sum(map(_ports, out)) < wanted:
        out = [device for device in out if _layer(device, layers) != "InfiniBand"]
    return {device.name: Role(For.MANAGEMENT, "it carries the default route") for device in out}


def _bonded(left: Sequence[HcaReading]) -> dict[str, Role]:
    bonded = [device for device in left if device.legs]
    if len(bonded) == len(left):
        return {}
    return {device.name: Role(For.MANAGEMENT, "it is bonded and others are not") for device in bonded}


def _far(left: Sequence[HcaReading], read: InfinibandRead, wanted: int) -> dict[str, Role]:
    near = set(read.gpu_numa)
    far = [d for d in left if near and d.numa is not None and d.numa >= 0 and d.numa not in near]
    if sum(map(_ports, left)) - sum(map(_ports, far)) < wanted:
        return {}
    return {d.name: Role(For.MANAGEMENT, "its NUMA node has no GPU") for d in far}


def _of_another_kind(
    left: Sequence[HcaReading],
    read: InfinibandRead,
    layers: Mapping[str, str],
    wanted: int,
    known: Collection[str],
) -> dict[str, Role]:
    # What could not be read of a device takes nothing away from it.
    left = [device for device in left if not _is_kind_unread(device, layers)]
    if not left:
        return {}
    functions = Counter(
        _card(device) for device in read.devices if not (device.virtual or device.subfunction)
    )
    layer = {d.name: _layer(d, layers) for d in left}
    strict = {d.name: (layer[d.name], d.hca_type, d.board_id) for d in left}
    wide = {d.name: (layer[d.name], d.hca_type, f"{functions[_card(d)]} functions") for d in left}
    kinds = strict
    chosen, ports = _largest(left, strict, known)
    if ports < wanted:
        others, more = _largest(left, wide, known)
        kinds, chosen = (wide, others) if more >= wanted else (strict, chosen)
    why = "it is of another kind than most"
    return {d.name: Role(For.MANAGEMENT, why) for d in left if kinds[d.name] not in chosen}


def _is_kind_unread(device: HcaReading, layers: Mapping[str, str]) -> bool:
    layer_unread = not layers.get(device.name) and any("link_layer" in port.errors for port in device.ports)
    return layer_unread or not device.errors.keys().isdisjoint({"hca_type", "board_id", "ports"})


def _largest(
    left: Sequence[HcaReading], kinds: Mapping[str, _Kind], known: Collection[str]
) -> tuple[list[_Kind], int]:
    """Give the kinds with the most ports, and how many each has; of equal ones the likeliest, all where they are alike."""
    ports: Counter[_Kind] = Counter()
    for device in left:
        ports[kinds[device.name]] += _ports(device)
    most = max(ports.values())
    largest = [kind for kind, count in ports.items() if count == most]
    were = {kinds[device.name] for device in left if device.name in known}
    largest = [kind for kind in largest if kind in were] or largest
    largest = [kind for kind in largest if kind[0] == "InfiniBand"] or largest
    fastest: dict[_Kind, int] = {}
    for device in left:
        fastest[kinds[device.name]] = max(fastest.get(kinds[device.name], 0), _mbps(device))
    best = max(fastest[kind] for kind in largest)
    return [kind for kind in largest if fastest[kind] == best], most


def _mbps(device: HcaReading) -> int:
    """Give the rate of its fastest port that has a link: one that is down prints any."""
    rates = (rate_of(port.rate) for port in device.ports if state_of(port.state) == ACTIVE)
    return max((rate.mbps for rate in rates if rate is not None), default=0)


def _layer(device: HcaReading, layers: Mapping[str, str]) -> str:
    return layers.get(device.name) or (device.ports[0].link_layer if device.ports else "")


def _ports(device: HcaReading) -> int:
    return len(device.ports)


def _card(device: HcaReading) -> str:
    return device.pci.partition(".")[0]
