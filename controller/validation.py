"""The revalidation of a node that is to be given back: one Job with all its GPUs, as often as the policy says. Pure.

Kubelet may refuse the Job's pod before it ran: for some seconds after a device plugin went and came back the Node shows GPUs
that kubelet cannot hand out. That says nothing about the node, so it is tried again a little later and does not count.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from controller import drain
from controller.budget import Hold
from controller.case import EVIDENCE, PODS, Case, Move
from controller.holders import alive
from controller.incident import (
    FAILED,
    REFUSED,
    REVALIDATE,
    SUCCEEDED,
    clock,
    next_number,
    validations_since,
    with_attempt,
)
from controller.last_words import is_pod_of, last_words, refusal
from controller.narrow import left_with, proven_beside_work
from controller.phases_contain import escalate
from controller.steps import RunValidation
from kube.remediation import Attempt
from kube.types import Job, Pod

# kubelet reports its devices every 10 s (nodeStatusUpdateFrequency); a plugin's pod may take longer to come back.
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=15), timedelta(minutes=4)
_SEEN_WITHIN = timedelta(minutes=1)
_ENDED = ("Succeeded", "Failed")
_NEVER = datetime.min.replace(tzinfo=UTC)


def gpus_of(case: Case) -> int:
    """Give the number of GPUs that the hardware has; 0 = nobody knows.

    NodeHealth.spec.expected alone may lower it. Below it counts the largest: what the agent shows, and what it once
    validated. Kubelet's capacity stands in where nothing was validated yet; it counts devices of a plugin, which are MIG
    devices or replicas on a shared card, and it shrinks with the GPU that is gone.
    """
    health = case.survey.fleet.healths.get(case.node_name)
    shown = 0
    if health is not None:
        if health.spec.expected is not None and health.spec.expected.gpus:
            return health.spec.expected.gpus
        shown = sum(1 for part in health.status.parts if part.kind == "gpu")
        if health.status.last_validated is not None:
            return max(shown, health.status.last_validated.gpus)
    return max(shown, _count(case.node.status.capacity.get(case.terms.gpu_resource, "")))


def mig_devices_of(case: Case) -> dict[str, int]:
    """Give the devices to ask for on a node whose GPUs MIG cuts (the device plugin's strategy `mixed`), by resource.

    There nvidia.com/gpu counts only the GPUs that are left whole, and every size of device is a resource of its own. What is
    offered now counts, since nobody knows how many devices there should be; of whole GPUs it is as many as the hardware has.
    Empty where none is offered: under `single` MIG devices are called nvidia.com/gpu, at least one for each GPU.
    """
    offered = case.node.status.allocatable
    prefix = f"{case.terms.gpu_resource.partition('/')[0]}/mig-"
    devices = {name: _count(number) for name, number in sorted(offered.items()) if name.startswith(prefix)}
    devices = {name: number for name, number in devices.items() if number}
    if not devices:
        return {}
    cut = _cut_by_mig(case)
    whole = gpus_of(case) - cut if cut else _count(offered.get(case.terms.gpu_resource, ""))
    return {**devices, case.terms.gpu_resource: whole} if whole > 0 else devices


def _cut_by_mig(case: Case) -> int:
    health = case.survey.fleet.healths.get(case.node_name)
    return sum(1 for part in health.status.parts if part.mig) if health is not None else 0


def _why_nothing_to_ask_for(case: Case) -> str:
    """Say that kubelet offers nothing of GPUs that MIG cuts: a Job for whole ones would wait in vain."""
    whole = _count(case.node.status.allocatable.get(case.terms.gpu_resource, ""))
    if whole or not _cut_by_mig(case) or mig_devices_of(case):
        return ""
    return f"MIG is on and kubelet offers neither MIG devices nor {case.terms.gpu_resource}"


def _count(amount: str) -> int:
    return int(amount) if amount.isdigit() else 0


def wait_for_clean(case: Case, doubt: str) -> Move:
    """Wait for a clear report, for as long as one revalidation may take."""
    move = case.hold(Hold(by=EVIDENCE, why=f"not given back yet: {doubt}"))
    waited = case.held_for(EVIDENCE)
    if waited >= case.terms.validation_timeout:
        return escalate(case, f"no clear report since {clock(case.now - waited)}: {doubt}")
    return msgspec.structs.replace(move, recheck_at=case.now + case.terms.validation_timeout - waited)


def begin(case: Case) -> Move:
    """Write down the next revalidation, once its GPUs can be free."""
    stay = validations_since(case.status, case.status.phase_since)
    if _are_used_up(case):
        return escalate(case, f"{stay[-1].job} failed: {stay[-1].message or 'no reason given'}")
    refused = [attempt for attempt in stay if attempt.result == REFUSED]
    if refused and refused[-1] is stay[-1] and (paused := _pause(case, refused)):
        return paused
    if gpus_of(case) < 1:
        return wait_for_clean(case, f"how many {case.terms.gpu_resource} the hardware has is not known")
    if doubt := _why_nothing_to_ask_for(case):
        return wait_for_clean(case, doubt)
    if not case.survey.fleet.pods_synced:
        return case.go_on("the pods of the node are not known yet")
    devices = _devices_of(case)
    if busy := _busy(case, devices):
        return _wait_for_gpus(case, busy)
    number = next_number(case.status, validation=True)
    attempt = Attempt(
        number=number,
        kind=REVALIDATE,
        job=f"validate-{case.name}-{number}",
        boot_id_before=case.node.status.node_info.boot_id,
        started_at=case.now,
        deadline=case.now + case.terms.validation_timeout,
        message=_asks_for(devices),
    )
    case = case.with_status(with_attempt(case.status, attempt))
    return case.go_on(_proves(attempt))


def _asks_for(devices: dict[str, int]) -> str:
    """Say what is asked for where it is not simply all GPUs."""
    named = ", ".join(f"{number} {name}" for name, number in devices.items())
    why = "MIG cuts the GPUs" if any("/mig-" in name for name in devices) else "pods run on the others"
    return f"asks for {named}, since {why}"[:1024] if devices else ""


def _devices_of(case: Case) -> dict[str, int]:
    """Give the devices to ask for, empty = all GPUs that the hardware has.

    Where narrow containment let others' pods run on beside a reset GPU, it is all that these leave: so that GPU is among
    them. What the Job looks at is the whole machine all the same.
    """
    if (devices := mig_devices_of(case)) or not proven_beside_work(case):
        return devices
    held = _held(case)
    return {case.terms.gpu_resource: max(gpus_of(case) - held, 0)} if held else {}


def _busy(case: Case, devices: dict[str, int]) -> tuple[str, ...]:
    """Name what has to leave the GPUs first."""
    resource, parts = case.terms.gpu_resource, proven_beside_work(case)
    if parts and devices.get(resource, 0) >= len(parts):
        left = left_with(case, parts)
        return (left.names(1),) if left else ()
    return drain.gpu_pods(case.node_name, {resource, *devices}, case.survey.fleet)


def _held(case: Case) -> int:
    """Count the whole GPUs of pods on the node."""
    resource = case.terms.gpu_resource
    return sum(
        _count({**container.resources.limits, **container.resources.requests}.get(resource, ""))
        for pod in alive(case.node_name, case.survey.fleet)
        for container in pod.spec.containers
    )


def _proves(attempt: Attempt) -> str:
    asks = f" ({attempt.message})" if attempt.message else ""
    return f"{attempt.job} proves the node, by {clock(attempt.deadline)}{asks}"


def _are_used_up(case: Case) -> bool:
    stay = validations_since(case.status, case.status.phase_since)
    return sum(attempt.result != REFUSED for attempt in stay) >= case.terms.validation_attempts


def _pause(case: Case, refused: list[Attempt]) -> Move | None:
    """Wait ever longer from one refused pod to the next, and in all no longer than one revalidation may take."""
    last = refused[-1]
    if case.now >= refused[0].started_at + case.terms.validation_timeout:
        return escalate(case, f"{last.job} could not run: {last.message}")
    again_at = (last.finished_at or last.started_at) + min(
        _FIRST_PAUSE * 2 ** min(len(refused) - 1, 8), _LONGEST_PAUSE
    )
    if case.now >= again_at:
        return None
    return case.go_on(
        f"{last.job} could not run ({last.message}): once more at {clock(again_at)}", recheck_at=again_at
    )


def _wait_for_gpus(case: Case, busy: tuple[str, ...]) -> Move:
    waited = case.held_for(PODS)
    if waited >= case.terms.when_idle_limit:
        return escalate(
            case, f"the GPUs were not free for a revalidation since {clock(case.now - waited)}: {busy[0]}"
        )
    move = case.hold(Hold(by=PODS, why=f"the revalidation needs all GPUs, and {busy[0]} still holds some"))
    return msgspec.structs.replace(move, recheck_at=case.now + case.terms.when_idle_limit - waited)


def watch(case: Case, attempt: Attempt) -> Move:
    """Submit the revalidation, and judge it by its Job."""
    job = case.survey.fleet.jobs.get(attempt.job)
    proves = _proves(attempt)
    if attempt.submitted_at is None and job is not None:
        submitted = msgspec.structs.replace(attempt, submitted_at=case.now)
        return case.with_status(with_attempt(case.status, submitted)).go_on(proves)
    result, message = _judge(job)
    if job is not None and result:
        pods = case.survey.fleet.pods.get(case.node_name, ())
        if result == FAILED and case.now < (until := _end_seen_by(job, pods)):
            return case.go_on(proves, recheck_at=until)
        if refused := refusal(job, pods):
            return _judged(case, attempt, REFUSED, refused)
        message = last_words(job, pods) or message
    if not result and case.now >= attempt.deadline:
        result, message = FAILED, f"did not finish by {clock(attempt.deadline)}"
    if result:
        return _judged(case, attempt, result, message)
    if attempt.submitted_at is not None:
        return case.go_on(proves, recheck_at=attempt.deadline)
    return case.go_on(
        proves,
        RunValidation(
            node=case.node_name,
            incident=case.name,
            attempt=attempt.number,
            job=attempt.job,
            gpu_resource=case.terms.gpu_resource,
            gpus=gpus_of(case),
            timeout_s=int((attempt.deadline - attempt.started_at).total_seconds()),
            devices=_devices_of(case),
        ),
        recheck_at=attempt.deadline,
    )


def _end_seen_by(job: Job, pods: Iterable[Pod]) -> datetime:
    """Give until when the end of a failed Job's pod may still be on its way to us: it comes by another watch."""
    seen = all(pod.status.phase in _ENDED for pod in pods if is_pod_of(job, pod))
    failed_at = next(
        (one.last_transition_time for one in job.status.conditions if one.type == "Failed"), None
    )
    return _NEVER if seen or failed_at is None else failed_at + _SEEN_WITHIN


def _judged(case: Case, attempt: Attempt, result: str, message: str) -> Move:
    ended = msgspec.structs.replace(attempt, result=result, message=message[:1024], finished_at=case.now)
    case = case.with_status(with_attempt(case.status, ended))
    if result == SUCCEEDED:
        return case.go_on(f"{attempt.job} succeeded: the node is given back as it was found")
    if result == REFUSED:
        return begin(case)
    if _are_used_up(case):
        return escalate(case, f"{attempt.job} failed: {message or 'no reason given'}")
    return case.go_on(f"{attempt.job} failed ({message or 'no reason given'}): once more")


def _judge(job: Job | None) -> tuple[str, str]:
    if job is None:
        return "", ""
    for condition in job.status.conditions:
        if condition.status != "True":
            continue
        if condition.type == "Complete":
            return SUCCEEDED, condition.message
        if condition.type == "Failed":
            return FAILED, " ".join(filter(None, (condition.reason, condition.message)))
    return "", ""
