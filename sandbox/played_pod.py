"""A pod as the pod player sees it, and the statuses that it reports, in kubelet's form. No decisions here."""

from datetime import datetime
from typing import Any

import msgspec

from kube import paths
from kube.api import Api, NotFound, PatchType
from kube.timestamps import rfc3339
from kube.types import ObjectMeta, Struct


class EnvVar(Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class Container(Struct, frozen=True, kw_only=True):
    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    termination_message_path: str = "/dev/termination-log"


class PodSpec(Struct, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int | None = None


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""


class PlayedPod(Struct, frozen=True, kw_only=True):
    """Only what playing it needs."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What is to stand in the pod's status."""

    phase: str
    ready: bool
    state: dict[str, Any]
    started: datetime


def running(started: datetime) -> Status:
    """Say that its container runs."""
    return Status(
        phase="Running", ready=True, state={"running": {"startedAt": rfc3339(started)}}, started=started
    )


def ended(started: datetime, at: datetime, exit_code: int, message: str) -> Status:
    """Say how its container ended: exit code 0 is success, 126 a command that could not be run."""
    terminated = {
        "exitCode": exit_code,
        "reason": "Completed" if exit_code == 0 else "Error",
        "message": message,
        "startedAt": rfc3339(started),
        "finishedAt": rfc3339(at),
    }
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return Status(
        phase=phase, ready=False, state={"running": None, "terminated": terminated}, started=started
    )


def report(api: Api, pod: PlayedPod, status: Status) -> None:
    """Write the pod's status, as long as it is still that pod; one that is gone needs none. Raises ApiError."""
    ready = "True" if status.ready else "False"
    conditions = [
        {"type": kind, "status": value, "lastTransitionTime": rfc3339(status.started)}
        for kind, value in (("Initialized", "True"), ("ContainersReady", ready), ("Ready", ready))
    ]
    containers = [
        {
            "name": container.name,
            "image": container.image,
            "imageID": "",
            "ready": status.ready,
            "started": status.ready,
            "restartCount": 0,
            "state": status.state,
        }
        for container in pod.spec.containers
    ]
    body = {
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": status.phase,
            "startTime": rfc3339(status.started),
            "conditions": conditions,
            "containerStatuses": containers,
        },
    }
    try:
        api.patch(paths.pod_status(pod.metadata.namespace, pod.metadata.name), body, PatchType.STRATEGIC)
    except NotFound:
        return
