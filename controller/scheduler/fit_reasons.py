"""Why no node takes a pod, counted over all nodes in kube-scheduler's phrasing. Pure.

"0/5000 nodes are available: 4947 Insufficient nvidia.com/gpu, 41 node(s) had a sick GPU: Xid48DoubleBitEcc, 12 node(s) had
a GPU whose health is unknown (GpuXidError: AgentSilent)." A node whose sick or Unknown cards would have been enough is
counted under what is ill, not as too small: an operator can do something about that. Counting looks at every node, so it is
done once for pods that are alike, and for so many kinds of pods in a cycle; after that only what a node refuses for good is
told apart.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from controller.scheduler import capacity, room
from controller.scheduler.fit import Fit, Shape
from controller.scheduler.nodes import PartHealth
from controller.scheduler.plan import Reason
from controller.scheduler.requests import Request
from controller.scheduler.state import NodeState, TaskState

if TYPE_CHECKING:
    from controller.scheduler.session import Session

MOST_REASONS: Final = 8
"""How many different reasons are told; what is left is summed up."""
MOST_COUNTS: Final = 64
"""For how many kinds of pods every node is looked at in one cycle."""
NO_ROOM: Final = "node(s) had no room"
SICK_GPU: Final = "node(s) had a sick GPU"
UNKNOWN_GPU: Final = "node(s) had a GPU whose health is unknown"

Answer: TypeAlias = tuple[str, tuple[Reason, ...]]


class FitReasons:
    """Remembers the answers of one cycle."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._ledger = fit.ledger
        self._known: dict[tuple[int, Request, str, str], Answer] = {}
        self._looked = 0

    def why_no_node(self, task: TaskState) -> Answer:
        """Give the sentence for a pod's condition and the counted reasons, the most frequent first."""
        shape, is_dynamic = self._fit.of(task)
        key = (shape.key, task.spec.request, task.id if is_dynamic else "", _queue_that_matters(task))
        answer = self._known.get(key)
        if answer is None:
            if self._looked < MOST_COUNTS:
                self._looked += 1
                counts = Counter(self._why(task, shape, node) for node in self._ledger.nodes)
            else:
                counts = self._for_good(shape)
            answer = self._known[key] = answer_of(counts, len(self._ledger.nodes))
        return answer

    def why_not(self, task: TaskState, node: NodeState) -> str:
        """Say why one node does not take a pod now, in the words that are counted."""
        return self._why(task, self._fit.of(task)[0], node)

    def _why(self, task: TaskState, shape: Shape, node: NodeState) -> str:
        why = self._fit.why_not(task, node, False)
        if why is None:
            refusal = capacity.why_not_there(self._ledger, task, node)
            return f"node(s) where {refusal}" if refusal else "node(s) could not take the whole group"
        if why.startswith(room.NO_GPU) and self._fit.refusal(shape, node) is None:
            return _ill_parts(task.spec.request, node) or why
        return why

    def _for_good(self, shape: Shape) -> Counter[str]:
        """Count what nodes refuse whatever runs there; the rest is called full."""
        if shape.counted is None:
            shape.counted = Counter(self._fit.refusal(shape, node) or NO_ROOM for node in self._ledger.nodes)
        return shape.counted


def why_no_node(session: "Session", task: TaskState) -> Answer:
    """Say why no node takes a pod; see `FitReasons.why_no_node`."""
    return session.candidates.reasons.why_no_node(task)


def _queue_that_matters(task: TaskState) -> str:
    """Name the queue of a pod for which it depends on the node what it costs there; "" for all others."""
    queue = None if task.job is None else task.job.queue
    return queue.name if queue and (queue.counts_models or task.spec.request.gpu_memory_mib) else ""


def _ill_parts(request: Request, node: NodeState) -> str | None:
    """Name a node's sick or Unknown card, the worst, where its cards would be enough if they were well and free."""
    ill = [device.spec for device in node.devices if not device.open]
    asked = request.devices if request.is_shared else request.gpus
    if not ill or not asked or node.idle_gpus >= asked or node.idle_gpus + len(ill) < asked:
        return None
    worst = min(ill, key=lambda gpu: (gpu.health is not PartHealth.SICK, gpu.index))
    if worst.health is PartHealth.SICK:
        return f"{SICK_GPU}: {worst.why}" if worst.why else SICK_GPU
    if worst.health is PartHealth.UNKNOWN:
        return f"{UNKNOWN_GPU} ({worst.why})" if worst.why else UNKNOWN_GPU
    return None


def answer_of(counts: Counter[str], nodes: int) -> Answer:
    """Make the sentence of counted refusals, the most frequent first."""
    if not nodes:
        return "0/0 nodes are available: the pool has no nodes.", ()
    found = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    reasons = [Reason(text=text, count=count) for text, count in found[:MOST_REASONS]]
    rest = sum(count for _, count in found[MOST_REASONS:])
    if rest:
        reasons.append(Reason(text=f"node(s) had {len(found) - MOST_REASONS} other reasons", count=rest))
    listed = ", ".join(f"{reason.count} {reason.text}" for reason in reasons)
    return f"0/{nodes} nodes are available: {listed}.", tuple(reasons)
