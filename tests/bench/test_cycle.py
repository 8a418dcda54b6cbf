"""The scenes of `nodemend-bench cycle` are what they say, at a size that takes no time."""

from collections.abc import Callable

import pytest

from bench.cycle_child import FAIR_SHARE, bare_placement, main
from bench.cycle_scenes import allocate, reclaim_many, unschedulable_gang
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Snapshot
from controller.scheduler.plan import Plan
from controller.scheduler.rules import DEFAULT


def decide(snapshot: Snapshot) -> Plan:
    """Run one cycle on a clock that stands still."""
    return run_cycle(snapshot, DEFAULT, ms=lambda: 0)


SCENES: dict[str, tuple[Callable[[], Snapshot], tuple[int, int, int]]] = {
    "an empty cluster takes all that wait": (lambda: allocate(4, 20), (20, 0, 0)),
    "a small cluster takes what it has room for": (lambda: allocate(2, 20), (16, 0, 0)),
    "a gang that cannot be placed costs nobody a pod": (lambda: unschedulable_gang(3), (0, 0, 0)),
    "a queue gets back the half that it is entitled to": (lambda: reclaim_many(2), (0, 8, 8)),
}


@pytest.mark.parametrize(("make", "outcome"), SCENES.values(), ids=SCENES.keys())
def test_a_scene_is_what_it_says(make: Callable[[], Snapshot], outcome: tuple[int, int, int]) -> None:
    """So many are bound, evicted and promised."""
    plan = decide(make())
    assert (len(plan.binds), len(plan.evictions), len(plan.pipelined)) == outcome
    assert plan.exhausted == ()


def test_the_bare_loop_places_as_many() -> None:
    """What is measured beside does the same work, where nothing but room counts."""
    for snapshot in (allocate(4, 20), allocate(2, 20)):
        assert bare_placement(snapshot) == len(decide(snapshot).binds)


def test_a_scene_is_measured_in_rounds() -> None:
    """Each round has its time; the first is not counted."""
    sight = main("allocate_500", 1)
    assert sight.binds == 500
    assert len(sight.seconds) == len(sight.bare_s) == 1
    assert sight.peak_kib > 0
    assert len(main(FAIR_SHARE, 2).seconds) == 2
