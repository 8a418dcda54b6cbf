"""Carry out orders at once, many beside each other, without ever blocking the loop. Shell.

A gang goes in two waves. First every member is prepared (claims, volumes) and looked at again; only if all may go on are
the Bindings sent, all at once. Evictions have threads of their own, and so has what needs claims or volumes prepared, since
a slow admission webhook, or a volume that never comes, must not hold up everybody's binds.
The number of workers bounds the requests under way; a server that is busy answers 429, which the session waits out.

Between the plan and a request others may stand in line, so everything is looked at once more when its turn comes: a bind,
each member of a gang, a set of victims. What was ordered is told of exactly once, whatever happens.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec
import structlog

from controller.outcome import Result
from controller.scheduler.plan import Bind
from controller.scheduler.shell.effects import Answer, Effects, is_of_the_server
from controller.scheduler.shell.orders import BindOrder, GangOrder, Victim, VictimSet
from controller.scheduler.shell.prebind import Prepared
from kube.api import ApiError
from kube.clock import SYSTEM, Clock
from kube.types import Node, NodeCondition, Pod

log = structlog.get_logger(__name__)

WORKERS: Final = 16
PREPARERS: Final = 8
EVICTORS: Final = 4
EVICTION_LAPSES_S: Final = 10.0
"""Who was to be evicted so long ago is judged anew: for whom it was may have its place, or the sick part be well."""
BEGUN_LASTS_S: Final = 15.0
"""For so long the rest of a set is asked for of which some have left; less than an eviction may take to show."""
BEGUN_PAUSE_S: Final = 1.0
STOPPING: Final = "the scheduler is stopping"

LookAgain = Callable[[BindOrder], str]
"""Say why a bind may not be sent any more, from what the stores show this moment; "" = it may."""
LookAtVictims = Callable[[VictimSet], str]
"""Say why these victims may not be evicted any more; "" = they may."""


class Preparing(Protocol):
    """Prepares a bind, in a worker's thread, as often as it takes; see `prebind.Prebind`."""

    def has_work(self, bind: Bind, pod: Pod) -> bool: ...
    def prepare(self, bind: Bind, pod: Pod) -> Prepared: ...
    def undo(self, prepared: Prepared) -> None: ...


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one bind. `waits`: nothing was sent, since something it needs is not there yet."""

    order: BindOrder
    job: str
    answer: Answer
    waits: bool = False


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one victim. `tried`: the answer is that to the question, and nothing was evicted."""

    victim: Victim
    gains: str
    answer: Answer
    tried: bool = False


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was read, since nobody knew whether it was bound; None = it is gone. `was_read` False: no answer."""

    task: str
    pod: Pod | None = None
    was_read: bool = True


Outcome = Bound | Evicted | Looked


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
        clock: Clock = SYSTEM,
    ) -> None:
        self._effects = effects
        self._preparing = preparing
        self._look_again = look_again
        self._look_at_victims = look_at_victims
        self._wake = wake
        self._clock = clock
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._done: list[Outcome] = []
        self._under_way = 0
        self._binders = ThreadPoolExecutor(WORKERS, thread_name_prefix="bind")
        self._preparers = ThreadPoolExecutor(PREPARERS, thread_name_prefix="prepare")
        self._evictors = ThreadPoolExecutor(EVICTORS, thread_name_prefix="evict")

    @property
    def under_way(self) -> int:
        """How many binds and evictions were ordered and are not collected yet."""
        with self._lock:
            return self._under_way

    def bind(self, gangs: Sequence[GangOrder]) -> None:
        """Order binds."""
        with self._lock:
            self._under_way += sum(len(gang.members) for gang in gangs)
        for gang in gangs:
            if len(gang.members) == 1:
                self._threads_for(gang.members[0]).submit(self._guarded, self._bind_alone, gang)
            else:
                _Gang(gang, self).start()

    def evict(self, sets: Sequence[VictimSet]) -> None:
        """Order evictions."""
        with self._lock:
            self._under_way += sum(len(one.victims) for one in sets)
        until = self._clock.monotonic() + EVICTION_LAPSES_S
        for one in sets:
            self._evictors.submit(self._guarded, self._evict_set, one, until)

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
            self._under_way -= len(done)
        return done

    def stop(self) -> list[Outcome]:
        """Let what is under way end, a gang of which some are bound whole; drop what has not begun."""
        self._stopping.set()
        self._preparers.shutdown(wait=True)
        self._binders.shutdown(wait=True)
        self._evictors.shutdown(wait=True)
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
        with self._lock:
            self._done += outcomes
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

    def _evict_set(self, one: VictimSet, until: float) -> None:
        if why := self._why_not_evict(one, until):
            self._tell_unsent(one, [Answer(result=Result.REFUSED, why=why)] * len(one.victims))
            return
        answers = [self._effects.try_evict(victim.evict.task, victim.uid) for victim in one.victims]
        if one.gains and not all(map(_is_fine, answers)):
            self._tell_unsent(one, answers)
            return
        told: list[Evicted] = []
        refusal = ""
        began = self._clock.monotonic()
        last = began + BEGUN_LASTS_S
        for victim, answer in zip(one.victims, answers, strict=True):
            if refusal:
                skipped = Answer(result=Result.REFUSED, why=refusal)
                told.append(Evicted(victim=victim, gains=one.gains, answer=skipped, tried=True))
                continue
            begun = bool(one.gains) and any(_is_fine(other.answer) for other in told)
            taken = self._evict(one, victim, last if begun else began) if _is_fine(answer) else answer
            told.append(Evicted(victim=victim, gains=one.gains, answer=taken))
            if one.gains and not _is_fine(taken):  # the rest would leave for nothing
                refusal = f"{victim.evict.task} may not be evicted after all: {taken.why}"
        self.tell(*told)

    def _evict(self, one: VictimSet, victim: Victim, last: float) -> Answer:
        """Evict one of a set; up to `last` it is asked for again and again while the server takes nothing."""
        while True:
            answer = self._effects.evict(victim.evict.task, victim.uid)
            if not is_of_the_server(answer) or self._clock.monotonic() >= last:
                return answer
            self._clock.sleep(BEGUN_PAUSE_S)
            if self._stopping.is_set() or self._look_at_victims(one):
                return answer

    def _why_not_evict(self, one: VictimSet, until: float) -> str:
        if self._stopping.is_set():
            return STOPPING
        if self._clock.monotonic() > until:
            return f"it was decided more than {EVICTION_LAPSES_S:g} s ago"
        return self._look_at_victims(one)

    def _tell_unsent(self, one: VictimSet, answers: Sequence[Answer]) -> None:
        self.tell(
            *(
                Evicted(victim=victim, gains=one.gains, answer=answer, tried=True)
                for victim, answer in zip(one.victims, answers, strict=True)
            )
        )

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
            elif isinstance(order, VictimSet):
                self.tell(*(Evicted(victim=one, gains=order.gains, answer=answer) for one in order.victims))
            elif isinstance(order, BindOrder):
                self.tell(Bound(order=order, job=order.bind.job, answer=answer))
            elif isinstance(order, str):
                self.tell(Looked(task=order, was_read=False))


class _Gang:
    """The two waves of one gang. What the last member of the first wave finds decides about the second."""

    def __init__(self, gang: GangOrder, dispatch: Dispatch) -> None:
        self._gang = gang
        self._dispatch = dispatch
        self._lock = threading.Lock()
        self._left = len(gang.members)
        self._begun = False
        self._off = ""
        self._prepared: dict[str, Prepared] = {}
        self._why: dict[str, str] = {}

    def start(self) -> None:
        for order in self._gang.members:
            self._dispatch.submit_preparing(self._prepare, order)

    def _prepare(self, order: BindOrder) -> None:
        task = order.bind.task
        prepared: Prepared | None = None
        why = self._dispatch.why_not(order)
        try:
            if not why:
                prepared = self._dispatch.prepare(order)
        except Exception as error:  # the gang's end must come, whatever one member's preparing meets
            log.exception("prepare.failed", task=task)
            why = f"a defect of the scheduler: {error!r}"
        with self._lock:
            if why:
                self._why[task] = why
            if prepared is not None:
                self._prepared[task] = prepared
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._second_wave()

    def _second_wave(self) -> None:
        gang, dispatch = self._gang, self._dispatch
        if not self._why:
            # It took a while until the last one was prepared: everybody is looked at once more, just before.
            self._why = {order.bind.task: why for order in gang.members if (why := dispatch.why_not(order))}
        if self._why:
            task, why = next(iter(self._why.items()))
            self._undo()
            dispatch.tell(*(refused(order, gang.job, f"{task}: {why}") for order in gang.members))
            return
        lacking = [one for one in self._prepared.values() if not one.ready]
        if lacking:
            # Whoever gave up took back what was its own; a gang without that member needs nothing of the others'.
            worst = next((one for one in lacking if not one.waits), lacking[0])
            if not worst.waits:
                self._undo()
            dispatch.tell(*(unready(order, gang.job, worst) for order in gang.members))
            return
        for order in gang.members:
            dispatch.submit(self._send, order)

    def _send(self, order: BindOrder) -> None:
        """Send one Binding: it may have stood in line for long. Before the first one is sent the gang still goes back whole;
        later the one stays back alone, for it is better placed elsewhere than on what is known to be ill."""
        dispatch, job, prepared = self._dispatch, self._gang.job, self._prepared[order.bind.task]
        why = dispatch.why_not_on(order)
        with self._lock:
            if not self._begun and why:
                self._off = self._off or f"{order.bind.task}: {why}"
            why = self._off or why
            self._begun = self._begun or not why
        if why:
            dispatch.undo(prepared)
            dispatch.tell(refused(order, job, why))
        else:
            dispatch.send(order, job, prepared)

    def _undo(self) -> None:
        for prepared in self._prepared.values():
            self._dispatch.undo(prepared)


def _is_fine(answer: Answer) -> bool:
    return answer.result in (Result.DONE, Result.ABSENT)


def refused(order: BindOrder, job: str, why: str) -> Bound:
    """Say that a bind was not sent, since the world is another one than was planned on."""
    return Bound(order=order, job=job, answer=Answer(result=Result.REFUSED, why=why))


def unready(order: BindOrder, job: str, prepared: Prepared) -> Bound:
    """Say that a bind was not sent: yet, or not at all, since what it needs did not come."""
    result = Result.SKIPPED if prepared.waits else Result.BLOCKED
    return Bound(order=order, job=job, answer=Answer(result=result, why=prepared.why), waits=prepared.waits)
