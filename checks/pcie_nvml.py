"""What NVML says of a GPU's PCIe link, as words: width, speed while awake, replays, errors. Pure.

The current generation drops while a GPU idles, and NVML's own numbers are `1` and `1` for a GPU that hangs on its processor
by C2C. So the generation counts only between two readings of performance state 0, and nothing where the bus is none of PCIe
or C2C links are there.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from checks.finding import Part, Reason
from checks.gpu_health import GpuHealth, Pcie
from checks.growth import Growth
from checks.nvml_look import Answered, group_missing
from checks.pcie_bus import C2C, slot_hidden
from checks.pcie_limits import most_errors
from checks.pcie_link import WIDTHS
from checks.pcie_reasons import (
    FATAL_ERRORS,
    NON_FATAL_ERRORS,
    NVML_REASONS,
    REPLAY_STORM,
    SLOT_LIMITED,
    SPEED_REDUCED,
    WIDTH_REDUCED,
)
from checks.polled import Said, Word
from checks.rates import Rates

PCI_EXPRESS = 2  # NVML_BUS_TYPE_PCIE
COUNTERS = {"replay": REPLAY_STORM, "fatal": FATAL_ERRORS, "non_fatal": NON_FATAL_ERRORS}


def is_by_c2c(pcie: Pcie) -> bool:
    """Tell a GPU whose way to its processor is not PCIe."""
    return bool(pcie.c2c_links) or pcie.bus_type not in {None, PCI_EXPRESS}


class Beside(NamedTuple):
    """The best link that a GPU of one model shows in a round, 0 where none does."""

    width: int
    generation: int


def beside(model: str, answered: Sequence[Answered]) -> Beside:
    """Give the best of all GPUs of this model."""
    alike = [one.health.pcie for one in answered if one.gpu.model == model and one.health.pcie is not None]
    widths = [pcie.width for pcie in alike if pcie.width in WIDTHS]
    return Beside(
        width=max((width for width in widths if width), default=0),
        generation=max((pcie.generation or 0 for pcie in alike), default=0),
    )


def _limited(pcie: Pcie, others: Beside) -> Pcie:
    """Let a GPU be able to do no more than the best of its model does, itself among them."""
    width, generation = max(others.width, pcie.width or 0), max(others.generation, pcie.generation or 0)
    return msgspec.structs.replace(
        pcie,
        max_width=min(pcie.max_width, width) if pcie.max_width and width else pcie.max_width,
        max_generation=min(pcie.max_generation, generation)
        if pcie.max_generation and generation
        else pcie.max_generation,
    )


def nvml_words(
    health: GpuHealth,
    part: Part,
    growth: Growth,
    rates: Rates,
    settings: Mapping[str, Any],
    *,
    beside: Beside | None,
) -> Iterator[Word]:
    """Say what NVML's round says of one GPU.

    `beside` is given in a virtual machine, where what the system can do is made up: what GPUs of its model have there.
    """
    pcie = health.pcie
    # What an error kept back is no proof that this driver does not have it; the width's word says that it is unread.
    is_whole = "pcie" not in health.errors
    if pcie is None:
        missing = group_missing(health, "pcie", WIDTH_REDUCED, part, "its PCIe link", always_asked=True)
        yield from _not_shown(part, missing.detail) if missing.said is Said.NOT_SHOWN else [missing]
    elif is_by_c2c(pcie):
        yield from _not_shown(part, C2C)
    else:
        seen = pcie if beside is None else _limited(pcie, beside)
        width = _width(health, seen, part)
        yield width if seen.max_width == pcie.max_width else slot_hidden(width)
        for speed in _speed(seen, part, is_whole=is_whole):
            yield speed if seen.max_generation == pcie.max_generation else slot_hidden(speed)
        if beside is None:
            yield _slot(pcie, part)
        yield from _counters(pcie, part, growth, rates, settings, is_whole=is_whole)


def _width(health: GpuHealth, pcie: Pcie, part: Part) -> Word:
    """Say how wide the link is. An error of any call about the link stands here, once for all that it kept back."""
    refusal = health.errors.get("pcie")
    is_told = pcie.width in WIDTHS and pcie.max_width in WIDTHS
    if pcie.width in WIDTHS and pcie.max_width in WIDTHS and pcie.width < pcie.max_width:
        return _word(WIDTH_REDUCED, part, f"x{pcie.width} of x{pcie.max_width} on its link")
    if is_told and refusal is None:
        return _word(WIDTH_REDUCED, part, "")
    if refusal is None and pcie.width is None:
        why = "this driver shows no PCIe link width"
        return Word(said=Said.NOT_SHOWN, reason=WIDTH_REDUCED, part=part, detail=why)
    told = f"{refusal.call} gives {refusal.name}" if refusal is not None else f"NVML tells x{pcie.width}"
    return Word(said=Said.UNREADABLE, reason=WIDTH_REDUCED, part=part, detail=f"its PCIe link: {told}")


def _speed(pcie: Pcie, part: Part, *, is_whole: bool) -> Iterator[Word]:
    """Say nothing of a GPU that idles: what was known goes on."""
    is_awake = pcie.pstate_before == 0 and pcie.pstate_after == 0
    if pcie.generation is None or pcie.max_generation is None:
        if is_whole:
            why = "this driver shows no PCIe generation"
            yield Word(said=Said.NOT_SHOWN, reason=SPEED_REDUCED, part=part, detail=why)
    elif is_awake:
        slow = pcie.generation < pcie.max_generation
        words = f"generation {pcie.generation} of {pcie.max_generation} while awake" if slow else ""
        yield _word(SPEED_REDUCED, part, words)


def _slot(pcie: Pcie, part: Part) -> Word:
    own, system = pcie.device_max_generation, pcie.max_generation
    limited = own is not None and system is not None and own > system
    return _word(SLOT_LIMITED, part, f"generation {system}, the device {own}" if limited else "")


def _counters(
    pcie: Pcie, part: Part, growth: Growth, rates: Rates, settings: Mapping[str, Any], *, is_whole: bool
) -> Iterator[Word]:
    for name, reason in COUNTERS.items():
        value = pcie.counters.get(name)
        if value is None:
            if name == "replay" and is_whole:
                why = "this driver counts no PCIe replays"
                yield Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why)
            continue
        key, window_s = f"{part.key()} {name}", settings["window_seconds"]
        growth.count(part.key(), list(COUNTERS).index(name), key, value)
        grown = rates.grown(key, 1000 * window_s)
        if name == "non_fatal":
            grown -= _by_software(pcie, part, growth, rates, 1000 * window_s)
        evidence = (f"{name}={value}",)
        if name == "replay":
            at_most = most_errors(pcie.max_generation, pcie.width, window_s, settings["replay_percent"])
            storm = grown > at_most
            yield _word(reason, part, "its link repeats packets" if storm else "", evidence)
        else:
            least = max(1, settings["fatal_errors" if name == "fatal" else "nonfatal_errors"])
            yield _word(reason, part, "counted by the GPU itself" if grown >= least else "", evidence)


def _by_software(pcie: Pcie, part: Part, growth: Growth, rates: Rates, window_ms: int) -> int:
    """Give how much of the non-fatal errors may be requests that software should not have made: no trouble of a link.

    An unsupported request is a non-fatal error by default (PCI Express Base Specification, "Error Classification").
    """
    value = pcie.counters.get("unsupported_request")
    if value is None:
        return 0
    key = f"{part.key()} unsupported_request"
    growth.count(part.key(), len(COUNTERS), key, value)
    return rates.grown(key, window_ms)


def _not_shown(part: Part, why: str) -> list[Word]:
    return [Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why) for reason in NVML_REASONS]


def _word(reason: Reason, part: Part, bad: str, evidence: tuple[str, ...] = ()) -> Word:
    said = Said.BAD if bad else Said.GOOD
    return Word(said=said, reason=reason, part=part, detail=bad, evidence=evidence if bad else ())
