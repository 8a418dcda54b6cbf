"""What a cluster looks like after a plan was carried out, for tests that let many cycles follow one another."""

from datetime import timedelta

import msgspec

from controller.scheduler.model import Job, Snapshot, Task, TaskStatus
from controller.scheduler.plan import Bind, Plan

CYCLE = timedelta(seconds=10)


def after(snapshot: Snapshot, plan: Plan, *, recreated: bool = True) -> Snapshot:
    """Give the next cycle's snapshot: what was bound runs, what was evicted is gone and, made anew, waits again."""
    binds = {one.task: one for one in plan.binds}
    gone = {one.task for one in plan.evictions}
    now = snapshot.now + CYCLE
    jobs = tuple(_job(job, binds, gone, snapshot, recreated) for job in snapshot.jobs)
    return msgspec.structs.replace(
        snapshot, now=now, jobs=jobs, reserved_for=plan.reserved_for, promises=plan.promises
    )


def _job(job: Job, binds: dict[str, Bind], gone: set[str], snapshot: Snapshot, recreated: bool) -> Job:
    tasks = tuple(_task(task, binds, gone, recreated) for task in job.tasks)
    if not job.ready and job.created_at <= snapshot.now + CYCLE:  # one that comes later has come
        return msgspec.structs.replace(job, ready=True)
    if tasks == job.tasks:
        return job
    evicted = any(task.id in gone for task in job.tasks)
    started = any(task.id in binds for task in job.tasks) and job.started_at is None
    return msgspec.structs.replace(
        job,
        tasks=tasks,
        started_at=snapshot.now if started else None if evicted else job.started_at,
        pending_since=snapshot.now if evicted else job.pending_since,
        restarts=job.restarts + evicted,
    )


def _task(task: Task, binds: dict[str, Bind], gone: set[str], recreated: bool) -> Task:
    if task.id in binds:
        bind = binds[task.id]
        return msgspec.structs.replace(task, status=TaskStatus.RUNNING, node=bind.node, gpus=bind.gpus)
    if task.id in gone:
        status = TaskStatus.PENDING if recreated else TaskStatus.FAILED
        return msgspec.structs.replace(task, status=status, node="", gpus=())
    return task
