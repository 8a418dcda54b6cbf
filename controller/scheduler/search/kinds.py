"""What the three actions that evict differ in: who may start, who may be a victim, who judges, what is said. Pure."""

from typing import ClassVar

from controller.scheduler import gangs, model_gates, reclaim_gates
from controller.scheduler.amounts import GPU, Amounts
from controller.scheduler.capacity import why_over_limit, why_over_quota
from controller.scheduler.search import judging, sentences
from controller.scheduler.search.scenario import gpu_room
from controller.scheduler.session import Session
from controller.scheduler.state import JobState, TaskState


class Kind:
    """An action that evicts, as a search sees it.

    `moves`: every victim must find another place. `guards_quota`: a set of victims that spares quotas is looked for first.
    """

    name: ClassVar[str]
    only_preemptible: ClassVar[bool] = False
    by_queue: ClassVar[bool] = True
    moves: ClassVar[bool] = False
    guards_quota: ClassVar[bool] = False

    def __init__(self, session: Session) -> None:
        self.session = session
        self._free = self._cursor = 0
        self._rooms: dict[int, int] = {}

    def asked(self, job: JobState) -> Amounts:
        """Give what the job asks for next."""
        return gangs.amounts_of(gangs.tasks_to_place(self.session, job, real=False))

    def may_start(self, job: JobState) -> bool:
        """Tell whether the job may look for victims at all."""
        raise NotImplementedError

    def may_be_victim(self, evictor: JobState, victim: JobState, asked: Amounts) -> bool:
        """Tell whether the victim's pods may be looked at for a job that asks for these amounts."""
        raise NotImplementedError

    def candidates(self, evictor: JobState) -> list[JobState]:
        """List the jobs that may be victims, in the order of the ledger."""
        asked = self.asked(evictor)
        jobs = self.session.ledger.jobs.values()
        return [job for job in jobs if self.may_be_victim(evictor, job, asked)]

    def allows(
        self,
        evictor: JobState,
        victims: list[TaskState],
        gone: set[str],
        tasks: list[TaskState],
        spare_quota: bool = False,
        model: str = "",
    ) -> bool:
        """Tell whether these victims, of which those in `gone` find no new place, may be taken for these pods of the job.

        `model`: of the node on which room is made, where the job's queue may have a claim to it by name.
        """
        raise NotImplementedError

    def why(self, evictor: JobState, task: TaskState) -> str:
        """Say why this pod goes."""
        raise NotImplementedError

    def frees_limits(self, evictor: JobState, asked: Amounts) -> bool:  # noqa: ARG002
        """Tell whether victims of this kind may bring a queue that refuses the job below its limit."""
        return False

    def free_gpus(self) -> int:
        """Count what is free or will be on nodes that are not closed, in milli-GPU; only what changed is counted anew."""
        changes, nodes = self.session.ledger.changes, self.session.ledger.nodes
        for index in dict.fromkeys(changes[self._cursor :]) if self._rooms else range(len(nodes)):
            room = 0 if nodes[index].spec.closed else gpu_room(nodes[index])
            self._free += room - self._rooms.get(index, 0)
            self._rooms[index] = room
        self._cursor = len(changes)
        return self._free


class Reclaim(Kind):
    """A queue takes back what is its fair share (kai.md 3.5)."""

    name = "reclaim"
    guards_quota = True

    def may_start(self, job: JobState) -> bool:
        if job.queue is None:
            return False
        asked = self.asked(job)
        return reclaim_gates.may_reclaim(job.queue, asked, job.spec.preemptible) or (
            self.session.rules.quota_per_model
            and job.queue.counts_models
            and model_gates.may_start(job.queue, asked[GPU])
        )

    def may_be_victim(self, evictor: JobState, victim: JobState, asked: Amounts) -> bool:
        return judging.may_reclaim_from(self.session, evictor, victim, asked)

    def allows(
        self,
        evictor: JobState,
        victims: list[TaskState],
        gone: set[str],
        tasks: list[TaskState],
        spare_quota: bool = False,
        model: str = "",
    ) -> bool:
        return judging.may_reclaim_with(self.session, evictor, victims, gone, tasks, spare_quota, model)

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.reclaimed(evictor, task, self.session.rules.quota_per_model)

    def frees_limits(self, evictor: JobState, asked: Amounts) -> bool:
        # Victims are in other queues: only a limit that they share can be helped.
        refusal = why_over_limit(evictor.queue, asked) if evictor.queue is not None else None
        return refusal is not None and refusal.queue != evictor.spec.queue


class Preempt(Kind):
    """A job takes the place of jobs of lower priority in its own queue."""

    name = "preempt"

    def may_start(self, job: JobState) -> bool:
        return (
            job.queue is not None and why_over_quota(job.queue, self.asked(job), job.spec.preemptible) is None
        )

    def may_be_victim(self, evictor: JobState, victim: JobState, asked: Amounts) -> bool:  # noqa: ARG002
        return judging.may_preempt(self.session, evictor, victim)

    def allows(
        self,
        evictor: JobState,
        victims: list[TaskState],
        gone: set[str],  # noqa: ARG002
        tasks: list[TaskState],  # noqa: ARG002
        spare_quota: bool = False,  # noqa: ARG002
        model: str = "",  # noqa: ARG002
    ) -> bool:
        return judging.keeps_minimum(self.session, "preempt", evictor, victims)

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.preempted(evictor, task)

    def frees_limits(self, evictor: JobState, asked: Amounts) -> bool:  # noqa: ARG002
        return True


class Consolidate(Kind):
    """Jobs move together so that one that waits finds room in one piece; nobody loses a place."""

    name = "consolidation"
    only_preemptible = True
    by_queue = False
    moves = True

    def may_start(self, job: JobState) -> bool:
        return self.free_gpus() >= self.asked(job)[0]

    def may_be_victim(self, evictor: JobState, victim: JobState, asked: Amounts) -> bool:  # noqa: ARG002
        return judging.may_move(self.session, evictor, victim)

    def candidates(self, evictor: JobState) -> list[JobState]:
        most = self.session.settings.max_consolidation_preemptees
        found = super().candidates(evictor)
        # KAI lets one more through than it says.
        return found if most < 0 else found[: most + 1]

    def allows(
        self,
        evictor: JobState,  # noqa: ARG002
        victims: list[TaskState],  # noqa: ARG002
        gone: set[str],
        tasks: list[TaskState],  # noqa: ARG002
        spare_quota: bool = False,  # noqa: ARG002
        model: str = "",  # noqa: ARG002
    ) -> bool:
        return not gone

    def why(self, evictor: JobState, task: TaskState) -> str:
        return sentences.moved(evictor, task)
