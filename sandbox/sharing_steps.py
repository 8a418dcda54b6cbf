"""What act 4 of the demo waits for: questions about the pods and the sick node as the API shows them. Pure.

Each answers with words once it is so, and with None before that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from checks.finding import Effect
from kube.nodehealth import HealthFinding, NodeHealth
from kube.remediation import Phase, Remediation
from kube.types import Node, Pod
from sandbox.acts import CONDITION, tainted
from sandbox.played_kubelet import gpus_of
from sandbox.sharing_objects import GPUS, QUOTA, SPEECH, VISION

SWEEP, OWN, GANG, TRIALS = "sweep", "own", "gang", "trials"
"""The teams' Jobs: many small pods that take what is idle, a team's own work, one that starts whole, and new single pods."""
SWEEP_PODS, OWN_PODS, SMALL_GPUS = 8, 4, 2
GANG_PODS, GANG_GPUS = 3, 4
TRIAL_PODS, LEFT_BESIDE_GANG = 4, 3
"""Four pods of one GPU, for a node that has four without the gang's, one of them sick."""
EVICTED_PODS = SWEEP_PODS - QUOTA // SMALL_GPUS
EVICTION_API = "EvictionByEvictionAPI"
_MAY_BE_GIVEN = "sick GPU that kubelet still offers"  # the scheduler's words
_JOB = "batch.kubernetes.io/job-name"
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class PoolScene:
    """The pool's pods now, the reason of each pod that was ever marked as disrupted, and what is known of the sick node.

    `sick` is the UUID of the card, `cards` are those of the pods on its node, by pod name, as its kubelet chose them;
    `pages` are the transitions of its incident that reached the receiver.
    """

    pods: tuple[Pod, ...]
    disrupted: Mapping[str, str] = field(default_factory=dict)
    node: Node | None = None
    health: NodeHealth | None = None
    remediation: Remediation | None = None
    sick: str = ""
    cards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pages: tuple[str, ...] = ()

    def placed(self, job: str) -> list[Pod]:
        """Give the living pods of a Job that have a node."""
        return [pod for pod in self._alive(job) if pod.spec.node_name]

    def running(self, job: str) -> list[Pod]:
        return [pod for pod in self.placed(job) if pod.status.phase == "Running"]

    def waiting(self, job: str) -> list[Pod]:
        return [pod for pod in self._alive(job) if not pod.spec.node_name]

    def _alive(self, job: str) -> list[Pod]:
        return [
            pod
            for pod in self.pods
            if pod.metadata.labels.get(_JOB) == job
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in _ENDED
        ]


def why_waits(pod: Pod) -> str:
    """Give what the pod's condition PodScheduled says; empty where it says nothing."""
    found = (
        one.message for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False"
    )
    return next(found, "")


def lent(scene: PoolScene) -> str | None:
    """Whether one team's pods have every GPU of the pool."""
    running = scene.running(SWEEP)
    if len(running) != SWEEP_PODS or _gpus(running) != GPUS:
        return None
    return f"{SWEEP_PODS} pods of {VISION} run on {GPUS} GPUs: {QUOTA} are its own, {GPUS - QUOTA} are lent"


def evicted(scene: PoolScene) -> str | None:
    """Whether exactly the surplus was evicted, and through the Eviction API."""
    if len(scene.disrupted) != EVICTED_PODS or set(scene.disrupted.values()) != {EVICTION_API}:
        return None
    return f"{EVICTED_PODS} pods of {VISION} evicted through the Eviction API"


def served(scene: PoolScene) -> str | None:
    """Whether the lender has its quota."""
    running = scene.running(OWN)
    if len(running) != OWN_PODS or _gpus(running) != QUOTA:
        return None
    return f"{OWN_PODS} pods of {SPEECH} run on its {QUOTA} GPUs"


def kept(scene: PoolScene) -> str | None:
    """Whether the borrower has its own quota and lost nothing more. What was evicted comes again when its Job sees fit."""
    if _gpus(scene.running(SWEEP)) != QUOTA or evicted(scene) is None:
        return None
    return f"{QUOTA // SMALL_GPUS} pods of {VISION} go on with its {QUOTA} GPUs"


