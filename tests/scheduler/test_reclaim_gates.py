"""Who may take back from whom, in GPUs of a small tree: two departments with two teams each."""

import pytest

from controller.scheduler.amounts import UNLIMITED, Amounts
from controller.scheduler.min_runtime import Kind, protected_s
from controller.scheduler.model import Queue, Quota, Settings
from controller.scheduler.queues import add, build
from controller.scheduler.reclaim_gates import (
    Strategy,
    allows,
    level,
    may_be_victim,
    may_reclaim,
    scenario_allowed,
)
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from controller.scheduler.state import QueueState

FREE = Quota(deserved=UNLIMITED, limit=UNLIMITED)


def gpus(count: float) -> Amounts:
    return (round(count * 1000), 0, 0)


def world(**queues: tuple[float, float, float]) -> dict[str, QueueState]:
    """Give a tree of (quota, fair share, held); "a" and "b" are departments, "a1" stands below "a". Held only by teams."""
    specs = []
    for at, (name, (deserved, _fair, _held)) in enumerate(queues.items()):
        gpu = Quota(deserved=gpus(deserved)[0], limit=UNLIMITED, weight=1000)
        specs.append(Queue(name=name, parent=name[:-1], created=at, quotas=(gpu, FREE, FREE)))
    states, problems = build(specs)
    assert not problems
    for name, (_deserved, fair, held) in queues.items():
        states[name].fair_share[:] = [gpus(fair)[0], 1, 1]
        add(states[name], gpus(held), 1, preemptible=True)
    return states


