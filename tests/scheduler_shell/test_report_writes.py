"""How the reporter writes: what happened as Events, what a refusal holds, and that nothing of it holds up the loop."""

import threading
import time

import pytest

from controller.scheduler.plan import Evict, Plan
from controller.scheduler.shell.report import MOST_BOUND, MOST_HAPPENED, PAUSE_S, Happened
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import limited
from controller.scheduler.shell.write_holds import SEVERAL, WriteHolds
from kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from tests.fakes import EPOCH, request_to, wait_until
from tests.scheduler_shell.report_stage import OURS, Stage, said

PDB = 'Cannot evict pod as it would violate the pod\'s disruption budget "serving"'


def happened(what: str, message: str = "", name: str = "p1", node: str = "n1") -> Happened:
    """Give what happened to a pod of the namespace team."""
    return Happened(pod=f"team/{name}", uid=f"uid-{name}", what=what, node=node, message=message, at=EPOCH)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "action", "told", "note"),
    [
        pytest.param(
            happened("bound"),
            "",
            "Normal Scheduled",
            "Successfully assigned team/p1 to n1",
            id="as kube-scheduler does",
        ),
        pytest.param(
            happened("bind-failed", "admission webhook says no"),
            "",
            "Warning FailedBinding",
            "Could not bind team/p1 to n1: admission webhook says no",
            id="a bind that failed",
        ),
        pytest.param(
            happened("evicted", "preempted for job team/big"),
            "preempt",
            "Normal Preempted",
            "preempted for job team/big",
            id="who gains and why this one",
        ),
        pytest.param(happened("evicted", "x"), "reclaim", "Normal Reclaimed", "x", id="reclaimed"),
        pytest.param(happened("evicted", "x"), "consolidation", "Normal Moved", "x", id="moved"),
        pytest.param(
            happened("evicted", "x"), "stalegangeviction", "Normal StaleGang", "x", id="a stale gang"
        ),
        pytest.param(happened("evicted", "x"), "half-gang", "Normal Evicted", "x", id="by another action"),
        pytest.param(
            happened("evicted"), "reclaim", "Normal Reclaimed", "the plan's words", id="in the plan's words"
        ),
        pytest.param(
            happened("evict-refused", PDB),
            "",
            "Warning EvictionRefused",
            f"team/p1 was to be evicted from n1 and was not: {PDB}",
            id="the budget that refused it is named",
        ),
    ],
)
def test_what_happened_is_told(one: Happened, action: str, told: str, note: str) -> None:
    """About the pod, in its namespace, by the scheduler's name."""
    stage = Stage()
    evictions = (Evict(task="team/p1", job="team/j", node="n1", action=action, why="the plan's words"),)
    stage.cycle(one, plan=Plan(evictions=evictions if action else ()))
    stage.round()
    (event,) = stage.events()
    assert said(event) == f"Pod p1: {told}"
    assert event["note"] == note
    assert event["regarding"]["uid"] == "uid-p1"
    assert (event["reportingController"], event["reportingInstance"]) == (OURS, "replica-1")


def test_a_failure_that_comes_back_word_for_word_is_told_once() -> None:
    """By this leader and by the next; other words are told."""
    stage = Stage()
    for _ in range(3):
        stage.cycle(happened("bind-failed", "no"))
        stage.round(after_s=1.0)
    stage.restart()
    stage.cycle(happened("bind-failed", "no"), happened("bind-failed", "still no"))
    stage.round()
    assert len(stage.events()) == 2


def test_that_pods_were_bound_is_told_in_peace() -> None:
    """Failures are told at once."""
    stage = Stage()
    stage.calm = False
    stage.cycle(happened("bound", name="p1"), happened("bind-failed", "no", name="p2"))
    stage.round()
    assert list(map(said, stage.events())) == ["Pod p2: Warning FailedBinding"]
    stage.calm = True
    stage.round(after_s=1.0)
    assert sorted(map(said, stage.events())) == ["Pod p1: Normal Scheduled", "Pod p2: Warning FailedBinding"]


def test_what_does_not_fit_is_counted_and_lost() -> None:
    """A queue without bound would be the end of a scheduler whose server is away."""
    stage = Stage()
    stage.cycle(*(happened("bind-failed", name=f"p{index}") for index in range(MOST_HAPPENED + 5)))
    assert stage.reporter.lost == 5


def test_of_a_burst_of_binds_some_are_told_and_no_failure_is_lost_for_them() -> None:
    """A pod says itself where it is."""
    stage = Stage()
    stage.cycle(
        happened("bind-failed", name="refused"),
        *(happened("bound", name=f"p{index}") for index in range(MOST_BOUND + 5)),
    )
    assert stage.reporter.lost == 5
    stage.round()
    assert "Pod refused: Warning FailedBinding" in list(map(said, stage.events()))


