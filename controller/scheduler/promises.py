"""Places that were emptied for a job are given to it first in the next cycle, and to nobody else meanwhile. Pure.

KAI forgets for whom it evicted as soon as the cycle ends: whoever stands first then takes the room, and for the job that
waits others are evicted again, for ever if they take turns. By the rule `keep_promises` a cycle says which jobs it made room
for and where (`Plan.promises`), moved victims included, and the next one (`Snapshot.promises`) serves them before all
others, on those nodes. As long as victims still end, such a job is pipelined anew and so is promised the same again; what it
claims, idle room included, is not free to others (`room`, `gpu_choice`). A promise ends when it is kept, or when it cannot
be: limits and quotas are held against it as against any other placement. From one leader to the next it stands on the pods
that wait for that room (`shell.nominations`).

What is not kept: the place of a moved victim whose replacement does not exist yet when the next cycle runs.
"""

from collections.abc import Callable

from controller.scheduler import gangs
from controller.scheduler.job_order import is_pending
from controller.scheduler.model import TaskStatus
from controller.scheduler.plan import Promise
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, NodeSet


def keep(session: Session, place: Callable[[JobState, NodeSet], bool]) -> None:
    """Serve those first for whom the last cycle made room; `place` tries a job on some nodes and says whether it did."""
    if not session.rules.keep_promises:
        return
    for promise in session.snapshot.promises:
        job = session.ledger.jobs.get(promise.job)
        if job is None or not gangs.is_ready(job):
            continue
        nodes = frozenset(
            node.index
            for name in promise.nodes
            if (node := session.ledger.node_by_name.get(name)) is not None
        )
        only = NodeSet(("promised", job.id), nodes)
        for _ in promise.nodes:
            if not is_pending(job) or not place(job, only):
                break
            if job.id not in session.promised:
                session.promised.append(job.id)


def made(session: Session) -> tuple[Promise, ...]:
    """Say whom room was made for: those who gain by evictions first, then those who were moved."""
    if not session.rules.keep_promises:
        return ()
    gainers = [*session.promised, *session.gains.values()]
    found: dict[str, list[str]] = {job_id: [] for job_id in gainers}
    for task in session.ledger.tasks.values():
        if task.status is not TaskStatus.PIPELINED or task.node is None or task.job is None:
            continue
        if task.job.id in found or task.evicted:
            found.setdefault(task.job.id, []).append(task.node.name)
    return tuple(Promise(job=job_id, nodes=tuple(sorted(nodes))) for job_id, nodes in found.items() if nodes)
