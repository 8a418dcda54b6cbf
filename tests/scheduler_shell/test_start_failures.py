"""A node on which starts fail again and again is put aside, one broken workload never condemns one, and jobs go back."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.model import TaskStatus
from controller.scheduler.shell.start_failures import CLOSED, FEW_AT_A_TIME, StartFailures, put_aside
from kube.types import Pod
from tests.scheduler.words import bound, cluster, decide, evicted, job, node, queue
from tests.scheduler_shell.start_words import NOW, minutes, pod, running, turned_away, waiting

POOL = tuple(f"n{number}" for number in range(20))


def told(*pods: Pod) -> StartFailures:
    """Give the memory that saw these pods at once, as after a restart."""
    memory = StartFailures()
    memory.took(pods, NOW)
    return memory


def condemned(memory: StartFailures) -> set[str]:
    """Name the nodes that take no new pod now."""
    return set(memory.aside(NOW, POOL))


THREE_OF_TWO = (turned_away("a-1", owner="a"), turned_away("a-2", owner="a"), turned_away("b-1", owner="b"))


@pytest.mark.parametrize(
    ("pods", "is_aside"),
    [
        (THREE_OF_TWO, True),
        (THREE_OF_TWO[1:], False),
        (tuple(turned_away(f"a-{n}", owner="a") for n in range(9)), False),
        ((*(turned_away(f"a-{n}", owner="a") for n in range(3)), running("a-9", "n2", owner="a")), True),
        (
            (
                *(turned_away(f"a-{n}", owner="a") for n in range(3)),
                running("a-9", "n1", owner="a", at=minutes(-1)),
            ),
            False,
        ),
        ((*THREE_OF_TWO, running("c-1", owner="c", at=NOW)), True),
        ((*THREE_OF_TWO[:2], turned_away("b-1", owner="b", at=minutes(-11))), False),
        (tuple(waiting(f"{name}-1", owner=name) for name in "abc"), True),
        (
            (
                *(waiting(f"{name}-1", owner=name) for name in "abc"),
                *(waiting(f"{name}-2", "n2", owner=name, at=minutes(-1)) for name in "abc"),
            ),
            False,
        ),
        (tuple(waiting(f"{n}-1", owner=n, reason="CreateContainerConfigError") for n in "abc"), False),
        (
            (
                *(waiting(f"{n}-1", owner=n, reason="CreateContainerConfigError") for n in "abc"),
                *(running(f"{n}-2", "n2", owner=n) for n in "abc"),
            ),
            True,
        ),
    ],
    ids=[
        "three pods of two workloads are enough",
        "two pods are not",
        "one workload alone never is",
        "one workload that starts elsewhere is",
        "one workload that started on the very node before is not",
        "a start in the same second takes nothing back",
        "a failure of before the window does not count",
        "containers that cannot run count like pods that are turned away",
        "workloads that fail on another node too are broken themselves",
        "a ConfigMap that is missing is the pods' own fault",
        "but not if the same pods start elsewhere",
    ],
)
def test_a_node_is_put_aside_by_what_cannot_be_the_workload(pods: Iterable[Pod], is_aside: bool) -> None:
    """In each case the node in question is n1."""
    assert condemned(told(*pods)) == ({"n1"} if is_aside else set())


def test_a_start_on_the_node_takes_back_what_failed_before() -> None:
    """But one without a GPU says nothing about GPUs."""
    failed = [turned_away(f"{n}-1", owner=n, at=minutes(-3)) for n in "ab"]
    last = turned_away("c-1", owner="c")
    assert condemned(told(*failed, running("d-1", owner="d", at=minutes(-1)), last)) == set()
    assert condemned(told(*failed, running("d-1", owner="d", at=minutes(-1), gpus=0), last)) == {"n1"}


def state(memory: StartFailures, minute: float) -> tuple[set[str], set[str]]:
    """Name the nodes put aside, and those on probation."""
    return set(memory.aside(minutes(minute), POOL)), set(memory.probing(minutes(minute), POOL))


def test_it_is_tried_again_with_one_pod_and_put_aside_for_twice_as_long() -> None:
    """Ten minutes, then one pod at a time; its failure doubles the time, its start ends all."""
    memory = told(*THREE_OF_TWO)
    assert state(memory, 9) == ({"n1"}, set())
    assert memory.next_until(minutes(5)) == minutes(10)
    memory.took(THREE_OF_TWO, minutes(11))
    assert state(memory, 11) == (set(), {"n1"})
    memory.took((*THREE_OF_TWO, pod("c-1", owner="c", at=minutes(11))), minutes(11))
    assert state(memory, 11) == ({"n1"}, set())
    memory.took((*THREE_OF_TWO, turned_away("c-1", owner="c", at=minutes(11))), minutes(12))
    assert state(memory, 31) == ({"n1"}, set())
    assert state(memory, 33) == (set(), {"n1"})
    assert "for the 2. time in a row" in memory.findings(minutes(33), POOL)["n1"]
    memory.took((*THREE_OF_TWO, running("d-1", owner="d", at=minutes(33))), minutes(34))
    assert state(memory, 34) == (set(), set())
    assert memory.findings(minutes(34), POOL) == {}


def test_the_first_time_may_be_another() -> None:
    """It doubles like the ten minutes, and two hours stay the most."""
    memory = StartFailures(timedelta(minutes=90))
    memory.took(THREE_OF_TWO, NOW)
    assert state(memory, 89) == ({"n1"}, set())
    assert state(memory, 91) == (set(), {"n1"})
    memory.took((*THREE_OF_TWO, turned_away("c-1", owner="c", at=minutes(91))), minutes(91))
    assert state(memory, 91 + 119) == ({"n1"}, set())
    assert state(memory, 91 + 121) == (set(), {"n1"})


def test_a_container_that_starts_after_all_is_a_start() -> None:
    """The runtime was mended: the very pods that failed run now, and the node is as any other."""
    pods = [waiting(f"{n}-1", owner=n) for n in "abc"]
    memory = told(*pods)
    assert state(memory, 1) == ({"n1"}, set())
    memory.took([*pods[1:], running("a-1", owner="a", at=minutes(2))], minutes(3))
    assert state(memory, 3) == (set(), set())


def test_the_time_doubles_up_to_two_hours() -> None:
    """However often it fails."""
    memory = told(*THREE_OF_TWO)
    at, lasted = 0, []
    for number in range(7):
        until = next(minute for minute in range(at + 1, at + 200) if memory.probing(minutes(minute), POOL))
        lasted.append(until - at)
        at = until + 1
        memory.took([*THREE_OF_TWO, turned_away(f"p-{number}", owner=f"p{number}")], minutes(at))
    assert lasted == [10, 20, 40, 80, 120, 120, 120]


def test_a_pod_that_hangs_is_no_probe_for_ever() -> None:
    """An image that cannot be pulled keeps a node from being tried for ten minutes, not longer."""
    memory = told(*THREE_OF_TWO)
    hangs = waiting("c-1", owner="c", reason="ImagePullBackOff", at=minutes(11))
    memory.took((*THREE_OF_TWO, hangs), minutes(12))
    assert memory.probing(minutes(12), POOL) == {}
    memory.took((*THREE_OF_TWO, hangs), minutes(22))
    assert set(memory.probing(minutes(22), POOL)) == {"n1"}


def test_where_no_pod_comes_more_are_let_in_together() -> None:
    """Maybe only gangs wait that need more places there; twice as many after each ten minutes, and once more from one."""
    memory = told(*THREE_OF_TWO)
    most = [memory.probing(minutes(minute), POOL)["n1"] for minute in (10, 19, 20, 30, 40, 80, 90, 700)]
    assert most == [1, 1, 2, 4, 8, 128, 128, 128]
    assert "it takes 8 pods at a time until one starts" in memory.findings(minutes(40), POOL)["n1"]
    memory.took((*THREE_OF_TWO, turned_away("c-1", owner="c", at=minutes(41))), minutes(41))
    assert memory.probing(minutes(62), POOL) == {"n1": 1}


def test_what_is_seen_again_counts_once() -> None:
    """Every cycle shows the same pods, also in newer versions."""
    memory = told(*THREE_OF_TWO[1:])
    for number in range(5):
        memory.took([msgspec.structs.replace(one) for one in THREE_OF_TWO[1:]], minutes(number))
    assert condemned(memory) == set()
    assert memory.failed == {"UnexpectedAdmissionError": 2}


def test_a_failure_counts_from_when_it_was_seen() -> None:
    """The clock of a node may be an hour slow: all the same three failures within ten minutes are three."""
    memory = told()
    memory.took([turned_away(f"{n}-1", owner=n, at=minutes(-60)) for n in "abc"], NOW)
    assert condemned(memory) == {"n1"}


def test_no_more_than_a_tenth_of_the_pool_is_put_aside() -> None:
    """Those that were condemned first; of the others it is said that they take pods all the same."""
    pods = [
        turned_away(f"{owner}-{name}", name, owner=f"{owner}{number}", at=minutes(number / 60 - 1))
        for number, name in enumerate(POOL)
        for owner in "abc"
    ]
    memory = told(*pods)
    assert set(memory.aside(NOW, POOL)) == {"n0", "n1"}
    findings = memory.findings(NOW, POOL)
    assert len(findings) == len(POOL)
    assert "takes pods all the same" in findings["n5"]
    assert set(memory.aside(NOW, ("n7",))) == {"n7"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from(["UnexpectedAdmissionError", "RunContainerError", "OutOfcpu", "NodeAffinity"]),
            st.integers(-20, 0),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_one_workload_never_condemns_a_node(seen: list[tuple[str, str, int]], warm: bool) -> None:
    """However often, wherever and by whatever reason its pods fail."""
    pods = [
        (waiting if reason == "RunContainerError" else turned_away)(
            f"a-{number}", where, owner="a", reason=reason, at=minutes(at)
        )
        for number, (where, reason, at) in enumerate(seen)
    ]
    memory = told() if warm else StartFailures()
    memory.took(pods, NOW)
    assert memory.findings(NOW, POOL) == {}


@given(
    st.lists(
        st.tuples(st.sampled_from(POOL), st.sampled_from("abcd"), st.integers(-9, 0), st.booleans()),
        max_size=80,
    ),
    st.integers(1, len(POOL)),
    st.integers(0, 200),
)
def test_never_more_than_the_cap(seen: list[tuple[str, str, int, bool]], size: int, later: int) -> None:
    """Put aside and on probation together are a tenth of the pool at most, or one node; and all are of the pool."""
    memory = told(
        *(
            (turned_away if fails else running)(f"{owner}-{number}", where, owner=owner, at=minutes(at))
            for number, (where, owner, at, fails) in enumerate(seen)
        )
    )
    pool = POOL[:size]
    aside, probing = memory.aside(minutes(later), pool).keys(), memory.probing(minutes(later), pool).keys()
    assert aside.isdisjoint(probing)
    assert aside | probing <= set(pool)
    assert len(aside | probing) <= max(1, size // 10)


def test_a_job_whose_pods_are_turned_away_goes_back_for_longer_and_longer() -> None:
    """Failures within a pause are one; a start ends the row."""
    memory = told()
    for number, at in enumerate((0.0, 0.1, 0.2)):
        memory.took([turned_away(f"a-{number}", owner="a", group="pg")], minutes(at))
    held = memory.holding(minutes(0.2))
    assert held["team/pg"].tries == held["workload team/a"].tries == 3
    assert held["team/pg"].until > minutes(0.2)
    assert "turned team/a-2 away: UnexpectedAdmissionError" in held["team/pg"].why
    memory.took([running("a-9", "n2", owner="a", group="pg", at=minutes(0.3))], minutes(0.3))
    assert memory.holding(minutes(0.3)) == {}


def test_a_clock_that_steps_back_makes_no_pause_longer() -> None:
    """A node is put aside for ten minutes, and a job for some seconds, however far the clock was ahead."""
    memory = told()
    for number, owner in enumerate(("a", "b", "a")):
        memory.took([turned_away(f"{owner}-{number}", owner=owner, group="pg")], minutes(600.0))
    assert memory.aside(minutes(601.0), POOL)
    assert memory.holding(minutes(600.0))
    memory.took([], minutes(0.0))
    assert memory.holding(minutes(0.0)) == {}
    assert memory.aside(minutes(9.0), POOL)
    assert memory.aside(minutes(10.5), POOL) == {}


# --- the snapshot -----------------------------------------------------------------------------------------------------


def test_a_node_put_aside_takes_nothing_and_nobody_is_evicted_for_it() -> None:
    """It stays capacity: the owner's job waits instead of taking back what a guest has on the other node."""
    jobs = [job("guest", "guest", on=[("b", [0])]), job("asks", "owner")]
    snapshot = cluster([node("a", 1), node("b", 1)], [queue("guest"), queue("owner", 2)], jobs)
    assert bound(decide(snapshot)) == {"asks-0": "a"}
    plan = decide(put_aside(snapshot, {"a": "said"}))
    assert (plan.binds, evicted(plan)) == ((), [])
    assert plan.total == decide(snapshot).total
    assert any(CLOSED in reason.text for wait in plan.waits for reason in wait.reasons)


