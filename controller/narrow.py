"""Narrow: how far a fault reaches where nodemend-scheduler places the pods, and who stands in the way of its repair. Pure.

Degraded is not dead: the scheduler reads effects and keeps off a node what the fault takes away, so nothing has to be
changed on the Node. It takes a cordon all the same where the whole node is lost, where kubelet might still give a sick GPU
to a pod (it chooses the card, not the scheduler), where something is ill that the scheduler knows no narrower word for, and
where pods that other schedulers placed hold GPUs: those read nothing but a cordon. Not known counts as not fenced.

`parts` of the incident's DrainRecord are the GPUs that alone have to be free. They count for a reset of just these GPUs;
every other repair takes the whole node, and the whole node is drained for it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from checks.finding import EFFECT_RANK, Effect, PartKind, Urgency, is_same_part
from controller.assess import name_parts, rank, takes_node
from controller.case import Case
from controller.drain import Left, left_on
from controller.gpu_reset import RESET_GPU
from controller.holders import alive, gpus_of, has_gpus, holders, name_of, named_in, shares_gpu, shown
from controller.incident import last_repair
from kube.nodehealth import HealthFinding, PartState
from kube.policy import Containment
from kube.types import Pod

# Whoever places pods by effects: our scheduler, also under the name that it takes over from KAI.
SCHEDULERS = ("nodemend-scheduler", "kai-scheduler")
# Without this part the scheduler still knows what the node is good for (controller.scheduler.node_findings).
_NARROWED = (PartKind.PORT, PartKind.NVSWITCH)


def is_narrow(case: Case) -> bool:
    return case.terms.containment is Containment.NARROW


def why_cordon(case: Case) -> str:
    """Say why the node has to be cordoned for what is due, "" = it may stay open."""
    if not is_narrow(case):
        return f"policy {case.terms.name} contains by cordon"
    for finding in case.due:
        if why := _why_not_narrow(case, finding):
            return why
    return _why_not_owned(case)


def fence_awaited(case: Case) -> datetime | None:
    """Give until when it is waited for kubelet to withhold a sick GPU; None = nothing else stands in the way, or all of it.

    The device plugin takes a moment to withdraw a card, and the agent believes it only when kubelet says it twice. Until
    then nobody places a GPU pod there: the scheduler takes a GPU of which nothing is known for one that is still offered.
    """
    if not is_narrow(case) or _why_not_owned(case):
        return None
    times: list[datetime] = []
    for finding in case.due:
        if not _why_not_narrow(case, finding):
            continue
        until = finding.first_seen + case.terms.fence_grace
        if not _is_unfenced(case, finding) or case.now >= until:
            return None
        times.append(until)
    return min(times, default=None)


def sick_gpus(case: Case) -> tuple[str, ...]:
    """Name the GPUs that are out and whose repair may cost running work: their pods are evicted."""
    found = (f for f in case.due if _takes_part(f) and f.urgency == Urgency.NOW)
    return _names(part for f in found if (part := _gpu_of(case, f)) is not None)


def parts_of(case: Case) -> tuple[str, ...]:
    """Name the GPUs that everything due is about, () = something is due that is not of single GPUs."""
    parts = [_gpu_of(case, finding) for finding in case.due]
    return _names(part for part in parts if part is not None) if all(parts) else ()


def left_for(case: Case, repair: str) -> Left:
    """Give what stands in the way of a repair: all of the node's work, or only that of the GPUs that are reset."""
    parts = scope(case, repair)
    return (
        left_with(case, parts) if parts else left_on(case.node_name, case.terms, case.survey.fleet, case.now)
    )


def left_with(case: Case, parts: Sequence[str]) -> Left:
    """Give what still has these GPUs."""
    fleet = case.survey.fleet
    whole = left_on(case.node_name, case.terms, fleet, case.now)
    if not case.verdict.usable or not case.verdict.fresh:
        return Left(doubt="the agent's report is too old to say who holds the GPUs")
    held = holders(case.node_name, parts, case.terms.gpu_resource, fleet)
    uids = {pod.metadata.uid for pod in held.pods}
    return Left(
        evict=tuple(pod for pod in whole.evict if pod.metadata.uid in uids),
        going=tuple(pod for pod in whole.going if pod.metadata.uid in uids),
        blocked=tuple(pod for pod in whole.blocked if pod.uid in uids),
        doubt=held.doubt,
    )


