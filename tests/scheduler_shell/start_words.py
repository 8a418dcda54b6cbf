"""Small words for pods that started, or failed to, in tests of the scheduler's failure memory."""

from datetime import UTC, datetime, timedelta

import msgspec

from kube.types import Pod

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADMISSION = "UnexpectedAdmissionError"


def minutes(count: float) -> datetime:
    """Give the time that many minutes after NOW."""
    return NOW + timedelta(minutes=count)


def pod(
    name: str,
    node: str = "n1",
    *,
    owner: str = "",
    kind: str = "Job",
    at: datetime = NOW,
    gpus: int = 1,
    group: str = "",
    revision: str = "",
    status: dict[str, object] | None = None,
) -> Pod:
    """Give a pod on a node, which starts there since `at`."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    raw = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": {"controller-revision-hash": revision} if revision else {},
            "annotations": {"pod-group-name": group} if group else {},
            "ownerReferences": [{"kind": kind, "name": owner, "controller": True}] if owner else [],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending", "startTime": at.isoformat(), **(status or {})},
    }
    return msgspec.convert(raw, Pod)


def turned_away(name: str, node: str = "n1", *, reason: str = ADMISSION, **how: object) -> Pod:
    """Give a pod that kubelet refused."""
    return pod(name, node, status={"phase": "Failed", "reason": reason}, **how)  # type: ignore[arg-type]


def waiting(name: str, node: str = "n1", *, reason: str = "RunContainerError", **how: object) -> Pod:
    """Give a pod whose container could not be made or run."""
    state = {"name": "main", "state": {"waiting": {"reason": reason}}}
    return pod(name, node, status={"phase": "Pending", "containerStatuses": [state]}, **how)  # type: ignore[arg-type]


def running(name: str, node: str = "n1", *, at: datetime = NOW, **how: object) -> Pod:
    """Give a pod that runs since `at`."""
    state = {"name": "main", "state": {"running": {"startedAt": at.isoformat()}}}
    return pod(name, node, at=at, status={"phase": "Running", "containerStatuses": [state]}, **how)  # type: ignore[arg-type]
