"""Of a pod that runs: its cards and what is found on them, and whether it could be taken away again. Pure."""

from datetime import datetime, timedelta

import msgspec

from checks.finding import PartKind, is_same_part
from cli.explain import part_words
from cli.gpus import known_cards
from cli.scheduling_view import View
from controller.scheduler.amounts import RESOURCE_NAMES, RESOURCES, UNLIMITED, WHOLE_GPU
from controller.scheduler.capacity import written
from controller.scheduler.min_runtime import protected_s
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState
from kube.nodehealth import HealthFinding, NodeHealth


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A card that the pod is on; `known` False: it is counted here, and which card it has nobody knows."""

    index: int
    uuid: str
    model: str
    milli: int
    known: bool
    health: str
    reason: str
    findings: tuple[str, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's cards, and the findings on the rest of its node."""

    cards: tuple[Card, ...] = ()
    on_node: tuple[str, ...] = ()


def cards_of(view: View, task: TaskState | None) -> Found:
    """Give the cards of a pod that is on a node, with the findings that stand on them; nothing for one that waits."""
    if task is None or task.node is None:
        return Found()
    name = task.node.name
    health = next((one for one in view.reading.objects.health if one.metadata.name == name), None)
    findings = () if health is None else health.status.findings
    known = known_cards(view)
    mine: set[int] = set()
    cards = []
    for device in task.devices:
        held = [i for i, finding in enumerate(findings) if _is_on(finding, device.uuid, health)]
        mine.update(held)
        cards.append(
            Card(
                index=device.index,
                uuid=device.uuid,
                model=device.spec.model,
                milli=task.milli or WHOLE_GPU,
                known=(task.id, device.uuid) in known,
                health=device.spec.health.value,
                reason=device.spec.why,
                findings=tuple(_words(findings[i]) for i in held),
            )
        )
    return Found(
        cards=tuple(cards),
        on_node=tuple(_words(finding) for i, finding in enumerate(findings) if i not in mine),
    )


def _is_on(finding: HealthFinding, uuid: str, health: NodeHealth | None) -> bool:
    parts = () if health is None else health.status.parts
    return any(
        part.kind == PartKind.GPU and (part.uuid or part.pci) == uuid and is_same_part(finding.part, part)
        for part in parts
    )


def _words(finding: HealthFinding) -> str:
    drill = "DRILL " if finding.drill else ""
    return (
        f"{drill}{finding.severity} {finding.reason} on {part_words(finding.part)}, effect {finding.effect}"
    )


def could_be_taken(session: Session, job: JobState, now: datetime) -> tuple[str, ...]:
    """Say who might have the job evicted, and what keeps them from it."""
    if job.queue is None:
        return (f"its queue {job.spec.queue} does not exist: it runs on and counts for nobody",)
    if not job.spec.preemptible:
        return ("its job is not preemptible: nobody has it evicted for another job",)
    words = [
        f"queue {state.name} holds {RESOURCE_NAMES[r]} {written(state.allocated[r], r)},"
        f" {written(state.allocated[r] - state.quota[r], r)} above its quota"
        + (" and above its fair share" if state.allocated[r] > state.fair_share[r] else "")
        for state in job.queue.path
        for r in RESOURCES
        if state.quota[r] != UNLIMITED and state.allocated[r] > state.quota[r]
    ]
    if words:
        words.append("queues that ask for their share may reclaim it")
    else:
        words.append("every queue on its way is within its quota: other queues may not reclaim it")
    words.append(f"jobs of queue {job.queue.name} with a priority above {job.spec.priority} may preempt it")
    protected = protected_s("reclaim", job.queue, job.queue, session.settings)
    started = job.spec.started_at
    if protected and started is not None and now < started + timedelta(seconds=protected):
        words.append(
            f"for {int((started + timedelta(seconds=protected) - now).total_seconds())} s more it is protected"
        )
    return tuple(words)
