"""Carry out orders at once, many beside each other, without ever blocking the loop. Shell.

A gang goes in two waves. First every member is prepared (claims, volumes) and looked at again; only if all may go on are
the Bindings sent, all at once. Evictions have threads of their own (`evictions`), and so has what needs claims or volumes
prepared, since a volume that never comes must not hold up everybody's binds.
The number of workers bounds the requests under way; a server that is busy answers 429, which the session waits out.

Between the plan and a request others may stand in line, so everything is looked at once more when its turn comes: a bind,
each member of a gang, a set of victims. What was ordered is told of exactly once, whatever happens.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import structlog

from controller.outcome import Result
from controller.scheduler.plan import Bind
from controller.scheduler.shell.effects import Answer, Effects
from controller.scheduler.shell.evictions import Evictions, LookAtBudgets, LookAtVictims
from controller.scheduler.shell.gang_waves import GangWaves
from controller.scheduler.shell.orders import BindOrder, GangOrder, VictimSet
from controller.scheduler.shell.outcomes import Bound, Looked, Outcome, refused, unready
from controller.scheduler.shell.prebind import Prepared
from kube.api import ApiError
from kube.clock import SYSTEM, Clock
from kube.types import Node, NodeCondition, Pod

log = structlog.get_logger(__name__)

WORKERS: Final = 16
PREPARERS: Final = 8
STOPPING: Final = "the scheduler is stopping"

LookAgain = Callable[[BindOrder], str]
"""Say why a bind may not be sent any more, from what the stores show this moment; "" = it may."""


class Preparing(Protocol):
    """Prepares a bind, in a worker's thread, as often as it takes; see `prebind.Prebind`."""

    def has_work(self, bind: Bind, pod: Pod) -> bool: ...
    def prepare(self, bind: Bind, pod: Pod) -> Prepared: ...
    def undo(self, prepared: Prepared) -> None: ...


