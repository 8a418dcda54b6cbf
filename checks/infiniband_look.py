"""One look at the RDMA devices: from a reading and what is remembered of this boot to words, rows and new memory. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from checks import infiniband_reasons as reasons
from checks.check import Context, NotEvaluated
from checks.finding import NODE
from checks.infiniband_counters import HOUR_S, Counted, count_on, counter_words, efa_words, window_s
from checks.infiniband_expected import Expected, expected_ports
from checks.infiniband_links import link_words, links_of
from checks.infiniband_memory import (
    MOST_PORTS,
    DeviceMemory,
    InfinibandMemory,
    PortMemory,
    Shown,
    followed,
    most_legs,
)
from checks.infiniband_missing import gone_of, missing_words, without_rdma_words
from checks.infiniband_ports import (
    Port,
    bond_words,
    compute_state_words,
    layer_words,
    not_shown,
    other_state_words,
    part_of,
    port_of,
    rate_words,
    words,
)
from checks.infiniband_reading import HcaReading, InfinibandRead, PortReading
from checks.infiniband_roles import For, Role, has_default_route, roles_of
from checks.pci_reading import PciRead
from checks.polled import Polled, Said, Word
from checks.rates import Rates

NAME = "infiniband"
NOBODY_SAYS = (
    "nobody says {}: no spec.expected, no known instance type, no validated look of this node, no three peers"
)
EFA_SAYS_NOTHING = (
    "EFA's driver says ACTIVE whatever the link does: its devices are counted and its errors judged"
)
CHOSE_NONE = (
    "its instance type may have RDMA interfaces, and this machine was started without: no rail is looked for"
)
_LAYERS = {"InfiniBand", "Ethernet"}
_RATES = (reasons.RATE_BELOW, reasons.WIDTH_REDUCED)


class Look:
    """Mutable only inside one judgement; hears readings one after another."""

    def __init__(self, polled: Polled, memory: InfinibandMemory, context: Context) -> None:
        self._polled, self._context = polled, context
        is_cleared = polled.is_just_cleared(NODE)
        # As after a boot: what is there now is right, unless somebody expects more.
        self._memory = msgspec.structs.replace(memory, ports={}, devices={}) if is_cleared else memory
        self._settings = context.settings
        clock = polled.clock_ms
        long_ms = max(1, int(context.settings["flap_window_hours"])) * HOUR_S * 1000
        self._counted = Counted(
            Rates(memory.short, clock, window_s(context) * 1000),
            Rates(memory.hour, clock, HOUR_S * 1000),
            Rates(memory.long, clock, long_ms),
            context,
        )
        self._long_ms = long_ms
        self._chose_none = False
        if is_cleared:
            for rates in (self._counted.short, self._counted.hour, self._counted.long):
                rates.calm(lambda _: True)

    def memory(self) -> InfinibandMemory:
        """Give what is to be kept, but for `polled` and `validated`."""
        counted = self._counted
        if self._memory.ports:
            for rates in (counted.short, counted.hour, counted.long):
                rates.keep_only(
                    [key for key in rates.memory() if key.partition(" ")[0] in self._memory.ports]
                )
        return msgspec.structs.replace(
            self._memory, short=counted.short.memory(), hour=counted.hour.memory(), long=counted.long.memory()
        )

    def hear_pci(self, read: PciRead) -> None:
        """Take what the PCI bus says of the links; it is judged with the next look at the devices."""
        self._memory = msgspec.structs.replace(self._memory, links=links_of(read))

    def hear(self, read: InfinibandRead) -> Shown | None:
        """Take one look; give what it showed where every compute port was active in it, as many and as fast as expected."""
        expected = expected_ports(self._context)
        self._chose_none = expected.optional and not (read.devices or read.pci_hcas or self._memory.devices)
        if self._chose_none:
            expected = msgspec.structs.replace(expected, ports=None)
        self._follow(read)
        memory = self._memory
        routed = sorted({*memory.routed, *(d.name for d in read.devices if has_default_route(d))})
        layers = {name.rpartition("/")[0]: port.layer for name, port in memory.ports.items()}
        roles = roles_of(read, routed, layers, expected.ports, memory.devices)
        ports = [
            self._port(device, reading, roles[device.name].what)
            for device in read.devices
            if roles[device.name].what is not For.NOTHING
            for reading in device.ports
        ]
        compute = [port for port in ports if port.what is For.COMPUTE]
        said = [*self._words(read, roles, ports, compute, expected)]
        said += self._stale(said, read, ports, expected)
        self._polled.hear(said, self._rows(read, roles, compute, expected))
        self._remember(read, roles, ports, compute, routed[:MOST_PORTS], expected)
        return _whole(compute, expected, self._context.now)

    def _follow(self, read: InfinibandRead) -> None:
        """Let what is known of a port go with its card; counters begin anew where a name is another card's."""
        self._memory, anew = followed(self._memory, read)
        for rates in (self._counted.short, self._counted.hour, self._counted.long) if anew else ():
            rates.keep_only([key for key in rates.memory() if key.partition("/")[0] not in anew])

    def _port(self, device: HcaReading, reading: PortReading, what: For) -> Port:
        port = port_of(device, reading, what, PortMemory())
        held = self._memory.ports.get(port.part.name) or PortMemory(
            # A finding that was read back says that it was active, where nothing else is remembered.
            active=any(self._polled.stands(r, port.part) for r in (reasons.PORT_DOWN, reasons.SPARE_DOWN))
        )
        memory = self._seen(held, port)
        settled = held.down_at_ms is None and memory.down_at_ms is None
        return msgspec.structs.replace(port, memory=memory, settled=settled)

    def _seen(self, held: PortMemory, port: Port) -> PortMemory:
        layer = port.reading.link_layer
        held = msgspec.structs.replace(held, layer=held.layer or (layer if layer in _LAYERS else ""))
        if port.unread:
            return held
        clock = self._polled.clock_ms
        if not port.is_active:
            down_at_ms = clock if held.down_at_ms is None else held.down_at_ms
            return msgspec.structs.replace(held, down_at_ms=down_at_ms)
        least_ms = int(self._settings["flap_down_seconds"]) * 1000
        was_out = held.active and held.down_at_ms is not None and clock - held.down_at_ms >= least_ms
        return msgspec.structs.replace(
            held, active=True, down_at_ms=None, outages=held.outages + (1 if was_out else 0)
        )

    # Words

    def _words(
        self,
        read: InfinibandRead,
        roles: Mapping[str, Role],
        ports: list[Port],
        compute: list[Port],
        expected: Expected,
    ) -> Iterator[Word]:
        judged = [port for port in compute if not port.device.is_efa]
        yield from compute_state_words(judged, self._without_efa(expected, compute))
        yield from missing_words(read, roles, self._memory.devices, expected, len(compute))
        yield from without_rdma_words(read)
        for port in ports:
            if port.what is not For.COMPUTE:
                yield from other_state_words(port)
            elif port.device.is_efa:
                yield from efa_words(port.reading, port.part, self._counted)
            else:
                yield from self._compute_words(port, judged, expected)
        for device in read.devices:
            what = roles[device.name].what
            if what is not For.NOTHING:
                held = self._memory.devices.get(device.name)
                yield from bond_words(device, what, held.legs if held is not None else ())
            if what is For.COMPUTE:
                yield from link_words(device, self._memory.links)
            if "ports" in device.errors and what in {For.COMPUTE, For.STORAGE}:
                why = f"ports: {device.errors['ports']}"
                yield Word(said=Said.UNREADABLE, reason=reasons.PORT_DOWN, part=part_of(device), detail=why)

    def _without_efa(self, expected: Expected, compute: list[Port]) -> Expected:
        """Leave out of the expected number those whose state says nothing."""
        efa = sum(port.device.is_efa for port in compute)
        if expected.ports is None or not efa:
            return expected
        return msgspec.structs.replace(expected, ports=max(0, expected.ports - efa))

    def _compute_words(self, port: Port, judged: list[Port], expected: Expected) -> Iterator[Word]:
        if expected.rate_mbps is not None:
            is_standing = any(self._polled.stands(reason, port.part) for reason in _RATES)
            yield from rate_words(port, judged, expected.rate_mbps, is_standing)
        yield from layer_words(port)
        settled = port.settled and not self._bounced(port)
        yield from self._flap_words(port)
        yield from counter_words(port.reading, port.part, self._counted, settled=settled)

    def _bounced(self, port: Port) -> bool:
        """Tell a link that was lost and came back since the last look."""
        now, last = (
            port.reading.counters.get("link_downed"),
            self._counted.long.last(f"{port.part.name} link_downed"),
        )
        return now is not None and last is not None and now > last

    def _flap_words(self, port: Port) -> Iterator[Word]:
        name, hour, long = port.part.name, self._counted.hour, self._counted.long
        changes = [netdev.carrier_changes for netdev in port.device.netdevs]
        values = {"outages": port.memory.outages, "link_downed": port.reading.counters.get("link_downed")}
        if len(port.device.ports) == 1 and not port.device.legs:
            values["carrier"] = sum(change for change in changes if change is not None)
        for key, value in values.items():
            if value is not None:
                count_on(long, f"{name} {key}", value)
                count_on(hour, f"{name} {key}", value)
        # An outage changes the carrier twice.
        per_outage = {"outages": 1, "link_downed": 1, "carrier": 2}
        times = max(long.grown(f"{name} {key}", self._long_ms) // most for key, most in per_outage.items())
        lately = any(hour.grown(f"{name} {key}", HOUR_S * 1000) >= most for key, most in per_outage.items())
        often, hours = int(self._settings["flaps"]), self._settings["flap_window_hours"]
        lines = [f"{key} {value}" for key, value in values.items() if value is not None]
        flaps = (
            f"it went down and came back {often} times or more within {hours} hours" if times >= often else ""
        )
        yield words(reasons.FLAPPING, port.part, flaps, lines)
        yield words(
            reasons.LINK_DOWNED, port.part, "it lost its link and got it back" if lately else "", lines
        )

    def _stale(
        self, said: list[Word], read: InfinibandRead, ports: list[Port], expected: Expected
    ) -> Iterator[Word]:
        """Let go of what this look says nothing about any more: another name or role, a file that is gone, no expectation.

        What could not be read now, or is gone itself, keeps what it has; so does the rate of a port that is down.
        """
        if not self._polled.before.slots:
            return
        by_name = {reason.name: reason for reason in reasons.REASONS}
        named = {(word.reason.name, word.part.key()) for word in said}
        silent = {
            *gone_of(read, self._memory.devices),
            *(d.name for d in read.devices if "ports" in d.errors),
        }
        silent |= {port.part.name for port in ports if port.unread}
        down = {port.part.name for port in ports if not port.is_active and expected.rate_mbps is not None}
        for slot in self._polled.before.slots.values():
            reason, name = by_name.get(slot.reason), slot.part.name
            if reason is None or (slot.reason, slot.part.key()) in named:
                continue
            is_kept = not silent.isdisjoint({name, name.partition("/")[0]})
            if not (is_kept or (name in down and reason in _RATES)):
                yield not_shown(reason, slot.part, "it is not shown any more")

    # What is not evaluated

    def _rows(
        self, read: InfinibandRead, roles: Mapping[str, Role], compute: list[Port], expected: Expected
    ) -> list[NotEvaluated]:
        rows = {
            (NODE.shown(), f"an RDMA device is left out: {d.left_out}") for d in read.devices if d.left_out
        }
        rows |= {
            (part_of(device).shown(), f"not of the compute fabric: {roles[device.name].why}")
            for device in read.devices
            if roles[device.name].what in {For.MANAGEMENT, For.STORAGE} and roles[device.name].why
        }
        if self._chose_none:
            rows.add((NODE.shown(), CHOSE_NONE))
        if compute and expected.ports is None:
            rows.add((NODE.shown(), NOBODY_SAYS.format("how many ports should be active")))
        if any(not port.device.is_efa for port in compute) and expected.rate_mbps is None:
            rows.add((NODE.shown(), NOBODY_SAYS.format("which rate the ports should have")))
        if any(port.device.is_efa for port in compute):
            rows.add((NODE.shown(), EFA_SAYS_NOTHING))
        return [NotEvaluated(check=NAME, part=part, why=why) for part, why in sorted(rows)]

    # Memory

    def _remember(
        self,
        read: InfinibandRead,
        roles: Mapping[str, Role],
        ports: list[Port],
        compute: list[Port],
        routed: list[str],
        expected: Expected,
    ) -> None:
        memory = self._memory
        gone = gone_of(read, memory.devices)
        if expected.ports is not None and len(compute) >= expected.ports:
            gone = {}  # nobody misses them
        here = {
            device.name: DeviceMemory(
                pci=device.pci,
                guid=device.node_guid,
                ports=len(device.ports),
                legs=most_legs(device, memory.devices.get(device.name)),
            )
            for device in read.devices
            if device.ports and roles[device.name].what is For.COMPUTE
        }
        devices = dict([*here.items(), *gone.items()][:MOST_PORTS])
        known = {port.part.name: port.memory for port in ports}
        away = {name: held for name, held in memory.ports.items() if name not in known}
        active = [port for port in compute if port.is_active]
        rates = Counter(port.mbps for port in active if port.mbps and not port.device.is_efa)
        rate = max(rates, key=lambda mbps: (rates[mbps], mbps), default=0)
        shown = Shown(active=len(active), rate_mbps=rate, at=self._context.now)
        same = memory.shown is not None and (memory.shown.active, memory.shown.rate_mbps) == (
            len(active),
            rate,
        )
        self._memory = msgspec.structs.replace(
            memory,
            ports=dict([*known.items(), *away.items()][:MOST_PORTS]),
            devices=devices,
            routed=tuple(routed),
            shown=memory.shown if same else shown,
            wanted=bool(expected.ports),
            here=bool(devices) or any(port.what is For.STORAGE for port in ports),
        )


def _whole(compute: list[Port], expected: Expected, now: datetime) -> Shown | None:
    active = [port for port in compute if port.is_active]
    if not active or any(port.unread for port in compute):
        return None
    if len(active) < (len(compute) if expected.ports is None else expected.ports):
        return None
    rates = [port.mbps or 0 for port in active if not port.device.is_efa]
    lowest = min(rates, default=0)
    if rates and lowest < (expected.rate_mbps or 1):
        return None
    return Shown(active=len(active), rate_mbps=lowest, at=now)
