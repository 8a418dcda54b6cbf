"""Values for the tests of the controller's shell: one incident on one node, and what stands around it."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kube.nodehealth import HealthFinding, HealthPart
from kube.remediation import Attempt, Notification, Phase, Remediation, RemediationSpec, RemediationStatus
from kube.types import ObjectMeta

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
INCIDENT = "inc-0123456789ab"
NODE = "gpu-7"
UID = "7b1de7a2-0000-4000-8000-000000000007"
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()

FINDING = HealthFinding(
    condition="GpuXidError",
    reason="Xid79FallenOffBus",
    severity="Fault",
    effect="node-out",
    urgency="now",
    action="REBOOT",
    part=HealthPart(kind="gpu", index=3, uuid="GPU-5d0c", pci="0000:3b:00", serial="1650522"),
    first_seen=NOW - timedelta(seconds=40),
    last_seen=NOW - timedelta(seconds=30),
    boot_id="boot-1",
    evidence=("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.",),
)


def row(transition: str = "open", sequence: int = 1, sink: str = "oncall", **changes: Any) -> Notification:
    """Build one row of the outbox."""
    values: dict[str, Any] = {
        "id": f"{INCIDENT}.{sink}.{sequence}",
        "sink": sink,
        "transition": transition,
        "sequence": sequence,
        "summary": f"gpu-7: {transition}",
        "created_at": NOW,
    }
    return Notification(**{**values, **changes})


def attempt(**changes: Any) -> Attempt:
    """Build the first reboot, started now, not yet submitted."""
    values: dict[str, Any] = {
        "number": 1,
        "kind": "reboot",
        "job": f"{INCIDENT}-reboot-1",
        "boot_id_before": "boot-1",
        "started_at": NOW,
        "deadline": NOW + timedelta(minutes=45),
    }
    return Attempt(**{**values, **changes})


def status(**changes: Any) -> RemediationStatus:
    """Build the status of an incident that was just opened."""
    values: dict[str, Any] = {"phase": Phase.SUSPECTED, "phase_since": NOW, "evidence": (FINDING,)}
    return RemediationStatus(**{**values, **changes})


def remediation(**changes: Any) -> Remediation:
    """Build the incident; `changes` go into its status."""
    return Remediation(
        metadata=ObjectMeta(name=INCIDENT, uid="uid-inc", resource_version="200"),
        spec=spec(),
        status=status(**changes),
    )


def spec(**changes: Any) -> RemediationSpec:
    """Build what is latched at opening."""
    values: dict[str, Any] = {
        "node_name": NODE,
        "node_uid": UID,
        "provider_id": "test:///gpu-7",
        "boot_id": "boot-1",
        "policy": "gpus",
        "evidence": (FINDING,),
        "opened_at": NOW,
    }
    return RemediationSpec(**{**values, **changes})


def raw(obj: Any) -> dict[str, Any]:
    """Write a struct as the server's JSON, without what is None."""
    plain = msgspec.json.decode(msgspec.json.encode(obj))
    assert isinstance(plain, dict)
    return {name: value for name, value in plain.items() if value is not None}


def node_json(**changes: Any) -> dict[str, Any]:
    """Write a healthy, untouched Node with another's taint and annotation on it."""
    body: dict[str, Any] = {
        "metadata": {
            "name": NODE,
            "uid": UID,
            "labels": {"example.com/rack": "r1", "nvidia.com/gpu.deploy.device-plugin": "true"},
            "annotations": {"example.com/rack": "r1"},
        },
        "spec": {
            "providerID": "test:///gpu-7",
            "taints": [
                {"key": "example.com/team", "value": "ml", "effect": "NoSchedule", "unknownField": "kept"}
            ],
        },
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "GpuXidError", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
            "capacity": {"nvidia.com/gpu": "8"},
            "nodeInfo": {"bootID": "boot-1"},
        },
    }
    for name, value in changes.items():
        body[name] = {**body[name], **value}
    return body


def secret_file(folder: Path, *secrets: str) -> Path:
    """Write a secret file."""
    path = folder / "secret"
    path.write_text("\n".join(secrets or (SECRET,)) + "\n")
    return path
