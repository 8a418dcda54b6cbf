"""What sysfs says of the PCIe links of GPUs and NVSwitches, and of the bridges above them, as words. Pure.

A GPU lowers the speed of its own link while it idles, so sysfs says nothing of that: NVML is asked with the performance
state beside it (`checks.pcie_nvml`). Links above it, and those of NVSwitches, do not.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from checks.finding import Part, PartKind, Reason
from checks.growth import Growth
from checks.pci_reading import PciDevice, PciRead
from checks.pcie_limits import most_errors
from checks.pcie_link import WIDTHS, LinkState, by_address, chain_of, generation, link_state
from checks.pcie_reasons import (
    CORRECTABLE_STORM,
    FATAL_ERRORS,
    NON_FATAL_ERRORS,
    SLOT_LIMITED,
    SPEED_REDUCED,
    UNRESPONSIVE,
    WIDTH_REDUCED,
)
from checks.polled import Said, Word
from checks.rates import Rates

# GH200, GB200 and GB300: on their processor by C2C, whatever their PCIe registers show (pci.ids of the PCI ID project).
C2C_DEVICES = {0x2342, 0x2345, 0x2348, 0x2941, 0x31C2}
C2C = "it is attached by NVLink-C2C, so its PCIe link says nothing"
NOT_JUDGED = "link speeds in sysfs are not judged here (sysfs_speed = false)"
# What software asked for in vain, and no trouble of a link.
BY_SOFTWARE = {"UnsupReq", "ACSViol", "Unsupported Request", "Access Control Violation"}
GROUPS = ("correctable", "fatal", "nonfatal", "rootport")
MOST_EVIDENCE = 6


class BusLook:
    """The words of one look after another; counters are counted once each, wherever they matter."""

    def __init__(
        self,
        known: Mapping[str, Part],
        c2c: Sequence[str],
        growth: Growth,
        rates: Rates,
        settings: Mapping[str, Any],
    ) -> None:
        self._known = known
        self._c2c = c2c
        self._growth = growth
        self._rates = rates
        self._settings = settings
        self._grew: dict[str, dict[str, int]] = {}

    def words(self, read: PciRead) -> list[Word]:
        """Give what a look says of every GPU and NVSwitch."""
        devices = by_address(read)
        self._grew = {}
        words: list[Word] = []
        for device in read.devices:
            if device.role in {"gpu", "nvswitch"} and not device.virtual:
                chain = chain_of(device, devices, read)
                for one in (device, *chain):
                    if one.address not in self._grew:
                        self._grew[one.address] = self._growth_of(one)
                limited = _beside(device, read) if read.virtual_machine else device
                for word in self._of(limited, chain):
                    is_hidden = limited is not device and word.reason is WIDTH_REDUCED
                    words.append(slot_hidden(word) if is_hidden else word)
        return words

    def _growth_of(self, device: PciDevice) -> dict[str, int]:
        """Take a device's counters, and give by how much those grew within the window that did."""
        names = tuple(device.aer)
        if self._growth.is_calm(device.address) and not any(device.aer.values()):  # nearly all, nearly always
            for whole in {whole for _, whole in _wholes(names)}:
                self._growth.all_at_zero(f"{device.address} {whole}")
            return {}
        groups: dict[str, dict[str, int]] = {}
        for name, whole in _wholes(names):
            groups.setdefault(whole, {})[f"{device.address} {name}"] = device.aer[name]
        grew: dict[str, int] = {}
        window_ms = 1000 * self._settings["window_seconds"]
        for whole, values in groups.items():
            self._growth.count_all(f"{device.address} {whole}", values)
            for key in values:
                if grown := self._rates.grown(key, window_ms):
                    grew[key.partition(" ")[2]] = grown
        return grew

    def _of(self, device: PciDevice, chain: Sequence[PciDevice]) -> Iterator[Word]:
        part = self._part(device)
        link = link_state(device, chain)
        yield self._answers(device, link, part)
        if link.unresponsive:
            return
        if device.role == "gpu" and (part.pci in self._c2c or device.device in C2C_DEVICES):
            for reason in (WIDTH_REDUCED, SPEED_REDUCED, SLOT_LIMITED):
                yield Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=C2C)
        else:
            yield _width(link, part)
            yield self._speed(device, link, part)
            yield _word(SLOT_LIMITED, part, link.limited)
        yield from self._errors(device, chain, part)

    def _part(self, device: PciDevice) -> Part:
        pci = device.address.partition(".")[0]
        if device.role == "nvswitch":
            return Part(kind=PartKind.NVSWITCH, pci=pci)
        return self._known.get(pci, Part(kind=PartKind.GPU, pci=pci))

    def _answers(self, device: PciDevice, link: LinkState, part: Part) -> Word:
        if link.unresponsive or device.config_ones is False or device.width in WIDTHS:
            return _word(UNRESPONSIVE, part, link.unresponsive)
        said = Said.UNREADABLE if device.errors else Said.NOT_SHOWN
        why = device.errors[0] if device.errors else "its config space and its link cannot be read here"
        return Word(said=said, reason=UNRESPONSIVE, part=part, detail=why)

    def _speed(self, device: PciDevice, link: LinkState, part: Part) -> Word:
        if not self._settings["sysfs_speed"]:
            return Word(said=Said.NOT_SHOWN, reason=SPEED_REDUCED, part=part, detail=NOT_JUDGED)
        if device.role == "gpu":
            return _word(SPEED_REDUCED, part, link.slow_above)
        if device.speed is None and not link.slow_above:
            said = Said.UNREADABLE if device.errors else Said.NOT_SHOWN
            why = device.errors[0] if device.errors else "this device shows no PCIe link speed"
            return Word(said=said, reason=SPEED_REDUCED, part=part, detail=why)
        return _word(SPEED_REDUCED, part, _both(link.slow, link.slow_above))

    def _errors(self, device: PciDevice, chain: Sequence[PciDevice], part: Part) -> Iterator[Word]:
        sides = [one for one in (device, *chain) if one.aer]
        if not sides:
            for reason in (FATAL_ERRORS, NON_FATAL_ERRORS, CORRECTABLE_STORM):
                why = "the kernel counts no PCIe errors here (AER)"
                yield Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why)
            return
        # A root port's totals are about everything below it: they are this device's where nothing else is there.
        own_port = len(chain) == 1
        for reason, group in ((FATAL_ERRORS, "fatal"), (NON_FATAL_ERRORS, "nonfatal")):
            least = max(1, self._settings[f"{group}_errors"])
            found = [(one, self._grown(one, group, own_port=own_port)) for one in sides]
            told = [f"{', '.join(names)} at {one.address}" for one, names in found if names]
            total = sum(count for _, names in found for count in names.values())
            bad = "; ".join(told) if total >= least else ""
            yield _word(reason, part, bad, _evidence(sides, group) if bad else ())
        storms = [one.address for one in sides if self._is_storm(one)]
        evidence = _evidence(sides, "correctable") if storms else ()
        yield _word(CORRECTABLE_STORM, part, ", ".join(storms), evidence)

    def _grown(self, device: PciDevice, group: str, *, own_port: bool) -> dict[str, int]:
        """Give by name how much the errors of a group grew."""
        grown: dict[str, int] = {}
        for key, count in sorted(self._grew[device.address].items()):
            first, _, name = key.partition(".")
            if first == group and name not in BY_SOFTWARE:
                grown[name] = count
            elif own_port and key == f"rootport.{group}":
                grown["the root port's total"] = count
        return grown

    def _is_storm(self, device: PciDevice) -> bool:
        grew = self._grew[device.address]
        grown = sum(count for key, count in grew.items() if key.startswith("correctable."))
        lanes = device.width if device.width in WIDTHS else device.max_width
        window_s, percent = self._settings["window_seconds"], self._settings["correctable_percent"]
        return grown > most_errors(generation(device.max_speed), lanes, window_s, percent)


