"""A node's own part in a reset of its GPUs: GPU Operator's pods, the agent's handles, the Job's report.

What the world does by itself between two ticks of the controller, as functions on a World, and a Fleet that stands in the
middle of a reset.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from checks.finding import is_same_part
from controller import client_patch
from controller.gpu_clients import OFF, ON
from controller.steps import StartClients, StopClients
from controller.view import Fleet
from kube.nodehealth import Release, Released
from kube.remediation import Attempt, ClientLabel, Phase, RepairTarget, StoppedClients
from kube.types import ContainerState, ContainerStatus, Node, Pod, PodStatus, TerminatedState
from tests import build as make
from tests.build import NOW, SEEN

if TYPE_CHECKING:
    from tests.controller.core.world import World

DEPLOY = "nvidia.com/gpu.deploy."
PLUGIN, EXPORTER, DRIVER = (DEPLOY + client for client in ("device-plugin", "dcgm-exporter", "driver"))
LABELS = {"nvidia.com/gpu.present": "true", PLUGIN: ON, EXPORTER: ON, DRIVER: ON}
STOPPED = (ClientLabel(key=EXPORTER, before=ON), ClientLabel(key=PLUGIN, before=ON))
_APPS = {PLUGIN: "nvidia-device-plugin-daemonset", EXPORTER: "nvidia-dcgm-exporter", DRIVER: "nvidia-driver"}

DAEMONSETS = tuple(make.daemonset(app, namespace="gpu-operator") for app in _APPS.values())

SICK = make.reset_finding()
INCIDENT = make.remediation(evidence=[SICK]).metadata.name
JOB = f"reset-gpu-{INCIDENT}-1"
TARGET = RepairTarget(uuid="GPU-3", pci="0000:03:00")
RESET_AT = NOW.replace(second=2)


def relabelled(step: StopClients | StartClients, node: Node) -> Node:
    """Give the Node as the product's own patch leaves it."""
    body = client_patch.stop(step, node) if isinstance(step, StopClients) else client_patch.start(step, node)
    prefix = "/metadata/labels/"
    new = {
        op["path"].removeprefix(prefix).replace("~1", "/"): op["value"]
        for op in body
        if op["path"].startswith(prefix)
    }
    labels = {**node.metadata.labels, **new}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))


def client(key: str, node: str = "gpu-1", **changes: Any) -> Pod:
    """Build the pod of one client: of a DaemonSet, told by its node selector where it may run."""
    app = _APPS.get(key, key.removeprefix(DEPLOY))
    pod = make.pod(
        f"{app}-x", node, namespace="gpu-operator", owner="DaemonSet", owner_name=app, owner_uid=f"ds-{app}"
    )
    metadata = msgspec.structs.replace(pod.metadata, labels={"app": app}, **changes)
    spec = msgspec.structs.replace(pod.spec, node_selector={key: ON} if key.startswith(DEPLOY) else {})
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def report(
    job: str = JOB,
    *,
    uuids: tuple[str, ...] = ("GPU-3",),
    result: str = "Reset",
    at: datetime = RESET_AT,
    boot: str = "boot-1",
    text: str | None = None,
) -> Pod:
    """Build the ended pod of a reset's Job, with what `nodemend-agent reset-gpu` leaves as its termination message."""
    rows = [{"name": uuid, "result": result, "message": "", "at": at} for uuid in uuids]
    message = msgspec.json.encode({"result": result, "bootID": boot, "checks": rows}).decode()
    state = TerminatedState(
        exit_code=0 if result == "Reset" else 1, message=message if text is None else text
    )
    pod = make.pod(f"{job}-x", namespace="nodemend-repairs", owner="Job", owner_name=job, phase="Succeeded")
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, labels={"batch.kubernetes.io/job-name": job}),
        status=PodStatus(
            phase="Succeeded",
            container_statuses=(ContainerStatus(name="reset-gpu", state=ContainerState(terminated=state)),),
        ),
    )