def test_a_job_that_fits_costs_one_request_beyond_its_bind() -> None:
    """The Event; its group is the grouper's, and its status waits for nothing."""
    stage = Stage()
    stage.queue()
    stage.settled()
    stage.group("a")
    stage.pod("a-0", "a")
    plan = stage.cycle()
    stage.bind("a-0", plan.binds[0].node)
    stage.cycle(happened("bound", name="a-0"))
    asked = stage.round()
    for _ in range(10):
        asked += stage.round(after_s=3.0)
    assert [one for one in asked if "queues" not in one] == ["CREATE events"]


def write(kind: Kind = Kind.POD, key: str = "team/p1") -> Write:
    """Give a write of that kind."""
    return Write(kind=kind, key=key, path="/", body={})


@pytest.mark.parametrize(
    ("error", "held", "free", "news"),
    [
        pytest.param(
            Forbidden("no"), write(key="team/p2"), write(Kind.EVENT), True, id="rights hold their kind"
        ),
        pytest.param(
            Forbidden("no"),
            write(key="team/p2"),
            write(key="other/p1"),
            True,
            id="in their namespace: a policy of its own may be what refuses",
        ),
        pytest.param(
            Unauthorized("no"), write(key="team/p2"), write(Kind.EVENT), True, id="a token holds its kind"
        ),
        pytest.param(Unavailable("no"), write(Kind.EVENT), None, True, id="no answer holds all"),
        pytest.param(TooManyRequests("no"), write(Kind.EVENT), None, True, id="so does a busy server"),
        pytest.param(
            NotLeader("no"), write(Kind.EVENT), None, False, id="so does another leader, which is no fault"
        ),
        pytest.param(
            Conflict("no"),
            write(),
            write(key="team/p2"),
            False,
            id="a conflict holds its object, and is none",
        ),
        pytest.param(Invalid("no"), write(), write(key="team/p2"), True, id="so does a refusal"),
    ],
)
def test_what_a_refusal_holds(error: ApiError, held: Write, free: Write | None, news: bool) -> None:
    """And whether it is worth a line in the log."""
    holds = WriteHolds()
    assert holds.failed(write(), error, 100.0) is news
    assert not holds.may(held, 100.1)
    assert free is None or holds.may(free, 100.1)
    assert holds.may(held, 1000.0)


def test_what_has_no_namespace_is_held_as_a_kind() -> None:
    """Nobody can tell whether another queue would be taken."""
    holds = WriteHolds()
    holds.failed(write(Kind.QUEUE, "research"), Forbidden("no"), 100.0)
    assert not holds.may(write(Kind.QUEUE, "other"), 100.1)


def test_rights_that_several_namespaces_refuse_hold_their_kind_everywhere() -> None:
    """Then it is a matter of the scheduler's rights, and each namespace need not be asked first."""
    holds = WriteHolds()
    news = [holds.failed(write(key=f"team-{n}/p1"), Forbidden("no"), 100.0) for n in range(SEVERAL)]
    assert news == [True] * SEVERAL
    assert not holds.may(write(key="other/p1"), 100.1)
    assert not holds.may_any(Kind.POD, 100.1)
    assert holds.may(write(Kind.EVENT, "other/e"), 100.1)
    assert not holds.failed(write(key="other/p1"), Forbidden("no"), 111.0)
    assert not holds.may(write(key="more/p1"), 120.0)
    assert holds.worked(write(key="more/p1"))
    assert holds.may(write(key="other/p1"), 130.0)


def test_a_namespace_that_takes_a_kind_shows_that_the_others_refuse_for_themselves() -> None:
    """However many refuse: those that take it go on being told."""
    holds = WriteHolds()
    for n in range(2 * SEVERAL):
        holds.failed(write(key=f"team-{n}/p1"), Forbidden("no"), 100.0)
        holds.worked(write(key="good/p1"))
    assert holds.may(write(key="good/p2"), 100.1)
    assert not any(holds.may(write(key=f"team-{n}/p2"), 100.1) for n in range(2 * SEVERAL))


def test_those_that_refuse_keep_the_turn_from_nobody_for_long() -> None:
    """Though they stand before those that take it, in every round."""
    holds, refusals = WriteHolds(), 0
    wishes = [*(write(key=f"team-{n}/p1") for n in range(2 * SEVERAL)), write(key="good/p1")]
    for second in range(300):
        allowed = next((one for one in wishes if holds.may(one, float(second))), None)
        if allowed is wishes[-1]:
            break
        if allowed is not None:
            holds.failed(allowed, Forbidden("no"), float(second))
            refusals += 1
    else:
        pytest.fail("its turn never came")
    assert refusals < 10 * SEVERAL


