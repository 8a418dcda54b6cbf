"""The reporter against the real API server: its schemas take what is written, nothing is written twice, kubectl shows it.

It runs as the scheduler's own ServiceAccount, under the admission policies that come with it. The cycles are real; the nodes
are none of this cluster's, since nothing is bound here but by hand.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from controller.scheduler.cycle import run_cycle
from controller.scheduler.shell.report import Happened, Report, Reporter
from controller.scheduler.snapshot import Objects, Options, build
from kube import paths
from kube.api import Api, Conflict, PatchType
from kube.clock import SYSTEM
from kube.scheduling import STALE_SINCE, PodGroup, Queue
from kube.session import Session, connect
from kube.store import Store
from kube.types import Pod
from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.fakes import FakeClock
from tests.scheduler.kube_words import node

OURS = "nodemend-scheduler"
POOL = "status"
LABELS = {"kai.scheduler/node-pool": POOL}
FREE = {"quota": -1, "limit": -1}
Raw = dict[str, Any]


class Counting:
    """Passes on what is written to the real session, and counts it."""

    def __init__(self, session: Session) -> None:
        self.writes: list[str] = []
        self._session = session
        self.get = session.get
        self.stream = session.stream
        self.replace = session.replace
        self.delete = session.delete

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes:
        self.writes.append(f"CREATE {path}")
        return self._session.create(path, body, query)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        self.writes.append(f"PATCH {path}")
        return self._session.patch(path, body, patch_type, query)


class Cluster:
    """Queues, groups and pods of one node pool, a reporter over them, and a clock that moves when told to."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self.sandbox, self.namespace, self.admin = sandbox, namespace, sandbox.admin
        account = sandbox.kubeconfig_for("nodemend-system", "nodemend-scheduler")
        self.session = connect(kubeconfig=account, user_agent="nodemend-scheduler/test")
        self.api = Counting(self.session)
        self.pods: Store[Pod] = Store()
        self.groups: Store[PodGroup] = Store()
        self.queues: Store[Queue] = Store()
        self.start()

    def start(self) -> None:
        """Let a reporter begin that knows nothing but what stands there."""
        self.clock = FakeClock(now=SYSTEM.now())
        api: Api = self.api
        self.reporter = Reporter(
            api=api,
            pods=self.pods,
            pod_groups=self.groups,
            queues=self.queues,
            clock=self.clock.clock,
            instance="replica-1",
            scheduler_name=OURS,
            calm=lambda: True,
        )

    def queue(self, name: str, parent: str = "", gpus: int = -1) -> None:
        spec: Raw = {"resources": {"gpu": {**FREE, "quota": gpus}, "cpu": FREE, "memory": FREE}}
        body = {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name, "labels": LABELS},
            "spec": {**spec, "parentQueue": parent} if parent else spec,
        }
        self.admin.create(paths.queues(), body)

    def group(self, name: str, least: int) -> None:
        body = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "labels": LABELS},
            "spec": {"queue": "status-team", "minMember": least},
        }
        self.admin.create(paths.pod_groups(self.namespace), body)

    def pod(self, name: str, group: str) -> None:
        resources = {"limits": {"nvidia.com/gpu": "1", "cpu": "500m", "memory": "1Gi"}}
        body = {
            "metadata": {"name": name, "annotations": {"pod-group-name": group}},
            "spec": {
                "schedulerName": OURS,
                "containers": [{"name": "main", "image": "none", "resources": resources}],
            },
        }
        self.admin.create(paths.pods(self.namespace), body)

    def bind(self, name: str) -> None:
        target = {"target": {"kind": "Node", "name": "status-n1"}, "metadata": {"name": name}}
        self.session.create(paths.binding(self.namespace, name), target)

    def follow(self) -> None:
        """Bring the stores up to date."""
        self._fill(self.pods, paths.pods(self.namespace), Pod)
        self._fill(self.groups, paths.pod_groups(self.namespace), PodGroup)
        self._fill(self.queues, paths.queues(), Queue)

    def _fill(self, store: Store[Any], path: str, kind: type[Any]) -> None:
        raw = json.loads(self.session.get(path))
        items = [msgspec.convert(item, kind, strict=False) for item in raw["items"]]
        store.replace(items, raw["metadata"]["resourceVersion"], 0.0)

    def report(self, gpus: int, *happened: Happened) -> Report:
        """Run a cycle with a node of so many GPUs."""
        self.follow()
        objects = Objects(
            nodes=(node("status-n1", gpus, labels=LABELS),),
            pods=self.pods.values(),
            pod_groups=self.groups.values(),
            queues=self.queues.values(),
        )
        options = Options(scheduler_name=OURS, pool=POOL)
        snapshot, problems = build(objects, self.clock.now(), options)
        waiting = {job.id: tuple(task.id for task in job.tasks if not task.node) for job in snapshot.jobs}
        return Report(
            plan=run_cycle(snapshot),
            snapshot=snapshot,
            problems=problems,
            happened=happened,
            waiting_pods=waiting,
        )

    def settled(self, gpus: int = 0, *happened: Happened) -> list[str]:
        """Tell of a cycle and write until nothing more comes; give the writes."""
        self.api.writes.clear()
        self.reporter.took(self.report(gpus, *happened))
        for _ in range(8):
            self.reporter.round()
            self.clock.advance(4.0)
        return list(self.api.writes)

    def read(self, path: str) -> Raw:
        found: Raw = json.loads(self.admin.get(path))
        return found

    def conditions(self, path: str, field: str = "conditions") -> dict[str, Raw]:
        return {one["type"]: one for one in self.read(path)["status"].get(field, ())}

    def described(self, *what: str) -> str:
        return self.sandbox.kubectl("--namespace", self.namespace, "describe", *what)


