"""Cases of the conformance suite: what they describe, and how they are run and judged."""

import pytest

from controller.scheduler.casecards import first_standings
from controller.scheduler.casefile import read, snapshot_of
from controller.scheduler.conformance import run_case
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from tests.scheduler.case_rows import FITS, RUNS, WAITS, rounds
from tests.scheduler.case_words import Json, case, expect, job, queue, task


def cards(*tasks: Json, gpus: int = 4) -> list[tuple[str, ...]]:
    """Give the cards that these pods of one job hold at first."""
    stand = first_standings(read(case(job("j", *tasks), expected={}, gpus=gpus)))
    return [stand[f"j-{index}"].gpus for index in range(len(tasks))]


def test_equal_groups_are_one_card() -> None:
    """Labels of a node, not indexes: equal ones share a card, and nobody else sits on it."""
    first, second, third = cards(task(0.5, "n1", "x"), task(0.5, "n1", "x"), task(0.5, "n1", "y"))
    assert first == second
    assert first != third


def test_a_part_without_a_group_has_a_card_of_its_own() -> None:
    """The suite's rule for running pods."""
    first, second, whole = cards(task(0.5, "n1"), task(0.5, "n1"), task(2, "n1"))
    assert len({*first, *second, *whole}) == 4


def test_who_waits_holds_nothing() -> None:
    """Not even where a group is written beside it."""
    assert cards(task(0.5, "", "x")) == [()]


def test_ages_and_quotas() -> None:
    """Ages run back from now; GPUs become milli-GPU, memory of a queue 10^6 bytes."""
    raw = case(job("j", RUNS, age_minutes=3, stale_for_seconds=5), expected={})
    raw["queues"][0]["memory"] = {"deserved": 2, "limit": -1, "over_quota_weight": 1}
    snapshot = snapshot_of(read(raw))
    (made,) = snapshot.jobs
    assert made.started_at is not None
    assert made.stale_since is not None
    assert [
        (snapshot.now - at).total_seconds() for at in (made.created_at, made.started_at, made.stale_since)
    ] == [
        180,
        60,
        5,
    ]
    research = next(one for one in snapshot.queues if one.name == "research")
    assert [quota.deserved for quota in research.quotas] == [4000, -1, 2_000_000]
    assert snapshot.settings.predicates


def test_a_case_without_bounds_on_calls_has_no_predicates() -> None:
    """The suite ran it so."""
    raw = case(expected={})
    del raw["max_calls"]
    assert not snapshot_of(read(raw)).settings.predicates


def test_levels_go_by_the_label_behind_their_alias() -> None:
    """A constraint may name either."""
    tree = {
        "pod_sets": [{"name": "default", "min_available": 1}],
        "topology": {"topology": "net", "required": "rack"},
    }
    topologies = [{"name": "net", "levels": [{"node_label": "example.com/rack", "alias": "rack"}]}]
    (made,) = snapshot_of(
        read(case(job("j", WAITS, sub_groups=tree), expected={}, topologies=topologies))
    ).jobs
    assert made.root.topology is not None
    assert made.root.topology.required == "example.com/rack"
    assert made.tasks[0].pod_set == "default"


FULL = job("a", task(2, "n1"))


