"""How long a job is safe from eviction after it started, from its queue and those above (kai.md 3.7). Pure."""

from typing import Literal

from controller.scheduler.model import Settings
from controller.scheduler.reclaim_gates import level
from controller.scheduler.state import QueueState

Kind = Literal["preempt", "reclaim"]


def protected_s(kind: Kind, victim: QueueState, reclaimer: QueueState, settings: Settings) -> int:
    """Say for how many seconds after its start a job of the victim's queue may not be evicted.

    The nearest value on the way up counts, else the cycle's. Preemption, and reclaim where `reclaim_by_lca` is off, starts
    at the victim's own queue; reclaim else at the queue just below the common ancestor, so that what a department has set
    for itself does not hold against others.
    """
    start = level(reclaimer, victim)[1] if kind == "reclaim" and settings.reclaim_by_lca else victim
    for state in reversed(start.path):
        value = state.spec.preempt_min_runtime_s if kind == "preempt" else state.spec.reclaim_min_runtime_s
        if value is not None:
            return value
    return settings.preempt_min_runtime_s if kind == "preempt" else settings.reclaim_min_runtime_s