def proven_beside_work(case: Case) -> tuple[str, ...]:
    """Name the GPUs that have to be free for the proof where others' pods may run on, () = the whole node has to be.

    Everything was about these GPUs, and nothing but a reset of theirs was done to the machine.
    """
    record, attempt = case.status.drain, last_repair(case.status)
    if not is_narrow(case) or record is None or not record.parts:
        return ()
    parts = [_gpu_of(case, finding) for finding in case.status.evidence]
    about = {name_of(part) for part in parts if part is not None}
    whole = not all(parts) or any(takes_node(finding) for finding in case.status.evidence)
    if whole or not about <= set(record.parts) or (attempt is not None and attempt.kind != RESET_GPU):
        return ()
    return record.parts


def scope(case: Case, repair: str) -> tuple[str, ...]:
    """Name the GPUs that alone have to be free for a repair, () = the whole node has to be."""
    record = case.status.drain
    if repair != RESET_GPU or not is_narrow(case) or record is None:
        return ()
    about = parts_of(case)
    covered = set(about) <= set(record.parts) and (bool(about) or not case.due)
    return record.parts if covered and not any(takes_node(finding) for finding in case.due) else ()


def _why_not_narrow(case: Case, finding: HealthFinding) -> str:
    named = name_parts([finding])
    if takes_node(finding):
        return f"{named} takes the entire node"
    if finding.effect not in set(Effect):
        return f"{named} has the effect {finding.effect[:63]!r}, which this version does not know"
    if not _takes_part(finding) or finding.part.kind in _NARROWED:
        return ""
    if finding.part.kind != PartKind.GPU:
        return f"{named} takes more than a GPU"
    part = _gpu_of(case, finding)
    if part is None or part.offered is not False:
        return f"kubelet {'may' if part is None or part.offered is None else 'would'} still give a pod the GPU of {named}"
    return ""


def _is_unfenced(case: Case, finding: HealthFinding) -> bool:
    """Tell a sick GPU of which nothing is wanting but that kubelet withholds it."""
    if takes_node(finding) or finding.effect not in set(Effect) or not _takes_part(finding):
        return False
    part = _gpu_of(case, finding)
    return part is not None and part.offered is not False


def _why_not_owned(case: Case) -> str:
    """Say which pod was placed by somebody who reads no effects, or has GPUs that nobody can tell."""
    of_gpus = any(finding.part.kind == PartKind.GPU for finding in case.due)
    named = named_in(case.survey.fleet.healths.get(case.node_name))
    for pod in sorted(alive(case.node_name, case.survey.fleet), key=shown):
        has_some = has_gpus(pod, case.terms.gpu_resource) or shown(pod) in named
        if has_some and _is_foreign(pod):
            scheduler = pod.spec.scheduler_name or "the default scheduler"
            return f"{shown(pod)} of {scheduler} holds GPUs, and only nodemend-scheduler reads what a fault leaves"
        if of_gpus and shares_gpu(pod):
            return f"{shown(pod)} has a share of a GPU, and kubelet does not say of which"
    return ""


def _is_foreign(pod: Pod) -> bool:
    if any(owner.controller and owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
        return False
    return pod.spec.scheduler_name not in SCHEDULERS


def _takes_part(finding: HealthFinding) -> bool:
    return rank(finding) >= EFFECT_RANK[Effect.PART_OUT]


def _gpu_of(case: Case, finding: HealthFinding) -> PartState | None:
    """Find the GPU that a finding is about; None where it is about something else, or NodeHealth has no such GPU."""
    if finding.part.kind != PartKind.GPU or not case.verdict.usable:
        return None
    health = case.survey.fleet.healths.get(case.node_name)
    return next((part for part in gpus_of(health) if is_same_part(finding.part, part)), None)


def _names(parts: Iterable[PartState]) -> tuple[str, ...]:
    return tuple(sorted({name_of(part) for part in parts} - {""}))
