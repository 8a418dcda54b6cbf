"""Claims with selectors, constraints and alternatives on the real API server, beside Kubernetes' own scheduler.

Two nodes have the same devices. On one our scheduler serves the claims, on the other kube-scheduler serves the same ones,
and what the two have written is the same.
"""

from functools import partial
from typing import Any

from kube import paths
from tests.cluster.scheduler_stage import Raw, SchedulerStage

RESOURCE = "/apis/resource.k8s.io/v1"
ROOT = "resource.kubernetes.io/pcieRoot"
THEIRS = "default-scheduler"
GPUS = (("A100", "p0"), ("A100", "p1"), ("A100", "p1"), ("H100", "p0"), ("A100", "p2"), ("A100", "p2"))


def driver_of(stage: SchedulerStage) -> str:
    return f"{stage.pool}.example.com"


def opaque(stage: SchedulerStage, mode: str) -> Raw:
    return {"opaque": {"driver": driver_of(stage), "parameters": {"mode": mode}}}


def add_gpus(stage: SchedulerStage, node: str) -> None:
    """Publish the GPUs of a node, as NVIDIA's driver does."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": f"NVIDIA {model}-SXM4"},
                "cudaComputeCapability": {"version": "8.0.0" if model == "A100" else "9.0.0"},
                ROOT: {"string": root},
            },
            "capacity": {"memory": {"value": "40Gi" if model == "A100" else "80Gi"}},
        }
        for index, (model, root) in enumerate(GPUS)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver_of(stage), "nodeName": node, "pool": pool, "devices": devices}
    stage.admin.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": node}, "spec": spec})
    stage.others.append(f"{RESOURCE}/resourceslices/{node}")


def add_class(stage: SchedulerStage) -> None:
    """Make the class of all these GPUs, with a configuration."""
    driver = driver_of(stage)
    words = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'gpu'"
    spec = {"selectors": [{"cel": {"expression": words}}], "config": [opaque(stage, "class")]}
    stage.admin.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": stage.pool}, "spec": spec})
    stage.others.append(f"{RESOURCE}/deviceclasses/{stage.pool}")


def asked(stage: SchedulerStage) -> dict[str, Raw]:
    """Give the claims, by name: one by product and memory, two below one root, one H100 of three else two A100."""
    mine = f"device.attributes['{driver_of(stage)}']"

    def gpu(*selectors: str, count: int = 1, **more: Any) -> Raw:
        cel = [{"cel": {"expression": one}} for one in selectors]
        return {"deviceClassName": stage.pool, "count": count, "selectors": cel, **more}

    a100 = f"{mine}.productName.lowerAscii().matches('^.*a100.*$')"
    large = f"device.capacity['{driver_of(stage)}'].memory.compareTo(quantity('40Gi')) > 0"
    new = f"cel.bind(gpu, {mine}, gpu.cudaComputeCapability.isGreaterThan(semver('8.9.0')))"
    either = [{"name": "many", **gpu(new, count=3)}, {"name": "two", **gpu(a100, count=2)}]
    about = [{"requests": [name], **opaque(stage, name)} for name in ("gpu/many", "gpu/two", "gpu")]
    return {
        "selector": {"requests": [{"name": "gpu", "exactly": gpu(large, new)}]},
        "constraint": {
            "requests": [{"name": "pair", "exactly": gpu(count=2)}],
            "constraints": [{"matchAttribute": ROOT}],
        },
        "alternatives": {"requests": [{"name": "gpu", "firstAvailable": either}], "config": about},
        "unknown": {"requests": [{"name": "gpu", "exactly": gpu(f"{mine}.colour == 'red'")}]},
    }


def create(stage: SchedulerStage, name: str, node: str, scheduler: str, queue: str) -> None:
    """Make a claim and a pod with it, for one node and one scheduler."""
    at = f"{RESOURCE}/namespaces/{stage.namespace}/resourceclaims"
    ours = scheduler != THEIRS
    pod = f"{name}-{'ours' if ours else 'theirs'}"
    labels = {"kai.scheduler/queue": queue, "kai.scheduler/node-pool": stage.pool} if ours else {}
    stage.admin.create(
        at, {"metadata": {"name": pod, "labels": labels}, "spec": {"devices": asked(stage)[name]}}
    )
    spec = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": pod}],
        "containers": [
            {"name": "c", "image": "example.invalid/w:1", "resources": {"claims": [{"name": "gpu"}]}}
        ],
    }
    stage.admin.create(
        paths.pods(stage.namespace), {"metadata": {"name": pod, "labels": labels}, "spec": spec}
    )


def allocation(stage: SchedulerStage, claim: str, node: str) -> Raw:
    """Give what was written, with the same name for both nodes."""
    found = stage.read(paths.resource_claim(stage.namespace, claim))["status"]["allocation"]
    found.pop("allocationTimestamp", None)
    (term,) = found["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == [node]
    term["matchFields"][0]["values"] = ["node"]
    for one in found["devices"]["results"]:
        assert one["pool"] == node
        one["pool"] = "node"
    return dict(found)


def both_run(stage: SchedulerStage, name: str) -> bool:
    return len(stage.running(name)) == 2


def test_claims_are_served_as_kubernetes_own_scheduler_serves_them(stage: SchedulerStage) -> None:
    """The API server takes what is written, and it is the same to the last word."""
    ours, theirs = stage.add_nodes(2)
    for node in (ours, theirs):
        add_gpus(stage, node)
    add_class(stage)
    queue = stage.queue("research", quota=8)
    stage.start()
    expected = {
        "selector": [("gpu", "gpu-3")],
        "constraint": [("pair", "gpu-1"), ("pair", "gpu-2")],
        "alternatives": [("gpu/two", "gpu-0"), ("gpu/two", "gpu-4")],
    }
    for name, devices in expected.items():
        create(stage, name, ours, "nodemend-scheduler", queue)
        create(stage, name, theirs, THEIRS, queue)
        stage.until(partial(both_run, stage, name), f"both pods of {name} to run")
        mine = allocation(stage, f"{name}-ours", ours)
        assert [(one["request"], one["device"]) for one in mine["devices"]["results"]] == devices
        assert mine == allocation(stage, f"{name}-theirs", theirs)
    create(stage, "unknown", ours, "nodemend-scheduler", queue)
    why = "request gpu: the selectors fail on a device: no such key: colour"
    stage.until(lambda: why in stage.why("unknown-ours"), "the reason")