def test_a_node_on_probation_takes_one_pod() -> None:
    """The second goes elsewhere, or waits; while a bind is under way it takes none."""
    jobs = [job(name, "team") for name in ("p", "q", "r")]
    snapshot = cluster([node("a", 4)], [queue("team", 4)], jobs)
    plan = decide(put_aside(snapshot, {}, {"a": 1}))
    assert (len(plan.binds), evicted(plan)) == (1, [])
    binding = msgspec.structs.replace(jobs[0].tasks[0], status=TaskStatus.BINDING, node="a")
    under_way = [msgspec.structs.replace(jobs[0], tasks=(binding,)), *jobs[1:]]
    snapshot = cluster([node("a", 4)], [queue("team", 4)], under_way)
    assert decide(put_aside(snapshot, {}, {"a": 1})).binds == ()


def test_a_gang_starts_on_probation_once_as_many_are_let_in_as_it_needs() -> None:
    """Before that it waits whole, and says why."""
    jobs = [job("gang", "team", pods=3, least=3)]
    snapshot = cluster([node("a", 4)], [queue("team", 4)], jobs)
    early = decide(put_aside(snapshot, {}, {"a": 2}))
    assert early.binds == ()
    assert any(FEW_AT_A_TIME in reason.text for wait in early.waits for reason in wait.reasons)
    assert len(decide(put_aside(snapshot, {}, {"a": 4})).binds) == 3


