"""The stage of the scheduler's scenarios: a node pool of its own for each test, the real process under its own account, and
what an outsider sees of it: a watch of the pods, the server's audit record, status, Events and metrics.
"""

import json
import secrets
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from bench.node_watch import Outside
from kube import paths
from kube.api import ApiError, PatchType
from kube.types import Pod
from sandbox import nodes as simulated
from sandbox.actors import SCHEDULER, SYSTEM_NAMESPACE, SchedulerActor, start_scheduler
from sandbox.cluster import Sandbox
from sandbox.nodes import DEFAULT_PLATFORM, SimulatedNode, body
from sandbox.platforms import platform

Raw = dict[str, Any]
POOL_LABEL, QUEUE_LABEL = "kai.scheduler/node-pool", "kai.scheduler/queue"
USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{SCHEDULER}"
FREE: Raw = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
# Shorter than in production, so that whoever was killed need not be waited for for 15 s.
QUICK_LEASE = {"lease_duration": "8s", "renew_deadline": "6s", "retry_period": "1s"}
NOW: Raw = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
WITHIN_S = 45.0
_AT_ONCE = 8
_ENDED = ("Succeeded", "Failed")


class SchedulerStage:
    """One pool, one namespace, the queues in it, and the scheduler of that pool; `others`: paths of what else is removed."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self.sandbox, self.namespace, self.admin = sandbox, namespace, sandbox.admin
        self.pool = f"pool-{secrets.token_hex(3)}"
        self.since = datetime.now(UTC)
        self.actors: list[SchedulerActor] = []
        self.bound_to: dict[str, set[str]] = {}
        self.bound_at: dict[str, float] = {}
        self.disrupted: dict[str, str] = {}
        self.nodes: list[str] = []
        self.machines: list[SimulatedNode] = []
        self.queues: list[str] = []
        self.others: list[str] = []
        self.pods = Outside(self.admin, paths.pods(namespace), Pod, self._see)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._port = one.getsockname()[1]

    # Setting up

    @property
    def listen(self) -> str:
        """Where `metric` looks: for the one scheduler that is told to listen there."""
        return f"127.0.0.1:{self._port}"

    def start(self, replicas: int = 1, **settings: Any) -> None:
        """Start the scheduler; returns when it has turned for the first time."""
        table: Raw = {"pool": self.pool, **settings}
        if replicas == 1:
            table["listen"] = self.listen
        self.actors = start_scheduler(self.sandbox, replicas=replicas, settings=table)
        if replicas == 1:
            (actor,) = self.actors
            cycles = "nodemend_scheduler_cycle_duration_seconds_count"
            self.until(lambda: not actor.process.alive or self.metric(cycles) > 0, "a first cycle")
            assert actor.process.alive, actor.logs

    def add_nodes(self, count: int, labels: Mapping[str, str] | None = None) -> list[str]:
        """Let KWOK play so many nodes of 8 GPUs; returns when they are Ready and take pods."""
        first = len(self.nodes)
        names = [f"{self.pool}-{number:03}" for number in range(first, first + count)]
        bodies = [
            body(name, platform(DEFAULT_PLATFORM), name, number) for number, name in enumerate(names, first)
        ]
        for one in bodies:
            one["metadata"]["labels"] |= {POOL_LABEL: self.pool, **(labels or {})}
        self.nodes += names
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda one: self.admin.create(paths.nodes(), one), bodies))
        self.until(lambda: self._ready(names), f"{count} nodes to be ready")
        return names

    def add_machines(self, count: int) -> list[SimulatedNode]:
        """Add nodes that have a machine, for an agent to look at."""
        names = [f"{self.pool}-m{number}" for number in range(count)]
        made = simulated.create(self.sandbox, names)
        for name in names:
            self.label(name, POOL_LABEL, self.pool)
        self.nodes += names
        self.machines += made
        return made

    def label(self, node: str, label: str, value: str) -> None:
        self.admin.patch(paths.node(node), {"metadata": {"labels": {label: value}}}, PatchType.MERGE)

    def queue(self, name: str, *, quota: float = 0, limit: float = -1, parent: str = "", **spec: Any) -> str:
        """Make a queue of this pool; CPU and memory are free. Gives its whole name, which is this pool's alone."""
        whole = f"{self.pool}-{name}"
        gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
        resources = {"gpu": gpu, "cpu": FREE, "memory": FREE}
        wanted: Raw = {"resources": resources, **({"parentQueue": parent} if parent else {}), **spec}
        metadata = {"name": whole, "labels": {POOL_LABEL: self.pool}}
        queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": wanted}
        self.admin.create(paths.queues(), queue)
        self.queues.append(whole)
        return whole

    def create_pod(
        self,
        name: str,
        queue: str,
        gpus: int = 1,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Create a bare pod of ours."""
        ours = {QUEUE_LABEL: queue, POOL_LABEL: self.pool, **(labels or {})}
        metadata = {"name": name, "labels": ours, "annotations": annotations or {}}
        self.admin.create(
            paths.pods(self.namespace), {"metadata": metadata, "spec": {**_pod_spec(gpus), **spec}}
        )

    def create_job(
        self,
        name: str,
        queue: str,
        pods: int,
        gpus: int = 1,
        *,
        least: int = 1,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Let the Job controller make so many pods, of which `least` start together."""
        template = self._template(queue, gpus, {}, restartPolicy="Never")
        annotations = {"kai.scheduler/batch-min-member": str(least), **(annotations or {})}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": template["metadata"]["labels"], "annotations": annotations},
            "spec": {"parallelism": pods, "completions": pods, "template": template},
        }
        self.admin.create(paths.jobs(self.namespace), job)

    def create_deployment(self, name: str, queue: str, pods: int, gpus: int = 1) -> None:
        """Let its controllers keep so many pods that may be evicted, each a workload of its own; what goes comes at once."""
        template = self._template(queue, gpus, {"app": name}, priorityClassName="train")
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template},
        }
        self.admin.create(paths.collection("apps", "v1", "deployments", self.namespace), deployment)

    def forbid_eviction(self, budget: str) -> None:
        """Put a PodDisruptionBudget that lets nobody go over the pods that carry its name in label `budget`."""
        selector = {"matchLabels": {"budget": budget}}
        wanted = {"metadata": {"name": budget}, "spec": {"minAvailable": 100, "selector": selector}}
        self.admin.create(paths.collection("policy", "v1", "poddisruptionbudgets", self.namespace), wanted)

    def _template(self, queue: str, gpus: int, labels: Mapping[str, str], **spec: Any) -> Raw:
        ours = {QUEUE_LABEL: queue, POOL_LABEL: self.pool, **labels}
        return {"metadata": {"labels": ours}, "spec": {**_pod_spec(gpus), **spec}}

    # Looking

    def until(
        self, true: Callable[[], bool], what: str, timeout_s: float = WITHIN_S, *, every_s: float = 0.05
    ) -> None:
        """Wait until it is so. Raises AssertionError with the end of the scheduler's log."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout_s:g} s for {what}\n{self.story()}")
            time.sleep(every_s)

    def story(self) -> str:
        """Tell where everything stands."""
        pods = self.sandbox.kubectl("get", "pods", "-o", "wide", "-n", self.namespace)
        logs = "\n".join(actor.logs[-3000:] for actor in self.actors)
        said = "\n".join(f"{key}: {self.why(key)}" for key in self.waiting("")[:10])
        return f"{pods[-4000:]}\n{said}\n{logs}"

    def alive(self, prefix: str) -> dict[str, Pod]:
        """Give the pods whose name begins so, without those that end or have ended."""
        return {
            pod.metadata.name: pod
            for pod in self.pods.store.values()
            if pod.metadata.name.startswith(prefix)
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase not in _ENDED
        }

    def running(self, prefix: str) -> dict[str, str]:
        """Give the node of each living pod that has one."""
        return {name: pod.spec.node_name for name, pod in self.alive(prefix).items() if pod.spec.node_name}

    def waiting(self, prefix: str) -> list[str]:
        return sorted(name for name, pod in self.alive(prefix).items() if not pod.spec.node_name)

    def why(self, pod: str) -> str:
        """Give what the pod's condition PodScheduled says; empty where it says nothing, or that it is."""
        found = next((one for one in self.pods.store.values() if one.metadata.name == pod), None)
        conditions = found.status.conditions if found is not None else ()
        return next(
            (one.message for one in conditions if one.type == "PodScheduled" and one.status == "False"), ""
        )

    def read(self, path: str) -> Raw:
        found: Raw = json.loads(self.admin.get(path))
        return found

    def groups(self) -> list[Raw]:
        return list(self.read(paths.pod_groups(self.namespace))["items"])

    def queue_status(self, queue: str) -> Raw:
        status: Raw = self.read(paths.member(paths.queues(), queue)).get("status", {})
        return status

    def queue_condition(self, queue: str, kind: str) -> str:
        """Give the message of a condition that stands."""
        standing = self.queue_status(queue).get("conditions", ())
        return next(
            (str(one["message"]) for one in standing if one["type"] == kind and one["status"] == "True"), ""
        )

    def gpus_of(self, queue: str) -> tuple[int, int]:
        """Give the GPUs that a queue's status calls allocated and requested."""
        status = self.queue_status(queue)
        allocated, requested = (
            status.get(name, {}).get("nvidia.com/gpu", "0") for name in ("allocated", "requested")
        )
        return int(allocated), int(requested)

    def events(self) -> list[Raw]:
        return list(self.read(paths.events(self.namespace))["items"])

    def notes(self, reason: str) -> dict[str, str]:
        """Give what Events of this reason say, by kind/name of what they are about."""
        return {
            f"{one['regarding']['kind']}/{one['regarding']['name']}": str(one["note"])
            for one in self.events()
            if one["reason"] == reason
        }

    def metric(self, name: str, **labels: str) -> float:
        """Give a metric's value; 0 where it is not there, or nobody listens yet."""
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer,
        ):
            for line in answer.read().decode().splitlines():
                words, _, value = line.rpartition(" ")
                if words.partition("{")[0] == name and all(
                    f'{key}="{told}"' in words for key, told in labels.items()
                ):
                    return float(value)
        return 0.0

    def audit(self, verb: str, resource: str = "", subresource: str = "") -> list[Raw]:
        """Give what the scheduler's account wrote in this namespace, carried out by the server, oldest first."""
        return [
            event["objectRef"]
            for event in self.sandbox.audit_events()
            if event["user"]["username"] == USER
            and event.get("stage") == "ResponseComplete"
            and event["verb"] == verb
            and 200 <= event["responseStatus"]["code"] < 300
            and "dryRun=All" not in event["requestURI"]
            and (about := event.get("objectRef", {})).get("namespace") == self.namespace
            and (not resource or (about["resource"], about.get("subresource", "")) == (resource, subresource))
        ]

    def check_books(self) -> None:
        """Hold what runs on the pool's nodes, whoever placed it, against what they have; nothing was ever bound twice."""
        has = {"nvidia.com/gpu": 8_000, "cpu": 192_000}
        given = {(name, resource): 0 for name in self.nodes for resource in has}
        for pod in self.read(paths.pods())["items"]:
            node = pod["spec"].get("nodeName", "")
            if node in self.nodes and pod["status"].get("phase") not in _ENDED:
                for resource in has:
                    given[node, resource] += _asks_for(pod, resource)
        assert {key: amount for key, amount in given.items() if amount > has[key[1]]} == {}
        assert {uid: nodes for uid, nodes in self.bound_to.items() if len(nodes) != 1} == {}

    # Ending

    def close(self) -> None:
        """End the scheduler and take nodes, pods and queues away; nothing is waited for but the scheduler."""
        for actor in self.actors:
            if actor.process.alive:
                actor.stop()
        admin = self.admin
        makers = [paths.collection("apps", "v1", "deployments", self.namespace), paths.jobs(self.namespace)]
        doomed = [*makers, paths.pods(self.namespace)]
        for path in [*doomed, *(paths.node(name) for name in self.nodes), *self.others]:
            with suppress(ApiError):
                admin.delete(path, {**NOW, "propagationPolicy": "Background"})
        for machine in self.machines:
            machine.close()
        for name in self.queues:
            with suppress(ApiError):  # a queue is not deleted while it says that others hang below it
                admin.patch(paths.queue_status(name), {"status": {"childQueues": None}}, PatchType.MERGE)
                admin.delete(paths.member(paths.queues(), name))

    def _see(self, pod: Pod, at: float) -> None:
        uid = pod.metadata.uid
        if pod.spec.node_name:
            self.bound_to.setdefault(uid, set()).add(pod.spec.node_name)
            self.bound_at.setdefault(uid, at)
        for condition in pod.status.conditions:
            if condition.type == "DisruptionTarget" and condition.status == "True":
                self.disrupted[pod.metadata.name] = condition.reason

    def _ready(self, names: Sequence[str]) -> bool:
        label = {"labelSelector": f"{POOL_LABEL}={self.pool}"}
        found = {
            raw["metadata"]["name"]: raw for raw in json.loads(self.admin.get(paths.nodes(), label))["items"]
        }
        return all(name in found and _takes_pods(found[name]) for name in names)


@contextmanager
def standing(sandbox: Sandbox, namespace: str) -> Iterator[SchedulerStage]:
    """Set a stage up and take everything of it away again."""
    stage = SchedulerStage(sandbox, namespace)
    with stage.pods:
        try:
            yield stage
        finally:
            stage.close()


def _pod_spec(gpus: int) -> Raw:
    resources: Raw = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}
    return {
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "example.invalid/work:1", "resources": resources}],
    }


def _takes_pods(node: Raw) -> bool:
    """Whether a Node is Ready and the controller manager took its taints away."""
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _asks_for(pod: Raw, resource: str) -> int:
    """Add up what the containers of a pod ask for, in thousandths."""
    found = [
        str(
            {
                **one.get("resources", {}).get("limits", {}),
                **one.get("resources", {}).get("requests", {}),
            }.get(resource, 0)
        )
        for one in pod["spec"]["containers"]
    ]
    return sum(int(text.removesuffix("m")) * (1 if text.endswith("m") else 1000) for text in found)
