"""Repairing by a reset of single GPUs: everybody off the driver, one Job, everybody back, then the agent's word. Pure.

Each stage follows from what is persisted, so that a crash anywhere repeats at most an idempotent request:

    written down, with the labels as they are  ->  the agent lets go  ->  the other clients are switched off and gone
    ->  the Job resets each GPU  ->  everybody is put back, the GPUs' findings are cleared  ->  the agent reports them well

The clearing comes before the agent's word, since after some XIDs the agent leaves a GPU alone until it is cleared: what
stands against it then is new. Switching a client off counts as destructive: it is guarded as the Job is. Putting back is
not: it follows from the Node and NodeHealth as they are (what carries our word is ours), in every phase and after the
incident's end, whatever holds the rest.
"""

from datetime import timedelta

import msgspec

from controller import guards
from controller.attempts import changed, ended, failed, is_complete, job_failure, job_of, withdrawn_by_boot
from controller.case import Case, Move
from controller.gpu_clients import still_off, still_on, taken_over
from controller.gpu_reset import (
    QUIET_WITHIN,
    answers,
    asks,
    clearings,
    is_reset,
    read_report,
    wants_quiet,
    why_not_proven,
    why_not_quiet,
    why_not_reset,
    with_clearings,
)
from controller.incident import FAILED, REFUSED, SUCCEEDED, clock, is_open, last_repair, repairs
from controller.last_words import last_words, termination_of
from controller.ownership import older
from controller.phases_contain import escalate, revalidate, why_a_person
from controller.steps import StartClients, Step, StopClients, WriteSpec
from controller.survey import Survey
from kube.nodehealth import NodeHealth, NodeHealthSpec, Release
from kube.remediation import Attempt, Phase, Remediation, RemediationStatus, StoppedClients
from kube.types import Job, Node

# kubelet reports how a pod ended before its Job is complete, but by another way.
_REPORT_WITHIN = timedelta(minutes=2)


def resetting(case: Case, attempt: Attempt) -> Move:
    """Prepare the reset, watch its Job, and ask the agent for the other half of the proof."""
    job = case.survey.fleet.jobs.get(attempt.job)
    if attempt.submitted_at is None and job is not None:
        return changed(case, attempt, submitted_at=case.now).go_on(_watching(attempt))
    if attempt.submitted_at is None:
        return _prepare(case, attempt)
    if why := _why_void(case, attempt):
        return failed(case, attempt, why)
    return _prove(case, attempt) if is_reset(attempt) else _watch(case, attempt, job)


def _prepare(case: Case, attempt: Attempt) -> Move:
    if case.gone:
        return revalidate(
            ended(case, attempt, FAILED, "withdrawn before it was submitted: the fault is gone")
        )
    if hand_over := why_a_person(case):
        return escalate(ended(case, attempt, FAILED, "withdrawn before it was submitted"), hand_over)
    booted = case.node.status.node_info.boot_id
    if booted and booted != attempt.boot_id_before:
        return withdrawn_by_boot(case, attempt, booted)
    if case.due and (why := why_not_reset(case)):
        return failed(case, attempt, why, REFUSED)
    hold = guards.hold_repair(case, attempt)
    limit = min(attempt.started_at + QUIET_WITHIN, attempt.deadline)
    if case.now >= limit:
        held = hold.why if hold is not None else why_not_quiet(case, attempt) or _last_failure(case)
        return failed(case, attempt, f"not begun by {clock(limit)}: {held}", REFUSED)
    if hold is not None:
        return msgspec.structs.replace(case.hold(hold), recheck_at=limit)
    return msgspec.structs.replace(_silence_clients(case, attempt), recheck_at=limit)


def _silence_clients(case: Case, attempt: Attempt) -> Move:
    """Take the next step towards a driver that nobody holds, or submit the Job."""
    health = case.survey.fleet.healths.get(case.node_name)
    stopped = case.status.stopped
    if health is None or stopped is None:
        return failed(case, attempt, "there is no NodeHealth to ask the agent through", REFUSED)
    if not asks(health, attempt):
        return case.go_on("the agent is asked to let go of the driver", _ask(case, health, attempt))
    if attempt.released_at is None:
        if not answers(health, attempt):
            return case.go_on("the agent is asked to let go of the driver")
        return changed(case, attempt, released_at=case.now).go_on("the agent let go of the driver")
    if stopped.applied_at is None:
        return _switch_off(case, attempt, stopped)
    if older(case.node.metadata.resource_version, stopped.applied_version):
        return Move(status=case.status)
    if theirs := taken_over(case.node, stopped) or _back_on(case.node, stopped):
        return failed(case, attempt, theirs, REFUSED)
    if why := why_not_quiet(case, attempt):
        return case.go_on(why)
    return case.go_on(
        _watching(attempt),
        job_of(case, attempt),
    )


def _switch_off(case: Case, attempt: Attempt, stopped: StoppedClients) -> Move:
    if theirs := taken_over(case.node, stopped):
        return failed(case, attempt, theirs, REFUSED)
    if left := still_on(case.node, stopped):
        step = StopClients(
            node=case.node_name,
            node_uid=case.node.metadata.uid,
            resource_version=case.node.metadata.resource_version,
            incident=case.name,
            labels=left,
        )
        return case.go_on("the clients of the GPUs are switched off", step)
    applied = msgspec.structs.replace(
        stopped, applied_at=case.now, applied_version=case.node.metadata.resource_version
    )
    case = case.with_status(msgspec.structs.replace(case.status, stopped=applied))
    return case.go_on("the clients of the GPUs are switched off")


def _back_on(node: Node, stopped: StoppedClients) -> str:
    back = still_on(node, stopped)
    return f"label {back[0].key} was set back by somebody else" if back else ""


