"""Drain: which pods hold a node, which of them to evict now, and who holds the drain up. Pure.

A drain is done when the pod list of a synced store holds no pod that blocks, never because a number of evictions was sent
(NVIDIA/NVSentinel#121). Eviction goes through the Eviction API with the pod's UID, so a StatefulSet's new pod of the same
name elsewhere is never hit (kubernetes/kubernetes#138229), and PodDisruptionBudgets are always honoured. Nothing is ever
forced: at its deadline a drain ends with a person. The classes follow kubectl drain; where it asks for a flag, the policy
decides.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from controller.terms import Terms
from controller.view import Fleet
from kube.remediation import QUARANTINE, BlockedPod
from kube.types import DaemonSet, OwnerReference, Pod, Toleration

EVICTIONS_AT_ONCE = 10
BLOCKED_LIMIT = 20
_FIRST_PAUSE = timedelta(seconds=5)  # as kubectl drain after a PodDisruptionBudget's refusal
_LONGEST_PAUSE = timedelta(seconds=60)
_UNHEARD = timedelta(seconds=60)  # an accepted eviction whose pod still shows no deletion is asked for again
_STUCK_AFTER = timedelta(minutes=1)  # past its own grace, which deletionTimestamp already includes
_MIRROR = "kubernetes.io/config.mirror"
_WHY = 300


class Fate(StrEnum):
    """What a drain does with a pod."""

    LEAVE = "leave"
    EVICT = "evict"
    GOING = "going"
    BLOCKED = "blocked"


class Class(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's fate and why."""

    fate: Fate
    why: str


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that still hold a node, by fate, each list in a fixed order.

    `doubt` says why there may be others: then it is not empty either.
    """

    evict: tuple[Pod, ...] = ()
    going: tuple[Pod, ...] = ()
    blocked: tuple[BlockedPod, ...] = ()
    doubt: str = ""

    def __bool__(self) -> bool:
        return bool(self.evict or self.going or self.blocked or self.doubt)

    def names(self, most: int = 3) -> str:
        """Name what is left for people."""
        words = [f"{b.namespace}/{b.name} ({b.why})" for b in self.blocked]
        words += [f"{p.metadata.namespace}/{p.metadata.name}" for p in (*self.evict, *self.going)]
        words += [self.doubt] if self.doubt else []
        more = len(words) - most
        return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round of evictions: what to evict now, who refuses, and when to look again."""

    evict: tuple[Pod, ...] = ()
    refused: tuple[BlockedPod, ...] = ()
    recheck_at: datetime | None = None


def classify(pod: Pod, terms: Terms, fleet: Fleet) -> Class:
    """Say what a drain does with this pod."""
    meta = pod.metadata
    if _MIRROR in meta.annotations or any(owner.kind == "Node" for owner in meta.owner_references):
        return Class(fate=Fate.LEAVE, why="a static pod of the kubelet")
    if pod.status.phase in ("Succeeded", "Failed"):
        return Class(fate=Fate.LEAVE, why="finished")
    if meta.namespace in fleet.settings.system_namespaces:
        return Class(fate=Fate.LEAVE, why="a part of nodemend")
    if meta.namespace in terms.excluded_namespaces:
        return Class(fate=Fate.LEAVE, why=f"namespace {meta.namespace} is excluded by policy {terms.name}")
    owner = _controller_of(pod)
    if owner is not None and owner.kind == "DaemonSet" and _daemonset_of(pod, owner, fleet) is not None:
        return Class(fate=Fate.LEAVE, why=f"of DaemonSet {owner.name}, which would put it back at once")
    if meta.deletion_timestamp is not None:
        return Class(fate=Fate.GOING, why="is being deleted")
    if (owner is None or owner.kind == "DaemonSet") and not terms.evict_unmanaged:
        return Class(
            fate=Fate.BLOCKED, why="nothing would start it again elsewhere, and the policy says block"
        )
    if not terms.evict_empty_dir and any(volume.empty_dir is not None for volume in pod.spec.volumes):
        return Class(fate=Fate.BLOCKED, why="it has emptyDir data, which the policy says to keep")
    return Class(fate=Fate.EVICT, why="")


def left_on(node: str, terms: Terms, fleet: Fleet, now: datetime) -> Left:
    """Give what still holds the node."""
    evict: list[Pod] = []
    going: list[Pod] = []
    blocked: list[BlockedPod] = []
    for pod in sorted(fleet.pods.get(node, ()), key=lambda p: (p.metadata.namespace, p.metadata.name)):
        found = classify(pod, terms, fleet)
        if found.fate is Fate.EVICT:
            evict.append(pod)
        elif found.fate is Fate.BLOCKED:
            blocked.append(_blocked(pod, found.why))
        elif found.fate is Fate.GOING:
            stuck = _why_stuck(pod, now)
            if stuck is None:
                going.append(pod)
            else:
                blocked.append(_blocked(pod, stuck))
    return Left(evict=tuple(evict), going=tuple(going), blocked=tuple(blocked))


