"""One step of each kind for the one node of tests.controller.shell.world."""

from typing import Any

from controller.steps import (
    CallBack,
    Delete,
    Evict,
    Open,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    Save,
    SavePolicy,
    Silence,
    StartClients,
    Step,
    StopClients,
    WriteExpected,
    WriteSpec,
)
from kube.nodehealth import Expected, NodeHealthSpec
from kube.policy import PolicyStatus
from kube.remediation import ClientLabel, NodeBefore
from tests.controller.shell.samples import INCIDENT, NODE, NOW, UID, spec, status
from tests.controller.shell.world import Bench

POD_UID = "pod-uid-1"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
EVICT = Evict(node=NODE, incident=INCIDENT, namespace="ml", name="train-0", uid=POD_UID)
OPEN = Open(node=NODE, name=INCIDENT, spec=spec(), status=status())
VALIDATION = RunValidation(
    node=NODE,
    incident=INCIDENT,
    attempt=1,
    job=f"{INCIDENT}-revalidate-1",
    gpu_resource="nvidia.com/gpu",
    gpus=8,
    timeout_s=900,
)
REPAIR = RunRepair(
    node=NODE, incident=INCIDENT, repair="reboot", attempt=1, job=f"{INCIDENT}-reboot-1", boot_id="boot-1"
)

CALL_BACK = CallBack(node=NODE, incident=INCIDENT, job=REPAIR.job, job_uid="job-uid-1")


def quarantine(bench: Bench, **changes: Any) -> Quarantine:
    """Build the step for the Node as it stands."""
    node = bench.node(NODE)
    assert node is not None
    values: dict[str, Any] = {
        "node_uid": UID,
        "resource_version": node.metadata.resource_version,
        "incident": INCIDENT,
        "before": NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=NOW),
    }
    return Quarantine(node=NODE, **{**values, **changes})


def restore(bench: Bench) -> Restore:
    """Build the step for the Node as it stands."""
    node = bench.node(NODE)
    assert node is not None
    return Restore(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        incident=INCIDENT,
        uncordon=True,
        untaint=True,
    )


def clients(bench: Bench, kind: type[StopClients | StartClients]) -> StopClients | StartClients:
    """Build the step for the Node as it stands."""
    node = bench.node(NODE)
    assert node is not None
    return kind(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        incident=INCIDENT,
        labels=(ClientLabel(key=PLUGIN, before="true"),),
    )


def every_step(bench: Bench) -> list[Step]:
    """One of each kind."""
    return [
        OPEN,
        Save(node=NODE, name=INCIDENT, resource_version="1", status=status()),
        quarantine(bench),
        restore(bench),
        EVICT,
        REPAIR,
        VALIDATION,
        Silence(
            node=NODE,
            node_uid=UID,
            resource_version=quarantine(bench).resource_version,
            conditions=(("GpuXidError", "Unknown", "AgentSilent", "x"),),
        ),
        WriteSpec(node=NODE, spec=NodeHealthSpec(cleared_before=NOW)),
        WriteExpected(node=NODE, expected=Expected(ports=8), peers=None),
        SavePolicy(node="", name="gpus", resource_version="1", status=PolicyStatus()),
        Delete(node=NODE, name=INCIDENT),
        CALL_BACK,
        clients(bench, StopClients),
        clients(bench, StartClients),
    ]