@pytest.mark.parametrize(
    ("raw", "outcome", "words"),
    [
        pytest.param(FITS, "passed", "", id="what is expected comes"),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Pending")}}),
            "failed",
            "a-0 is Binding on n1 instead of Pending",
            id="another status",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", node="n2")}}),
            "failed",
            "a-0 is Binding on n1 instead of on n2",
            id="another node",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", gpus=2)}}),
            "failed",
            "a asks for 1 GPUs instead of 2",
            id="a case that contradicts itself",
        ),
        pytest.param(
            case(job("a", WAITS, WAITS), expected={"tasks": {"a-1": expect("Pending")}}),
            "failed",
            "a-1 is Binding",
            id="one pod of a job",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"b": expect("Pending")}}),
            "failed",
            "job b is expected and not there",
            id="a job that is not there",
        ),
        pytest.param(
            case(job("a", WAITS), expected={}, max_calls={"binds": 0, "evictions": 0, "pipelines": 0}),
            "failed",
            "1 binds instead of at most 0",
            id="more calls than allowed",
        ),
        pytest.param(
            case(
                job("a", task(2, "n1"), started_seconds_ago=None),
                expected={"jobs": {"a": expect("Running", gpus=2)}},
            ),
            "failed",
            "a has no start time",
            id="a job that runs and never started",
        ),
        pytest.param(
            case(FULL, job("b", WAITS), expected={"jobs": {"b": expect("Pending", has_fit_error=True)}}),
            "passed",
            "",
            id="a job that waits has a reason",
        ),
        pytest.param(
            case(FULL, expected={"nodes": {"n1": {"idle_gpus": 1, "releasing_gpus": 0}}}),
            "failed",
            "node n1 has 0 idle and 0 releasing GPUs instead of 1 and 0",
            id="what is left of a node",
        ),
        pytest.param(
            case(
                job("a", task(0.5, "n1", "x")),
                job("b", task(0.5)),
                expected={"jobs": {"a": expect("Running", 0.5), "b": expect("Binding", 0.5)}},
                observed={
                    "a": {"a-0": {"status": "Running", "node": "n1", "gpu_groups": ["x"]}},
                    "b": {"b-0": {"status": "Binding", "node": "n1", "gpu_groups": ["new"]}},
                },
            ),
            "failed",
            "a-0 and b-0 share 1 GPUs instead of 0",
            id="who shares a card",
        ),
        pytest.param(
            {**FITS, "nodes": [{**FITS["nodes"][0], "numa": {"policy": "strict"}}]},
            "failed",
            "Invalid enum value 'strict' - at `$.nodes[0].numa.policy`",
            id="no such NUMA policy",
        ),
        pytest.param(
            {**FITS, "actions": ["dance"]},
            "failed",
            "'dance' is none of allocate",
            id="an action nobody knows",
        ),
        pytest.param(
            {**FITS, "jobs": [{"name": "a"}]},
            "failed",
            "missing required field `queue` - at `$.jobs[0]`",
            id="a field is missing",
        ),
        pytest.param(
            {**FITS, "jobs": [job("a", {**WAITS, "state": "Dancing"})]},
            "failed",
            "state is 'Dancing'",
            id="no such status",
        ),
    ],
)
def test_judgement(raw: Json, outcome: str, words: str) -> None:
    """The suite's own rules of judgement, with words that say what is wrong."""
    verdict = run_case(raw, COMPATIBLE)
    assert verdict.outcome == outcome
    assert words in verdict.why


HIGH = job("b", task(2), priority=100)


def test_rounds() -> None:
    """What was evicted is pending and what waited for it runs, one round later each."""
    expected = {"jobs": {"a": expect("Pending", 2), "b": expect("Running", 2, node="n1")}}
    assert run_case(case(FULL, HIGH, expected=expected, **rounds(2)), COMPATIBLE).outcome == "passed"
    early = run_case(case(FULL, HIGH, expected=expected, **rounds(1)), COMPATIBLE)
    assert early.why.startswith("after round 1: b-0 is Pending")


def test_what_stays_releasing_keeps_its_place() -> None:
    """A pod that takes its time to end gives nothing away meanwhile."""
    stays = job("a", task(2, "n1"), stays_releasing_between_rounds=True)
    expected = {"jobs": {"a": expect("Releasing", 2, node="n1"), "b": expect("Pending", 2)}}
    assert run_case(case(stays, HIGH, expected=expected, **rounds(3, 2)), COMPATIBLE).outcome == "passed"


def test_a_difference_names_its_rule() -> None:
    """Of two victims KAI takes the newest, whatever it costs; ours is explained by the one rule that makes it."""
    big = job("big", task(8, "n1"), age_minutes=1)
    small = job("small", task(1, "n1"), age_minutes=2, started_seconds_ago=30)
    high = job("high", task(1), priority=100)
    expected = {
        "jobs": {"high": expect("Pipelined"), "big": expect("Releasing", 8), "small": expect("Running")}
    }
    raw = case(big, small, high, expected=expected, gpus=9, actions=["preempt"], queues=[queue(gpus=9)])
    assert run_case(raw, COMPATIBLE).outcome == "passed"
    ours = run_case(raw, DEFAULT)
    assert (ours.outcome, ours.why.partition(":")[0]) == ("differs", "victims_by_cost")


def test_a_difference_that_no_rule_explains_is_a_failure() -> None:
    """It comes out so in both modes."""
    assert (
        run_case(case(job("a", WAITS), expected={"jobs": {"a": expect("Pending")}}), DEFAULT).outcome
        == "failed"
    )
