"""Call back: the Jobs of an incident that is over, as long as they have not begun on the node. Pure.

A Job's pod may wait for minutes, for its image or for the node to be Ready. Once a person took the node back, new work runs
there, and a reboot that was asked for before would hit that work (NVIDIA/NVSentinel#141). A pod that runs is left alone: the
machine may be going down already, and half a repair is worse than one.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from controller.incident import FAILED, with_attempt
from controller.last_words import is_pod_of
from controller.steps import CallBack
from controller.view import Fleet
from kube.remediation import Attempt, Remediation, RemediationStatus
from kube.types import Job, Pod

_CALLED = "is called back, since it has not begun"
_WAITS = ("", "Pending")
_ENDED = ("Complete", "Failed")


def called_back(fleet: Fleet, remediation: Remediation) -> tuple[CallBack, ...]:
    """Give the steps that take back what a closed incident asked for and nobody has begun."""
    if not fleet.pods_synced:
        return ()
    found = [fleet.jobs.get(attempt.job) for attempt in remediation.status.attempts if not attempt.result]
    return tuple(
        CallBack(
            node=remediation.spec.node_name,
            incident=remediation.metadata.name,
            job=job.metadata.name,
            job_uid=job.metadata.uid,
        )
        for job in found
        if job is not None and waits(job, fleet.pods.get(remediation.spec.node_name, ()))
    )


def calling_back(
    fleet: Fleet, remediation: Remediation, status: RemediationStatus, now: datetime
) -> RemediationStatus:
    """Note on each attempt under way whose Job is there that it was created, and is called back where it has not begun.

    The first may have been lost to a crash, and nobody notes it later: what runs on the machine is waited for by it.
    """
    pods = fleet.pods.get(remediation.spec.node_name, ())
    for attempt in status.attempts:
        job = fleet.jobs.get(attempt.job)
        if attempt.result or job is None:
            continue
        if attempt.submitted_at is None:
            attempt = msgspec.structs.replace(attempt, submitted_at=now)
        if fleet.pods_synced and waits(job, pods):
            attempt = msgspec.structs.replace(attempt, message=_CALLED)
        status = with_attempt(status, attempt)
    return status


def is_called_back(attempt: Attempt) -> bool:
    return attempt.message == _CALLED


def settled(fleet: Fleet, status: RemediationStatus, now: datetime) -> RemediationStatus:
    """End what was called back once its Job is gone: from then on it keeps no other repair of its pool waiting."""
    for attempt in status.attempts:
        if not attempt.result and is_called_back(attempt) and attempt.job not in fleet.jobs:
            ended = msgspec.structs.replace(
                attempt, result=FAILED, finished_at=now, message="called back before it began"
            )
            status = with_attempt(status, ended)
    return status


def waits(job: Job, pods: Iterable[Pod]) -> bool:
    """Tell whether a Job has neither ended nor a pod that ever ran on its node (`pods` are that node's)."""
    if job.metadata.deletion_timestamp is not None:
        return False
    if any(one.type in _ENDED and one.status == "True" for one in job.status.conditions):
        return False
    return all(pod.status.phase in _WAITS for pod in pods if is_pod_of(job, pod))
