"""controller.crew: nodes beside each other, one node in order, state waited for, slow effects left behind."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from controller.crew import Crew, in_order
from controller.outcome import Outcome, Result
from controller.steps import Evict, Quarantine, Restore, Save, SavePolicy, Step
from kube.policy import PolicyStatus
from kube.remediation import NodeBefore
from tests.controller.shell.samples import INCIDENT, NOW, status
from tests.fakes import wait_until


def evict(node: str, pod: str = "p") -> Evict:
    return Evict(node=node, incident=INCIDENT, namespace="ml", name=pod, uid=f"{node}-{pod}")


def save(node: str) -> Save:
    return Save(node=node, name=f"inc-{node}", resource_version="1", status=status())


def restore(node: str) -> Restore:
    return Restore(
        node=node, node_uid=node, resource_version="1", incident=INCIDENT, uncordon=True, untaint=True
    )


def quarantine(node: str) -> Quarantine:
    before = NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=NOW)
    return Quarantine(node=node, node_uid=node, resource_version="1", incident=INCIDENT, before=before)


def done(step: Step) -> Outcome:
    return Outcome(step=step, result=Result.DONE)


@contextmanager
def crew_of(
    apply: Callable[[Step], Outcome], patience_s: float = 0.05
) -> Iterator[tuple[Crew, threading.Event]]:
    """Run a crew; the event is set when it wakes the loop."""
    woken = threading.Event()
    crew = Crew(apply, wake=woken.set, patience_s=patience_s)
    try:
        yield crew, woken
    finally:
        crew.stop()


@pytest.mark.parametrize(
    ("steps", "failing", "expected"),
    [
        pytest.param([save("a"), restore("a")], None, ["done", "done"], id="all goes well"),
        pytest.param(
            [quarantine("a"), restore("a")],
            "Quarantine",
            ["conflict", "skipped"],
            id="the rest waits after a failure",
        ),
        pytest.param(
            [evict("a", "p"), evict("a", "q")],
            "Evict",
            ["conflict", "conflict"],
            id="one pod's refusal stops no other",
        ),
    ],
)
def test_the_steps_of_one_node_are_in_order(
    steps: list[Step], failing: str | None, expected: list[str]
) -> None:
    """What follows from what."""

    def apply(step: Step) -> Outcome:
        failed = type(step).__name__ == failing
        return Outcome(step=step, result=Result.CONFLICT if failed else Result.DONE)

    assert [outcome.result.value for outcome in in_order(apply, steps)] == expected


def test_a_guards_refusal_stops_the_other_evictions_of_the_node() -> None:
    """It speaks of the incident: a person uncordoned, or cancelled."""
    steps = [evict("a", "p"), evict("a", "q")]
    outcomes = in_order(lambda step: Outcome(step=step, result=Result.REFUSED, why="cancelled"), steps)
    assert [outcome.result.value for outcome in outcomes] == ["refused", "skipped"]


def test_a_slow_eviction_holds_up_no_other_node() -> None:
    """Its own node is busy until it ends; then the loop is woken and the outcome is collected."""
    hold = threading.Event()

    def apply(step: Step) -> Outcome:
        if isinstance(step, Evict):
            hold.wait(10)
        return done(step)

    with crew_of(apply) as (crew, woken):
        first = crew.run([evict("slow"), quarantine("quick")])
        assert ([outcome.step.node for outcome in first], crew.busy) == (["quick"], frozenset({"slow"}))
        assert crew.state_is_open is False
        hold.set()
        assert woken.wait(5)
        wait_until(lambda: bool(crew.busy))
        assert [outcome.step.node for outcome in crew.run(())] == ["slow"]
        assert crew.busy == frozenset()


def test_a_write_of_state_is_waited_for() -> None:
    """The next plan counts on it: a budget that does not see it would grant the place twice."""
    began = threading.Event()

    def apply(step: Step) -> Outcome:
        began.set()
        threading.Event().wait(0.3)  # longer than the patience with effects
        return done(step)

    with crew_of(apply) as (crew, _):
        outcomes = crew.run(
            [save("a"), SavePolicy(node="", name="p", resource_version="1", status=PolicyStatus())]
        )
        assert (len(outcomes), began.is_set(), crew.state_is_open) == (2, True, False)


def test_at_the_end_what_is_under_way_ends_and_the_rest_is_dropped() -> None:
    """Nothing of ours is on the wire when the Lease is released."""
    hold, applied = threading.Event(), []

    def apply(step: Step) -> Outcome:
        hold.wait(10)
        applied.append(step.node)
        return done(step)

    crew = Crew(apply, wake=lambda: None, patience_s=0.05)
    crew.run([evict(f"n{number:02d}") for number in range(20)])
    threading.Timer(0.1, hold.set).start()
    ended = crew.stop()
    assert sorted(outcome.step.node for outcome in ended) == sorted(applied)
    assert 0 < len(applied) < 20
