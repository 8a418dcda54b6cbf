"""The figures of `quarantine`, from what was measured. Pure."""

from collections.abc import Sequence

import msgspec

from bench.audit import Asked
from bench.bare_plan import Done
from bench.figures import Figure, beside, percentile

AIMED_SICK, AIMED_NODES = 750, 1500  # what the aim in seconds is for
_PUBLISHED = "NVSentinel publishes 303.7 s for 750 nodes of 1,503, on other hardware"


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """What happened from the trigger to the last quarantine: seconds, requests, and where processor time went."""

    seconds: float
    half_s: float
    asked: Asked
    spent: dict[str, float]


def figures(
    single: Sequence[float], floor: Sequence[float], burst: Burst, bare: Sequence[Done], sick: int, nodes: int
) -> list[Figure]:
    p50, p99 = percentile(single, 50), percentile(single, 99)
    floor_p50, floor_p99 = percentile(floor, 50), percentile(floor, 99)
    bare_s = sum(one.ended - one.began for one in bare)
    answered, refused = (
        sum(one.answered for one in bare),
        sum(sum(one.refused.values()) for one in bare),
    )
    rate, bare_rate = burst.asked.total / burst.seconds, answered / bare_s
    three = "the bare three requests, one after the other"
    return [
        Figure(name="condition_to_quarantine_p50_s", value=p50, beside=beside(p50, floor_p50, three)),
        Figure(
            name="condition_to_quarantine_p99_s", value=p99, aim=1.0, beside=beside(p99, floor_p99, three)
        ),
        Figure(name="condition_to_quarantine_max_s", value=max(single)),
        Figure(
            name=f"quarantine_{sick}_s",
            value=burst.seconds,
            aim=15.0 if (sick, nodes) == (AIMED_SICK, AIMED_NODES) else None,
            beside=beside(burst.seconds, bare_s, f"the bare loop's {answered} requests") + f"; {_PUBLISHED}",
        ),
        Figure(name=f"quarantine_half_of_{sick}_s", value=burst.half_s),
        Figure(
            name="quarantine_rate_vs_bare",
            value=rate / bare_rate,
            aim=0.7,
            at_least=True,
            beside=f"{rate:.0f} requests/s against {bare_rate:.0f} requests/s over as many connections",
        ),
        Figure(name="quarantine_requests", value=burst.asked.total),
        Figure(name="quarantine_requests_refused", value=sum(burst.asked.refused.values())),
        Figure(name="quarantine_requests_per_s", value=rate),
        Figure(name="bare_requests", value=answered),
        Figure(name="bare_requests_refused", value=refused),
        Figure(name="bare_requests_per_s", value=bare_rate),
        Figure(name="bare_s", value=bare_s),
        Figure(name="bare_quarantine_p50_s", value=floor_p50),
        Figure(name="bare_quarantine_p99_s", value=floor_p99),
        Figure(name="controller_processor_s", value=burst.spent["controller"]),
        Figure(name="samples", value=len(single), aim=200, at_least=True),
        Figure(name="nodes", value=nodes),
        Figure(name="nodes_sick", value=sick),
    ]