def next_round(left: Left, fleet: Fleet, now: datetime) -> Round:
    """Choose the evictions of this round: at most EVICTIONS_AT_ONCE, none within the pause after a refusal."""
    evict: list[Pod] = []
    refused: list[BlockedPod] = []
    times: list[datetime] = []
    for pod in left.evict:
        last = fleet.evictions.get(pod.metadata.uid)
        if last is not None and last.refused:
            refused.append(_blocked(pod, last.refused))
        due_at = now if last is None else last.at + pause(last.tries if last.refused else None)
        if due_at > now:
            times.append(due_at)
        elif len(evict) < EVICTIONS_AT_ONCE:
            evict.append(pod)
    return Round(evict=tuple(evict), refused=tuple(refused), recheck_at=min(times, default=None))


def pause(tries: int | None) -> timedelta:
    """Say how long to wait after `tries` refusals in a row; None = the eviction was accepted."""
    if tries is None:
        return _UNHEARD
    doubled = _FIRST_PAUSE * (1 << min(max(tries - 1, 0), 10))
    return min(doubled, _LONGEST_PAUSE)


def shown(left: Left, refused: Iterable[BlockedPod]) -> tuple[BlockedPod, ...]:
    """Give the pods that hold the drain up, for the record: bounded, in a fixed order, without times or counts."""
    return tuple(sorted((*left.blocked, *refused), key=lambda b: (b.namespace, b.name)))[:BLOCKED_LIMIT]


def gpu_pods(node: str, asked: Collection[str], fleet: Fleet) -> tuple[str, ...]:
    """Name the running pods on the node that hold any of the resources `asked`, but for our own Jobs'."""
    names = []
    for pod in fleet.pods.get(node, ()):
        if (
            pod.status.phase in ("Succeeded", "Failed")
            or pod.metadata.namespace in fleet.settings.system_namespaces
        ):
            continue
        held = [{**c.resources.limits, **c.resources.requests} for c in pod.spec.containers]
        if any(one.get(resource, "0") != "0" for one in held for resource in asked):
            names.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return tuple(sorted(names))


def why_not_taint(node: str, incident: str, fleet: Fleet) -> str | None:
    """Say which DaemonSet's pod on the node does not tolerate our taint: once gone, it could not come back."""
    if not fleet.pods_synced:
        return "the pods are not known yet"
    for pod in fleet.pods.get(node, ()):
        owner = _controller_of(pod)
        if owner is None or owner.kind != "DaemonSet":
            continue
        daemonset = _daemonset_of(pod, owner, fleet)
        tolerations = pod.spec.tolerations if daemonset is None else daemonset.spec.template.spec.tolerations
        if not any(_tolerates(toleration, incident) for toleration in tolerations):
            return f"DaemonSet {pod.metadata.namespace}/{owner.name} does not tolerate it"
    return None


def _tolerates(toleration: Toleration, incident: str) -> bool:
    if toleration.effect not in ("", "NoSchedule"):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", QUARANTINE)
    return toleration.key == QUARANTINE and toleration.value == incident


def _controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def _daemonset_of(pod: Pod, owner: OwnerReference, fleet: Fleet) -> DaemonSet | None:
    found = fleet.daemonsets.get(f"{pod.metadata.namespace}/{owner.name}")
    if found is None or (owner.uid and found.metadata.uid != owner.uid):
        return None
    return found


def _why_stuck(pod: Pod, now: datetime) -> str | None:
    ends = pod.metadata.deletion_timestamp
    if ends is None or now - ends < _STUCK_AFTER:
        return None
    if pod.metadata.finalizers:
        return f"its deletion is held by finalizers {', '.join(pod.metadata.finalizers)}"
    return "its deletion is overdue: the kubelet has not ended it"


def _blocked(pod: Pod, why: str) -> BlockedPod:
    meta = pod.metadata
    return BlockedPod(namespace=meta.namespace, name=meta.name, uid=meta.uid, why=why[:_WHY])


def stuck_at(left: Left) -> datetime | None:
    """Say when the first of the pods that are going will count as stuck."""
    ends = (pod.metadata.deletion_timestamp for pod in left.going)
    return min((end + _STUCK_AFTER for end in ends if end is not None), default=None)


def accepted(incident: str, fleet: Fleet) -> int:
    """Count this incident's accepted evictions that the shell still remembers."""
    return sum(1 for one in fleet.evictions.values() if one.incident == incident and not one.refused)
