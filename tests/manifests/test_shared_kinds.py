"""Queue, PodGroup and Topology on the real API server: KAI Scheduler's shapes are kept, what it refuses is refused."""

import json
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import PatchType
from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS
from tests.manifests.verdicts import judged, pod_group, queue, topology

QUEUES = paths.collection("scheduling.run.ai", "v2", "queues")
GROUPS = paths.collection("scheduling.run.ai", "v2alpha2", "podgroups", "default")
TOPOLOGIES = paths.collection("kai.scheduler", "v1alpha1", "topologies")

SHARE = {"quota": 7.5, "limit": -1, "overQuotaWeight": 0.5}
AMOUNTS = {"cpu": "1500m", "memory": "12e9", "nvidia.com/gpu": "3500m", "nvidia.com/mig-1g.10gb": 2}
NEAR = {"topology": "fabric", "requiredTopologyLevel": "block", "preferredTopologyLevel": "example.com/rack"}
AT = "2026-11-29T12:00:00Z"

QUEUE = queue(
    "shapes",
    displayName="Everything",
    parentQueue="above",
    priority=-5,
    preemptMinRuntime="10m",
    reclaimMinRuntime="1h30m",
    resources={"gpu": SHARE, "cpu": SHARE, "memory": SHARE},
)
QUEUE_STATUS = {
    "childQueues": ["a", "b"],
    "allocated": AMOUNTS,
    "allocatedNonPreemptible": AMOUNTS,
    "requested": AMOUNTS,
    "conditions": [
        {"type": "OverQuota", "status": "True", "lastProbeTime": AT, "lastTransitionTime": AT}
        | {"reason": "AboveQuota", "message": "m"}
    ],
}
GROUP = pod_group(
    "shapes",
    minSubGroup=1,
    queue="team-a",
    priorityClassName="train",
    preemptibility="non-preemptible",
    markUnschedulable=True,
    schedulingBackoff=-1,
    preemptionDelay="5m",
    stalenessGracePeriod="-1s",
    topologyConstraint=NEAR,
    subGroups=[
        {"name": "prefill", "minSubGroup": 1, "topologyConstraint": NEAR},
        {"name": "leader", "parent": "prefill", "minMember": 0},
        {"name": "worker", "parent": "prefill", "minMember": 3},
    ],
)
DETAILS = {
    "name": "team-a",
    **dict.fromkeys(
        (
            "queueRequestedResources",
            "queueDeservedResources",
            "queueAllocatedResources",
            "queueAllocatedNonPreemptibleResources",
            "queueResourceLimits",
            "podGroupRequestedResources",
            "podGroupRequestedNonPreemptibleResources",
        ),
        AMOUNTS,
    ),
}
CONDITION = {"type": "T", "status": "True", "reason": "R", "message": "m", "transitionID": "7"} | {
    "lastTransitionTime": AT
}
REASON = {"reason": "OverLimit", "message": "m", "details": {"queueDetails": DETAILS}}
GROUP_STATUS = {
    "phase": "Running",
    "pending": 1,
    "running": 2,
    "succeeded": 3,
    "failed": 4,
    "resourcesStatus": {"allocated": AMOUNTS, "allocatedNonPreemptible": AMOUNTS, "requested": AMOUNTS},
    "conditions": [CONDITION],
    "schedulingConditions": [{**CONDITION, "nodePool": "default", "reasons": [REASON]}],
}
TOPOLOGY = topology(
    {"nodeLabel": "example.com/block", "alias": "block"},
    {"nodeLabel": "rack"},
    {"nodeLabel": "kubernetes.io/hostname", "alias": "host"},
)


@pytest.mark.parametrize(
    ("collection", "body", "status"),
    [
        pytest.param(QUEUES, QUEUE, QUEUE_STATUS, id="Queue"),
        pytest.param(GROUPS, GROUP, GROUP_STATUS, id="PodGroup"),
        pytest.param(TOPOLOGIES, TOPOLOGY, None, id="Topology, which has no status"),
    ],
)
def test_every_field_of_kais_is_taken_and_kept(
    scheduled: Sandbox, collection: str, body: dict[str, Any], status: dict[str, Any] | None
) -> None:
    """Nothing is pruned: what KAI Scheduler wrote is there for whoever reads it next, and the other way round."""
    api = scheduled.admin
    at = paths.member(collection, body["metadata"]["name"])
    stored = msgspec.json.decode(api.create(collection, body))
    try:
        if status is not None:
            raw = api.patch(f"{at}/status", {"status": status}, PatchType.MERGE)
            assert msgspec.json.decode(raw)["status"] == status
            api.patch(f"{at}/status", {"status": {"childQueues": None}}, PatchType.MERGE)
    finally:
        api.delete(at)

    assert stored["spec"] == body["spec"]
    assert "status" not in stored


