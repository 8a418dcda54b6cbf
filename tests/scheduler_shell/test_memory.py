"""What the loop remembers: promises, pauses after failures, binds under way, gangs of which half was lost."""

from datetime import timedelta

import msgspec
import pytest

from controller.outcome import Result
from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.plan import Plan, Promise
from controller.scheduler.shell.config import GracesSection
from controller.scheduler.shell.memory import DOUBT_ENDS, HALF_GANG, Memory
from controller.scheduler.shell.orders import GangOrder, half_gangs
from controller.scheduler.shell.outcomes import Bound, Looked
from tests.fakes import EPOCH
from tests.scheduler.words import cluster, job, node, queue
from tests.scheduler_shell.shell_words import answer, gang, keyed, waiting_pod

SECOND = timedelta(seconds=1)
EMPTY = cluster([], [], [])
GRACE = GracesSection().half_gang


def told(order: GangOrder, number: int, result: Result, *, why: str = "", waits: bool = False) -> Bound:
    """Say what came of one member."""
    return Bound(order=order.members[number], job=order.job, answer=answer(result, why), waits=waits)


def remembering(order: GangOrder) -> Memory:
    """Give a memory with one order under way."""
    memory = Memory(GracesSection())
    memory.ordered([order], EPOCH)
    return memory


def half(*, bound: int, of: int = 4) -> Snapshot:
    """Give a gang of which some are on nodes, that never ran whole."""
    made = job("gang", "team", pods=of, on=[("a", [n]) for n in range(bound)])
    return cluster([node("a")], [queue("team")], [msgspec.structs.replace(made, started_at=None)])


def halves(snapshot: Snapshot) -> frozenset[str]:
    """Name the half gangs among groups that note nothing."""
    return half_gangs(snapshot, {}, {})


def test_what_is_under_way_is_told_to_the_next_snapshot() -> None:
    """Every member holds its place until the answer, and after it until it shows."""
    order = gang("p0", "p1")
    memory = remembering(order)
    assert set(memory.known(EPOCH).binding) == {"ns/p0", "ns/p1"}
    memory.took_bind(told(order, 0, Result.DONE), EPOCH)
    assert set(memory.known(EPOCH).binding) == {"ns/p0", "ns/p1"}
    memory.settle(keyed([waiting_pod("p0", node="a"), waiting_pod("p1")]))
    assert set(memory.known(EPOCH).binding) == {"ns/p1"}
    assert [(one.what, one.pod) for one in memory.happened()] == [("bound", "ns/p0")]
    assert memory.happened() == ()


