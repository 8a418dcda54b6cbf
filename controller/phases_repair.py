"""Repairing: one Job for each attempt, created once, and proof that does not come from the Job. Pure.

The attempt is written down first; its Job is created from that row, and the row then says so: from there on it is never
created again, whatever became of it. A reboot is proven by a new boot id that the kubelet and the agent both report, on a
Ready node. NotReady is no proof (a fast reboot never shows it), nor is an empty boot id, nor is a Job's success.
"""

from datetime import datetime, timedelta

import msgspec

from controller import guards
from controller.assess import why_not_usable
from controller.attempts import (
    changed,
    ended,
    failed,
    job_failure,
    job_of,
    why_not_submitted,
    withdrawn_by_boot,
)
from controller.case import Case, Move
from controller.gpu_reset import RESET_GPU
from controller.incident import FAILED, SUCCEEDED, clock, last_repair
from controller.last_words import last_words
from controller.phases_contain import escalate, revalidate, start_drain, why_a_person
from controller.phases_drain import begin_repair, left_in
from controller.phases_reset import resetting
from controller.survey import is_ready
from kube.remediation import Attempt, Phase
from kube.types import Job

# After its Job failed the machine may still go down: it was told to, and the kubelet ends pods on its way. A Ready node that
# still shows the old boot id after this time was not rebooted.
JOB_FAILED_GRACE = timedelta(minutes=2)


def repairing(case: Case) -> Move:
    """Submit the attempt, watch for its proof, and go on to the next one or to a person."""
    attempt = last_repair(case.status)
    if attempt is None or attempt.result:
        return _next(case)
    if attempt.kind == RESET_GPU:
        return resetting(case, attempt)
    job = case.survey.fleet.jobs.get(attempt.job)
    if attempt.submitted_at is None and job is not None:
        return changed(case, attempt, submitted_at=case.now).go_on(_watching(attempt))
    if attempt.submitted_at is None:
        return _submit(case, attempt)
    return _watch(case, attempt, job)


def _next(case: Case) -> Move:
    if case.gone:
        return revalidate(case)
    if hand_over := why_a_person(case):
        return escalate(case, hand_over)
    fleet = case.survey.fleet
    if fleet.pods_synced and left_in(case):
        return start_drain(case)
    return begin_repair(case)


def _submit(case: Case, attempt: Attempt) -> Move:
    if case.gone:
        return revalidate(
            ended(case, attempt, FAILED, "withdrawn before it was submitted: the fault is gone")
        )
    hand_over = why_a_person(case)
    if hand_over:
        return escalate(ended(case, attempt, FAILED, "withdrawn before it was submitted"), hand_over)
    booted = case.node.status.node_info.boot_id
    if booted and booted != attempt.boot_id_before:
        return withdrawn_by_boot(case, attempt, booted)
    hold = guards.hold_repair(case, attempt)
    if case.now >= attempt.deadline:
        return failed(case, attempt, why_not_submitted(case, attempt, hold.why if hold is not None else ""))
    if hold is not None:
        return msgspec.structs.replace(case.hold(hold), recheck_at=attempt.deadline)
    return case.go_on(
        case.status.message if not case.status.held_by else _watching(attempt),
        job_of(case, attempt),
        recheck_at=attempt.deadline,
    )


def _watch(case: Case, attempt: Attempt, job: Job | None) -> Move:
    missing = _why_not_proven(case, attempt)
    if missing is None:
        return _proven(case, attempt)
    broke = job_failure(job)
    if job is not None and broke:
        broke = last_words(job, case.survey.fleet.pods.get(case.node_name, ())) or broke
    rebooted = case.node.status.node_info.boot_id not in ("", attempt.boot_id_before)
    if broke and attempt.job_failed_at is None:
        case = changed(case, attempt, job_failed_at=case.now, message=f"its Job failed: {broke}"[:1024])
        return case.go_on(
            f"{attempt.job}: its Job failed ({broke}); the machine may still be going down"[:1024]
        )
    if case.now >= attempt.deadline:
        return failed(case, attempt, f"not proven by {clock(attempt.deadline)}: {missing}")
    times: list[datetime] = [attempt.deadline]
    if attempt.job_failed_at is not None and not rebooted:
        grace = attempt.job_failed_at + JOB_FAILED_GRACE
        if case.now >= grace and is_ready(case.node):
            return failed(case, attempt, f"{attempt.message or 'its Job failed'}, and {missing}")
        times += [grace] if grace > case.now else []
    message = f"{attempt.job}: {missing}" if rebooted else _watching(attempt)
    if attempt.job_failed_at is not None and not rebooted:
        message = case.status.message
    return case.go_on(message, recheck_at=min(times))


def _proven(case: Case, attempt: Attempt) -> Move:
    boot_id = case.node.status.node_info.boot_id
    line = f"{attempt.job} is proven: boot {attempt.boot_id_before} ended, boot {boot_id} runs"
    case = ended(case, attempt, SUCCEEDED, line, boot_id_after=boot_id)
    return case.enter(
        Phase.REVALIDATING,
        f"{line}; the node is proven before it is given back",
        page=f"{case.node_name}: {line}; revalidating",
    )


def _why_not_proven(case: Case, attempt: Attempt) -> str | None:
    """Say what is missing from the proof of a reboot."""
    node = case.node
    boot_id = node.status.node_info.boot_id
    if not boot_id or not attempt.boot_id_before:
        return "the Node shows no boot id"
    if boot_id == attempt.boot_id_before:
        return f"the node still runs boot {boot_id}"
    health = case.survey.fleet.healths.get(case.node_name)
    if health is None or why_not_usable(node, health) or health.status.boot_id != boot_id:
        return f"boot {boot_id} runs, its agent has not reported yet"
    if not is_ready(node):
        return f"boot {boot_id} runs, the node is not Ready yet"
    return None


def _watching(attempt: Attempt) -> str:
    return f"{attempt.job} is to end boot {attempt.boot_id_before}, by {clock(attempt.deadline)}"
