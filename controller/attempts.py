"""How an attempt of a repair ends or goes on within its case: what every repair's phase shares. Pure."""

import msgspec

from controller.case import Case, Move
from controller.incident import FAILED, clock, with_attempt
from controller.phases_contain import escalate
from controller.phases_drain import next_rung
from controller.steps import RunRepair
from kube.remediation import Attempt, Phase
from kube.types import Job

_TEXT = 1024


def changed(case: Case, attempt: Attempt, **changes: object) -> Case:
    """Give the case with the attempt changed."""
    return case.with_status(with_attempt(case.status, msgspec.structs.replace(attempt, **changes)))


def ended(case: Case, attempt: Attempt, result: str, message: str, **changes: object) -> Case:
    """Give the case with the attempt over."""
    return changed(case, attempt, result=result, message=message[:_TEXT], finished_at=case.now, **changes)


def failed(case: Case, attempt: Attempt, why: str, result: str = FAILED) -> Move:
    """Write down the failure; at the end of the ladder a person's turn comes in the same breath."""
    line = f"{attempt.job} {'failed' if result == FAILED else 'was not done'}: {why}"
    case = ended(case, attempt, result, why)
    if next_rung(case) is None:
        return escalate(case, f"{line}; the ladder has no other repair")
    return case.enter(Phase.REPAIRING, line, page=f"{case.node_name}: {line}")


def job_of(case: Case, attempt: Attempt) -> RunRepair:
    """Give the step that creates the attempt's Job."""
    return RunRepair(
        node=case.node_name,
        incident=case.name,
        repair=attempt.kind,
        attempt=attempt.number,
        job=attempt.job,
        boot_id=attempt.boot_id_before,
        timeout_s=int((attempt.deadline - attempt.started_at).total_seconds()),
    )


def withdrawn_by_boot(case: Case, attempt: Attempt, boot_id: str) -> Move:
    """End an attempt that another boot made void. Nothing was tried: the rung stays, and what stands now decides."""
    why = f"withdrawn before it was submitted: the node was booted again (boot {boot_id})"
    return ended(case, attempt, FAILED, why).enter(Phase.REPAIRING, f"{attempt.job} is {why}")


def why_not_submitted(case: Case, attempt: Attempt, hold: str) -> str:
    """Say what kept an attempt from being submitted for all its time."""
    failure = case.survey.fleet.failures.get(case.node_name)
    why = hold or (failure.why if failure is not None else "its Job was not created")
    return f"not submitted by {clock(attempt.deadline)}: {why}"


def job_failure(job: Job | None) -> str:
    """Say why a Job failed; empty where it did not."""
    if job is None:
        return ""
    for condition in job.status.conditions:
        if condition.type == "Failed" and condition.status == "True":
            return " ".join(filter(None, (condition.reason, condition.message))) or "no reason given"
    return ""


def is_complete(job: Job | None) -> bool:
    """Tell a Job that succeeded."""
    found = job.status.conditions if job is not None else ()
    return any(condition.type == "Complete" and condition.status == "True" for condition in found)
