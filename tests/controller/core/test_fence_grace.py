"""How long narrow containment waits for kubelet to withhold a sick GPU, before it cordons the node."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from checks.finding import Effect
from controller.explain import explain
from controller.guards import why_not_evict
from controller.steps import Evict, Quarantine
from controller.terms import read
from kube.policy import Mode
from kube.remediation import QUARANTINE, Phase
from tests import build as make
from tests.build import NOW
from tests.controller.core.open_node import (
    EVICTS,
    SICK,
    WAITS,
    OpenWorld,
    degraded,
    narrow,
    narrow_policy,
    work,
)
from tests.controller.core.stage import decide

GRACE = timedelta(seconds=90)
WAITED_FOR = narrow_policy(fence_grace="90s")
HOLDER = work("holder")
BUSY = {SICK: [HOLDER], "GPU-5": [work("neighbour")]}


def out(age: timedelta = timedelta(seconds=5), **changes: Any) -> Any:
    """Build a GPU's fault, first seen so long ago by the node's clock."""
    return make.reset_finding(first_seen=NOW - age, **changes)


@pytest.mark.parametrize(
    ("finding", "given", "expected"),
    [
        *(
            pytest.param(
                out(urgency=urgency), {}, (Phase.SUSPECTED, "wait"), id=f"kubelet offers it, {urgency}: wait"
            )
            for urgency in ("now", "when-idle", "person")
        ),
        pytest.param(
            out(), {"unknown": [SICK]}, (Phase.SUSPECTED, "wait"), id="kubelet said nothing yet: wait"
        ),
        pytest.param(out(), {"withheld": [SICK]}, (Phase.WAITING, ""), id="it withholds it: no wait"),
        pytest.param(out(GRACE), {}, (Phase.QUARANTINED, ""), id="the time is over"),
        pytest.param(
            out(GRACE - timedelta(seconds=1)), {}, (Phase.SUSPECTED, "wait"), id="the last second counts"
        ),
        pytest.param(
            out(), {"policy": narrow_policy(fence_grace="0s")}, (Phase.QUARANTINED, ""), id="no grace"
        ),
        pytest.param(out(), {"policy": make.policy()}, (Phase.QUARANTINED, ""), id="none under cordon"),
        pytest.param(out(index=40), {}, (Phase.QUARANTINED, ""), id="a GPU that nobody reports"),
        pytest.param(make.finding(first_seen=NOW), {}, (Phase.QUARANTINED, ""), id="a lost node"),
        pytest.param(out(effect="half-out"), {}, (Phase.QUARANTINED, ""), id="an effect that is not known"),
        pytest.param(
            out(),
            {"evidence": [make.finding(index=1), out()]},
            (Phase.QUARANTINED, ""),
            id="a lost node beside it",
        ),
        pytest.param(
            out(),
            {"evidence": [out(), out(GRACE, index=4)]},
            (Phase.QUARANTINED, ""),
            id="another one whose time is over",
        ),
        pytest.param(
            out(),
            {"evidence": [out(), degraded()]},
            (Phase.SUSPECTED, "wait"),
            id="a degraded one beside it is narrow anyway",
        ),
        pytest.param(
            out(),
            {"pods": [work("theirs", scheduler="volcano")]},
            (Phase.QUARANTINED, ""),
            id="another scheduler may place there",
        ),
        pytest.param(
            out(),
            {"pods": [work("half", gpus=0, annotations={"gpu-fraction": "0.5"})]},
            (Phase.QUARANTINED, ""),
            id="somebody shares a card that nobody names",
        ),
        pytest.param(
            out(),
            {"policy": narrow_policy(fence_grace="90s", paused=True)},
            (Phase.SUSPECTED, "policy"),
            id="paused",
        ),
        pytest.param(
            out(),
            {"policy": narrow_policy(fence_grace="90s", mode=Mode.OBSERVE)},
            (Phase.SUSPECTED, "mode"),
            id="Observe",
        ),
        pytest.param(
            out(),
            {"health": {"observed_at": NOW - timedelta(minutes=6)}},
            (Phase.SUSPECTED, "evidence"),
            id="a stale report",
        ),
        pytest.param(
            degraded(Effect.NO_MULTI_GPU), {}, (Phase.WAITING, ""), id="what takes no GPU away needs none"
        ),
    ],
)
def test_what_the_fence_is_waited_for(
    finding: Any, given: dict[str, Any], expected: tuple[Phase, str]
) -> None:
    """Only where nothing else is wanting, and never for long."""
    given = {"policy": WAITED_FOR, **given}
    found = decide(narrow(Phase.SUSPECTED, given.pop("evidence", [finding]), cards=BUSY, **given))
    assert (found.phase, found.held_by, found.effects) == (*expected, ())


def test_it_is_asked_again_when_the_time_is_over() -> None:
    """Nothing else may happen until then; the message is what people read."""
    fleet = narrow(Phase.SUSPECTED, [out()], cards=BUSY, policy=WAITED_FOR)
    found = decide(fleet)
    assert found.recheck_at == NOW - timedelta(seconds=5) + GRACE
    assert "cordoned unless kubelet withholds the GPU by 2026-03-01T12:01:25Z" in found.message
    assert any("else the cordon" in line for line in explain(fleet, "gpu-1", NOW))


@pytest.mark.parametrize("drain", [EVICTS, WAITS], ids=["evicting", "waiting"])
def test_one_more_gpu_gets_its_time_too_and_nobody_is_evicted_meanwhile(drain: Any) -> None:
    """The node waits already for GPU 3; of GPU 4 the fence is not known yet."""
    evidence = [out(GRACE), out(index=4)]
    fleet = narrow(Phase.WAITING, evidence, cards=BUSY, withheld=[SICK], policy=WAITED_FOR, drain=drain)
    found = decide(fleet)
    assert (found.phase, found.held_by, found.effects) == (Phase.WAITING, "wait", ())
    why = why_not_evict(fleet, next(iter(fleet.remediations.values())), NOW)
    assert why is not None
    assert "cordoned first" in why


def test_a_fence_that_is_lost_later_gets_no_time() -> None:
    """It was there, and went: a plugin started anew and offers the sick GPU."""
    found = decide(narrow(Phase.WAITING, [out(GRACE)], cards=BUSY, policy=WAITED_FOR, drain=EVICTS))
    assert found.phase is Phase.QUARANTINED


def test_a_node_left_open_to_a_person_waits_for_the_fence_of_one_more_gpu() -> None:
    """And is cordoned when the time is over."""
    person = make.person_finding(first_seen=NOW - GRACE)
    given: dict[str, Any] = {"cards": BUSY, "withheld": [SICK], "policy": WAITED_FOR}
    found = decide(narrow(Phase.ESCALATED, [person, out(index=4)], **given))
    assert (found.phase, found.status.before) == (Phase.ESCALATED, None)
    assert found.recheck_at == NOW - timedelta(seconds=5) + GRACE
    found = decide(narrow(Phase.ESCALATED, [person, out(GRACE, index=4)], **given))
    assert found.status.before is not None


@pytest.mark.parametrize("withheld_after", [45, None], ids=["the plugin withdraws it", "it never does"])
@pytest.mark.parametrize("crash_after", [None, 1], ids=["whole ticks", "a crash after each step"])
def test_the_story_of_a_stock_plugin(withheld_after: int | None, crash_after: int | None) -> None:
    """Two looks at kubelet later the GPU is fenced, and the node stays open; or it is cordoned at the end of the grace."""
    world = OpenWorld(*make.idle_nodes(9), policy=WAITED_FOR)
    world.run(SICK, HOLDER)
    world.run("GPU-5", work("neighbour"))
    world.ill(make.reset_finding())
    for second in range(0, 120, 5):
        if second == withheld_after:
            world.withheld = {SICK}
        world.again()
        for _ in range(6):
            for step in list(world.plan().steps)[:crash_after]:
                fenced = withheld_after is not None and second >= withheld_after
                assert not isinstance(step, Evict) or fenced or _is_marked(world)
                assert not isinstance(step, Quarantine) or fenced or second >= 90
                world.apply(step)
        world.now += timedelta(seconds=5)
    kinds = [kind for kind in world.kinds() if kind in ("Evict", "Quarantine")]
    first = kinds[0]
    assert first == ("Quarantine" if withheld_after is None else "Evict")


def _is_marked(world: OpenWorld) -> bool:
    return QUARANTINE in world.nodes["gpu-1"].metadata.annotations


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0s", ""),
        ("10m", ""),
        ("11m", "spec.fenceGrace: '11m' is too long; give at most 600s"),
        ("soon", "spec.fenceGrace: 'soon' is no duration; write it like 30s, 5m or 1h30m"),
    ],
)
def test_the_policys_word_is_checked(text: str, problem: str) -> None:
    """A sick GPU must not stay within reach for hours since somebody mistyped a unit."""
    terms = read(narrow_policy(fence_grace=text), make.SETTINGS)
    assert terms.problems == ((problem,) if problem else ())
    assert msgspec.to_builtins(terms.containment) == "narrow"
