"""What the three actions that evict differ in: who may start, who may be a victim, who judges, what is said. Pure."""

from controller.scheduler import gangs, reclaim_gates
from controller.scheduler.capacity import why_over_quota
from controller.scheduler.rules import Rules
from controller.scheduler.search import judging, sentences
from controller.scheduler.search.scenario import gpu_room
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState


class Kind:
    """An action that evicts, as a search sees it."""

    name: str
    only_preemptible = False
    by_queue = True
    moves = False
    """Whether every victim must find another place."""

    def may_start(self, session: Session, job: JobState) -> bool:
        """Tell whether the job may look for victims at all."""
        raise NotImplementedError

    def candidates(self, session: Session, job: JobState) -> list[JobState]:
        """Choose the jobs that may be victims, in the order of the ledger."""
        raise NotImplementedError

    def allows(
        self,
        session: Session,
        job: JobState,
        victims: list[TaskState],
        gone: set[str],
        tasks: list[TaskState],
        rules: Rules,
    ) -> bool:
        """Tell whether these victims, of which those in `gone` find no new place, may be taken for these pods of the job."""
        raise NotImplementedError

    def why(self, evictor: JobState, task: TaskState) -> str:
        """Say why this pod goes."""
        raise NotImplementedError


class Reclaim(Kind):
    """A queue takes back what is its fair share (kai.md 3.5)."""

    name = "reclaim"

    def may_start(self, session: Session, job: JobState) -> bool:
        amounts = gangs.amounts_of(gangs.tasks_to_place(session, job, real=False))
        return job.queue is not None and reclaim_gates.may_reclaim(job.queue, amounts, job.spec.preemptible)

    def candidates(self, session: Session, job: JobState) -> list[JobState]:
        return judging.reclaim_victims(session, job)

    def allows(
        self,
        session: Session,
        job: JobState,
        victims: list[TaskState],
        gone: set[str],
        tasks: list[TaskState],
        rules: Rules,
    ) -> bool:
        return judging.may_reclaim_with(session, job, victims, gone, tasks, rules)

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.reclaimed(evictor, task)


class Preempt(Kind):
    """A job takes the place of jobs of lower priority in its own queue."""

    name = "preempt"

    def may_start(self, session: Session, job: JobState) -> bool:
        amounts = gangs.amounts_of(gangs.tasks_to_place(session, job, real=False))
        return job.queue is not None and why_over_quota(job.queue, amounts, job.spec.preemptible) is None

    def candidates(self, session: Session, job: JobState) -> list[JobState]:
        return judging.preempt_victims(session, job)

    def allows(
        self,
        session: Session,
        job: JobState,
        victims: list[TaskState],
        gone: set[str],  # noqa: ARG002
        tasks: list[TaskState],  # noqa: ARG002
        rules: Rules,  # noqa: ARG002
    ) -> bool:
        return judging.keeps_minimum(session, "preempt", job, victims)

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.preempted(evictor, task)


class Consolidate(Kind):
    """Jobs move together so that one that waits finds room in one piece; nobody loses a place."""

    name = "consolidation"
    only_preemptible = True
    by_queue = False
    moves = True

    def may_start(self, session: Session, job: JobState) -> bool:
        wanted = sum(task.amounts[0] for task in gangs.tasks_to_place(session, job, real=False))
        return _free_gpus(session) >= wanted

    def candidates(self, session: Session, job: JobState) -> list[JobState]:
        return judging.movable_jobs(session, job)

    def allows(
        self,
        session: Session,  # noqa: ARG002
        job: JobState,  # noqa: ARG002
        victims: list[TaskState],  # noqa: ARG002
        gone: set[str],
        tasks: list[TaskState],  # noqa: ARG002
        rules: Rules,  # noqa: ARG002
    ) -> bool:
        return not gone

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.moved(evictor, task)


def _free_gpus(session: Session) -> int:
    """Count what is free or will be on nodes that are not closed, in milli-GPU."""
    return sum(gpu_room(node) for node in session.ledger.nodes if not node.spec.closed)