def test_the_level_is_where_the_paths_part() -> None:
    """Below the common ancestor, or at the roots."""
    states = world(a=(0, 0, 0), a1=(0, 0, 0), a2=(0, 0, 0), b=(0, 0, 0), b1=(0, 0, 0))
    assert [s.name for s in level(states["a1"], states["a2"])] == ["a1", "a2"]
    assert [s.name for s in level(states["a1"], states["b1"])] == ["a", "b"]
    assert [s.name for s in level(states["a1"], states["a1"])] == ["a1", "a1"]
    assert [s.name for s in level(states["a1"], states["b"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("asked", "preemptible", "may"),
    [
        pytest.param(2, True, True, id="up to its fair share"),
        pytest.param(2.5, True, False, id="not beyond"),
        pytest.param(1, False, True, id="not preemptible, up to its quota"),
        pytest.param(2, False, False, id="not preemptible, not beyond its quota"),
    ],
)
def test_who_may_start_to_reclaim(asked: float, preemptible: bool, may: bool) -> None:
    """Quota 3, fair share 4; 2 are held, not preemptible ones."""
    queue = world(a=(3, 4, 0))["a"]
    add(queue, gpus(2), 1, preemptible=False)
    assert may_reclaim(queue, gpus(asked), preemptible) is may


@pytest.mark.parametrize(
    ("held", "victim", "asked", "may"),
    [
        pytest.param(0, (4, 4, 5), 2, True, id="above its quota"),
        pytest.param(0, (4, 4, 3), 2, False, id="below its quota"),
        pytest.param(0, (4, 4, 4), 2, True, id="at its quota: not below in anything asked for"),
        pytest.param(3, (4, 6, 5), 2, False, id="a reclaimer beyond its quota: not within the fair share"),
        pytest.param(3, (4, 6, 7), 2, True, id="a reclaimer beyond its quota: above the fair share"),
    ],
)
def test_which_queues_are_candidates(
    held: float, victim: tuple[float, float, float], asked: float, may: bool
) -> None:
    """The reclaimer's quota is 4."""
    states = world(a=(4, 8, held), b=victim)
    assert may_be_victim(states["a"], gpus(asked), states["b"]) is may


@pytest.mark.parametrize(
    ("strategy", "held", "left", "allowed"),
    [
        pytest.param(Strategy.MAINTAIN_FAIR_SHARE, 9, 7, True, id="above the fair share"),
        pytest.param(Strategy.MAINTAIN_FAIR_SHARE, 0, 6, False, id="at the fair share"),
        pytest.param(Strategy.GUARANTEE_DESERVED_QUOTA, 3, 5, True, id="above quota, for a quota"),
        pytest.param(Strategy.GUARANTEE_DESERVED_QUOTA, 3, 4, False, id="at its quota"),
        pytest.param(Strategy.GUARANTEE_DESERVED_QUOTA, 4, 5, False, id="for more than a quota"),
    ],
)
def test_strategies(strategy: Strategy, held: float, left: float, allowed: bool) -> None:
    """One GPU is asked for; both quotas are 4, the victim's fair share 6."""
    states = world(a=(4, 8, held), b=(4, 6, 8))
    left_there = (*gpus(left)[:1], 0, 0)
    assert allows(strategy, states["a"], gpus(1), states["b"], left_there) is allowed


@pytest.mark.parametrize(
    ("victim", "jobs", "held", "asked", "kai", "ours", "sparing"),
    [
        pytest.param((8, 8, 10), [1, 1], 0, 2, True, True, True, id="down to the quota"),
        pytest.param((8, 8, 10), [1, 1, 1], 0, 3, False, False, False, id="not below it job by job"),
        pytest.param(
            (8, 8, 9), [9], 0, 1, True, True, False, id="below it at once, for a quota, only as a last resort"
        ),
        pytest.param((8, 8, 9), [9], 8, 1, True, False, False, id="not for more than a quota"),
        pytest.param((2, 4, 6), [3], 8, 1, True, True, True, id="below the fair share, but not the quota"),
    ],
)
def test_sets_of_victims(
    victim: tuple[float, float, float],
    jobs: list[float],
    held: float,
    asked: float,
    kai: bool,
    ours: bool,
    sparing: bool,
) -> None:
    """The reclaimer's quota is 8, its fair share 10."""
    states = world(a=(8, 10, held), b=victim)
    victims = [(states["b"], [gpus(job) for job in jobs])]
    given = (states["a"], gpus(asked), True, victims, 1000)
    assert scenario_allowed(*given, COMPATIBLE) is kai
    assert scenario_allowed(*given, DEFAULT) is ours
    assert scenario_allowed(*given, DEFAULT, spare_quota=True) is sparing
    assert states["b"].allocated[0] == gpus(victim[2])[0]


@pytest.mark.parametrize(
    "held", [pytest.param(2, id="all of its quota"), pytest.param(1, id="less than its quota")]
)
def test_a_team_within_its_quota_pays_for_no_other_departments_surplus(held: float) -> None:
    """Though its department is far above its own quota: another of its teams is."""
    states = world(a=(4, 8, 0), a1=(4, 8, 5), b=(4, 6, 0), b1=(2, 2, held), b2=(2, 4, 6))
    safe, greedy = [(states["b1"], [gpus(1)])], [(states["b2"], [gpus(1)])]
    assert scenario_allowed(states["a1"], gpus(1), True, safe, 1000, COMPATIBLE)
    assert not scenario_allowed(states["a1"], gpus(1), True, safe, 1000, DEFAULT)
    assert scenario_allowed(states["a1"], gpus(1), True, greedy, 1000, DEFAULT)


@pytest.mark.parametrize(
    ("fair", "saturation_milli", "allowed"),
    [
        pytest.param(6, 1000, True, id="within its own fair share"),
        pytest.param(4, 1000, True, id="fuller than fair, yet less than the sibling"),
        pytest.param(4, 1500, False, id="too full times the saturation"),
        pytest.param(2, 1000, False, id="fuller than the sibling in proportion"),
        pytest.param(0, 1000, False, id="no fair share at all"),
    ],
)
def test_a_reclaimer_above_its_fair_share_stays_less_full_than_who_gives(
    fair: float, saturation_milli: int, allowed: bool
) -> None:
    """It ends with 5 GPUs; the sibling with 7 of a fair share of 4."""
    states = world(a=(0, fair, 4), b=(0, 4, 8))
    victims = [(states["b"], [gpus(1)])]
    assert scenario_allowed(states["a"], gpus(1), True, victims, saturation_milli, COMPATIBLE) is allowed


def test_what_is_not_preemptible_stays_within_the_quota_at_every_level() -> None:
    """The team has quota enough, its department has not."""
    states = world(a=(1, 8, 0), a1=(4, 8, 0), b=(0, 0, 8), b1=(0, 0, 0))
    victims = [(states["b"], [gpus(2)])]
    assert scenario_allowed(states["a1"], gpus(2), True, victims, 1000, COMPATIBLE)
    assert not scenario_allowed(states["a1"], gpus(2), False, victims, 1000, COMPATIBLE)


@pytest.mark.parametrize(
    ("kind", "victim", "reclaimer", "by_lca", "seconds"),
    [
        pytest.param("preempt", "a1", "a1", True, 30, id="preemption: the queue's own"),
        pytest.param("preempt", "a2", "a2", True, 20, id="preemption: its department's"),
        pytest.param("preempt", "b1", "b1", True, 1, id="preemption: the cycle's"),
        pytest.param("reclaim", "a1", "a2", True, 300, id="reclaim between siblings: the victim's own"),
        pytest.param("reclaim", "a1", "b1", True, 200, id="reclaim from outside: the department's"),
        pytest.param(
            "reclaim", "a1", "b1", False, 300, id="reclaim from outside, by queue: the victim's own"
        ),
        pytest.param("reclaim", "b1", "a1", True, 2, id="reclaim: the cycle's"),
    ],
)
def test_how_long_a_job_is_safe(kind: Kind, victim: str, reclaimer: str, by_lca: bool, seconds: int) -> None:
    """From the nearest queue that says so."""
    quotas = (FREE, FREE, FREE)
    states, _ = build(
        (
            Queue(name="a", quotas=quotas, preempt_min_runtime_s=20, reclaim_min_runtime_s=200),
            Queue(name="a1", parent="a", quotas=quotas, preempt_min_runtime_s=30, reclaim_min_runtime_s=300),
            Queue(name="a2", parent="a", quotas=quotas),
            Queue(name="b", quotas=quotas),
            Queue(name="b1", parent="b", quotas=quotas),
        )
    )
    settings = Settings(preempt_min_runtime_s=1, reclaim_min_runtime_s=2, reclaim_by_lca=by_lca)
    assert protected_s(kind, states[victim], states[reclaimer], settings) == seconds
