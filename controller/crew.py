"""Carry out a tick's steps at once: nodes beside each other, the steps of one node one after the other. Shell.

The barrier: what changes persisted state (Open, Save, SavePolicy) is waited for, since the next plan counts on it: a budget
that does not yet see a Save would grant its place twice. Effects that only act (evictions, Jobs, patches of a Node) are
waited for a moment; one that takes longer keeps its node out of the following plans, and nothing else. Evictions and Jobs
have threads of their own, so that a slow admission webhook on pods never holds up a quarantine.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from controller.outcome import SUCCESS, Outcome, Result
from controller.steps import Evict, Open, RunRepair, RunValidation, Save, SavePolicy, Step, StopClients

WORKERS = 16
SLOW_WORKERS = 8
STATE_DEADLINE_S = (
    30.0  # beyond every request's own end: what takes longer is a defect, and shows in /healthz
)
EFFECT_PATIENCE_S = 0.5

Apply = Callable[[Step], Outcome]


class Crew:
    """Owned by the loop's thread; only `apply` runs in others. `wake` is called when a late one ends."""

    def __init__(
        self, apply: Apply, *, wake: Callable[[], None], patience_s: float = EFFECT_PATIENCE_S
    ) -> None:
        self._apply = apply
        self._wake = wake
        self._patience_s = patience_s
        self._fast = ThreadPoolExecutor(WORKERS, thread_name_prefix="apply")
        self._slow = ThreadPoolExecutor(SLOW_WORKERS, thread_name_prefix="apply-slow")
        self._under_way: dict[str, tuple[Future[list[Outcome]], bool]] = {}

    @property
    def busy(self) -> frozenset[str]:
        """Whose steps are still under way: names of nodes, and `policy/NAME`."""
        return frozenset(self._under_way)

    @property
    def state_is_open(self) -> bool:
        """Whether a write of state is still under way: then no plan may be made."""
        return any(is_state for _, is_state in self._under_way.values())

    def run(self, steps: Iterable[Step]) -> list[Outcome]:
        """Start steps (of nobody who is busy) and give every outcome that is in when the barrier opens."""
        groups: dict[str, list[Step]] = {}
        for step in steps:
            groups.setdefault(owner_of(step), []).append(step)
        for owner, group in groups.items():
            pool = (
                self._slow
                if any(isinstance(s, Evict | StopClients | RunRepair | RunValidation) for s in group)
                else self._fast
            )
            is_state = any(isinstance(step, Open | Save | SavePolicy) for step in group)
            future = pool.submit(in_order, self._apply, group)
            self._under_way[owner] = (future, is_state)
        wait([future for future, is_state in self._under_way.values() if is_state], STATE_DEADLINE_S)
        wait([future for future, _ in self._under_way.values()], self._patience_s)
        outcomes = self._collect()
        for late, _ in self._under_way.values():
            late.add_done_callback(lambda _: self._wake())
        return outcomes

    def _collect(self) -> list[Outcome]:
        done = [owner for owner, (future, _) in self._under_way.items() if future.done()]
        return [outcome for owner in done for outcome in self._under_way.pop(owner)[0].result()]

    def stop(self) -> list[Outcome]:
        """Let what is under way end, drop what has not begun, and give the outcomes. Each request has its own end."""
        self._fast.shutdown(wait=True, cancel_futures=True)
        self._slow.shutdown(wait=True, cancel_futures=True)
        ended = {o: held for o, held in self._under_way.items() if not held[0].cancelled()}
        self._under_way = ended
        return self._collect()


def owner_of(step: Step) -> str:
    """Name whose order a step keeps: its node's, or its policy's."""
    return f"policy/{step.name}" if isinstance(step, SavePolicy) else step.node


def in_order(apply: Apply, steps: Sequence[Step]) -> list[Outcome]:
    """Apply one by one. After a failure the rest waits for the next plan, but one pod's refusal stops no other pod.

    A guard's refusal is about the incident and not about the pod: it stops the rest.
    """
    outcomes: list[Outcome] = []
    stopped = False
    for step in steps:
        if stopped:
            outcomes.append(Outcome(step=step, result=Result.SKIPPED, why="a step before it did not succeed"))
            continue
        outcome = apply(step)
        outcomes.append(outcome)
        of_one_pod = isinstance(step, Evict) and outcome.result is not Result.REFUSED
        stopped = outcome.result not in SUCCESS and not of_one_pod
    return outcomes
