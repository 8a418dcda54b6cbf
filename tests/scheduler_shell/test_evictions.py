"""Evicting: in a fair line by namespace, and only where the budgets let the whole set go."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.outcome import Result
from controller.scheduler.shell.budgets import Refusal
from controller.scheduler.shell.dispatch import STOPPING
from controller.scheduler.shell.effects import Answer, Effects
from controller.scheduler.shell.eviction_line import PER_NAMESPACE, EvictionLine, Waiting, waiting
from controller.scheduler.shell.evictions import ASKING_LASTS_S, EVICTORS, Evictions
from controller.scheduler.shell.orders import VictimSet
from controller.scheduler.shell.outcomes import Evicted
from kube.clock import SYSTEM
from tests.fakes import FakeApi, FakeClock, wait_until
from tests.scheduler_shell.dispatch_stage import PDB, Stage, results
from tests.scheduler_shell.dispatch_stage import stage as stage
from tests.scheduler_shell.shell_words import answer, gang, victims


def single(name: str, namespace: str = "ns") -> VictimSet:
    return victims(name, gains=f"asks/{name}", namespace=namespace)


def several(name: str, namespace: str = "ns") -> VictimSet:
    return victims(f"{name}0", f"{name}1", gains=f"asks/{name}", namespace=namespace)


def across(one: VictimSet, other: VictimSet) -> VictimSet:
    return VictimSet(gains=one.gains, victims=(*one.victims, *other.victims))


SLOW = [single(f"s{number}", "slow") for number in range(4)]


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        pytest.param(SLOW, [0, 1], id="so many of one namespace"),
        pytest.param([*SLOW, single("v")], [0, 1, 4], id="another namespace passes those that wait"),
        pytest.param([several("a"), several("b")], [0], id="a set that leaves whole has its namespace alone"),
        pytest.param([several("a"), single("v")], [0], id="also against a single one"),
        pytest.param([single("v"), several("a"), single("w")], [0], id="nobody passes it in its namespace"),
        pytest.param(
            [
                several("a"),
                across(several("b"), single("x", "other")),
                single("y", "other"),
                single("z", "third"),
            ],
            [0, 3],
            id="nor in any of its namespaces",
        ),
        pytest.param(
            [victims("r0", "r1", gains=""), single("v")],
            [0, 1],
            id="the rest of a gang leaves as far as it may",
        ),
    ],
)
def test_whose_turn_it_is(line: list[VictimSet], taken: list[int]) -> None:
    """In order, but for those whose namespace is full."""
    held = EvictionLine()
    held.put(waiting(one, 10.0) for one in line)
    found: list[Waiting] = []
    while (one := held.take(1.0)) is not None:
        found.append(one)
    assert [line.index(one.victims) for one in found] == taken
    for one in found:
        held.done(one)
    after = held.take(1.0)
    left = [number for number in range(len(line)) if number not in taken]
    assert (None if after is None else line.index(after.victims)) == (left[0] if left else None)


def test_what_lapsed_waits_no_longer() -> None:
    """Nothing is sent for it, and it must be decided anew."""
    held = EvictionLine()
    held.put([waiting(one, float(number)) for number, one in enumerate(SLOW)])
    for _ in range(PER_NAMESPACE):
        assert held.take(-1.0) is not None
    assert held.take(2.0) is None
    lapsed = held.take(2.5)
    assert lapsed is not None
    assert lapsed.victims is SLOW[2]


class Hanging(Effects):
    """Evictions of namespace `slow` take until `go_on`; nothing is really sent."""

    def __init__(self) -> None:
        super().__init__(FakeApi())
        self.hangs = threading.Semaphore(0)
        self.go_on = threading.Event()

    def try_evict(self, task: str, uid: str) -> Answer:
        if task.startswith("slow/"):
            self.hangs.release()
            self.go_on.wait(5)
        return answer(Result.DONE, uid)

    def evict(self, task: str, uid: str) -> Answer:
        return answer(Result.DONE, f"{task} {uid}")


def test_a_namespace_whose_evictions_hang_holds_up_no_other() -> None:
    """However many of it are to leave: each of its requests takes as long as its webhook does."""
    effects, told = Hanging(), list[Evicted]()
    evictions = Evictions(
        effects,
        lambda _: "",
        lambda _: {},
        clock=SYSTEM,
        stopping=lambda: "",
        tell=lambda *outcomes: told.extend(outcomes),
    )
    evictions.order([single(f"s{number}", "slow") for number in range(3 * EVICTORS)])
    for _ in range(PER_NAMESPACE):
        assert effects.hangs.acquire(timeout=5)
    evictions.order([single("v0"), single("v1"), several("w", "other")])
    wait_until(lambda: len(told) == 4)
    assert {one.victim.evict.task for one in told} == {"ns/v0", "ns/v1", "other/w0", "other/w1"}
    assert not effects.hangs.acquire(blocking=False)
    effects.go_on.set()
    wait_until(lambda: len(told) == 4 + 3 * EVICTORS)
    evictions.stop()
    assert {one.answer.result for one in told} == {Result.DONE}


def test_at_the_end_whoever_stands_in_line_is_told(stage: Callable[..., Stage]) -> None:
    """Those that began end; all others stay."""
    one = stage()
    hanging, go_on = threading.Event(), threading.Event()

    def hang(_request: Any) -> bool:
        hanging.set()
        go_on.wait(5)
        return False

    names = [f"v{number}" for number in range(5)]
    one.add(*names)
    one.api.fail_next(hang, PDB)
    one.dispatch.evict([single(name) for name in names])
    assert hanging.wait(5)
    told: list[Any] = []
    ending = threading.Thread(target=lambda: told.extend(one.dispatch.stop()))
    ending.start()
    wait_until(lambda: one.dispatch.why_not(gang("v0").members[0]) == STOPPING)
    go_on.set()
    ending.join(5)
    assert len(told) == len(names)
    assert len(one.sent()) <= PER_NAMESPACE


def test_nobody_leaves_and_nobody_is_asked_where_a_budget_allows_fewer(stage: Callable[..., Stage]) -> None:
    """The one it holds is to blame, with its siblings; the other is as good a victim as before."""
    one = stage()
    one.add("v0", "v1")
    refusal = Refusal(answer=answer(Result.BLOCKED, "a budget"), siblings=("ns/w",))
    one.refusals = {"ns/v1": refusal}
    one.dispatch.evict([victims("v0", "v1")])
    told = {found.victim.evict.task: found for found in one.all() if isinstance(found, Evicted)}
    assert one.api.writes() == []
    assert all(found.tried for found in told.values())
    assert {task: found.answer.result for task, found in told.items()} == {
        "ns/v0": Result.REFUSED,
        "ns/v1": Result.BLOCKED,
    }
    assert {task: found.siblings for task, found in told.items()} == {"ns/v0": (), "ns/v1": ("ns/w",)}


@pytest.mark.parametrize(
    "one_set", [victims("v1"), victims("v0", "v1", gains="")], ids=["a single one", "who leaves for nobody"]
)
def test_budgets_are_counted_only_for_a_set_that_leaves_whole(
    stage: Callable[..., Stage], one_set: VictimSet
) -> None:
    """The server's own answer is enough for the others."""
    one = stage()
    one.add("v0", "v1")
    one.refusals = {"ns/v1": Refusal(answer=answer(Result.BLOCKED, "a budget"))}
    one.dispatch.evict([one_set])
    assert set(results(one.all()).values()) == {Result.DONE}