@pytest.fixture
def cluster(sandbox: Sandbox, namespace: str) -> Iterator[Cluster]:
    """A queue with a gang of two and a single pod that wait."""
    install(sandbox, "observe")
    install_scheduler(sandbox, example_queues=False)
    made = Cluster(sandbox, namespace)
    made.queue("status-team", gpus=4)
    made.group("gang", 2)
    made.pod("gang-0", "gang")
    made.pod("gang-1", "gang")
    made.group("single", 1)
    made.pod("single-0", "single")
    yield made
    made.session.close()
    for name in [name for name in made.queues.snapshot() if name.startswith("status-")]:
        # A queue is not deleted while it says that others hang below it.
        sandbox.admin.patch(paths.queue_status(name), {"status": {"childQueues": None}}, PatchType.MERGE)
        sandbox.admin.delete(f"{paths.queues()}/{name}")


def test_what_waits_is_told_once_and_shown_by_kubectl(cluster: Cluster) -> None:
    """Pods, groups and queue; a second pass writes nothing, and another leader only Events that are there already."""
    assert len(cluster.settled()) > 8
    assert cluster.reporter.failed == {}
    assert cluster.settled() == []
    cluster.start()
    assert {one.split("/")[-1] for one in cluster.settled()} == {"events"}

    pod = cluster.described("pod", "gang-0")
    assert "FailedScheduling" in pod
    assert "nodemend-scheduler" in pod
    held = cluster.conditions(paths.pod(cluster.namespace, "gang-1"))["PodScheduled"]
    assert (held["status"], held["reason"]) == ("False", "Unschedulable")
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in held["message"]
    group = cluster.described("podgroup.scheduling.run.ai", "gang")
    for words in (
        "UnschedulableOnNodePool",
        "Node Pool:",
        POOL,
        "1 Insufficient nvidia.com/gpu",
        "FailedScheduling",
    ):
        assert words in group
    queue = cluster.described("queue", "status-team")
    for words in ("Requested:", "nvidia.com/gpu:  3", "Cpu:             1500m"):
        assert words in queue


