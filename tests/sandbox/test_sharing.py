"""Act 4 of the demo: what it creates means what the act says, and no step is passed before it is so."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller import terms
from controller.view import Settings
from kube.nodehealth import NodeHealth
from kube.policy import Containment, RemediationPolicy
from kube.remediation import Phase
from kube.scheduling import Queue
from kube.types import Pod, PodCondition, Taint
from sandbox import sharing_objects as objects
from sandbox import sharing_steps as steps
from sandbox.acts import TAINT
from sandbox.sharing_steps import EVICTION_API, GANG, OWN, SWEEP, TRIALS, PoolScene
from tests.build import NOW, finding, health, node, person_finding, pod, remediation

SICK = "GPU-3"
STILL_OFFERED = "0/2 nodes are available: 1 node(s) had a sick GPU that kubelet still offers: Xid167."
NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
Step = Callable[[PoolScene], str | None]


def pods(
    job: str, count: int, gpus: int, *, on: str = "gpu-1", why: str = "", **more: Any
) -> tuple[Pod, ...]:
    """Build so many pods of a Job; without a node they wait and say `why`."""
    condition = PodCondition(type="PodScheduled", status="False", message=why)
    found = []
    for number in range(count):
        one = pod(f"{job}-{on}-{number}", on, gpus=gpus, **{"phase": "Running" if on else "Pending", **more})
        labelled = msgspec.structs.replace(one.metadata, labels={"batch.kubernetes.io/job-name": job})
        status = msgspec.structs.replace(one.status, conditions=() if on else (condition,))
        found.append(msgspec.structs.replace(one, metadata=labelled, status=status))
    return tuple(found)


def waiting(job: str, count: int, gpus: int, why: str = NO_ROOM) -> tuple[Pod, ...]:
    return pods(job, count, gpus, on="", why=why)


def evicted(count: int, reason: str = EVICTION_API) -> dict[str, str]:
    return {f"gone-{number}": reason for number in range(count)}


def fenced(offered: bool | None) -> NodeHealth:
    """Build the report of a node whose sick card kubelet offers, does not offer, or says nothing of."""
    whole = health(findings=[person_finding()])
    parts = tuple(
        msgspec.structs.replace(part, offered=offered if part.uuid == SICK else True)
        for part in whole.status.parts
    )
    return msgspec.structs.replace(whole, status=msgspec.structs.replace(whole.status, parts=parts))


ILL_NODE = node(conditions={"GpuXidError": "True"})
TRIAL_CARDS = {f"{TRIALS}-gpu-1-{number}": (f"GPU-{number + 5}",) for number in range(3)}
BESIDE = PoolScene(
    pods=(*pods(TRIALS, 3, 1), *waiting(TRIALS, 1, 1)), node=ILL_NODE, sick=SICK, cards=TRIAL_CARDS
)
HANDED_OVER = remediation(phase=Phase.ESCALATED)

PASSED: dict[str, tuple[Step, PoolScene]] = {
    "all GPUs are lent": (steps.lent, PoolScene(pods=pods(SWEEP, 8, 2))),
    "the surplus is evicted": (steps.evicted, PoolScene(pods=(), disrupted=evicted(4))),
    "the lender has its quota": (steps.served, PoolScene(pods=pods(OWN, 4, 2))),
    "the borrower keeps its quota": (
        steps.kept,
        PoolScene(pods=(*pods(SWEEP, 4, 2), *waiting(SWEEP, 1, 2)), disrupted=evicted(4)),
    ),
    "the whole gang waits": (steps.waits_whole, PoolScene(pods=waiting(GANG, 3, 4))),
    "the whole gang runs": (steps.started_whole, PoolScene(pods=pods(GANG, 3, 4))),
    "the fault stands with its card": (
        steps.ill,
        PoolScene(pods=(), node=ILL_NODE, health=health(findings=[person_finding()]), sick=SICK),
    ),
    "new pods wait for the fence": (steps.held_back, PoolScene(pods=waiting(TRIALS, 4, 1, STILL_OFFERED))),
    "kubelet withholds the card": (steps.fenced, PoolScene(pods=(), health=fenced(False), sick=SICK)),
    "new pods run beside the sick card": (steps.avoided, BESIDE),
    "a person is asked and the node is open": (
        steps.left_open,
        PoolScene(pods=(), node=ILL_NODE, remediation=HANDED_OVER, pages=("open",)),
    ),
}

HELD: dict[str, tuple[Step, PoolScene]] = {
    "one pod of the sweep is missing": (steps.lent, PoolScene(pods=pods(SWEEP, 7, 2))),
    "a pod is bound and does not run yet": (
        steps.lent,
        PoolScene(pods=(*pods(SWEEP, 7, 2), *pods(SWEEP, 1, 2, on="gpu-2", phase="Pending"))),
    ),
    "a pod is being deleted": (
        steps.lent,
        PoolScene(pods=(*pods(SWEEP, 7, 2), *pods(SWEEP, 1, 2, on="gpu-2", deleted=NOW))),
    ),
    "another Job's pods are there": (steps.lent, PoolScene(pods=pods(OWN, 8, 2))),
    "too few are evicted": (steps.evicted, PoolScene(pods=(), disrupted=evicted(3))),
    "too many are evicted": (steps.evicted, PoolScene(pods=(), disrupted=evicted(5))),
    "one was not evicted through the Eviction API": (
        steps.evicted,
        PoolScene(pods=(), disrupted=evicted(3) | {"other": "PreemptionByScheduler"}),
    ),
    "the lender lacks a pod": (steps.served, PoolScene(pods=pods(OWN, 3, 2))),
    "the borrower lost part of its quota": (
        steps.kept,
        PoolScene(pods=pods(SWEEP, 3, 2), disrupted=evicted(4)),
    ),
    "the borrower lost more than it gave": (
        steps.kept,
        PoolScene(pods=pods(SWEEP, 4, 2), disrupted=evicted(5)),
    ),
    "a member waits without a reason": (
        steps.waits_whole,
        PoolScene(pods=(*waiting(GANG, 2, 4), *waiting(GANG, 1, 4, ""))),
    ),
    "a member is bound already": (
        steps.waits_whole,
        PoolScene(pods=(*waiting(GANG, 2, 4), *pods(GANG, 1, 4))),
    ),
    "half a gang runs": (steps.started_whole, PoolScene(pods=(*pods(GANG, 2, 4), *waiting(GANG, 1, 4)))),
    "the condition is not there yet": (
        steps.ill,
        PoolScene(pods=(), node=node(), health=health(findings=[person_finding()]), sick=SICK),
    ),
    "the fault is of another card": (
        steps.ill,
        PoolScene(pods=(), node=ILL_NODE, health=health(findings=[person_finding(index=4)]), sick=SICK),
    ),
    "the fault takes the node": (
        steps.ill,
        PoolScene(pods=(), node=ILL_NODE, health=health(findings=[finding()]), sick=SICK),
    ),
    "nobody reports": (steps.ill, PoolScene(pods=(), node=ILL_NODE, sick=SICK)),
    "a new pod waits for another reason": (
        steps.held_back,
        PoolScene(pods=(*waiting(TRIALS, 3, 1, STILL_OFFERED), *waiting(TRIALS, 1, 1))),
    ),
    "a new pod runs before the fence": (
        steps.held_back,
        PoolScene(pods=(*waiting(TRIALS, 3, 1, STILL_OFFERED), *pods(TRIALS, 1, 1))),
    ),
    "kubelet offers the card": (steps.fenced, PoolScene(pods=(), health=fenced(True), sick=SICK)),
    "kubelet says nothing of the card": (steps.fenced, PoolScene(pods=(), health=fenced(None), sick=SICK)),
    "a pod has the sick card": (
        steps.avoided,
        replace(BESIDE, cards={**TRIAL_CARDS, f"{TRIALS}-gpu-1-0": (SICK,)}),
    ),
    "kubelet gave a pod no card": (steps.avoided, replace(BESIDE, cards={})),
    "all four were placed": (steps.avoided, replace(BESIDE, pods=pods(TRIALS, 4, 1))),
    "they run on another node": (
        steps.avoided,
        replace(BESIDE, pods=(*pods(TRIALS, 3, 1, on="gpu-2"), *waiting(TRIALS, 1, 1))),
    ),
    "the last one still says what held before the fence": (
        steps.avoided,
        replace(BESIDE, pods=(*pods(TRIALS, 3, 1), *waiting(TRIALS, 1, 1, STILL_OFFERED))),
    ),
    "nobody was asked yet": (
        steps.left_open,
        PoolScene(pods=(), node=ILL_NODE, remediation=remediation(phase=Phase.WAITING), pages=("open",)),
    ),
    "no page arrived yet": (
        steps.left_open,
        PoolScene(pods=(), node=ILL_NODE, remediation=HANDED_OVER),
    ),
    "the node is cordoned": (
        steps.left_open,
        PoolScene(pods=(), node=node(unschedulable=True), remediation=HANDED_OVER, pages=("open",)),
    ),
    "the node is tainted": (
        steps.left_open,
        PoolScene(
            pods=(),
            node=node(taints=[Taint(key=TAINT, effect="NoSchedule")]),
            remediation=HANDED_OVER,
            pages=("open",),
        ),
    ),
}


@pytest.mark.parametrize("case", PASSED)
def test_a_step_is_passed_once(case: str) -> None:
    step, scene = PASSED[case]
    assert step(scene)


@pytest.mark.parametrize("case", HELD)
def test_a_step_is_not_passed_while(case: str) -> None:
    step, scene = HELD[case]
    assert step(scene) is None


def test_free_gpus_are_those_that_nobody_holds() -> None:
    """What ends holds its GPUs until it has ended; what waits holds none."""
    scene = PoolScene(
        pods=(
            *pods(OWN, 1, 2),
            *pods(SWEEP, 1, 2, deleted=NOW),
            *pods(SWEEP, 1, 2, on="gpu-2", phase="Failed"),
            *waiting(GANG, 3, 4),
        )
    )
    assert steps.free_gpus(scene) == objects.GPUS - 4


def test_the_teams_have_half_of_the_pool_each() -> None:
    """The department above them has all of it, parents come first, and all are of the pool."""
    queues = [msgspec.convert(raw, Queue) for raw in objects.queues()]
    assert [(one.metadata.name, one.spec.parent_queue) for one in queues] == [
        ("research", ""),
        ("vision", "research"),
        ("speech", "research"),
    ]
    assert [raw["spec"]["resources"]["gpu"]["quota"] for raw in objects.queues()] == [16, 8, 8]
    assert all(one.metadata.labels == {objects.POOL_LABEL: objects.POOL} for one in queues)


def test_a_job_names_its_queue_and_how_many_start_together() -> None:
    """Pods carry queue and pool themselves: the scheduler reads them there."""
    raw = objects.job("gang", "vision", pods=3, gpus=4, least=3)
    labels = {"kai.scheduler/queue": "vision", "kai.scheduler/node-pool": "research"}
    template = raw["spec"]["template"]
    assert raw["metadata"]["annotations"] == {"kai.scheduler/batch-min-member": "3"}
    assert (raw["spec"]["parallelism"], template["metadata"]["labels"]) == (3, labels)
    assert template["spec"]["schedulerName"] == "nodemend-scheduler"
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}


def test_the_policy_is_read_as_it_is_meant() -> None:
    """Narrow, before the overlay's own policy, and it waits for as long as a fence takes to be seen."""
    policy = msgspec.convert(objects.policy("sandbox"), RemediationPolicy)
    read = terms.read(policy, Settings(sinks={"sandbox": ()}))
    assert (read.problems, read.warnings) == ((), ())
    assert read.containment is Containment.NARROW
    assert read.wait_for(person_finding()) == timedelta(seconds=20)
    assert policy.spec.node_selector == {"kai.scheduler/node-pool": "research"}
    assert policy.spec.priority > 0
