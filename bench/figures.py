"""Figures: what was measured, what it was aimed at, and what was run beside it. Pure.

A figure alone says as much about the machine as about the program. So each one that has an aim also names what was run in
the same breath on the same machine, and the ratio to it.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number. `aim` is the most it should be, or the least where `at_least` is set; None = shown, aimed at nothing.

    `beside` says in words what was run beside it, with its own number and the ratio; empty where it is itself such a thing.
    """

    name: str
    value: float
    aim: float | None = None
    at_least: bool = False
    beside: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the aim was reached; None where there is none."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.at_least else self.value <= self.aim


def percentile(values: Iterable[float], percent: float) -> float:
    """Give the nearest-rank percentile: a value that was really measured, never one between two. Raises ValueError."""
    ordered = sorted(values)
    if not ordered or not 0 < percent <= 100:
        raise ValueError(
            f"percentile {percent:g} of {len(ordered)} values: give 0 < percent <= 100 and values"
        )
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def beside(value: float, floor: float, what: str) -> str:
    """Say what was run beside a figure in seconds: its own seconds, and how many times as long ours took."""
    ratio = f"{value / floor:.2f} x" if floor > 0 else "beyond measure:"
    return f"{ratio} {what} ({floor:.4g} s)"


def table(figures: Sequence[Figure]) -> list[str]:
    """Lay out the figures for a terminal, one line each under a heading."""
    rows = [("figure", "measured", "aim", "", "beside it, in the same run")]
    for one in figures:
        aim = "" if one.aim is None else f"{'>=' if one.at_least else '<='} {one.aim:g}"
        met = {None: "", True: "met", False: "MISSED"}[one.met]
        rows.append((one.name, shown(one.value), aim, met, one.beside))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]


def shown(value: float) -> str:
    """Write a count as it is and a measured value with four digits that mean something."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def flat(figures: Iterable[Figure]) -> dict[str, float]:
    """Give the one flat object of --json. Raises ValueError where two figures have one name."""
    named: dict[str, float] = {}
    for one in figures:
        if one.name in named:
            raise ValueError(f"figure {one.name} is there twice")
        named[one.name] = one.value if isinstance(one.value, int) else round(one.value, 6)
    return named
