"""A gang with ResourceClaims under a topology constraint, on the real API server: claim controller, scheduler, binds."""

from kube import paths
from tests.cluster.scheduler_stage import NOW, POOL_LABEL, QUEUE_LABEL, Raw, SchedulerStage

RACK = "example.com/rack"
RESOURCE = "/apis/resource.k8s.io/v1"
TEMPLATE = "one-device"


def add_devices(stage: SchedulerStage, counts: dict[str, int]) -> None:
    """Publish so many devices of a driver of this pool on each node, their class, and a template that asks for one."""
    driver = f"{stage.pool}.example.com"
    for node, count in counts.items():
        spec = {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"part-{number}"} for number in range(count)],
        }
        stage.admin.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": node}, "spec": spec})
        stage.others.append(f"{RESOURCE}/resourceslices/{node}")
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    known = {"metadata": {"name": stage.pool}, "spec": {"selectors": [selector]}}
    stage.admin.create(f"{RESOURCE}/deviceclasses", known)
    stage.others.append(f"{RESOURCE}/deviceclasses/{stage.pool}")
    wanted = {"requests": [{"name": "part", "exactly": {"deviceClassName": stage.pool}}]}
    stage.admin.create(
        f"{RESOURCE}/namespaces/{stage.namespace}/resourceclaimtemplates",
        {"metadata": {"name": TEMPLATE}, "spec": {"spec": {"devices": wanted}}},
    )


def add_topology(stage: SchedulerStage) -> None:
    """Make the Topology of racks and hosts."""
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": stage.pool},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    topologies = paths.collection("kai.scheduler", "v1alpha1", "topologies")
    stage.admin.create(topologies, topology)
    stage.others.append(paths.member(topologies, stage.pool))


def create_gang(stage: SchedulerStage, name: str, queue: str, pods: int) -> None:
    """Let the Job controller make pods with a claim each, all together in one rack."""
    ours = {QUEUE_LABEL: queue, POOL_LABEL: stage.pool}
    container = {
        "name": "main",
        "image": "example.invalid/work:1",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "part"}]},
    }
    spec: Raw = {
        "schedulerName": "nodemend-scheduler",
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "part", "resourceClaimTemplateName": TEMPLATE}],
        "containers": [container],
    }
    annotations = {
        "kai.scheduler/batch-min-member": str(pods),
        "kai.scheduler/topology": stage.pool,
        "kai.scheduler/topology-required-placement": RACK,
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": ours, "annotations": annotations},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"labels": ours}, "spec": spec},
        },
    }
    stage.admin.create(paths.jobs(stage.namespace), job)


def given(stage: SchedulerStage, prefix: str) -> list[tuple[str, str]]:
    """Say which devices the claims of a workload's pods have, as node and name."""
    claims = stage.read(f"{RESOURCE}/namespaces/{stage.namespace}/resourceclaims")["items"]
    return sorted(
        (result["pool"], result["device"])
        for one in claims
        if one["metadata"]["name"].startswith(prefix)
        for result in one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    )


def test_a_gang_with_claims_starts_whole_in_the_rack_that_has_its_devices(stage: SchedulerStage) -> None:
    """The first rack has a device for one of two; the next gang waits whole until the first has ended."""
    nodes = stage.add_nodes(4)
    racks = dict(zip(nodes, "aabb", strict=True))
    for node, rack in racks.items():
        stage.label(node, RACK, f"{stage.pool}-{rack}")
    add_devices(stage, dict(zip(nodes, (1, 0, 1, 1), strict=True)))
    add_topology(stage)
    queue = stage.queue("research", quota=8)
    stage.start()
    create_gang(stage, "first", queue, pods=2)
    stage.until(lambda: len(stage.running("first")) == 2, "the gang to run")
    assert sorted(stage.running("first").values()) == nodes[2:]
    assert given(stage, "first") == [(nodes[2], "part-0"), (nodes[3], "part-0")]
    create_gang(stage, "second", queue, pods=2)
    stage.until(lambda: len(stage.waiting("second")) == 2, "the second gang to wait")
    stage.until(lambda: "allocate all claims" in stage.why(stage.waiting("second")[0]), "the reason")
    assert (stage.running("second"), given(stage, "second")) == ({}, [])
    stage.admin.delete(f"{paths.jobs(stage.namespace)}/first", {**NOW, "propagationPolicy": "Background"})
    stage.until(lambda: len(stage.running("second")) == 2, "the second gang to run", timeout_s=90)
    assert given(stage, "second") == [(nodes[2], "part-0"), (nodes[3], "part-0")]
    stage.check_books()