LEVEL = {"nodeLabel": "example.com/rack"}
HOST = {"nodeLabel": "kubernetes.io/hostname"}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (queue(), "spec.resources is missing", "a queue without shares"),
    (queue(resources={"gpu": {"quota": "4"}}), "spec.resources.gpu.quota", "a quota in words"),
    (queue(resources={}, priority=1.5), "spec.priority", "a broken priority"),
    (queue(resources={}, parentQueue=["a"]), "spec.parentQueue", "two parents"),
    (pod_group(queue="q", minMember=-1), "spec.minMember", "fewer than no pods"),
    (pod_group(queue="q", minSubGroup=-1), "spec.minSubGroup", "fewer than no subgroups"),
    (
        pod_group(queue="q", minMember=1, minSubGroup=1),
        "minMember and minSubGroup are both set",
        "two minimums",
    ),
    (pod_group(queue="q", preemptibility="never"), "spec.preemptibility", "a third preemptibility"),
    (pod_group(queue="q", minMember=2**31), "spec.minMember", "more pods than 32 bits"),
    (pod_group(queue="q", subGroups=[{"minMember": 1}]), "spec.subGroups[0].name", "a nameless subgroup"),
    (
        pod_group(queue="q", subGroups=[{"name": "A_b", "minMember": 1}]),
        "spec.subGroups[0].name",
        "a subgroup that no label can name",
    ),
    (
        pod_group(queue="q", subGroups=[{"name": "a", "minMember": 1, "minSubGroup": 1}]),
        "minMember and minSubGroup are both set",
        "two minimums of a subgroup",
    ),
    (topology(), "spec.levels", "a topology without levels"),
    (topology(*({"nodeLabel": f"l{n}"} for n in range(17))), "spec.levels", "seventeen levels"),
    (topology({"nodeLabel": "-rack"}), "spec.levels[0].nodeLabel", "a level that is no label"),
    (topology({"alias": "rack"}), "spec.levels[0].nodeLabel", "a level without label"),
    (topology(LEVEL, LEVEL), "a nodeLabel is given twice", "a level twice"),
    (topology(HOST, LEVEL), "only be the last level", "racks inside hosts"),
    (
        topology({**LEVEL, "alias": "a"}, {"nodeLabel": "b", "alias": "a"}),
        "an alias is given twice",
        "an alias twice",
    ),
    (
        topology(LEVEL, {"nodeLabel": "b", "alias": LEVEL["nodeLabel"]}),
        "is a nodeLabel too",
        "an alias of two",
    ),
]


@pytest.mark.parametrize(("body", "words"), [pytest.param(*row[:2], id=row[2]) for row in REFUSED])
def test_what_kai_refuses_is_refused_with_its_field(
    scheduled: Sandbox, body: dict[str, Any], words: str
) -> None:
    """By the kind itself or by a policy: in any case before it is stored."""
    verdict = judged(scheduled, body)

    assert not verdict.taken
    assert words in verdict.words


def test_the_levels_of_a_topology_stay(scheduled: Sandbox) -> None:
    """Groups name levels; another order would move their domains under them."""
    at = paths.member(TOPOLOGIES, "verdict")
    scheduled.admin.create(TOPOLOGIES, TOPOLOGY)
    try:
        verdict = judged(scheduled, topology(LEVEL), "replace")
    finally:
        scheduled.admin.delete(at)

    assert not verdict.taken
    assert "cannot be changed; make another Topology" in verdict.words


def test_kubectl_get_is_readable(scheduled: Sandbox) -> None:
    """The examples are taken without a warning and show as tables, under KAI's column names and short name."""
    folder = MANIFESTS / "examples" / "scheduler"
    for path in sorted(folder.glob("*.yaml")):
        scheduled.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    try:
        queues = scheduled.kubectl("get", "queues", "default-queue").splitlines()
        group = scheduled.kubectl("get", "pg", "llama-pretrain").splitlines()
        (fabric,) = json.loads(scheduled.kubectl("get", "topologies", "gpu-fabric", "-o", "json"))[
            "spec"
        ].values()
    finally:
        for file in ("pod-group.yaml", "topology.yaml"):
            scheduled.kubectl("delete", "-f", str(folder / file))

    assert queues[0].split() == ["NAME", "PRIORITY", "PARENT", "CHILDREN", "DISPLAYNAME"]
    assert queues[1].split() == ["default-queue", "100", "default-parent-queue"]
    assert group[1].split()[:4] == ["llama-pretrain", "default-queue", "16", "train"]
    assert [level.get("alias") for level in fabric] == ["block", "rack", None]
