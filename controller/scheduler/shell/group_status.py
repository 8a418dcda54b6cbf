"""A pod group's status in KAI's shape: why it waits, what its pods hold; and the two notes that the next cycles read. Pure.

As in KAI there is one condition for a node pool, under type UnschedulableOnNodePool with reason Unschedulable; its `reasons`
carry the codes. All conditions go once nothing of the group waits any more. A group that asks for one try only
(schedulingBackoff 1) gives up by its condition, so that it gets one only where a try was made.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.scheduler import explain
from controller.scheduler.model import HOLDING, Job, TaskStatus
from controller.scheduler.queue_objects import UNSCHEDULABLE_ON_POOL
from controller.scheduler.shell import resource_lists
from controller.scheduler.shell.status_writes import Kind, Write
from controller.scheduler.shell.steady_words import Told, limited
from kube import paths
from kube.scheduling import (
    DEFAULT_POOL,
    LAST_START,
    STALE_SINCE,
    Explanation,
    GroupCondition,
    PodGroup,
    ResourcesStatus,
)
from kube.store import key_of
from kube.timestamps import rfc3339

UNSCHEDULABLE: Final = "Unschedulable"
_NO_TRY: Final = frozenset({explain.NOT_READY, explain.PIPELINED})
_ALLOCATED: Final = HOLDING - {TaskStatus.BINDING} | {TaskStatus.RELEASING, TaskStatus.STUCK}
_WAITING: Final = frozenset({TaskStatus.PENDING, TaskStatus.GATED})
_NOT_SETTLED: Final = _WAITING | {TaskStatus.BINDING}
_REASONS: Final = 16
_EXPLANATION: Final = 400


def conditions_wanted(
    group: PodGroup, job: Job | None, told: Told | None, pool_label: str, now: datetime
) -> tuple[GroupCondition, ...]:
    """Give the scheduling conditions that a group should have; `told` None = it does not wait, as far as the plan knows."""
    held = group.status.scheduling_conditions
    if told is None:
        settled = job is not None and not any(task.status in _NOT_SETTLED for task in job.tasks)
        return () if settled else held
    if group.spec.scheduling_backoff == 1 and told.code in _NO_TRY:
        return held
    if job is not None and any(task.status in _ALLOCATED for task in job.tasks):
        return ()  # it was placed; what is left of it says so pod by pod
    pool = group.metadata.labels.get(pool_label, "") or DEFAULT_POOL
    ours = next((one for one in held if one.node_pool == pool), None)
    wanted = GroupCondition(
        type=UNSCHEDULABLE_ON_POOL,
        node_pool=pool,
        status="True",
        reason=UNSCHEDULABLE,
        message=limited(told.message),
        reasons=_reasons(told),
        transition_id="" if ours is None else ours.transition_id,
        last_transition_time=None if ours is None else ours.last_transition_time,
    )
    if wanted == ours:
        return held
    since = ours.last_transition_time if ours is not None and ours.status == "True" else None
    wanted = msgspec.structs.replace(
        wanted, transition_id=_next_id(held), last_transition_time=since or rfc3339(now)
    )
    # The newest stands last, which is where readers of KAI's groups look for it.
    return (*(one for one in held if one.node_pool != pool), wanted)


def _reasons(told: Told) -> tuple[Explanation, ...]:
    if not told.reasons:
        return (Explanation(reason=told.code, message=limited(told.message, _EXPLANATION)),)
    return tuple(
        Explanation(reason=told.code, message=limited(f"{one.count} {one.text}", _EXPLANATION))
        for one in told.reasons[:_REASONS]
    )


def _next_id(held: tuple[GroupCondition, ...]) -> str:
    last = held[-1].transition_id if held else ""
    return str(int(last) + 1 if last.isascii() and last.isdigit() and len(last) < 10 else 1)


def resources_wanted(job: Job) -> ResourcesStatus:
    """Add up what a group's pods hold and ask for."""
    held = [task.request for task in job.tasks if task.status in _ALLOCATED]
    asked = [
        task.request
        for task in job.tasks
        if task.status in _ALLOCATED or task.status in _WAITING or task.status is TaskStatus.BINDING
    ]
    allocated = resource_lists.of_requests(held)
    return ResourcesStatus(
        allocated=dict(allocated),
        allocated_non_preemptible={} if job.preemptible else dict(allocated),
        requested=dict(resource_lists.of_requests(asked)),
    )


def status_write(
    group: PodGroup, conditions: tuple[GroupCondition, ...], resources: ResourcesStatus | None
) -> Write | None:
    """Give the write that brings a group's status there; None where it is there. `resources` None = leave them."""
    status: dict[str, Any] = {}
    held = group.status
    if conditions != held.scheduling_conditions:
        status["schedulingConditions"] = [_raw(one) for one in conditions] or None
    if resources is not None:
        lists = {
            "allocated": resource_lists.change(held.resources_status.allocated, _texts(resources.allocated)),
            "allocatedNonPreemptible": resource_lists.change(
                held.resources_status.allocated_non_preemptible, _texts(resources.allocated_non_preemptible)
            ),
            "requested": resource_lists.change(held.resources_status.requested, _texts(resources.requested)),
        }
        if changes := {name: patch for name, patch in lists.items() if patch}:
            status["resourcesStatus"] = changes
    if not status:
        return None
    meta = group.metadata
    return Write(
        kind=Kind.GROUP,
        key=key_of(meta),
        path=paths.pod_group_status(meta.namespace, meta.name),
        body={"metadata": {"resourceVersion": meta.resource_version}, "status": status},
    )


def _texts(resources: dict[str, str | int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}


def _raw(condition: GroupCondition) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(condition)
    fields["reasons"] = [{name: value for name, value in one.items() if value} for one in fields["reasons"]]
    return {name: value for name, value in fields.items() if value}


def note_write(group: PodGroup, notes: dict[str, str | None]) -> Write:
    """Give the write of notes to a group, None = taken away; it holds only for this very group, not a later one."""
    meta = group.metadata
    return Write(
        kind=Kind.ANNOTATIONS,
        key=key_of(meta),
        path=paths.pod_group(meta.namespace, meta.name),
        body={"metadata": {"uid": meta.uid, "annotations": notes}},
    )


def stale_note(group: PodGroup, is_stale: bool, suspected: str, now: datetime) -> dict[str, str | None]:
    """Give what a group is to note of being below its minimum; empty where it does.

    While the breaker is open no clock starts: its words are not to be believed, and after the grace a gang is evicted.
    """
    noted = group.metadata.annotations.get(STALE_SINCE)
    if is_stale and not noted:
        return {} if suspected else {STALE_SINCE: rfc3339(now)}
    return {STALE_SINCE: None} if noted is not None and not is_stale else {}


def start_note(group: PodGroup, job: Job | None, at: datetime) -> dict[str, str | None]:
    """Give what a group is to note of its start; empty where it does.

    One pod says itself since when it runs, unless its group carries the note of a run before.
    """
    noted = group.metadata.annotations.get(LAST_START)
    if noted is None and (job is None or len(job.tasks) <= 1):
        return {}
    return {} if noted is not None and _not_before(noted, at) else {LAST_START: rfc3339(at)}


def _not_before(text: str, at: datetime) -> bool:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return False
    return (found if found.tzinfo else found.replace(tzinfo=UTC)) >= at.replace(microsecond=0)
