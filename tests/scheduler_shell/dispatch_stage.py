"""A dispatch over a fake API, and what tests ask of it."""

import threading
from collections.abc import Callable, Iterator, Mapping

import pytest

from controller.outcome import Result
from controller.scheduler.plan import Bind
from controller.scheduler.shell.budgets import Refusal
from controller.scheduler.shell.dispatch import WORKERS, Dispatch
from controller.scheduler.shell.effects import Effects
from controller.scheduler.shell.orders import BindOrder
from controller.scheduler.shell.outcomes import Bound, Evicted, Outcome
from controller.scheduler.shell.prebind import Prepared
from kube import paths
from kube.api import TooManyRequests
from kube.types import Pod
from tests.fakes import FakeApi, FakeClock, wait_until
from tests.scheduler_shell.shell_words import waiting_pod

PDB = TooManyRequests("Cannot evict pod", code=429, causes=("DisruptionBudget",))


class Preparing:
    """Prepares in memory; `unready` names pods whose volume is not there yet, `slow` those that take until `go_on`."""

    def __init__(self, unready: Mapping[str, str] = {}, *, gives_up: bool = False) -> None:
        self.unready = unready
        self.gives_up = gives_up
        self.undone: list[str] = []
        self.slow: frozenset[str] = frozenset()
        self.go_on = threading.Event()

    def has_work(self, bind: Bind, pod: Pod) -> bool:
        return pod.metadata.name in self.slow or bind.task in self.unready

    def prepare(self, bind: Bind, pod: Pod) -> Prepared:
        assert pod.metadata.name == bind.task.rpartition("/")[2]
        if pod.metadata.name in self.slow:
            self.go_on.wait(5)
        why = self.unready.get(bind.task, "")
        return Prepared(ready=not why, why=why, waits=bool(why) and not self.gives_up, pod=bind.task)

    def undo(self, prepared: Prepared) -> None:
        self.undone.append(prepared.pod)


class Stage:
    """A dispatch over a fake API; `changed` names pods of which the world is another one by now."""

    def __init__(self, preparing: Preparing | None = None, changed: Mapping[str, str] = {}) -> None:
        self.api = FakeApi()
        self.preparing = preparing or Preparing()
        self.looks: list[str] = []
        self.changed = dict(changed)
        self.on_look: Callable[[str], None] = lambda _task: None
        self.why_not_evict = ""
        self.refusals: Mapping[str, Refusal] | None = {}
        self.time = FakeClock()
        self._woken = threading.Event()
        self.dispatch = Dispatch(
            Effects(self.api),
            self.preparing,
            self._look,
            self._woken.set,
            look_at_victims=lambda _: self.why_not_evict,
            look_at_budgets=lambda _: self._look_at_budgets(),
            clock=self.time.clock,
        )

    def _look(self, order: BindOrder) -> str:
        self.looks.append(order.bind.task)
        self.on_look(order.bind.task)
        return self.changed.get(order.bind.task, "")

    def _look_at_budgets(self) -> Mapping[str, Refusal]:
        if self.refusals is None:
            raise RuntimeError("broken")
        return self.refusals

    def add(self, *names: str) -> None:
        for name in names:
            pod = waiting_pod(name)
            body = {
                "metadata": {"name": name, "namespace": "ns", "uid": pod.metadata.uid},
                "spec": {"schedulerName": "nodemend-scheduler"},
            }
            self.api.add(paths.pods("ns"), body)

    def all(self) -> list[Outcome]:
        """Wait until everything that was ordered is in."""
        found: list[Outcome] = []

        def done() -> bool:
            found.extend(self.dispatch.collect())
            return self.dispatch.under_way == 0

        wait_until(done)
        return found

    def sent(self) -> list[str]:
        return sorted(
            one.path.rpartition("/pods/")[2] for one in self.api.writes() if "dryRun" not in one.query
        )


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(*arguments: object, **named: object) -> Stage:
        made.append(Stage(*arguments, **named))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.dispatch.stop()


def results(outcomes: list[Outcome]) -> dict[str, Result]:
    """Say what came of each pod."""
    found = {}
    for one in outcomes:
        if isinstance(one, Bound):
            found[one.order.bind.task] = one.answer.result
        elif isinstance(one, Evicted):
            found[one.victim.evict.task] = one.answer.result
    return found


def occupied(stage: Stage) -> threading.Event:
    """Keep every binder busy until the event is set, so that what is ordered next stands in line."""
    release, busy = threading.Event(), threading.Barrier(WORKERS + 1)

    def hold() -> None:
        busy.wait(5)
        release.wait(5)

    for _ in range(WORKERS):
        stage.dispatch.submit(hold)
    busy.wait(5)
    return release