# A Fleet in the middle of it


def reset(**fields: Any) -> Attempt:
    """Build the first attempt, written down and nothing else."""
    base = Attempt(
        number=1,
        kind="reset-gpu",
        job=JOB,
        boot_id_before="boot-1",
        started_at=SEEN,
        deadline=NOW.replace(minute=15),
        targets=(TARGET,),
    )
    return msgspec.structs.replace(base, **fields)


def stopped(**fields: Any) -> StoppedClients:
    return msgspec.structs.replace(StoppedClients(labels=STOPPED, at=SEEN), **fields)


APPLIED = stopped(applied_at=SEEN, applied_version="95")
OFF_LABELS = {**LABELS, PLUGIN: OFF, EXPORTER: OFF}
ASKED = Release(by=JOB, since=SEEN)
QUIET = Released(since=SEEN, why="an incident asks for the driver", by=JOB)


def resetting(**given: Any) -> Fleet:
    """Build the fleet around an incident whose attempt is written down; keywords as for `stage`."""
    from tests.controller.core.stage import stage

    node = {"labels": LABELS, **given.pop("node", {})}
    defaults = {
        "evidence": [SICK],
        "attempts": (reset(),),
        "stopped": stopped(),
        "message": "as built",
        "daemonsets": DAEMONSETS,
    }
    return stage(given.pop("phase", Phase.REPAIRING), node=node, **{**defaults, **given})


def quiet(**given: Any) -> Fleet:
    """Build it with the agent and the clients off, so that the Job is next."""
    node = {"labels": OFF_LABELS, **given.pop("node", {})}
    health = {"release": ASKED, "released": QUIET, **given.pop("health", {})}
    defaults = {"attempts": (reset(released_at=SEEN),), "stopped": APPLIED}
    return resetting(node=node, health=health, **{**defaults, **given})


# What a World's machine does between two ticks


def gpu_node(name: str = "gpu-1", **changes: Any) -> Node:
    return make.node(name, labels=LABELS, **changes)


def operate(world: "World", name: str = "gpu-1") -> None:
    """GPU Operator runs a client's pod where its label reads true, and nowhere else."""
    for key in (PLUGIN, EXPORTER, DRIVER):
        pod = client(key, name)
        if world.nodes[name].metadata.labels.get(key) == ON:
            world.pods[pod.metadata.uid] = pod
        else:
            world.pods.pop(pod.metadata.uid, None)


def follow(world: "World", name: str = "gpu-1") -> None:
    """The agent lets go of the driver and takes it up as NodeHealth.spec asks, and heeds what was cleared."""
    health = world.healths[name]
    asked = health.spec.release
    released = (
        None if asked is None else Released(since=world.now, why="an incident asks for it", by=asked.by)
    )
    if (released is None) != (health.status.released is None):
        world.released.pop(name, None)
        if released is not None:
            world.released[name] = released
        world.again(name)
    standing = [
        finding
        for finding in health.status.findings
        if not any(
            is_same_part(finding.part, one) and finding.last_seen <= one.before for one in health.spec.cleared
        )
    ]
    if len(standing) < len(health.status.findings):
        world.fault(name, *standing) if standing else world.well(name)


def finish_reset(world: "World", job: str, *, result: str = "Reset") -> None:
    """The reset's Job ends, with a report on each GPU that its attempt is about."""
    (one,) = [r for r in world.remediations.values() if any(a.job == job for a in r.status.attempts)]
    (attempt,) = [a for a in one.status.attempts if a.job == job]
    uuids = tuple(target.uuid for target in attempt.targets)
    pod = report(job, uuids=uuids, result=result, at=world.now, boot=attempt.boot_id_before)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=one.spec.node_name))
    world.pods[pod.metadata.uid] = pod
    world.finish(job, failed="" if result == "Reset" else "exit 1")
