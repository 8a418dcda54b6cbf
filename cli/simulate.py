"""`kubectl nodemend simulate`: what the next cycles would do with more objects, or without some nodes. Nothing is written.

The world as it is and the world as asked are both played to their end: what a cycle binds is bound, whom it evicts is gone,
and made again where a controller would make it again. Time stands still meanwhile. Only what differs is told.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final

import msgspec

from cli.intent import unknown_node
from cli.manifest_file import Manifest
from cli.play import Outcome
from cli.scheduling_objects import SchedulingReading
from cli.scheduling_view import View
from controller.scheduler.pod_constraints import Surroundings
from controller.scheduler.pod_tasks import name_of
from controller.scheduler.snapshot import Objects
from kube.types import Pod

NOT_KNOWN: Final = (
    "Simulated with the scheduler's defaults. Its promises, its back-offs and PodDisruptionBudgets are not known here,"
    " and no time passes between the cycles."
)
_FIELDS: Final = {
    "Node": "nodes",
    "Queue": "queues",
    "PodGroup": "pod_groups",
    "Topology": "topologies",
    "PriorityClass": "priority_classes",
    "NodeHealth": "health",
    "Pod": "pods",
}


class BindRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that gets a place, and which it would get in the world as it is ("" = none). `is_new`: it is not there yet."""

    pod: str
    node: str
    gpus: tuple[str, ...] = ()
    otherwise: str = ""
    is_new: bool = False


class EvictRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is evicted; `then`: what becomes of it."""

    pod: str
    node: str
    action: str
    why: str
    gains: str = ""
    then: str = ""


class WaitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits in the end, and did not, or for another reason, in the world as it is."""

    job: str
    code: str
    message: str


class LostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a node that is taken away, and what becomes of it."""

    pod: str
    node: str
    then: str


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that `simulate` shows; its fields are the keys of `-o json`."""

    at: datetime
    changed: tuple[str, ...]
    cycles: int
    settled: bool
    lost: tuple[LostRow, ...] = ()
    binds: tuple[BindRow, ...] = ()
    evictions: tuple[EvictRow, ...] = ()
    spared: tuple[str, ...] = ()
    not_placed: tuple[str, ...] = ()
    waits: tuple[WaitRow, ...] = ()
    wait_no_more: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The reading as asked. `words`: what is other in it; `lost`: pods of lost nodes, with their node;
    `added`: pods that are not there yet."""

    reading: SchedulingReading
    words: tuple[str, ...]
    owners: tuple[dict[str, Any], ...] = ()
    lost: Mapping[str, str] = {}
    added: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def is_made_again(pod: Pod) -> bool:
    """Whether a controller makes the pod again, on whatever node, once it is gone."""
    return any(
        owner.controller and owner.kind not in ("DaemonSet", "Node")
        for owner in pod.metadata.owner_references
    )


def with_file(reading: SchedulingReading, manifest: Manifest, scheduler: str) -> Change:
    """Put a file's objects beside the cluster's; one of the same name takes its place."""
    objects, words, notes = reading.objects, [], []
    for kind, added in sorted(manifest.typed.items()):
        if kind == "PersistentVolumeClaim":
            objects = msgspec.structs.replace(objects, around=_with_claims(objects.around, added))
            words += [f"+ {kind} {_key(one)}" for one in added]
            continue
        field = _FIELDS[kind]
        held = {_key(one): one for one in getattr(objects, field)}
        words += [f"{'~' if _key(one) in held else '+'} {kind} {_key(one)}" for one in added]
        merged = {**held, **{_key(one): one for one in added}}
        objects = msgspec.structs.replace(objects, **{field: tuple(merged.values())})
    others = [pod for pod in manifest.typed.get("Pod", ()) if pod.spec.scheduler_name != scheduler]
    if others:
        theirs = others[0].spec.scheduler_name or "default-scheduler"
        notes.append(
            f"{len(others)} pods of the file are for scheduler {theirs}, which is not simulated"
            f" (spec.schedulerName {scheduler} would be): {name_of(others[0])}{' ...' if len(others) > 1 else ''}"
        )
    if manifest.passed_by:
        notes.append(f"passed by, since nothing of it is scheduled: {', '.join(manifest.passed_by)}")
    return Change(
        reading=msgspec.structs.replace(
            reading, objects=objects, raw_pods={**reading.raw_pods, **manifest.raw_pods}
        ),
        words=tuple(words),
        owners=manifest.owners,
        added=frozenset(map(_key, manifest.typed.get("Pod", ()))) - set(map(_key, reading.objects.pods)),
        notes=tuple(notes),
    )


def _with_claims(around: Surroundings, added: Iterable[Any]) -> Surroundings:
    claims = {**around.volume_claims, **{_key(one): one for one in added}}
    return msgspec.structs.replace(around, volume_claims=claims)


def _key(one: Any) -> str:
    meta = one.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


def without_nodes(reading: SchedulingReading, names: tuple[str, ...], scheduler: str) -> Change:
    """Take nodes away with all that runs there. Raises Failure where one does not exist."""
    objects = reading.objects
    known = [node.metadata.name for node in objects.nodes]
    for name in names:
        if name not in known:
            raise unknown_node(name, known)
    gone = set(names)
    pods, lost = [], {}
    for pod in objects.pods:
        if pod.spec.node_name not in gone:
            pods.append(pod)
            continue
        if pod.spec.scheduler_name == scheduler and pod.status.phase not in ("Succeeded", "Failed"):
            lost[name_of(pod)] = pod.spec.node_name
            if is_made_again(pod):
                pods.append(_made_again(pod))
    kept: Objects = msgspec.structs.replace(
        objects,
        nodes=tuple(node for node in objects.nodes if node.metadata.name not in gone),
        health=tuple(health for health in objects.health if health.metadata.name not in gone),
        slices=tuple(one for one in objects.slices if one.spec.node_name not in gone),
        pods=tuple(pods),
    )
    return Change(
        reading=msgspec.structs.replace(reading, objects=kept),
        words=tuple(f"- Node {name}" for name in names),
        lost=lost,
    )


def _made_again(pod: Pod) -> Pod:
    """Give the pod that its controller would make instead, under the same name, so that it can be followed."""
    labels = {
        key: value for key, value in pod.metadata.labels.items() if not key.startswith("runai-gpu-group")
    }
    meta = msgspec.structs.replace(pod.metadata, labels=labels, deletion_timestamp=None)
    spec = msgspec.structs.replace(pod.spec, node_name="")
    status = msgspec.structs.replace(pod.status, phase="Pending", nominated_node_name="", conditions=())
    return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)


def report_simulation(
    change: Change,
    view: View,
    base: Outcome,
    asked: Outcome,
    again: AbstractSet[str],
    incomplete: tuple[str, ...],
    now: datetime,
) -> SimulationReport:
    """Tell what is other in the world as asked. `again`: pods that are made again when they are evicted."""
    return SimulationReport(
        at=now,
        changed=change.words,
        cycles=asked.cycles,
        settled=asked.settled and base.settled,
        lost=tuple(
            LostRow(pod=pod, node=node, then=_then(pod, asked, again))
            for pod, node in sorted(change.lost.items())
        ),
        binds=tuple(
            BindRow(
                pod=pod,
                node=place.node,
                gpus=place.gpus,
                otherwise=base.node_of(pod),
                is_new=pod in change.added,
            )
            for pod, place in asked.placed.items()
            if base.node_of(pod) != place.node and pod not in asked.evicted
        ),
        evictions=tuple(
            EvictRow(
                pod=pod,
                node=one.node,
                action=one.action,
                why=one.why,
                gains=one.gains,
                then=_then(pod, asked, again),
            )
            for pod, one in asked.evicted.items()
            if pod not in base.evicted
        ),
        spared=tuple(pod for pod in base.evicted if pod not in asked.evicted and pod not in change.lost),
        not_placed=tuple(pod for pod in base.placed if pod not in asked.placed and pod not in change.lost),
        waits=tuple(
            WaitRow(job=job, code=wait.code, message=wait.message)
            for job, wait in asked.waits.items()
            if job not in base.waits or base.waits[job].code != wait.code
        ),
        wait_no_more=tuple(job for job in base.waits if job not in asked.waits),
        notes=(*change.notes, NOT_KNOWN),
        incomplete=(
            *incomplete,
            *(f"PROBLEM: {one}" for one in view.problems if f"PROBLEM: {one}" not in incomplete),
        ),
    )


def _then(pod: str, asked: Outcome, again: AbstractSet[str]) -> str:
    place = asked.placed.get(pod)
    if place is not None:
        return f"goes on at {place.node}"
    return "waits" if pod in again else "is gone: nobody makes it again"
