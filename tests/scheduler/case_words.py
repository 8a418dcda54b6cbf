"""Small words for cases of the conformance suite: a node of GPUs, queues, jobs, and what is expected of them."""

from typing import Any

Json = dict[str, Any]

UNBOUND: Json = {"deserved": -1, "limit": -1, "over_quota_weight": 1}


def queue(name: str = "research", gpus: float = 4) -> Json:
    """Give a queue below the root `all`."""
    gpu = {"deserved": gpus, "limit": -1, "over_quota_weight": 1}
    return {
        "name": name,
        "parent": "all",
        "priority": 100,
        "creation_order": 0,
        "gpu": gpu,
        "cpu": UNBOUND,
        "memory": UNBOUND,
    }


def task(gpus: float = 1, node: str = "", group: str = "") -> Json:
    """Give a pod that waits or, with a node, runs; a part of a GPU may have a group."""
    shared = gpus < 1
    asks: Json = {
        "cpu_milli": 1000,
        "memory_bytes": 1000,
        "gpus_total": gpus,
        "gpu_devices": max(1, int(gpus)),
    }
    asks |= {"gpu_portion": gpus, "request_type": "Fraction"} if shared else {"request_type": "Regular"}
    placed: Json = {"node": node, "state": "Running"} if node else {"state": "Pending"}
    return {**placed, "requests": asks, **({"gpu_groups": [group]} if group else {})}


def job(name: str, *tasks: Json, **changes: Any) -> Json:
    """Give a job of these pods, which all start together."""
    started = {"started_seconds_ago": 60} if any("node" in one for one in tasks) else {}
    return {
        "name": name,
        "queue": "research",
        "priority": 50,
        "preemptible": True,
        "age_minutes": 1,
        "min_available": len(tasks),
        "tasks": list(tasks),
        **started,
        **changes,
    }


def case(*jobs: Json, expected: Json, gpus: int = 2, name: str = "mine-001", **changes: Any) -> Json:
    """Give a case of one node, planned once by `allocate` unless it says otherwise; no call is bounded."""
    return {
        "id": name,
        "kind": "action",
        "actions": ["allocate"],
        "nodes": [
            {
                "name": "n1",
                "gpus": gpus,
                "gpu_memory_mib": 100,
                "allocatable": {"cpu": 100_000, "memory": 10**9, "gpu": gpus, "pods": 110},
            }
        ],
        "departments": [{"name": "all", "gpu": {"deserved": -1, "limit": -1, "over_quota_weight": 1}}],
        "queues": [queue()],
        "jobs": list(jobs),
        "expected": expected,
        "max_calls": {"binds": 9, "evictions": 9, "pipelines": 9},
        **changes,
    }


def expect(status: str, gpus: float = 1, **more: Any) -> Json:
    """Give what must have become of a job's pods."""
    return {"status": status, "gpus_required": gpus, **more}