def test_a_defect_over_one_set_is_told_and_holds_up_nobody(stage: Callable[..., Stage]) -> None:
    """The next of its namespace has its turn."""
    one = stage()
    one.add("v0", "v1", "v2")
    one.refusals = None
    one.dispatch.evict([victims("v0", "v1"), single("v2")])
    assert results(one.all()) == {
        "ns/v0": Result.UNAVAILABLE,
        "ns/v1": Result.UNAVAILABLE,
        "ns/v2": Result.DONE,
    }


class Slow(Effects):
    """Each question takes so many seconds; while it does, the world may become another one."""

    def __init__(self, time: FakeClock, seconds: float, says: Result = Result.DONE) -> None:
        super().__init__(FakeApi())
        self.time = time
        self.seconds = seconds
        self.says = says
        self.asked: list[str] = []
        self.left: list[str] = []

    def try_evict(self, task: str, uid: str) -> Answer:
        self.asked.append(task)
        self.time.advance(self.seconds)
        return answer(self.says, uid)

    def evict(self, task: str, uid: str) -> Answer:
        self.left.append(task)
        return answer(Result.DONE, uid)


@pytest.mark.parametrize(
    ("seconds", "says", "gone_after", "asked", "left"),
    [
        pytest.param(0.1, Result.DONE, None, 4, 4, id="all is well"),
        pytest.param(4.0, Result.DONE, 9.0, 4, 0, id="what it was decided on is gone meanwhile"),
        pytest.param(
            ASKING_LASTS_S / 2 + 1, Result.DONE, None, 2, 0, id="it takes so long that the decision is old"
        ),
        pytest.param(
            0.1, Result.UNAVAILABLE, None, 4, 0, id="each whom a webhook that is away holds is named"
        ),
        pytest.param(0.1, Result.BLOCKED, None, 4, 0, id="each of whom a budget holds is named"),
    ],
)
def test_nobody_leaves_on_what_is_long_past(
    seconds: float, says: Result, gone_after: float | None, asked: int, left: int
) -> None:
    """A webhook may take ten seconds for each pod that is asked about, and a set may have hundreds."""
    time, told = FakeClock(), list[Evicted]()
    effects = Slow(time, seconds, says)
    until = time.monotonic() + (gone_after or float("inf"))
    evictions = Evictions(
        effects,
        lambda _: "another one" if time.monotonic() > until else "",
        lambda _: {},
        clock=time.clock,
        stopping=lambda: "",
        tell=lambda *outcomes: told.extend(outcomes),
    )
    evictions.order([victims("v0", "v1", "v2", "v3")])
    evictions.stop()
    assert (len(effects.asked), len(effects.left)) == (asked, left)
    assert [one.victim.evict.task for one in told] == ["ns/v0", "ns/v1", "ns/v2", "ns/v3"]
    assert all(one.tried for one in told) is not bool(left)
    assert {one.answer.result for one in told[asked:]} <= {Result.UNAVAILABLE}
