"""What act 4 of the demo creates: a department with two teams, their Jobs, and the policy of their pool. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from controller.scheduler.grouper.spec import Terms

Raw = dict[str, Any]

POOL: Final = "research"
"""The node pool, the department above both teams, the policy, and the namespace of their pods: they all have this name."""
POOL_LABEL: Final = Terms().node_pool_label
QUEUE_LABEL: Final = Terms().queue_label
VISION, SPEECH = "vision", "speech"
NODES: Final = ("gpu-9", "gpu-10")
GPUS: Final = 16
QUOTA: Final = 8
"""GPUs that each team has for sure: half of the pool."""
# The agent asks kubelet every 5 s here (30 s is usual), and a card is out once two answers say so.
FENCED_WITHIN: Final = "20s"


def queues() -> tuple[Raw, ...]:
    """Describe the department and its teams, parents first."""
    return (
        _queue(POOL, GPUS),
        _queue(VISION, QUOTA, parent=POOL),
        _queue(SPEECH, QUOTA, parent=POOL),
    )


def _queue(name: str, quota: int, parent: str = "") -> Raw:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {
        "gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1},
        "cpu": free,
        "memory": free,
    }
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "labels": {POOL_LABEL: POOL}},
        "spec": {"resources": resources, **({"parentQueue": parent} if parent else {})},
    }


def job(name: str, queue: str, *, pods: int, gpus: int, least: int = 1) -> Raw:
    """Describe a team's Job of so many pods, of which `least` start together. An eviction is no failure of the Job."""
    labels = {QUEUE_LABEL: queue, POOL_LABEL: POOL}
    container = {
        "name": "main",
        "image": "example.invalid/work:1",  # nobody pulls it: the nodes are simulated
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    pod = {
        "schedulerName": "nodemend-scheduler",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"kai.scheduler/batch-min-member": str(least)},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
            },
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def policy(sink: str) -> Raw:
    """Describe how the pool's nodes are contained: narrowly, as is right where nodemend-scheduler places every GPU pod.

    A fault stands for a moment before anything is done: as long as the agent needs to hear that kubelet withholds the card.
    """
    spec: Mapping[str, Any] = {
        "priority": 10,
        "mode": "Enforce",
        "containment": "narrow",
        "nodeSelector": {POOL_LABEL: POOL},
        "rules": [{"conditions": ["GpuXidError"], "wait": FENCED_WITHIN}],
        "sinks": [sink],
    }
    return {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "RemediationPolicy",
        "metadata": {"name": POOL},
        "spec": dict(spec),
    }
