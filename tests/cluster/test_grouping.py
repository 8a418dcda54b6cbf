"""The grouper on the real API server, under the scheduler's own account: workloads of the real controllers get groups."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from controller.scheduler.grouper.spec import Terms
from controller.scheduler.pod_tasks import SUB_GROUP
from controller.scheduler.shell.group_bodies import collection
from controller.scheduler.shell.grouping import Grouping
from controller.scheduler.snapshot import POD_GROUP
from kube import paths
from kube.clock import SYSTEM
from kube.scheduling import PodGroup, PriorityClass
from kube.session import Session, connect
from kube.store import Store
from kube.types import Pod
from kube.watch import Reflector
from sandbox.actors import SYSTEM_NAMESPACE
from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.fakes import wait_until

Raw = dict[str, Any]
NAME = "nodemend-scheduler"
WAIT_S = 30.0
OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Running:
    """A grouper with stores of its own on one namespace."""

    def __init__(self, sandbox: Sandbox, namespace: str) -> None:
        self.sandbox = sandbox
        self.namespace = namespace
        self.api = self._session()
        self.pods: Store[Pod] = Store()
        self.pod_groups: Store[PodGroup] = Store()
        classes: Store[PriorityClass] = Store()
        self.grouping = Grouping(
            pods=self.pods,
            pod_groups=self.pod_groups,
            priority_classes=classes,
            reads=self.api,
            writes=self.api,
            terms=Terms(),
            scheduler_name=NAME,
            clock=SYSTEM,
            wake=lambda: None,
            may_write=lambda: True,
            calm=lambda: True,
        )
        self.stop_watching = threading.Event()
        wanted: tuple[tuple[str, type[Any], Store[Any]], ...] = (
            (paths.pods(namespace), Pod, self.pods),
            (collection(namespace), PodGroup, self.pod_groups),
            (paths.collection("scheduling.k8s.io", "v1", "priorityclasses"), PriorityClass, classes),
        )
        self.watching = self._session()
        self.threads = [
            threading.Thread(
                target=Reflector(
                    self.watching, path, type_, store, clock=SYSTEM, stop=self.stop_watching
                ).run,
                daemon=True,
            )
            for path, type_, store in wanted
        ]

    def _session(self) -> Session:
        return connect(
            server=self.sandbox.server,
            token_file=self.sandbox.token_file(SYSTEM_NAMESPACE, NAME),
            ca_file=self.sandbox.ca_file,
            user_agent="grouping-test",
        )

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        self.grouping.start()

    def stop(self) -> None:
        self.grouping.stop(10.0)
        self.stop_watching.set()
        self.watching.close()
        for thread in self.threads:
            thread.join(10.0)
        self.api.close()

    def create(self, body: Raw) -> None:
        self.sandbox.kubectl("--namespace", self.namespace, "create", "-f", "-", stdin=json.dumps(body))

    def groups(self) -> list[Raw]:
        raw = msgspec.json.decode(self.sandbox.admin.get(collection(self.namespace)))
        return list(raw["items"])

    def groups_of(self, kind: str) -> list[Raw]:
        return [one for one in self.groups() if one["metadata"]["ownerReferences"][0]["kind"] == kind]

    def owners_of(self, kind: str) -> list[str]:
        return [_owner_name(one) for one in self.groups_of(kind)]

    def await_groups(self, kind: str, count: int) -> list[Raw]:
        wait_until(lambda: len(self.groups_of(kind)) == count, WAIT_S)
        return self.groups_of(kind)


def _owner_name(group: Raw) -> str:
    return str(group["metadata"]["ownerReferences"][0]["name"])


@pytest.fixture
def running(sandbox: Sandbox, namespace: str) -> Iterator[Running]:
    install(sandbox)
    install_scheduler(sandbox)
    one = Running(sandbox, namespace)
    one.start()
    yield one
    one.stop()


def _template(**labels: str) -> Raw:
    spec = {
        "schedulerName": NAME,
        "restartPolicy": "Always",
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
    }
    return {"metadata": {"labels": labels}, "spec": spec}


def _workload(api_version: str, kind: str, name: str, replicas: int) -> Raw:
    spec: Raw = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": _template(app=name),
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    labels = {"kai.scheduler/queue": f"of-{name}"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _job(name: str, parallelism: int, minimum: int) -> Raw:
    template = _template()
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"kai.scheduler/batch-min-member": str(minimum)}},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": template},
    }


def test_workloads_of_the_real_controllers_get_the_groups_of_their_kinds(running: Running) -> None:
    running.create(_job("train", 8, 6))
    running.create(_workload("apps/v1", "Deployment", "web", 3))
    running.create(_workload("apps/v1", "StatefulSet", "db", 3))
    running.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, **_bare()})
    (job,) = running.await_groups("Job", 1)
    assert job["spec"]["minMember"] == 6
    assert job["spec"]["priorityClassName"] == "train"
    pods = running.await_groups("Pod", 4)
    of_web = [one for one in pods if one["spec"]["queue"] == "of-web"]
    assert len(of_web) == 3
    assert {one["spec"]["priorityClassName"] for one in of_web} == {"inference"}
    (stateful,) = running.await_groups("StatefulSet", 1)
    assert stateful["spec"]["minMember"] == 1
    wait_until(lambda: len(running.grouping.view().members) == 8 + 3 + 3 + 1, WAIT_S)
    wait_until(lambda: not running.grouping.view().made, WAIT_S)
    assert not running.grouping.view().problems


def test_a_group_goes_with_its_owner_and_comes_back_only_for_pods_that_stay(running: Running) -> None:
    running.create(_job("gone", 2, 2))
    running.create(_job("stays", 2, 2))
    running.await_groups("Job", 2)
    running.sandbox.kubectl("--namespace", running.namespace, "delete", "job", "gone", "--cascade=background")
    # For a second the Job is still known, and its group may come once more before Kubernetes takes that one too.
    wait_until(lambda: running.owners_of("Job") == ["stays"], WAIT_S)
    (left,) = [one for one in running.groups_of("Job") if _owner_name(one) == "stays"]
    running.sandbox.admin.delete(paths.member(collection(running.namespace), left["metadata"]["name"]))
    wait_until(
        lambda: (
            [one["metadata"]["uid"] for one in running.groups_of("Job")]
            not in ([], [left["metadata"]["uid"]])
        ),
        WAIT_S,
    )
    wait_until(lambda: len(running.grouping.view().members) == 2, WAIT_S)
    wait_until(lambda: [_owner_name(one) for one in running.groups()] == ["stays"], WAIT_S)


def test_pods_of_a_job_set_are_labelled_through_the_schedulers_own_admission_policy(
    running: Running,
) -> None:
    _define(running.sandbox, "jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    jobs = [{"name": "sim", "replicas": 2, "template": {"spec": {"parallelism": 1}}}]
    owner = _owner(running, "jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", {"replicatedJobs": jobs})
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "sim", "jobset.sigs.k8s.io/job-index": "1"}
    metadata = {"name": "sim-1-0", "labels": labels, "ownerReferences": [owner]}
    running.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **_bare()})
    (group,) = running.await_groups("JobSet", 1)
    assert [one["name"] for one in group["spec"]["subGroups"]] == ["sim", "sim-replica-0", "sim-replica-1"]

    def labelled() -> bool:
        pod = msgspec.json.decode(running.sandbox.admin.get(paths.pod(running.namespace, "sim-1-0")))
        return bool(pod["metadata"]["labels"].get(SUB_GROUP) == "sim-replica-1")

    wait_until(labelled, WAIT_S)


def test_a_kind_that_the_account_may_not_read_is_grouped_by_its_reference(running: Running) -> None:
    _define(running.sandbox, "grouping.example.com", "v1", "Widget", "widgets")
    owner = _owner(running, "grouping.example.com/v1", "Widget", "widgets", {})
    metadata = {"name": "of-widget", "ownerReferences": [owner], "labels": {"kai.scheduler/queue": "q"}}
    running.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **_bare()})
    (group,) = running.await_groups("Widget", 1)
    assert group["spec"]["queue"] == "q"
    assert running.grouping.view().problems == {}


def test_a_pod_that_was_bound_before_its_group_was_written_gets_it_after_all(running: Running) -> None:
    running.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "early"}, **_bare()})
    (group,) = running.await_groups("Pod", 1)
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    name = group["metadata"]["name"]
    binding = {"metadata": {"name": "early", "annotations": {POD_GROUP: name}}, "target": target}
    running.sandbox.admin.create(f"{paths.pod(running.namespace, 'early')}/binding", binding)
    running.sandbox.admin.delete(paths.member(collection(running.namespace), name))
    wait_until(
        lambda: [one["metadata"]["uid"] for one in running.groups()] not in ([], [group["metadata"]["uid"]]),
        WAIT_S,
    )


def _bare() -> Raw:
    return {"spec": _template()["spec"]}


def _define(sandbox: Sandbox, group: str, version: str, kind: str, plural: str) -> None:
    """Make a kind without any rule, once."""
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN_SCHEMA}}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [served],
        },
    }
    sandbox.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    sandbox.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"crd/{plural}.{group}")


def _owner(running: Running, api_version: str, kind: str, plural: str, spec: Raw) -> Raw:
    """Make an owner and give the reference to it."""
    group, _, version = api_version.partition("/")
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "owner"}, "spec": spec}
    path = paths.collection(group, version, plural, running.namespace)
    made = msgspec.json.decode(running.sandbox.admin.create(path, body))
    return {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": made["metadata"]["uid"]}