def waits_whole(scene: PoolScene) -> str | None:
    """Whether all of the gang wait, and every one of them says why."""
    waiting = scene.waiting(GANG)
    reasons = [why_waits(pod) for pod in waiting]
    if len(waiting) != GANG_PODS or not all(reasons):
        return None
    return f"none of {GANG_PODS} pods has a node: {reasons[0]}"


def free_gpus(scene: PoolScene) -> int:
    """Give how many GPUs no pod holds, those of ending pods among the held."""
    return GPUS - _gpus(pod for pod in scene.pods if pod.spec.node_name and pod.status.phase not in _ENDED)


def started_whole(scene: PoolScene) -> str | None:
    running = scene.running(GANG)
    if len(running) != GANG_PODS:
        return None
    nodes = sorted({pod.spec.node_name for pod in running})
    return f"{GANG_PODS} pods on {_gpus(running)} GPUs of {' and '.join(nodes)}"


def ill(scene: PoolScene) -> str | None:
    """Whether the condition stands, and NodeHealth says which card it is."""
    condition = scene.node.condition(CONDITION) if scene.node is not None else None
    found = _finding(scene)
    if condition is None or condition.status != "True" or found is None:
        return None
    return f"{CONDITION}=True {found.reason}: {found.effect} of {scene.sick[:12]}"


def held_back(scene: PoolScene) -> str | None:
    """Whether all new pods wait and say that kubelet, which picks the card, might give them the sick one."""
    waiting = scene.waiting(TRIALS)
    reasons = [why_waits(pod) for pod in waiting]
    if len(waiting) != TRIAL_PODS or not all(_MAY_BE_GIVEN in reason for reason in reasons):
        return None
    return f"{len(waiting)} wait: {reasons[0]}"


def fenced(scene: PoolScene) -> str | None:
    """Whether kubelet is known to withhold the card."""
    parts = scene.health.status.parts if scene.health is not None else ()
    if not any(part.uuid == scene.sick and part.offered is False for part in parts):
        return None
    return f"kubelet offers {scene.sick[:12]} to nobody any more"


def avoided(scene: PoolScene) -> str | None:
    """Whether new pods have every other card of the node, and the next one waits though the sick card is idle."""
    running, waiting = scene.running(TRIALS), scene.waiting(TRIALS)
    if len(running) != LEFT_BESIDE_GANG or len(waiting) != TRIAL_PODS - LEFT_BESIDE_GANG:
        return None
    on = scene.node.metadata.name if scene.node is not None else ""
    if any(pod.spec.node_name != on or not scene.cards.get(pod.metadata.name) for pod in running):
        return None
    reason = why_waits(waiting[0])
    if not reason or _MAY_BE_GIVEN in reason:
        return None
    if any(scene.sick in uuids for uuids in scene.cards.values()):
        return None
    return f"{len(running)} new pods run beside it on {on}; one more waits: {reason}"


def left_open(scene: PoolScene) -> str | None:
    """Whether the incident is with a person, who was paged, while the node is in service as it was."""
    story, node = scene.remediation, scene.node
    if (
        story is None
        or story.status.phase is not Phase.ESCALATED
        or "open" not in scene.pages
        or node is None
    ):
        return None
    if node.spec.unschedulable or tainted(node):
        return None
    return "page arrived: a person decides; no cordon, no taint"


def uids(pods: Iterable[Pod]) -> frozenset[str]:
    return frozenset(pod.metadata.uid for pod in pods)


def _finding(scene: PoolScene) -> HealthFinding | None:
    findings = scene.health.status.findings if scene.health is not None else ()
    return next(
        (one for one in findings if one.part.uuid == scene.sick and one.effect == Effect.PART_OUT), None
    )


def _gpus(pods: Iterable[Pod]) -> int:
    return sum(gpus_of(pod) for pod in pods)
