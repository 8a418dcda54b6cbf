"""Who gets a free card of a model: first whoever has a quota of it, so that nobody is evicted from it a cycle later."""

import pytest

from controller.scheduler.model import Job, Queue
from controller.scheduler.requests import Constraints
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.after import after
from tests.scheduler.test_model_quota import DAY, ON_H, asks, cards, held, named
from tests.scheduler.words import bound, cluster, decide, job

FREE_H100 = (cards("h", "H100", 1), cards("l", "L40", 4))


def lent(of: str = "lender", **changes: object) -> Job:
    """Give a job that waits for longer and asks for what others have a claim to."""
    return job("lent", of, age_s=DAY, constraints=ON_H, **changes)  # type: ignore[arg-type]


OWNER_IS_OVER_ITS_TOTAL = [named("owner", 4, {"H100": 1}), named("lender", 4, priority=200)]
TEAMS = [
    named("a", 4, {"H100": 1}),
    named("a1", 4, parent="a"),
    named("b", 4, priority=200),
    named("b1", 4, parent="b"),
]
ALL_ARE_TAKEN = [named("owner", 4, {"H100": 0}), named("lender", 4)]
TEAM_ALONE = [
    named("a", 4),
    named("a1", 4, {"H100": 1}, parent="a"),
    named("b", 4),
    named("b1", 4, parent="b"),
]


@pytest.mark.parametrize(
    ("queues", "owner", "lender", "first"),
    [
        pytest.param(OWNER_IS_OVER_ITS_TOTAL, "owner", "lender", "asks-0", id="by a claim, before priority"),
        pytest.param(TEAMS, "a1", "b1", "asks-0", id="by the claim of the department"),
        pytest.param(TEAM_ALONE, "a1", "b1", "lent-0", id="no claim of a team against other departments"),
        pytest.param(ALL_ARE_TAKEN, "owner", "lender", "lent-0", id="nothing beyond the quota of the model"),
    ],
)
def test_who_gets_a_free_card(queues: list[Queue], owner: str, lender: str, first: str) -> None:
    """Exactly this pod is bound to the one free H100, and stays."""
    snapshot = cluster(
        FREE_H100, queues, [*held(owner, "l", range(4)), lent(lender), *asks(owner, constraints=ON_H)]
    )
    plan = decide(snapshot)
    assert bound(plan) == {first: "h"}
    assert not decide(after(snapshot, plan)).evictions


@pytest.mark.parametrize(
    ("rules", "constraints"),
    [
        pytest.param(DEFAULT, Constraints(), id="a job that would take any card claims none"),
        pytest.param(COMPATIBLE, ON_H, id="KAI's rules know no models"),
    ],
)
def test_who_has_no_claim_waits_for_its_turn(rules: Rules, constraints: Constraints) -> None:
    """The queue of higher priority, within its quota of all GPUs, is served first."""
    jobs = [*held("owner", "l", range(4)), lent(), *asks("owner", constraints=constraints)]
    assert bound(decide(cluster(FREE_H100, OWNER_IS_OVER_ITS_TOTAL, jobs), rules)) == {"lent-0": "h"}
