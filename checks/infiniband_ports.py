"""What the state, rate, link layer and bond of the ports say, each by what its device is for. Pure.

A port of the compute fabric that is down is a fault where it was active in this boot, or where fewer are active than are
expected. One that never was active, where nobody says how many there should be, may be a port that nobody has cabled: not
evaluated. A rate is judged on an active link alone, since a port that is down prints one that looks alive.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from checks import infiniband_reasons as reasons
from checks.finding import NODE, Part, PartKind, Reason
from checks.infiniband_expected import Expected
from checks.infiniband_memory import PortMemory
from checks.infiniband_rate import (
    ACTIVE,
    INIT,
    LINK_UP,
    STATES,
    UNDECODED,
    Rate,
    gbps,
    physical_state_of,
    rate_of,
    state_of,
)
from checks.infiniband_reading import HcaReading, PortReading
from checks.infiniband_roles import For
from checks.polled import Said, Word

DISABLED = 3
FAST_LANE_MBPS = 50_000
"""HDR and faster: the lane speeds that an old kernel has no name for."""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """One port with all that judging it needs. `state` and `physical` are None where they are no known text; `unread` is
    why the state could not be told. `settled`: no look saw it down since the last one at which it was active.
    """

    part: Part
    what: For
    device: HcaReading
    reading: PortReading
    memory: PortMemory
    state: int | None
    physical: int | None
    unread: str = ""
    settled: bool = True

    @property
    def is_active(self) -> bool:
        """Whether it works as far as its state tells; EFA's driver always says so."""
        return not self.unread and self.state == ACTIVE and self.physical in {LINK_UP, None}

    @property
    def rate(self) -> Rate | None:
        """The rate that it works at; None where it is down, or the text is none that is known."""
        return rate_of(self.reading.rate) if self.is_active else None

    @property
    def mbps(self) -> int | None:
        """The rate in Mb/s; an Ethernet interface says it where the kernel has no name for the lane speed."""
        rate = self.rate
        if rate is not None and rate.lane != UNDECODED:
            return rate.mbps
        speeds = [netdev.mbps for netdev in self.device.netdevs if netdev.mbps is not None]
        return speeds[0] if self.is_active and len(speeds) == 1 else rate.mbps if rate is not None else None


def port_of(device: HcaReading, reading: PortReading, what: For, memory: PortMemory) -> Port:
    """Put together what is known of a port."""
    state, physical = state_of(reading.state), physical_state_of(reading.phys_state)
    unread = ""
    for name, text, known in (
        ("state", reading.state, state is not None),
        ("phys_state", reading.phys_state, physical is not None or not reading.phys_state),
    ):
        if name in reading.errors:
            unread = f"{name}: {reading.errors[name]}"
        elif not known:
            unread = f"{name} holds {text[:40]!r}, which is none that is known"
    return Port(
        part=part_of(device, reading.number),
        what=what,
        device=device,
        reading=reading,
        memory=memory,
        state=state,
        physical=physical,
        unread=unread,
    )


def part_of(device: HcaReading, number: int | None = None) -> Part:
    """Name a port, or a whole device where there is no number."""
    return device_part(device.name, device.pci, device.node_guid, number)


def device_part(name: str, pci: str, guid: str, number: int | None = None) -> Part:
    """Name a port or device by its sysfs name, PCI address without function, and node GUID."""
    return Part(
        kind=PartKind.PORT,
        pci=pci.partition(".")[0],
        uuid=guid,
        name=name if number is None else f"{name}/{number}",
    )


def words(reason: Reason, part: Part, bad: str, evidence: Sequence[str] = ()) -> Word:
    """Give a bad word where there is something to say, else a good one."""
    return Word(
        said=Said.BAD if bad else Said.GOOD, reason=reason, part=part, detail=bad, evidence=tuple(evidence)
    )


def not_shown(reason: Reason, part: Part, why: str) -> Word:
    """Give the word that this cannot be shown."""
    return Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why)


