"""What the error counters of a GPU's NVLinks say: which grew by more than noise within a window. Pure.

Up to NVLink 4 (Hopper) a link counts replays, recoveries and CRC errors; NVLink 5 (Blackwell) counts packets that were lost
or damaged beyond what its error correction mends, and packs bit error rates: exponent in bits 0-7, mantissa in bits 8-11,
rate = mantissa x 10^-exponent. Mantissa 15 with exponent 255 (a link) or 238 (a GPU) is the floor: no error was ever seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from checks.finding import Part, Reason
from checks.gpu_health import NvLink, NvLinks, NvmlRefusal
from checks.growth import Growth
from checks.nvlink_expected import is_active
from checks.nvlink_reasons import ERRORS_FEW, LINK_ERRORS
from checks.nvlink_words import numbers
from checks.polled import Said, Word
from checks.rates import Rates

CRC = {"crc_flit", "crc_data", "ecc_data"}
# What no replay and no correction mended. Recoveries that went well are counted, too, and are noise by themselves.
NVLINK_5 = {
    *("malformed", "buffer_overrun", "receive", "remote", "general", "link_integrity", "transmit_discards"),
    *("recovery_failed", "effective_errors", "symbol_errors"),
}
COUNTERS = (*sorted(CRC), "recovery", "recovery_ok", "replay", *sorted(NVLINK_5))
FLOOR_MANTISSA, FLOOR_EXPONENTS = 15, {255, 238}
MOST_EVIDENCE = 8


def error_words(
    links: NvLinks,
    part: Part,
    growth: Growth,
    rates: Rates,
    settings: Mapping[str, Any],
    refusal: NvmlRefusal | None,
) -> Iterator[Word]:
    """Take all counters of a GPU's links, and say which of them grew too much.

    `refusal` is the error that a call about its links gave: what that kept back is not known to be well.
    """
    told = [link for link in links.links if link.counters]
    if not told and refusal is None:
        why = "this GPU or driver tells no NVLink errors"
        for reason in (LINK_ERRORS, ERRORS_FEW):
            yield Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why)
        return
    many: dict[str, list[int]] = {}
    few: dict[str, list[int]] = {}
    about, window_ms = part.key(), settings["error_window_seconds"] * 1000
    groups = [(name, f"{about} {name}") for name in COUNTERS]
    names = told[0].counters.keys() if told else set[str]()
    settled = growth.told_of_all([group for name, group in groups if name in names])
    for link in told:
        if (
            link.counters.keys() == names
            and settled >> max(0, link.index) & 1
            and not any(link.counters.values())
        ):
            continue  # nearly all of them, nearly always
        for name, group in groups:
            if name in link.counters and 0 <= link.index < 64:
                value, key = link.counters[name], f"{about} {link.index} {name}"
                if not value and growth.is_at_zero(group, link.index, key):
                    continue
                growth.count(group, link.index, key, value)
                grown = rates.grown(key, window_ms)
                if _is_many(name, grown, settings):
                    many.setdefault(name, []).append(link.index)
                elif grown >= max(1, settings["few_errors"]):
                    few.setdefault(name, []).append(link.index)
        for name in _bad_rates(link, settings["effective_ber_exponent"]):
            many.setdefault(name, []).append(link.index)
    if refusal is not None and not many:
        why = f"its NVLinks: {refusal.call} gives {refusal.name} ({refusal.code})"
        yield Word(said=Said.UNREADABLE, reason=LINK_ERRORS, part=part, detail=why)
    else:
        yield _word(LINK_ERRORS, part, many, told)
    yield _word(ERRORS_FEW, part, few, told)


def ber_above(packed: int, exponent: int) -> bool:
    """Tell whether a packed bit error rate is above 10^-`exponent`; the floor is no rate."""
    mantissa, own = packed >> 8 & 0xF, packed & 0xFF
    return not is_floor(packed) and mantissa * 10 ** max(0, exponent) > 10**own


def is_floor(packed: int) -> bool:
    """Tell the value that stands for no error at all."""
    mantissa, exponent = packed >> 8 & 0xF, packed & 0xFF
    return mantissa == 0 or (mantissa == FLOOR_MANTISSA and exponent in FLOOR_EXPONENTS)


def _bad_rates(link: NvLink, exponent: int) -> Iterator[str]:
    """DCGM fails an effective rate above 1e-12 and any symbol rate but the floor."""
    effective, symbol = link.counters.get("effective_ber"), link.counters.get("symbol_ber")
    if effective is not None and is_active(link) and ber_above(effective, exponent):
        yield f"effective bit error rate above 1e-{exponent}"
    if symbol is not None and is_active(link) and not is_floor(symbol):
        yield "symbol errors in the bit error rate"


def _is_many(name: str, grown: int, settings: Mapping[str, Any]) -> bool:
    setting = "crc_errors" if name in CRC else "nvlink5_errors" if name in NVLINK_5 else f"{name}_errors"
    return setting in settings and grown >= max(1, int(settings[setting]))


def _word(reason: Reason, part: Part, grown: Mapping[str, list[int]], told: Iterable[NvLink]) -> Word:
    if not grown:
        return Word(said=Said.GOOD, reason=reason, part=part)
    detail = "; ".join(f"{numbers(links)}: {name}" for name, links in sorted(grown.items()))
    wanted = {index for links in grown.values() for index in links}
    evidence = tuple(
        f"link {link.index}: " + " ".join(f"{name}={value}" for name, value in sorted(link.counters.items()))
        for link in told
        if link.index in wanted
    )
    return Word(
        said=Said.BAD, reason=reason, part=part, detail=detail[:400], evidence=evidence[:MOST_EVIDENCE]
    )