@functools.lru_cache(maxsize=64)
def _wholes(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Give each counter's name with what is told together with it.

    The three totals of a root port are files of their own, each other counter is a line of its group's file.
    """
    groups = [(name, name.partition(".")[0]) for name in names]
    return tuple((name, name if group == "rootport" else group) for name, group in groups if group in GROUPS)


def slot_hidden(word: Word) -> Word:
    """Make of a good word one that says how little is known: nothing beside is better, and the slot is not shown."""
    if word.said is not Said.GOOD:
        return word
    why = "its link is below what the device can, and what its slot can is not shown in a virtual machine"
    return Word(said=Said.NOT_SHOWN, reason=word.reason, part=word.part, detail=why)


def _beside(device: PciDevice, read: PciRead) -> PciDevice:
    """Let a device of a virtual machine be able to do no more than the best of its kind does there.

    The other end of its link, its slot, is not shown there, and a card of 16 lanes may sit in a slot of 8.
    """
    alike = [
        one.width
        for one in read.devices
        if (one.vendor, one.device) == (device.vendor, device.device) and one.width in WIDTHS
    ]
    best = max((width for width in alike if width), default=0)
    if device.max_width is None or not 0 < best < device.max_width:
        return device
    return msgspec.structs.replace(device, max_width=best)


def _width(link: LinkState, part: Part) -> Word:
    bad = _both(link.narrow, link.narrow_above)
    if bad:
        return _word(WIDTH_REDUCED, part, bad)
    if link.unread:
        return Word(said=Said.UNREADABLE, reason=WIDTH_REDUCED, part=part, detail=link.unread)
    if link.not_shown:
        return Word(said=Said.NOT_SHOWN, reason=WIDTH_REDUCED, part=part, detail=link.not_shown)
    return _word(WIDTH_REDUCED, part, "")


def _both(one: str, other: str) -> str:
    return "; ".join(word for word in (one, other) if word)


def _word(reason: Reason, part: Part, bad: str, evidence: tuple[str, ...] = ()) -> Word:
    """Give the word: bad with these details, or good without any."""
    if not bad:
        return Word(said=Said.GOOD, reason=reason, part=part)
    return Word(said=Said.BAD, reason=reason, part=part, detail=bad[:400], evidence=evidence)


def _evidence(sides: Sequence[PciDevice], group: str) -> tuple[str, ...]:
    rows = []
    for one in sides:
        values = " ".join(
            f"{key}={value}" for key, value in sorted(one.aer.items()) if value and _is_of(key, group)
        )
        if values:
            rows.append(f"{one.address}: {values}")
    return tuple(rows[:MOST_EVIDENCE])


def _is_of(key: str, group: str) -> bool:
    return key.startswith(f"{group}.") or key == f"rootport.{group}"
