"""Call back: the Jobs of an incident that is over, as long as they have not begun on the node. Pure.

A Job's pod may wait for minutes, for its image or for the node to be Ready. Once a person took the node back, new work runs
there, and a reboot that was asked for before would hit that work (NVIDIA/NVSentinel#141). A pod that runs is left alone: the
machine may be going down already, and half a repair is worse than one.
"""

from collections.abc import Iterable

from controller.last_words import JOB_LABELS
from controller.steps import CallBack
from controller.view import Fleet
from kube.remediation import Attempt, Remediation
from kube.types import Job, Pod

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


def can_be_called_back(fleet: Fleet, remediation: Remediation, attempt: Attempt) -> bool:
    """Tell whether this attempt's Job is there and has not begun."""
    job = fleet.jobs.get(attempt.job)
    pods = fleet.pods.get(remediation.spec.node_name, ())
    return fleet.pods_synced and job is not None and waits(job, pods)


def waits(job: Job, pods: Iterable[Pod]) -> bool:
    """Tell whether a Job has neither ended nor a pod that ever ran on its node (`pods` are that node's)."""
    if job.metadata.deletion_timestamp is not None:
        return False
    if any(one.type in _ENDED and one.status == "True" for one in job.status.conditions):
        return False
    mine = [
        pod for pod in pods if job.metadata.name in (pod.metadata.labels.get(label) for label in JOB_LABELS)
    ]
    return all(pod.status.phase in _WAITS for pod in mine)