def test_a_refusal_is_news_once() -> None:
    """And that it is over too."""
    holds = WriteHolds()
    assert holds.failed(write(), Forbidden("no"), 100.0)
    assert not holds.failed(write(), Forbidden("no"), 200.0)
    assert holds.worked(write())
    assert not holds.worked(write())


def test_pauses_grow_up_to_a_bound() -> None:
    """And the server's own word counts where it asks for more."""
    holds = WriteHolds()
    pauses = []
    for _ in range(9):
        holds.failed(write(), Unavailable("no"), 0.0)
        pauses.append(holds.next_at(0.0))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    other = WriteHolds()
    other.failed(write(), TooManyRequests("no", retry_after_s=7.0), 0.0)
    assert other.next_at(0.0) == 7.0


def test_holds_are_bounded() -> None:
    """The first to end are forgotten."""
    holds = WriteHolds()
    for index in range(20_001):
        holds.failed(write(key=f"team/p{index}"), Invalid("no"), float(index))
    assert not holds.may(write(key="team/p20000"), 20_000.0)
    assert holds.may(write(key="team/p0"), 1.0)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        pytest.param(Conflict("changed"), True, id="as soon as it is read anew"),
        pytest.param(Unavailable("away"), True, id="after a pause"),
        pytest.param(NotFound("gone"), False, id="not where it is gone, which the store will show"),
        pytest.param(
            Forbidden("ending", causes=("NamespaceTerminating",)), False, id="nor where its namespace ends"
        ),
    ],
)
def test_what_was_not_taken_is_written_again(error: ApiError, again: bool) -> None:
    """From what holds by then."""
    stage = Stage()
    stage.queue()
    stage.api.fail_next(request_to("PATCH", "queues"), error)
    stage.cycle()
    assert stage.round() == ["PATCH queues/research/status"]
    assert sum(stage.reporter.failed.values()) == again
    assert stage.round() == []
    assert stage.round(after_s=6.0) == (["PATCH queues/research/status"] if again else [])


def test_a_refused_write_pauses_as_long_as_one_that_was_taken() -> None:
    """A thousand refusals in a row would be a storm like any other."""
    stage = Stage()
    for index in range(5):
        stage.queue(f"q{index}")
    stage.api.fail_next(request_to("PATCH", "queues"), Invalid("no"), times=None)
    stage.cycle()
    began = time.monotonic()
    assert len(stage.round()) == 5
    assert time.monotonic() - began >= 5 * PAUSE_S


def test_who_does_not_lead_writes_nothing_and_counts_no_failure() -> None:
    """Until it leads again."""
    stage = Stage()
    stage.queue()
    stage.queue("other")
    stage.api.fail_next(request_to("*", ""), NotLeader("another leads"))
    stage.cycle()
    assert len(stage.round()) == 1
    assert stage.reporter.failed == {}
    assert len(stage.round(after_s=6.0)) == 2


def test_the_thread_writes_and_ends() -> None:
    """And `took` returns at once, whatever the server does."""
    stage = Stage()
    stage.queue()
    held, entered = threading.Event(), threading.Event()

    def predicate(_request: object) -> bool:
        entered.set()
        held.wait(5.0)
        return False

    stage.api.fail_next(predicate, NotLeader("never"))
    stage.reporter.start()
    assert stage.reporter.alive
    stage.cycle()
    assert entered.wait(5.0)
    stage.cycle()
    assert stage.reporter.written == {}
    stage.api.stop_failing()
    held.set()
    wait_until(lambda: stage.reporter.written["queues/status"] == 1)
    stage.reporter.stop(5.0)
    assert not stage.reporter.alive


def test_a_defect_is_counted_and_ends_nothing() -> None:
    """Whatever it is."""
    stage = Stage()
    stage.queue()
    stage.api.fail_next(request_to("PATCH", ""), ZeroDivisionError("a defect"))
    stage.reporter.start()
    stage.cycle()
    wait_until(lambda: stage.reporter.failed["round"] == 1)
    assert stage.reporter.alive
    stage.reporter.stop(5.0)


def test_a_text_is_cut_where_the_server_would_refuse_it() -> None:
    """In bytes, and never within a letter."""
    assert limited("short") == "short"
    cut = limited("ä" * 600)
    assert (len(cut.encode()) <= 1000, cut.endswith("...")) == (True, True)


def test_while_others_schedule_nothing_is_told_and_afterwards_what_holds_then() -> None:
    """KAI Scheduler came back beside us, say: statuses are its own now."""
    stage = Stage()
    stage.queue()
    stage.may_write = False
    stage.cycle(happened("bind-failed", "no", name="p2"))
    assert stage.round(after_s=2.0) == []
    stage.may_write = True
    stage.round(after_s=2.0)
    assert "Pod p2: Warning FailedBinding" in list(map(said, stage.events()))