def test_a_node_on_probation_costs_nobody_his_place() -> None:
    """Its one place is no reason to evict whoever runs there."""
    jobs = [
        job("guest", "guest", on=[("a", [0])]),
        job("first", "owner"),
        job("second", "owner", age_s=60),
    ]
    snapshot = cluster([node("a", 8)], [queue("guest"), queue("owner", 8)], jobs)
    plan = decide(put_aside(snapshot, {}, {"a": 1}))
    assert (len(plan.binds), evicted(plan)) == (1, [])


def test_what_is_closed_for_better_reasons_stays_so() -> None:
    """And nothing changes where nothing is put aside."""
    shut = node("a", 1, closed="node(s) were not ready", out=True)
    snapshot = cluster([shut], [queue("team")], [])
    assert put_aside(snapshot, {"a": "said"}).nodes == (shut,)
    assert put_aside(snapshot, {}) is snapshot


# --- the condition ----------------------------------------------------------------------------------------------------


def test_a_pod_that_a_person_starts_there_ends_it() -> None:
    """By hand, by the Node's name: the pause ends at once, and a pod without a GPU is not enough."""
    memory = told(*THREE_OF_TWO)
    memory.took((*THREE_OF_TWO, running("by-hand", at=minutes(2), gpus=0)), minutes(3))
    assert state(memory, 3) == ({"n1"}, set())
    memory.took((*THREE_OF_TWO, running("by-hand-gpu", at=minutes(3))), minutes(4))
    assert state(memory, 4) == (set(), set())