@pytest.mark.parametrize("result", [Result.INVALID, Result.FORBIDDEN, Result.THROTTLED, Result.BLOCKED])
def test_a_refused_bind_goes_back_for_a_growing_pause(result: Result) -> None:
    """Its room is free at once, others go on, and it is said why it waits."""
    order, memory, now, pauses = gang("p0"), Memory(GracesSection()), EPOCH, []
    for _ in range(4):
        memory.ordered([order], now)
        memory.took_bind(told(order, 0, result, why="a policy says no"), now)
        known = memory.known(now)
        assert known.binding == {}
        assert "a policy says no" in known.held_pods["ns/p0"]
        until = memory.next_until(now)
        assert until is not None
        pauses.append((until - now) // SECOND)
        now = until
    assert pauses == [1, 2, 5, 10]
    assert memory.known(now).held_pods == {}


@pytest.mark.parametrize(("alone", "jobs", "pods"), [(True, [], ["ns/p0"]), (False, ["ns/gang"], [])])
def test_who_pauses_after_a_refused_bind(alone: bool, jobs: list[str], pods: list[str]) -> None:
    """A pod that stands by itself holds no sibling back; what a gang needs pauses with it."""
    order = gang("p0")
    member = msgspec.structs.replace(order.members[0], alone=alone)
    order = msgspec.structs.replace(order, members=(member,))
    memory = remembering(order)
    memory.took_bind(told(order, 0, Result.FORBIDDEN, why="a policy says no"), EPOCH)
    known = memory.known(EPOCH)
    assert (list(known.held_back), list(known.held_pods)) == (jobs, pods)
    memory.settle(keyed([waiting_pod("p0")]))
    assert list(memory.known(EPOCH).held_pods) == pods
    memory.settle(keyed([waiting_pod("p0", uid="another")]))
    assert memory.known(EPOCH).held_pods == {}


def test_a_bind_that_was_not_sent_since_the_world_changed_is_decided_anew_at_once() -> None:
    """No pause: the next cycle sees the new world."""
    order = gang("p0")
    memory = remembering(order)
    memory.took_bind(told(order, 0, Result.REFUSED, why="node a changed since it was chosen"), EPOCH)
    assert memory.known(EPOCH).binding == {}
    assert memory.known(EPOCH).held_back == {}
    assert memory.happened() == ()


@pytest.mark.parametrize("result", [Result.UNAVAILABLE, Result.CONFLICT])
def test_a_bind_of_which_nobody_knows_holds_its_room_until_the_pod_was_read(result: Result) -> None:
    """It is looked at at once; unbound counts only once no request can be on its way any more."""
    order = gang("p0")
    memory = remembering(order)
    memory.took_bind(told(order, 0, result), EPOCH)
    assert memory.doubtful(EPOCH) == ("ns/p0",)
    memory.looked(Looked(task="ns/p0", was_read=False), EPOCH + 2 * DOUBT_ENDS)
    memory.looked(Looked(task="ns/p0", pod=waiting_pod("p0")), EPOCH)
    assert "ns/p0" in memory.known(EPOCH).binding
    memory.looked(Looked(task="ns/p0", pod=waiting_pod("p0")), EPOCH + DOUBT_ENDS)
    assert memory.known(EPOCH + DOUBT_ENDS).binding == {}


def test_a_doubtful_pod_that_is_gone_holds_nothing() -> None:
    """Nobody can bind it any more."""
    order = gang("p0")
    memory = remembering(order)
    memory.took_bind(told(order, 0, Result.CONFLICT), EPOCH)
    memory.looked(Looked(task="ns/p0", pod=None), EPOCH)
    assert memory.known(EPOCH).binding == {}


def test_a_gang_that_waits_for_a_volume_is_prepared_again_every_second_and_keeps_its_places() -> None:
    """Until it is ready, or gave up."""
    order = gang("p0", "p1")
    memory = remembering(order)
    for number in range(2):
        memory.took_bind(told(order, number, Result.SKIPPED, waits=True), EPOCH)
    assert memory.to_prepare_again(EPOCH) == []
    assert memory.to_prepare_again(EPOCH + SECOND) == [order]
    assert memory.to_prepare_again(EPOCH + SECOND) == []
    assert set(memory.known(EPOCH).binding) == {"ns/p0", "ns/p1"}
    for number in range(2):
        memory.took_bind(told(order, number, Result.BLOCKED, why="given up"), EPOCH + 2 * SECOND)
    assert memory.to_prepare_again(EPOCH + 9 * SECOND) == []
    assert memory.known(EPOCH + 2 * SECOND).binding == {}


def test_a_member_that_is_gone_ends_the_waiting_of_its_gang() -> None:
    """Nothing is prepared for pods that are no more."""
    order = gang("p0")
    memory = remembering(order)
    memory.took_bind(told(order, 0, Result.SKIPPED, waits=True), EPOCH)
    memory.settle(keyed([waiting_pod("p0", uid="another")]))
    assert memory.to_prepare_again(EPOCH + SECOND) == []


def test_a_half_gang_has_its_grace_and_then_gives_its_places_back() -> None:
    """Only the members that hold a place are evicted."""
    memory, snapshot = Memory(GracesSection()), half(bound=2)
    assert memory.lost_gangs(halves(snapshot), snapshot, EPOCH) == ()
    assert memory.lost_gangs(halves(snapshot), snapshot, EPOCH + GRACE - SECOND) == ()
    found = memory.lost_gangs(halves(snapshot), snapshot, EPOCH + GRACE)
    assert [(one.task, one.action) for one in found] == [("gang-0", HALF_GANG), ("gang-1", HALF_GANG)]
    assert "2 of the 4 pods" in found[0].why


def test_a_half_gang_that_becomes_whole_is_left_alone_for_ever() -> None:
    """Later losses make it stale, which has another grace."""
    memory = Memory(GracesSection())
    for snapshot, at in ((half(bound=2), EPOCH), (half(bound=4), EPOCH + SECOND)):
        assert memory.lost_gangs(halves(snapshot), snapshot, at) == ()
    later = half(bound=3)
    for passed in range(3):
        assert memory.lost_gangs(halves(later), later, EPOCH + passed * GRACE) == ()


def test_a_gang_that_starts_anew_may_be_half_again() -> None:
    """That its last run was whole says nothing about this one."""
    memory = Memory(GracesSection())
    for bound, passed in ((4, 0), (0, 1), (2, 2)):
        snapshot = half(bound=bound)
        at = EPOCH + passed * SECOND
        assert memory.lost_gangs(halves(snapshot), snapshot, at) == ()
    assert len(memory.lost_gangs(halves(half(bound=2)), half(bound=2), EPOCH + 2 * SECOND + GRACE)) == 2


def test_a_gang_with_a_bind_under_way_is_not_half() -> None:
    """Its members come one after the other."""
    memory, snapshot = Memory(GracesSection()), half(bound=2)
    order = gang("x")
    bind = msgspec.structs.replace(order.members[0].bind, task="gang-2")
    member = msgspec.structs.replace(order.members[0], bind=bind)
    memory.ordered([msgspec.structs.replace(order, members=(member,))], EPOCH)
    for passed in range(3):
        assert memory.lost_gangs(halves(snapshot), snapshot, EPOCH + passed * GRACE) == ()
    assert snapshot.jobs[0].tasks[2].status is TaskStatus.PENDING


def test_what_a_plan_promises_is_told_to_the_next_snapshot() -> None:
    """And nothing else of it is kept. Before the first plan it is not known, and what pods show counts."""
    memory = Memory(GracesSection())
    assert memory.known(EPOCH).promises is None
    promises = (Promise(job="ns/g", nodes=("a",)),)
    memory.planned(Plan(reserved_for="ns/big"), promises, EMPTY, EPOCH)
    known = memory.known(EPOCH)
    assert (known.reserved_for, known.promises) == ("ns/big", promises)


def test_a_job_that_room_was_made_for_keeps_it_while_it_pauses() -> None:
    """It stays in the cycle, which places it first; nothing is sent before its pause is over."""
    order = gang("p0", "p1")
    memory = remembering(order)
    memory.planned(Plan(), (Promise(job="ns/gang", nodes=("a", "a")),), EMPTY, EPOCH)
    for number in range(2):
        memory.took_bind(told(order, number, Result.THROTTLED, why="busy"), EPOCH)
    assert memory.known(EPOCH).held_back == {}
    other = gang("q", job="ns/other").members[0].bind
    plan = Plan(binds=(*(member.bind for member in order.members), other))
    for _ in range(2):
        sent = memory.planned(plan, (), EMPTY, EPOCH)
        assert [bind.task for bind in sent.binds] == ["ns/q"]
        assert sent.promises == (Promise(job="ns/gang", nodes=("a", "a")),)
        assert memory.known(EPOCH).promises == (Promise(job="ns/gang", nodes=("a", "a")),)
    assert memory.planned(plan, (), EMPTY, EPOCH + SECOND) == plan
    assert memory.known(EPOCH + SECOND).promises == ()


@pytest.mark.parametrize(
    ("least", "sent"),
    [(1, ["p1"]), (3, ["p0", "p1"])],
    ids=["it pauses by itself, and keeps its room", "its gang needs it by now, and goes as one"],
)
def test_a_pod_of_a_job_that_room_was_made_for(least: int, sent: list[str]) -> None:
    """Its siblings take what was made for them."""
    order = gang("p0", job="gang")
    memory = remembering(order)
    memory.planned(Plan(), (Promise(job="gang", nodes=("a", "b", "c")),), EMPTY, EPOCH)
    memory.took_bind(told(order, 0, Result.FORBIDDEN, why="a policy says no"), EPOCH)
    assert memory.known(EPOCH).held_pods == {}
    binds = tuple(gang(name, job="gang").members[0].bind for name in ("p0", "p1"))
    snapshot = cluster([node("a")], [queue("team")], [job("gang", "team", pods=3, least=least)])
    rest = (Promise(job="gang", nodes=("c",)),)
    plan = memory.planned(Plan(binds=binds), rest, snapshot, EPOCH)
    assert [bind.task for bind in plan.binds] == [f"ns/{name}" for name in sent]
    kept = ("a", "c") if len(sent) == 1 else ("c",)
    assert memory.known(EPOCH).promises == (Promise(job="gang", nodes=kept),)


def test_a_gang_that_is_being_prepared_is_not_prepared_a_second_time_beside_itself() -> None:
    """However long that takes; its answer puts it back."""
    order = gang("p0", "p1")
    memory = remembering(order)
    for number in range(2):
        memory.took_bind(told(order, number, Result.SKIPPED, waits=True), EPOCH)
    assert memory.to_prepare_again(EPOCH + SECOND) == [order]
    assert memory.to_prepare_again(EPOCH + 20 * SECOND) == []
    memory.took_bind(told(order, 0, Result.SKIPPED, waits=True), EPOCH + 21 * SECOND)
    assert memory.to_prepare_again(EPOCH + 22 * SECOND) == [order]


def test_a_gang_of_which_one_is_refused_again_and_again_goes_back_for_longer_each_time() -> None:
    """Though all the others are bound each time; whole once, it begins anew."""
    memory, now, pauses = Memory(GracesSection()), EPOCH, []
    members = tuple(msgspec.structs.replace(one, alone=False) for one in gang("p0", "p1").members)
    order = msgspec.structs.replace(gang("p0", "p1"), members=members)
    for first in (0, 1, 0, 1):
        memory.ordered([order], now)
        results = {0: Result.DONE, 1: Result.FORBIDDEN}
        for number in (first, 1 - first):
            memory.took_bind(told(order, number, results[number], why="a policy says no"), now)
        until = memory.next_until(now)
        assert until is not None
        pauses.append((until - now) // SECOND)
        now = until
    assert pauses == [1, 2, 5, 10]


def test_binds_under_way_make_no_gang_whole() -> None:
    """One of them may fail still, and then it is half."""
    memory = Memory(GracesSection())
    made = job("gang", "team", pods=4, on=[("a", [n]) for n in range(4)])
    tasks = tuple(msgspec.structs.replace(task, status=TaskStatus.BINDING) for task in made.tasks)
    under_way = cluster([node("a")], [queue("team")], [msgspec.structs.replace(made, tasks=tasks)])
    assert memory.lost_gangs(halves(under_way), under_way, EPOCH) == ()
    snapshot = half(bound=3)
    memory.lost_gangs(halves(snapshot), snapshot, EPOCH)
    assert len(memory.lost_gangs(halves(snapshot), snapshot, EPOCH + GRACE)) == 3


def test_nobody_of_a_half_gang_is_evicted_while_the_observer_is_suspected() -> None:
    """Why the others could not follow may be what it believes to see."""
    memory = Memory(GracesSection())
    snapshot = msgspec.structs.replace(half(bound=2), suspected="too many at once")
    for passed in range(3):
        assert memory.lost_gangs(halves(snapshot), snapshot, EPOCH + passed * GRACE) == ()
