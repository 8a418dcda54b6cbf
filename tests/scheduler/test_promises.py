"""What was emptied for a job is given to it first, and to nobody else meanwhile."""

import msgspec

from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.plan import Promise
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE
from tests.scheduler.after import after
from tests.scheduler.words import bound, cluster, decide, evicted, job, node, queue

HALF = Request(portion=500, cpu_milli=1000, memory_bytes=1 << 30)


def contested(**changes: object) -> Snapshot:
    """A guest has the only GPU; its owner asks for it, and an older job of a queue that is served less asks too."""
    jobs = [
        job("guest", "guest", on=[("a", [0])]),
        job("asks", "owner", age_s=60),
        job("older", "owner", age_s=9_000, priority=40),
    ]
    snapshot = cluster([node("a", 1)], [queue("guest"), queue("owner", 1)], jobs)
    return msgspec.structs.replace(snapshot, **changes)


def test_a_plan_says_for_whom_it_makes_room_and_where() -> None:
    """The job that gains is promised the node; whoever is moved is promised its new one."""
    plan = decide(contested())
    assert evicted(plan) == ["guest-0"]
    assert plan.promises == (Promise(job="asks", nodes=("a",)),)


def test_kai_promises_nothing() -> None:
    """In its mode the next cycle begins anew."""
    assert decide(contested(), COMPATIBLE).promises == ()


def test_the_job_for_which_room_was_made_gets_it_though_another_is_first_by_now() -> None:
    """Meanwhile a job of higher priority has come: it waits for the next room."""
    snapshot = contested()
    later = after(snapshot, decide(snapshot))
    urgent = job("urgent", "owner", priority=90, age_s=1)
    later = msgspec.structs.replace(later, jobs=(*later.jobs, urgent))
    assert bound(decide(later)) == {"asks-0": "a"}
    forgotten = msgspec.structs.replace(later, promises=(), reserved_for="")
    assert bound(decide(forgotten)) == {"urgent-0": "a"}


def test_a_promise_stands_while_the_victim_still_ends() -> None:
    """The victim takes its time: nothing is bound, nobody else is evicted, and the same is promised again."""
    snapshot = contested()
    plan = decide(snapshot)
    ending = msgspec.structs.replace(snapshot.jobs[1].tasks[0], status=TaskStatus.RELEASING)
    jobs = (snapshot.jobs[0], msgspec.structs.replace(snapshot.jobs[1], tasks=(ending,)), snapshot.jobs[2])
    again = decide(msgspec.structs.replace(snapshot, jobs=jobs, promises=plan.promises))
    assert (again.binds, again.evictions) == ((), ())
    assert again.promises == plan.promises


def test_idle_room_that_is_part_of_a_promise_is_not_free() -> None:
    """Two GPUs are wanted, one is idle and one still held by an ending pod: a pod that fits on the idle one waits."""
    ending = job("ending", "team", on=[("a", [0])])
    task = msgspec.structs.replace(ending.tasks[0], status=TaskStatus.RELEASING)
    jobs = [
        msgspec.structs.replace(ending, tasks=(task,)),
        job("wide", "team", gpus=2, age_s=60),
        job("small", "team", age_s=600),
    ]
    snapshot = cluster([node("a", 2)], [queue("team", 2)], jobs)
    assert bound(decide(snapshot)) == {"small-0": "a"}
    promised = msgspec.structs.replace(snapshot, promises=(Promise(job="wide", nodes=("a",)),))
    plan = decide(promised)
    assert plan.binds == ()
    assert plan.promises == (Promise(job="wide", nodes=("a",)),)


def test_a_promise_that_cannot_be_kept_ends() -> None:
    """Its node is gone, its job is gone, or its queue is at its limit: the cycle goes on without it."""
    gone = (Promise(job="asks", nodes=("nowhere",)), Promise(job="nobody", nodes=("a",)))
    assert evicted(decide(contested(promises=gone))) == ["guest-0"]
    closed = msgspec.structs.replace(contested(promises=(Promise(job="asks", nodes=("a",)),)))
    queues = (queue("guest"), queue("owner", 1, limit=0))
    plan = decide(msgspec.structs.replace(closed, queues=queues))
    assert (plan.binds, plan.evictions, plan.promises) == ((), (), ())


def test_halves_that_were_promised_are_kept_apart_from_others_too() -> None:
    """A shared card is promised like a whole one: a half that comes later does not slip in."""
    jobs = [
        job("guest", "guest", request=HALF, on=[("a", [0])]),
        job("home", "owner", request=HALF, on=[("a", [0])], age_s=9_000),
        job("asks", "owner", request=HALF, age_s=60),
    ]
    snapshot = cluster([node("a", 1)], [queue("guest"), queue("owner", 1)], jobs)
    plan = decide(snapshot)
    assert evicted(plan) == ["guest-0"]
    assert bound(decide(after(snapshot, plan))) == {"asks-0": "a"}