class Dispatch:
    """`collect` is called by the loop; `wake` is called whenever there is something to collect."""

    def __init__(
        self,
        effects: Effects,
        preparing: Preparing,
        look_again: LookAgain,
        wake: Callable[[], None],
        *,
        look_at_victims: LookAtVictims = lambda _: "",
        look_at_budgets: LookAtBudgets = lambda _: {},
        clock: Clock = SYSTEM,
    ) -> None:
        self._effects = effects
        self._preparing = preparing
        self._look_again = look_again
        self._wake = wake
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._done: list[Outcome] = []
        self._under_way = 0
        self._busy_at = float("-inf")
        self._binders = ThreadPoolExecutor(WORKERS, thread_name_prefix="bind")
        self._preparers = ThreadPoolExecutor(PREPARERS, thread_name_prefix="prepare")
        self._evictions = Evictions(
            effects,
            look_at_victims,
            look_at_budgets,
            clock=clock,
            stopping=lambda: STOPPING if self._stopping.is_set() else "",
            tell=self.tell,
        )

    @property
    def under_way(self) -> int:
        """How many binds and evictions were ordered and are not collected yet."""
        with self._lock:
            return self._under_way

    @property
    def quiet_s(self) -> float:
        """For how many seconds nothing was under way."""
        with self._lock:
            return 0.0 if self._under_way else self._clock.monotonic() - self._busy_at

    @property
    def in_line(self) -> int:
        """How many of them have not come to an end yet."""
        with self._lock:
            return self._under_way - len(self._done)

    def bind(self, gangs: Sequence[GangOrder]) -> None:
        """Order binds."""
        with self._lock:
            self._under_way += sum(len(gang.members) for gang in gangs)
        for gang in gangs:
            if len(gang.members) == 1:
                self._threads_for(gang.members[0]).submit(self._guarded, self._bind_alone, gang)
            else:
                GangWaves(gang, self).start()

    def evict(self, sets: Sequence[VictimSet]) -> None:
        """Order evictions."""
        with self._lock:
            self._under_way += sum(len(one.victims) for one in sets)
        self._evictions.order(sets)

    def read(self, task: str) -> None:
        """Order a look at one pod."""
        with self._lock:
            self._under_way += 1
        self._binders.submit(self._guarded, self._read, task)

    def condition(self, node: Node, condition: NodeCondition) -> None:
        """Order a condition to be written; nobody waits for it, and what failed is asked for again."""
        self.submit(self._condition, node, condition)

    def collect(self) -> list[Outcome]:
        """Give what came in since the last time."""
        with self._lock:
            done, self._done = self._done, []
            if self._under_way:
                self._busy_at = self._clock.monotonic()
            self._under_way -= len(done)
        return done

    def stop(self) -> list[Outcome]:
        """Let what is under way end, a gang of which some are bound whole; drop what has not begun."""
        self._stopping.set()
        self._preparers.shutdown(wait=True)
        self._binders.shutdown(wait=True)
        self._evictions.stop()
        return self.collect()

    # In a worker's thread

    def submit(self, work: Callable[..., None], *arguments: object) -> None:
        """Run something in a binder's thread; in this one where they are stopping and take no more."""
        try:
            self._binders.submit(self._guarded, work, *arguments)
        except RuntimeError:
            self._guarded(work, *arguments)

    def submit_preparing(self, work: Callable[[BindOrder], None], order: BindOrder) -> None:
        """Run something that prepares a bind first, in a thread for that."""
        self._threads_for(order).submit(self._guarded, work, order)

    def _threads_for(self, order: BindOrder) -> ThreadPoolExecutor:
        has_work = self._preparing.has_work(order.bind, order.pod)
        return self._preparers if has_work else self._binders

    def tell(self, *outcomes: Outcome) -> None:
        """Take what came in. A bind that was taken changes no decision: the loop looks at many of them together."""
        with self._lock:
            self._done += outcomes
            is_last = self._under_way == len(self._done)
        if is_last or not all(
            isinstance(one, Bound) and one.answer.result is Result.DONE for one in outcomes
        ):
            self._wake()

    def prepare(self, order: BindOrder) -> Prepared:
        return self._preparing.prepare(order.bind, order.pod)

    def undo(self, prepared: Prepared) -> None:
        """Take back what was prepared; a defect in it must not keep the outcome from being told."""
        try:
            self._preparing.undo(prepared)
        except Exception:
            log.exception("undo.failed", pod=prepared.pod)

    def why_not(self, order: BindOrder) -> str:
        """Say why a bind may not begin."""
        return STOPPING if self._stopping.is_set() else self.why_not_on(order)

    def why_not_on(self, order: BindOrder) -> str:
        """Say why a bind may not go on; that we are stopping is no reason for that."""
        try:
            return self._look_again(order)
        except Exception as error:
            log.exception("look_again.failed", task=order.bind.task)
            return f"a defect of the scheduler: {error!r}"

    def send(self, order: BindOrder, job: str, prepared: Prepared) -> None:
        """Send one Binding; what was prepared is taken back where it was refused for sure."""
        answer = self._effects.bind(order.bind, order.uid, order.annotations)
        if answer.result not in (Result.DONE, Result.UNAVAILABLE):
            self.undo(prepared)
        self.tell(Bound(order=order, job=job, answer=answer))

    def _bind_alone(self, gang: GangOrder) -> None:
        (order,) = gang.members
        if why := self.why_not(order):
            self.tell(refused(order, gang.job, why))
            return
        prepared = self.prepare(order)
        if not prepared.ready:
            self.tell(unready(order, gang.job, prepared))
            return
        self.send(order, gang.job, prepared)

    def _read(self, task: str) -> None:
        if self._stopping.is_set():
            self.tell(Looked(task=task, was_read=False))
            return
        try:
            pod = self._effects.read(task)
        except ApiError as error:
            log.warning("pod.unread", pod=task, error=str(error))
            self.tell(Looked(task=task, was_read=False))
            return
        self.tell(Looked(task=task, pod=pod))

    def _condition(self, node: Node, condition: NodeCondition) -> None:
        answer = self._effects.condition(node, condition)
        told = {"node": node.metadata.name, "status": condition.status, "reason": condition.reason}
        if answer.result is Result.DONE:
            log.warning("node.starts", **told, message=condition.message)
        else:
            log.warning("node.condition_not_written", **told, error=answer.why)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Run a piece of work; a defect in it is shown, and must not leave the loop waiting in silence."""
        try:
            work(*arguments)
        except Exception:
            log.exception("dispatch.failed", work=getattr(work, "__name__", str(work)))
            order = arguments[0] if arguments else None
            answer = Answer(result=Result.UNAVAILABLE, why="a defect of the scheduler, see its log")
            if isinstance(order, GangOrder):
                self.tell(*(Bound(order=one, job=order.job, answer=answer) for one in order.members))
            elif isinstance(order, BindOrder):
                self.tell(Bound(order=order, job=order.bind.job, answer=answer))
            elif isinstance(order, str):
                self.tell(Looked(task=order, was_read=False))