def unreadable(reason: Reason, part: Part, why: str) -> Word:
    """Give the word that this could not be read."""
    return Word(said=Said.UNREADABLE, reason=reason, part=part, detail=why)


def compute_state_words(ports: Sequence[Port], expected: Expected) -> Iterator[Word]:
    """Judge the states of all ports of the compute fabric together, EFA left out."""
    down = [port for port in ports if not port.is_active and not port.unread]
    never = [port for port in down if not port.memory.active]
    # One that cannot be read is not proven down.
    short = None if expected.ports is None else expected.ports - (len(ports) - len(down))
    unexplained = 0 if short is None else short - (len(down) - len(never))
    for port in ports:
        yield from _state_words(port, _excuse(port, short, unexplained, len(never)))
    if expected.ports is not None:
        one_of_many = 0 < unexplained < len(never)
        detail = f"fewer than the {expected.ports} expected ports are active ({expected.ports_source})"
        lines = [f"{port.part.name} was never active: {_states(port)}" for port in never]
        yield words(reasons.COUNT_BELOW, NODE, detail if one_of_many else "", lines)


def _excuse(port: Port, short: int | None, unexplained: int, never: int) -> str:
    """Say why it is no fault of this port if it is down, empty where it is one.

    `short`: how many ports fewer than expected are active; `unexplained`: those of them for which no port that was active
    in this boot and is down accounts; `never`: how many are down that never were active.
    """
    if short is not None and short <= 0:
        return "as many ports as expected are active without it"
    if port.memory.active:
        return ""
    if short is None:
        return "it was not active in this boot, and nobody says how many ports should be"
    if unexplained <= 0:
        return "it was not active in this boot, and others that were are down"
    return f"it is one of several that never were active, see {reasons.COUNT_BELOW.name}" * (
        unexplained < never
    )


def _state_words(port: Port, excuse: str) -> Iterator[Word]:
    if port.unread:
        yield unreadable(reasons.PORT_DOWN, port.part, port.unread)
        return
    ill, other = reasons.PORT_DOWN, reasons.NO_SUBNET_MANAGER
    if _has_no_subnet_manager(port):
        ill, other = other, ill
    why = "" if port.is_active else why_down(port)
    is_spare = bool(why and excuse and port.memory.active)
    if why and excuse and not is_spare:
        yield not_shown(ill, port.part, f"{why}; {excuse}")
    else:
        yield words(ill, port.part, "" if is_spare else why, evidence(port) if why else ())
    yield words(other, port.part, "")
    yield words(reasons.SPARE_DOWN, port.part, why if is_spare else "", evidence(port) if why else ())


def other_state_words(port: Port) -> Iterator[Word]:
    """Judge the state of a port outside the compute fabric: a storage rail is to be up, a management port may be empty."""
    reason = reasons.STORAGE_DOWN if port.what is For.STORAGE else reasons.MANAGEMENT_DOWN
    if port.device.is_efa:
        return
    if port.unread and port.what is For.STORAGE:
        yield unreadable(reason, port.part, port.unread)
    elif not port.unread:
        counts = port.what is For.STORAGE or port.memory.active
        yield words(
            reason, port.part, why_down(port) if counts and not port.is_active else "", evidence(port)
        )


def why_down(port: Port) -> str:
    """Say what is wrong with the link, in words that do not change while the link is trained again and again."""
    if _has_no_subnet_manager(port):
        return "its link is up and no subnet manager has configured it"
    if port.physical == DISABLED:
        return "it is disabled"
    if port.physical not in {LINK_UP, None}:
        return "it has no link"
    return f"its state is {STATES[port.state or 0]}"


def _has_no_subnet_manager(port: Port) -> bool:
    is_trained = port.state == INIT and port.physical in {LINK_UP, None}
    return is_trained and port.reading.link_layer == "InfiniBand"