def test_a_queue_that_hangs_wrong_says_so(cluster: Cluster) -> None:
    """An orphan, a loop and a shortage, each with its own sentence; the loop stops nobody else."""
    cluster.queue("status-orphan", "status-nowhere")
    cluster.queue("status-a", "status-b")
    cluster.queue("status-b", "status-a")
    cluster.settled(gpus=1)
    orphan = cluster.conditions(f"{paths.queues()}/status-orphan")["Orphan"]
    assert (orphan["status"], orphan["reason"]) == ("True", "ParentNotFound")
    assert "status-a -> status-b -> status-a is a loop" in cluster.described("queue", "status-a")
    short = cluster.conditions(f"{paths.queues()}/status-team")["Shortage"]
    assert short["message"].startswith("its share is 1 GPUs of a quota of 4 GPUs: the pool has 1 GPUs")
    cluster.queue("status-nowhere")
    cluster.settled(gpus=4)
    assert cluster.conditions(f"{paths.queues()}/status-orphan")["Orphan"]["status"] == "False"
    assert cluster.read(f"{paths.queues()}/status-nowhere")["status"]["childQueues"] == ["status-orphan"]
    assert cluster.conditions(f"{paths.queues()}/status-team")["Shortage"]["status"] == "False"
    assert [one for one in cluster.settled(gpus=4) if "queues" in one] == []


def test_from_waiting_to_placed_to_stale(cluster: Cluster) -> None:
    """Conditions go, the start is noted, what is held is added up; a lost member is noted with its time."""
    cluster.settled()
    start = cluster.report(4)
    assert "gang" in " ".join(start.plan.started)
    cluster.reporter.took(start)
    for name in ("gang-0", "gang-1", "single-0"):
        cluster.bind(name)
    uid = cluster.read(paths.pod(cluster.namespace, "single-0"))["metadata"]["uid"]
    bound = Happened(
        pod=f"{cluster.namespace}/single-0", uid=uid, what="bound", node="status-n1", at=cluster.clock.now()
    )
    writes = cluster.settled(4, bound)
    assert cluster.reporter.failed == {}
    gang = cluster.read(paths.pod_group(cluster.namespace, "gang"))
    assert "schedulingConditions" not in gang["status"]
    assert gang["status"]["resourcesStatus"]["allocated"] == {
        "nvidia.com/gpu": "2",
        "cpu": "1",
        "memory": "2147483648",
    }
    assert "kai.scheduler/last-start-timestamp" in gang["metadata"]["annotations"]
    assert "Successfully assigned" in cluster.described("pod", "single-0")
    assert cluster.conditions(paths.pod(cluster.namespace, "single-0"))["PodScheduled"]["status"] == "True"
    assert (
        sum("/single" in one or "events" in one for one in writes) == 2
    )  # the condition goes, the Event comes

    cluster.sandbox.kubectl(
        "--namespace",
        cluster.namespace,
        "delete",
        "pod",
        "gang-1",
        "--force",
        "--grace-period=0",
        "--wait=true",
    )
    cluster.settled(4)
    noted = cluster.read(paths.pod_group(cluster.namespace, "gang"))["metadata"]["annotations"]
    assert STALE_SINCE in noted
    assert [job.stale_since is not None for job in cluster.report(4).snapshot.jobs] == [True, False]
    cluster.pod("gang-2", "gang")
    cluster.bind("gang-2")
    cluster.settled(4)
    noted = cluster.read(paths.pod_group(cluster.namespace, "gang"))["metadata"]["annotations"]
    assert STALE_SINCE not in noted


def test_the_server_keeps_a_bound_pods_word(cluster: Cluster) -> None:
    """A condition that was decided before the bind is refused: the patch holds for the pod as it was read."""
    cluster.follow()
    old = cluster.pods.snapshot()[f"{cluster.namespace}/single-0"]
    cluster.bind("single-0")
    wanted = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too late"}
    body = {
        "metadata": {"resourceVersion": old.metadata.resource_version},
        "status": {"conditions": [wanted]},
    }
    path = paths.pod_status(cluster.namespace, "single-0")
    with pytest.raises(Conflict):
        cluster.session.patch(path, body, PatchType.STRATEGIC)
    assert cluster.conditions(paths.pod(cluster.namespace, "single-0"))["PodScheduled"]["status"] == "True"
