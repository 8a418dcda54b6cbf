"""Drills that a person asked for: marked, bounded in time, and never in the way of a real finding."""

from datetime import UTC, datetime, timedelta

import pytest

from agent.judge import CheckState, Surroundings, judge, restore
from checks.check import Check, Context, Drill, Judgement, discover
from checks.condition import Condition, Healthy, Status
from checks.drill import LONGEST, MOST, asked_for, default_part, with_drills
from checks.finding import Action, Effect, Part, PartKind, Urgency
from checks.reason_rows import fault

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GPU = Part(kind=PartKind.GPU, pci="0000:3b:00", uuid="GPU-1", index=3)
SICK = fault("ThingSick", Effect.NODE_OUT, Urgency.NOW, Action.REBOOT, "It is sick.", "Look.")


def drill(reason: str = "ThingSick", part: Part = GPU, *, since_s: int = 0, for_s: int = 600) -> Drill:
    since = NOON + timedelta(seconds=since_s)
    return Drill(id="d1", reason=reason, part=part, since=since, until=since + timedelta(seconds=for_s))


def context(*drills: Drill, now: datetime = NOON) -> Context:
    return Context(boot_id="boot-1", now=now, drills=drills, parts=(GPU,))


def check(judgement: Judgement) -> Check:
    return Check(
        name="thing",
        condition="ThingFault",
        healthy=Healthy(reason="Fine", message="fine"),
        reasons=(SICK,),
        judge=lambda _observations, _memory, _context: judgement,
        applies=lambda parts: bool(parts),
        memory_type=dict,
        runbook="Look.",
    )


def around(*drills: Drill) -> Surroundings:
    return Surroundings(boot_id="boot-1", parts=(GPU,), parts_known=True, drills=drills)


@pytest.mark.parametrize(
    ("asked", "stands"),
    [
        pytest.param(drill(), True, id="it stands from its beginning"),
        pytest.param(drill(since_s=-599), True, id="to its end"),
        pytest.param(drill(since_s=-600), False, id="and no longer"),
        pytest.param(drill(since_s=200), True, id="a person's clock may be a little ahead"),
        pytest.param(drill(since_s=301), False, id="not by more than five minutes"),
        pytest.param(drill(for_s=3601), False, id="none is longer than an hour"),
        pytest.param(drill("AnotherReason"), False, id="another class's reason is that class's drill"),
    ],
)
def test_a_drill_stands_while_it_is_under_way(asked: Drill, stands: bool) -> None:
    """And only in the class that owns its reason."""
    judged = with_drills(check(Judgement()), Judgement(), context(asked))
    assert [finding.drill for finding in judged.findings] == [True] * stands


def test_it_names_the_part_as_it_is_known_here() -> None:
    """By UUID or PCI address alone, the rest is filled in."""
    asked = drill(part=Part(kind=PartKind.GPU, uuid="GPU-1"))
    (finding,) = with_drills(check(Judgement()), Judgement(), context(asked)).findings
    assert finding.part == GPU
    assert finding.detail == "drill d1"
    assert asked_for(finding)


def test_a_real_finding_takes_its_place() -> None:
    """The same reason on the same part is the real one."""
    real = SICK.found_on(GPU, "boot-1", first_seen=NOON, last_seen=NOON)
    judgement = Judgement(findings=(real,))
    assert with_drills(check(judgement), judgement, context(drill())).findings == (real,)


def test_the_number_of_drills_is_bounded() -> None:
    """What is more than eight is left out."""
    drills = [drill(part=Part(kind=PartKind.GPU, uuid=f"GPU-{n}")) for n in range(MOST + 3)]
    assert len(with_drills(check(Judgement()), Judgement(), context(*drills)).findings) == MOST


@pytest.mark.parametrize(
    ("judgement", "standing", "after"),
    [
        pytest.param(Judgement(), None, ("False", "Fine"), id="the check says that all is well"),
        pytest.param(
            Judgement(not_yet="not read"),
            Condition(
                type="ThingFault", status=Status.FALSE, reason="Fine", message="fine", last_transition=NOON
            ),
            ("False", "Fine"),
            id="the check cannot say anything yet: as it was before",
        ),
    ],
)
def test_the_condition_is_true_for_as_long_as_the_drill(
    judgement: Judgement, standing: Condition | None, after: tuple[str, str]
) -> None:
    """Its message says that it is a drill; when it is over, the condition is what it would have been without it."""
    one = check(judgement)
    state = judge(one, CheckState(condition=standing), [], around(drill()), {}, NOON)
    assert state.condition is not None
    assert (state.condition.status, state.condition.reason) == (Status.TRUE, "ThingSick")
    assert state.condition.message.startswith("drill: GPU 3")
    later = NOON + LONGEST
    state = judge(one, state, [], around(drill()), {}, later)
    assert state.condition is not None
    assert (state.condition.status, state.condition.reason) == after
    assert state.condition.last_transition == later
    assert state.findings == ()


def test_a_class_that_is_not_here_can_be_drilled_and_is_gone_afterwards() -> None:
    """No part of it is taken for seen."""
    one = check(Judgement(exists=False))
    state = judge(
        one, CheckState(), [], Surroundings(boot_id="boot-1", parts_known=True, drills=(drill(),)), {}, NOON
    )
    assert state.exists
    assert not state.seen
    state = judge(one, state, [], Surroundings(boot_id="boot-1", parts_known=True), {}, NOON)
    assert (state.exists, state.condition) == (False, None)


def test_what_was_read_back_is_no_drill_of_the_spec() -> None:
    """The spec says it again; a check that latches must not."""
    (finding,) = with_drills(check(Judgement()), Judgement(), context(drill())).findings

    def latch(_findings: object, _memory: object) -> dict[str, str]:
        raise AssertionError

    one = check(Judgement())
    latching = Check(**{name: getattr(one, name) for name in one.__struct_fields__} | {"restore": latch})
    assert restore(latching, CheckState(), [finding], "boot-1") == CheckState()


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        pytest.param(PartKind.GPU, GPU, id="the first one of its kind"),
        pytest.param(
            PartKind.PORT, Part(kind=PartKind.PORT, name="drill"), id="where there is none, one by name"
        ),
        pytest.param(PartKind.NODE, Part(kind=PartKind.NODE), id="the node itself"),
    ],
)
def test_a_part_is_chosen(kind: PartKind, part: Part) -> None:
    """Where the person names none."""
    assert default_part(kind, [GPU]) == part


@pytest.mark.parametrize("one", discover(), ids=lambda one: str(one.name))
def test_every_reason_of_every_class_can_be_drilled(one: Check) -> None:
    """Harmlessly: a finding that is marked, and nothing else."""
    for reason in one.reasons:
        asked = drill(reason.name, Part(kind=PartKind.NODE))
        judged = with_drills(one, Judgement(), context(asked))
        assert [(f.reason, f.drill) for f in judged.findings] == [(reason.name, True)]