def _watch(case: Case, attempt: Attempt, job: Job | None) -> Move:
    pods = case.survey.fleet.pods.get(case.node_name, ())
    if job is not None and is_complete(job):
        targets, why = read_report(attempt, job, pods, case.now)
        if targets:
            line = (
                f"{attempt.job} has reset {_names(attempt)}: its clients are put back, then the agent looks"
            )
            return changed(case, attempt, targets=targets).go_on(line)
        until = job.status.completion_time or case.now
        if termination_of(job, pods) is not None or case.now >= until + _REPORT_WITHIN:
            return failed(case, attempt, f"its Job succeeded, but {why}")
        return case.go_on(f"{attempt.job}: {why}", recheck_at=until + _REPORT_WITHIN)
    if job is not None and (broke := job_failure(job)):
        return failed(case, attempt, f"its Job failed: {last_words(job, pods) or broke}")
    if case.now >= attempt.deadline:
        return failed(case, attempt, f"its Job did not end by {clock(attempt.deadline)}")
    return case.go_on(_watching(attempt), recheck_at=attempt.deadline)


def _prove(case: Case, attempt: Attempt) -> Move:
    missing = why_not_proven(case, attempt)
    if missing is None:
        return _proven(case, attempt)
    if case.now >= attempt.deadline:
        return failed(case, attempt, f"reset, but not proven by {clock(attempt.deadline)}: {missing}")
    return case.go_on(f"{attempt.job}: {missing}", recheck_at=attempt.deadline)


def _proven(case: Case, attempt: Attempt) -> Move:
    theirs = taken_over(case.node, case.status.stopped)
    left = f"; {theirs}, and is left as it is" if theirs else ""
    line = f"{attempt.job} is proven: {_names(attempt)} was reset and answers{left}"
    case = ended(case, attempt, SUCCEEDED, line, boot_id_after=attempt.boot_id_before)
    return case.enter(
        Phase.REVALIDATING,
        f"{line}; the node is proven before it is given back",
        page=f"{case.node_name}: {line}; revalidating",
    )


def _why_void(case: Case, attempt: Attempt) -> str:
    """Say that the node was booted meanwhile: what a reset was to end is over, and nothing of it can be proven."""
    boot_id = case.node.status.node_info.boot_id
    if boot_id in ("", attempt.boot_id_before):
        return ""
    return f"the node was booted again (boot {boot_id}) before the reset was proven"


def _ask(case: Case, health: NodeHealth, attempt: Attempt) -> WriteSpec:
    spec = msgspec.structs.replace(health.spec, release=Release(by=attempt.job, since=attempt.started_at))
    return WriteSpec(node=case.node_name, spec=spec)


def _last_failure(case: Case) -> str:
    failure = case.survey.fleet.failures.get(case.node_name)
    return failure.why if failure is not None else "its Job was not created"


def _watching(attempt: Attempt) -> str:
    return f"{attempt.job} is to reset {_names(attempt)}, by {clock(attempt.deadline)}"


def _names(attempt: Attempt) -> str:
    return ", ".join(target.uuid for target in attempt.targets)


# Putting back, open or closed


def put_back(case: Case) -> Move | None:
    """Give what is still to be put back of a reset that is over or done; None where nothing is."""
    if wants_quiet(case.status, last_repair(case.status)):
        return None
    steps = owed(case.survey, case.remediation, case.status, case.node)
    return Move(status=case.status, effects=steps) if steps else None


def owed(
    looked: Survey, remediation: Remediation, status: RemediationStatus, node: Node | None
) -> tuple[Step, ...]:
    """Give the steps that put back what the resets of an incident took away. `node` is None where it is another one now.

    Of a closed incident the Job may still be at work: then its clients stay off until it ended. They may also be off for a
    newer incident by now, whose they are then. Only an open one clears what it has reset: at a person's word the faults stay
    as they are.
    """
    name = remediation.spec.node_name
    if not is_open(remediation) and _may_be_resetting(looked, status):
        return ()
    steps: list[Step] = []
    may_start = name not in looked.owners and not is_quiet_wanted(looked, name)
    if node is not None and may_start and (labels := still_off(node, status.stopped)):
        steps.append(
            StartClients(
                node=name,
                node_uid=node.metadata.uid,
                resource_version=node.metadata.resource_version,
                incident=remediation.metadata.name,
                labels=labels,
            )
        )
    health = looked.fleet.healths.get(name)
    if health is not None and (spec := _settled(health.spec, remediation, status)) != health.spec:
        steps.append(WriteSpec(node=name, spec=spec))
    return tuple(steps)


def is_quiet_wanted(looked: Survey, node: str) -> bool:
    """Tell whether the node's open incident, as it is stored, wants the clients of its GPUs off now."""
    one = looked.open_on(node)
    return one is not None and wants_quiet(one.status, last_repair(one.status))


def _settled(spec: NodeHealthSpec, remediation: Remediation, status: RemediationStatus) -> NodeHealthSpec:
    """Give the spec without our word to let go, and with the GPUs that were reset cleared."""
    jobs = {attempt.job for attempt in repairs(status)}
    if spec.release is not None and spec.release.by in jobs:
        spec = msgspec.structs.replace(spec, release=None)
    if not is_open(remediation):
        return spec
    return msgspec.structs.replace(spec, cleared=with_clearings(spec.cleared, clearings(status)))


def _may_be_resetting(looked: Survey, status: RemediationStatus) -> bool:
    attempt = last_repair(status)
    if attempt is None or attempt.result or attempt.submitted_at is None or looked.now >= attempt.deadline:
        return False
    job = looked.fleet.jobs.get(attempt.job)
    return job is not None and not is_complete(job) and not job_failure(job)
