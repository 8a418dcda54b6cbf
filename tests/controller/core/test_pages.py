"""Every page reaches who has to hear it, as the first, a further or the last word; none is lost between owners or modes."""

from datetime import timedelta

import msgspec
import pytest

from controller import outbox
from controller.outbox import ROWS_LIMIT
from controller.plan import plan
from controller.steps import SavePolicy
from controller.view import Delivery, Fleet
from kube.policy import Mode, PolicyStatus, RemediationPolicy
from kube.remediation import Notification, Phase
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.stage import INCIDENT, decide, stage
from tests.controller.core.test_policy_status import ill_fleet

WAITS = {"pager": (timedelta(0), timedelta(seconds=5))}
Rows = tuple[Notification, ...]


def paged(owner: str, rows: Rows = (), line: str = "x") -> Rows:
    return outbox.page(rows, owner, line, ["pager"], WAITS, NOW)


def answered(rows: Rows, error: str, *ids: str) -> Rows:
    """Let the receiver accept these at once, or refuse them until they are dead."""
    for id_ in ids:
        for attempt in (1, 2) if error else (1,):
            rows = outbox.settle(rows, {id_: Delivery(attempt=attempt, at=NOW, error=error)}, WAITS)
    return rows


def shape(rows: Rows) -> list[tuple[str, bool]]:
    return [(row.transition, row.dead) for row in rows]


def test_what_waited_behind_an_open_that_died_opens() -> None:
    """The receiver was away for hours: an update of something it never heard of could be dropped there."""
    rows = paged("inc-1", paged("inc-1", paged("inc-1")))
    rows = outbox.resolve(rows, "inc-1", "over", WAITS, NOW)
    rows = answered(rows, "no route", "inc-1-1-pager")
    assert shape(rows) == [("open", True), ("open", False), ("update", False), ("resolve", False)]
    rows = answered(rows, "", "inc-1-2-pager", "inc-1-3-pager", "inc-1-4-pager")
    assert shape(rows) == [("open", True), ("open", False), ("update", False), ("resolve", False)]


def test_a_breaker_is_resolved_however_many_tripped_after_it() -> None:
    """A full outbox forgets what is over, never that somebody still waits for the end of something."""
    rows: Rows = answered(paged("breaker-first"), "", "breaker-first-1-pager")
    for number in range(ROWS_LIMIT):
        owner = f"breaker-{number}"
        rows = paged(owner, rows)
        rows = answered(rows, "", rows[-1].id)
        rows = outbox.resolve(rows, owner, "over", WAITS, NOW)
        rows = answered(rows, "", rows[-1].id)
    assert len(rows) <= ROWS_LIMIT
    rows = outbox.resolve(rows, "breaker-first", "over", WAITS, NOW)
    assert rows[-1].id.startswith("breaker-first-")
    assert rows[-1].transition == "resolve"


def policy_rows(fleet: Fleet, after: timedelta = timedelta(0)) -> list[str]:
    """Name the transitions in the outbox of the policy as it is saved, or stands."""
    saved = [step.status for step in plan(fleet, NOW + after).steps if isinstance(step, SavePolicy)]
    status = saved[0] if saved else fleet.policies["gpus"].status
    return [row.transition for row in status.notifications]


def with_policy(fleet: Fleet, mode: Mode, status: PolicyStatus) -> Fleet:
    return msgspec.structs.replace(fleet, policies={"gpus": make.policy(mode=mode, status=status)})


def test_a_breaker_that_stands_when_a_policy_leaves_observe_is_paged_once() -> None:
    """From then on it holds something, and nobody was told."""
    observed = ill_fleet(4, 4, policies=[make.policy(mode=Mode.OBSERVE)])
    (step,) = [step for step in plan(observed, NOW).steps if isinstance(step, SavePolicy)]
    enforced = with_policy(observed, Mode.ENFORCE, step.status)
    (told,) = [step for step in plan(enforced, NOW).steps if isinstance(step, SavePolicy)]
    assert [row.transition for row in told.status.notifications] == ["open"]
    assert policy_rows(with_policy(enforced, Mode.ENFORCE, told.status), timedelta(minutes=1)) == ["open"]
    assert policy_rows(with_policy(enforced, Mode.OBSERVE, told.status), timedelta(minutes=1)) == ["open"]


def test_a_page_about_the_breaker_that_died_is_a_problem_of_the_policy() -> None:
    """As those of incidents are: it is seen in `kubectl get remediationpolicy`."""
    dead = Notification(
        id="breaker-1-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=SEEN,
        dead=True,
        error="500",
    )
    fleet = make.fleet(
        *make.idle_nodes(3), policies=[make.policy(status=PolicyStatus(notifications=(dead,)))]
    )
    (step,) = [step for step in plan(fleet, NOW).steps if isinstance(step, SavePolicy)]
    assert step.status.problems == (
        "messages could not be delivered, the newest to sink pager (breaker-1-1-pager): 500",
    )


@pytest.mark.parametrize(
    ("phase", "hours", "shown"),
    [
        pytest.param(Phase.ESCALATED, 100, True, id="as long as the incident is open"),
        pytest.param(Phase.CANCELLED, 23, True, id="for a day after that"),
        pytest.param(Phase.CANCELLED, 25, False, id="not for a month"),
    ],
)
def test_a_page_that_died_is_a_problem_while_somebody_may_still_act_on_it(
    phase: Phase, hours: int, shown: bool
) -> None:
    """What is long over must not hide what is wrong tonight."""
    at = NOW - timedelta(hours=hours)
    dead = Notification(
        id="i-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=at,
        dead=True,
        error="500",
    )
    closed_at = NOW if phase is Phase.CANCELLED else None
    one = make.remediation(
        make.node("spare-1"), phase=phase, notifications=(dead,), before=make.before(), closed_at=closed_at
    )
    fleet = make.fleet(*make.idle_nodes(3), remediations=[one])
    (step,) = [step for step in plan(fleet, NOW).steps if isinstance(step, SavePolicy)]
    assert bool(step.status.problems) == shown


@pytest.mark.parametrize(
    ("policies", "told"),
    [
        pytest.param([make.policy()], 2, id="the policy in force"),
        pytest.param([], 2, id="no policy any more"),
        pytest.param([make.policy(default_wait="soon")], 2, id="a policy that cannot be read"),
        pytest.param([make.policy(sinks=())], 1, id="a policy that pages nobody now"),
    ],
)
def test_whoever_was_paged_hears_that_a_person_is_needed(
    policies: list[RemediationPolicy], told: int
) -> None:
    """Also where nobody can say any more under which policy: the incident ends with a person all the same."""
    opened = Notification(
        id=f"{INCIDENT}-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=SEEN,
        attempts=1,
        sent_at=SEEN,
    )
    fleet = stage(
        Phase.REVALIDATING,
        condition="Unknown",
        policies=policies,
        notifications=(opened,),
        held_by="evidence",
        held_since=NOW - timedelta(hours=1),
    )
    decision = decide(fleet)
    assert (decision.phase, len(decision.status.notifications)) == (Phase.ESCALATED, told)
