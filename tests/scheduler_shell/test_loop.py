"""The loop: no defect makes it spin or lose what came in, no step of the wall clock moves its pauses, its end is quick."""

import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from controller.outcome import Result
from controller.scheduler.shell.bell import Bell
from controller.scheduler.shell.catching_up import CatchingUp
from controller.scheduler.shell.foreign_binds import ForeignBinds
from controller.scheduler.shell.loop import Loop
from controller.scheduler.shell.metrics import Metrics
from controller.scheduler.shell.outcomes import Bound
from controller.scheduler.shell.stores import Stores
from kube import paths
from kube.api import Unavailable
from kube.clock import SYSTEM, Clock
from kube.store import Store
from kube.types import Pod
from tests.fakes import EPOCH, FakeApi, FakeClock, request_to
from tests.scheduler_shell.shell_words import OURS, answer, gang, waiting_pod


class Blind:
    """Sees nothing, or breaks."""

    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.asked = 0

    def why_not_look(self) -> str | None:
        self.asked += 1
        if self.broken:
            raise RuntimeError("broken")
        return "the API server was not heard"

    def deaf(self) -> None:
        """Take no notice."""


class Answers:
    """Gives what came of one gang, once for each collecting."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.order = gang(*names) if names else None

    def collect(self) -> list[Bound]:
        order = self.order
        done = answer(Result.DONE)
        return [Bound(order=one, job=order.job, answer=done) for one in order.members] if order else []

    def stop(self) -> list[Bound]:
        return []


class Notes:
    """A memory that notes who was told of and when; it breaks over the first."""

    def __init__(self) -> None:
        self.told: list[tuple[str, datetime]] = []

    def took_bind(self, outcome: Bound, now: datetime) -> None:
        task = outcome.order.bind.task
        self.told.append((task, now))
        if task == "ns/p0":
            raise RuntimeError("broken")


def looping(
    *,
    clock: Clock = SYSTEM,
    broken: bool = False,
    woken: Bell | None = None,
    answers: Answers | None = None,
) -> tuple[Loop, Blind, Notes]:
    blind, notes = Blind(broken), Notes()
    loop = Loop(
        stores=Stores(lambda: None, OURS),
        sight=cast(Any, blind),
        health=cast(Any, blind),
        memory=cast(Any, notes),
        dispatch=cast(Any, answers or Answers()),
        reporter=cast(Any, None),
        metrics=Metrics(),
        foreign=ForeignBinds(OURS, lambda _: None),
        rules=cast(Any, None),
        clock=clock,
        woken=woken or Bell(),
        dry_run=False,
    )
    return loop, blind, notes


def running(loop: Loop) -> Callable[[], float]:
    """Let it lead in a thread; what is given ends it and says how long that took."""
    leading, stop = threading.Event(), threading.Event()
    leading.set()
    thread = threading.Thread(target=loop.run, args=(leading, stop), daemon=True)
    thread.start()

    def end() -> float:
        began = time.monotonic()
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        return time.monotonic() - began

    return end


class Ringing(Bell):
    """Something changes all the time."""

    def wait(self, timeout_s: float) -> None:
        """It rang already."""


def test_cycles_that_fail_leave_pauses_however_often_something_changes() -> None:
    """They would fill the log and take a core, and mend nothing."""
    loop, blind, _ = looping(broken=True, woken=Ringing())
    end = running(loop)
    time.sleep(0.5)
    assert blind.asked == 1
    assert end() < 2


def test_a_defect_over_one_outcome_loses_no_other() -> None:
    """Each comes in once: of whom the loop hears nothing, the room stays taken for ever."""
    loop, _, notes = looping(answers=Answers(["p0", "p1", "p2"]))
    loop.tick()
    assert [task for task, _ in notes.told] == ["ns/p0", "ns/p1", "ns/p2"]


@pytest.mark.parametrize("step", [-3600.0, 3600.0], ids=["back", "on"])
def test_a_step_of_the_wall_clock_moves_no_pause(step: float) -> None:
    """An hour back would make a second's pause last for an hour, an hour on would end every grace at once."""
    time_ = FakeClock()
    loop, _, notes = looping(clock=time_.clock, answers=Answers(["p1"]))
    loop.tick()
    time_.jump_wall(step)
    time_.advance(2)
    loop.tick()
    assert [at for _, at in notes.told] == [EPOCH, EPOCH + timedelta(seconds=2)]


def test_a_new_leader_reads_what_the_last_one_bound() -> None:
    """Though its own watch died in silence; and it plans nothing before."""
    api, store = FakeApi(), Store[Pod]()
    waiting = waiting_pod("p")
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": waiting.metadata.uid}, "spec": {}}
    for number in range(600):
        api.add(paths.pods("ns"), {"metadata": {"name": f"other-{number}", "namespace": "ns"}, "spec": {}})
    api.add(paths.pods("ns"), {**body, "spec": {"nodeName": "a"}})
    store.replace((waiting,), "1", 0.0)
    catching_up = CatchingUp(api, store)
    api.fail_next(request_to("LIST", "/pods"), Unavailable("no answer"))
    assert "could not be read" in (catching_up.why_not() or "")
    assert catching_up.why_not() is None
    held = store.get("ns/p")
    assert held is not None
    assert held.spec.node_name == "a"
    assert len(store) == 601
    asked = len(api.requests)
    assert catching_up.why_not() is None
    assert len(api.requests) == asked
