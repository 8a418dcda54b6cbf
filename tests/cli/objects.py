"""Objects as the API server stores them, with defaults that make a healthy node, and a cluster to put them in."""

import io
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from cli.__main__ import run
from kube import paths
from kube.remediation import QUARANTINE
from tests.fakes import FakeApi, FakeClock

NOW = datetime(2026, 11, 29, 3, 0, 0, tzinfo=UTC)
INCIDENT = "inc-0123456789ab"
KERNEL_LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def condition(kind: str, status: str, reason: str, since: str = "2026-11-29T02:55:00Z") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": since,
        "message": f"{reason}.",
    }


def node(
    name: str,
    *,
    fault: dict[str, Any] | None = None,
    ready: str = "True",
    annotations: Mapping[str, str] | None = None,
    unschedulable: bool = False,
) -> dict[str, Any]:
    conditions = [condition("Ready", ready, "KubeletReady")]
    conditions.append(fault or condition("GpuXidError", "False", "NoXid"))
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": dict(annotations or {})},
        "spec": {"unschedulable": unschedulable, "providerID": f"test:///{name}"},
        "status": {"conditions": conditions, "nodeInfo": {"bootID": "boot-1"}},
    }


PUT_ASIDE = (
    "3 pods of 2 workloads failed to start (StartError); it takes no new pod until 2026-11-29T03:05:00Z"
)


def pods_fail(of: Mapping[str, Any], message: str = PUT_ASIDE, status: str = "True") -> dict[str, Any]:
    """Give a Node of which the scheduler says that pods fail to start there."""
    said = {**condition("PodStartFailing", status, "RepeatedStartFailures"), "message": message}
    conditions = [*of["status"]["conditions"], said]
    return {**of, "status": {**of["status"], "conditions": conditions}}


def finding(
    reason: str = "Xid79FallenOffBus", *, severity: str = "Fault", line: str = KERNEL_LINE
) -> dict[str, Any]:
    return {
        "condition": "GpuXidError",
        "reason": reason,
        "severity": severity,
        "effect": "node-out",
        "urgency": "now",
        "action": "REBOOT",
        "part": {"kind": "gpu", "pci": "0000:3b:00", "index": 3},
        "firstSeen": "2026-11-29T02:55:00Z",
        "lastSeen": "2026-11-29T02:55:00Z",
        "bootID": "boot-1",
        "evidence": [line],
    }


def health(name: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"health-{name}"},
        "spec": {},
        "status": {
            "observedAt": "2026-11-29T02:58:00Z",
            "nodeUID": f"uid-{name}",
            "bootID": "boot-1",
            **status,
        },
    }


def remediation(name: str, node_name: str, phase: str, **more: Any) -> dict[str, Any]:
    annotations = more.pop("annotations", {})
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations},
        "spec": {
            "nodeName": node_name,
            "nodeUID": f"uid-{node_name}",
            "policy": "gpu",
            "evidence": [finding()],
            "openedAt": more.pop("openedAt", "2026-11-29T02:55:01Z"),
        },
        "status": {"phase": phase, "phaseSince": "2026-11-29T02:56:00Z", **more},
    }


def policy(name: str = "gpu", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"mode": "Enforce"}, "status": status}


def lease(name: str, renewed: str = "2026-11-29T02:59:58.000000Z", holder: str = "") -> dict[str, Any]:
    spec = {"holderIdentity": holder or name, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": name, "namespace": "nodemend-system", "uid": f"lease-{name}"}, "spec": spec}


def mark(**changes: Any) -> dict[str, str]:
    """Write the annotation as the controller does where it set cordon and taint itself."""
    fields = {
        "incident": INCIDENT,
        "nodeUID": "uid-gpu-1",
        "unschedulableBefore": False,
        "cordoned": True,
        "tainted": True,
        "at": "2026-11-29T02:55:01Z",
        **changes,
    }
    return {QUARANTINE: msgspec.json.encode(fields).decode()}


def quarantined(annotations: dict[str, str] | None = None, *, cordoned: bool = True) -> dict[str, Any]:
    """Make gpu-1 as the controller left it, between a taint and an annotation of others."""
    made = node("gpu-1", unschedulable=cordoned)
    made["metadata"]["resourceVersion"] = "7"
    made["metadata"]["annotations"] = {
        "example.com/note": "keep",
        **(mark() if annotations is None else annotations),
    }
    made["spec"]["taints"] = [
        {"key": "example.com/theirs", "effect": "NoExecute"},
        {"key": QUARANTINE, "value": INCIDENT, "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    return made


def written_by(manager: str, *types: str) -> dict[str, Any]:
    conditions: dict[str, Any] = {f'k:{{"type":"{kind}"}}': {".": {}, "f:status": {}} for kind in types}
    return {
        "manager": manager,
        "operation": "Update",
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": conditions}},
    }


AGENT = written_by("nodemend-agent", "GpuXidError", "FutureFault")


class Cluster:
    """A FakeApi with shorthands, and the command line run against it at `NOW`."""

    def __init__(self, api: FakeApi | None = None) -> None:
        self.clock = FakeClock(now=NOW)
        self.api = api or FakeApi(self.clock)

    def add(
        self,
        *,
        nodes: Any = (),
        healths: Any = (),
        remediations: Any = (),
        policies: Any = (),
        leases: Any = (),
    ) -> Self:
        for path, objects in (
            (paths.nodes(), nodes),
            (paths.node_healths(), healths),
            (paths.remediations(), remediations),
            (paths.policies(), policies),
            (paths.leases("nodemend-system"), leases),
        ):
            for one in objects:
                self.api.add(path, one)
        return self

    def run(self, *argv: str) -> "Answer":
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(argv, open_api=lambda _: self.api, clock=self.clock.clock)
        return Answer(code, out.getvalue(), err.getvalue())

    def annotations(self, incident: str) -> dict[str, str]:
        found = self.api.read(paths.remediation(incident))["metadata"].get("annotations") or {}
        return {str(key): str(value) for key, value in found.items()}


class Answer:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    def row(self, start: str) -> str:
        """Give the one line that starts so, blanks squeezed to one."""
        found = [line for line in self.out.splitlines() if line.startswith(start)]
        assert len(found) == 1, f"{len(found)} lines start with {start!r} in:\n{self.out}"
        return " ".join(found[0].split())