def evidence(port: Port) -> tuple[str, ...]:
    """Give the port's texts as they are, for whoever looks at the finding."""
    reading, device = port.reading, port.device
    lines = (
        _states(port),
        f"rate {reading.rate}" * bool(reading.rate),
        f"link_layer {reading.link_layer}, lid {reading.lid}, sm_lid {reading.sm_lid}" * bool(reading.lid),
        f"{device.hca_type} {device.board_id} {device.firmware} at {device.pci}".strip(),
    )
    return tuple(line for line in lines if line)


def _states(port: Port) -> str:
    return f"state {port.reading.state}, phys_state {port.reading.phys_state}"


def rate_words(port: Port, all_ports: Sequence[Port], expected: int, standing: bool) -> Iterator[Word]:
    """Judge the rate of one port against the expected one; `standing`: one of the two findings about it stands now."""
    below, narrow = reasons.RATE_BELOW, reasons.WIDTH_REDUCED
    rate, mbps = port.rate, port.mbps
    if port.unread:
        return
    if not port.is_active:
        if not standing:  # one that stands goes on: a link that is down proves nothing about its rate
            yield not_shown(below, port.part, "its rate means nothing while it is not active")
            yield not_shown(narrow, port.part, "its rate means nothing while it is not active")
    elif "rate" in port.reading.errors:
        yield unreadable(below, port.part, f"rate: {port.reading.errors['rate']}")
    elif mbps is None:
        yield unreadable(
            below, port.part, f"rate holds {port.reading.rate[:40]!r}, which is none that is known"
        )
    elif rate is not None and mbps == rate.mbps and _is_undecoded(rate, all_ports, expected):
        yield not_shown(below, port.part, UNDECODED_WHY)
        yield not_shown(narrow, port.part, UNDECODED_WHY)
    else:
        fewer = mbps < expected and rate is not None and _lanes_explain(rate, all_ports, expected)
        shown = rate.shown() if rate is not None and rate.mbps == mbps else gbps(mbps)
        why = f"it is active at {shown}; {gbps(expected)} are expected" if mbps < expected else ""
        yield words(narrow, port.part, why if fewer else "", evidence(port) if why else ())
        yield words(below, port.part, "" if fewer else why, evidence(port) if why else ())


UNDECODED_WHY = (
    "the kernel prints the slowest lane speed for every port: it may have no name for the one that they have"
)


def _is_undecoded(rate: Rate, ports: Sequence[Port], expected: int) -> bool:
    """Tell a slowest lane speed that may only be the kernel's word for one that it does not know."""
    if rate.lane != UNDECODED or expected < FAST_LANE_MBPS * rate.lanes:
        return False
    rates = [port.rate for port in ports]
    return all(one is None or one.lane == UNDECODED for one in rates)


def _lanes_explain(rate: Rate, ports: Sequence[Port], expected: int) -> bool:
    """Tell a rate that would do if the port had as many lanes as most have (4X), or as many as any here."""
    lanes = max([4, *(port.rate.lanes for port in ports if port.rate is not None)])
    return rate.lanes < lanes and rate.mbps * lanes >= expected * rate.lanes


def layer_words(port: Port) -> Iterator[Word]:
    """Judge whether the link layer is the one that it was first in this boot."""
    now, first = port.reading.link_layer, port.memory.layer
    if "link_layer" in port.reading.errors:
        yield unreadable(reasons.LAYER_CHANGED, port.part, f"link_layer: {port.reading.errors['link_layer']}")
    elif now and first:
        yield words(reasons.LAYER_CHANGED, port.part, f"it was {first} and is {now}" if now != first else "")


def bond_words(device: HcaReading, what: For, before: Collection[str]) -> Iterator[Word]:
    """Judge the legs of a bonded device, which itself stays ACTIVE on the last one; `before`: its legs in this boot."""
    if device.legs:
        gone = set(before) - {name for name, _ in device.legs} if len(before) > len(device.legs) else set()
        legs = ", ".join(sorted(gone | {name for name, is_up in device.legs if not is_up}))
        reason = reasons.BOND_LEG_DOWN if what is For.COMPUTE else reasons.REDUNDANCY_LOST
        yield words(reason, part_of(device), f"its leg {legs} is down" if legs else "")
