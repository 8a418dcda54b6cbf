"""A cluster in a dictionary with a grouper on it, turned step by step: no thread, and time moves when told to."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import msgspec

from controller.scheduler.grouper.spec import Terms
from controller.scheduler.shell.grouping import Grouping
from controller.scheduler.snapshot import POD_GROUP
from kube import paths
from kube.api import NotFound
from kube.scheduling import PodGroup, PriorityClass
from kube.store import Store
from kube.types import Pod
from tests.fakes import FakeApi, FakeClock, Request

Raw = dict[str, Any]
NAME = "nodemend-scheduler"
NAMESPACE = "jobs"
GROUPS = paths.collection("scheduling.run.ai", "v2alpha2", "podgroups", NAMESPACE)
KINDS: dict[str, dict[str, str]] = {
    "v1": {"Pod": "pods"},
    "batch/v1": {"Job": "jobs", "CronJob": "cronjobs"},
    "apps/v1": {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"},
    "jobset.x-k8s.io/v1alpha2": {"JobSet": "jobsets"},
    "kubeflow.org/v1": {"MPIJob": "mpijobs"},
    "ray.io/v1": {"RayJob": "rayjobs", "RayCluster": "rayclusters"},
    "example.com/v1": {"Widget": "widgets"},
}
"""What the server serves, all with a namespace."""


class ServingApi(FakeApi):
    """A FakeApi that tells which kinds it serves."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock.clock)
        self.kinds = {version: dict(kinds) for version, kinds in KINDS.items()}

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        words = path.strip("/").split("/")
        if (words[0] == "api" and len(words) > 2) or (words[0] == "apis" and len(words) > 3):
            return super().get(path, query)
        request = Request(method="GET", path=path)
        return self._serve(request, lambda: self._discovered("/".join(words[1:]), len(words)))

    def _discovered(self, name: str, depth: int) -> Raw:
        if name in self.kinds and (depth == 3 or name == "v1"):
            rows = [
                {"name": plural, "kind": kind, "namespaced": True}
                for kind, plural in self.kinds[name].items()
            ]
            return {"kind": "APIResourceList", "resources": [*rows, {"name": "x/status", "kind": "X"}]}
        found = [{"groupVersion": version} for version in self.kinds if version.startswith(f"{name}/")]
        if not found:
            raise NotFound(f"{name} is not served", code=404)
        return {"kind": "APIGroup", "preferredVersion": found[0], "versions": found}


class Inline(Executor):
    """Runs at once what it is given, in the thread that asks."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class Scene:
    """`turn` brings the stores up to date and lets the grouper do all there is to do."""

    def __init__(self, terms: Terms | None = None) -> None:
        self.clock = FakeClock()
        self.api = ServingApi(self.clock)
        self.pods: Store[Pod] = Store()
        self.pod_groups: Store[PodGroup] = Store()
        self.classes: Store[PriorityClass] = Store()
        self.leads = True
        self.is_calm = True
        self.hears_groups = True
        self.wakes = 0
        self.grouping = Grouping(
            pods=self.pods,
            pod_groups=self.pod_groups,
            priority_classes=self.classes,
            reads=self.api,
            writes=self.api,
            terms=terms or Terms(),
            scheduler_name=NAME,
            clock=self.clock.clock,
            wake=self._woken,
            may_write=lambda: self.leads,
            calm=lambda: self.is_calm,
            hands=Inline(),
        )
        self.pods.replace((), "1", 0.0)
        self.pod_groups.replace((), "1", 0.0)
        self.classes.replace((), "1", 0.0)

    def _woken(self) -> None:
        self.wakes += 1

    # What there is

    def pod(self, name: str, owner: Raw | None = None, *, labels: Raw | None = None, **more: Any) -> Raw:
        """Put in a pod that waits; `notes` are its annotations, everything else its spec."""
        notes, status = more.pop("notes", {}), more.pop("status", {"phase": "Pending"})
        references = [] if owner is None else [reference_to(owner)]
        metadata: Raw = {"name": name, "labels": labels or {}, "annotations": notes}
        if references:
            metadata["ownerReferences"] = references
        spec = {"schedulerName": NAME, "containers": [{"name": "main"}]} | more
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
        return self.api.add(paths.pods(NAMESPACE), body)

    def owner(self, api_version: str, kind: str, name: str, owner: Raw | None = None, **more: Any) -> Raw:
        """Put in an owner; `labels` and `notes` are its metadata's, everything else its spec."""
        metadata: Raw = {"name": name, "labels": more.pop("labels", {}), "annotations": more.pop("notes", {})}
        if owner is not None:
            metadata["ownerReferences"] = [reference_to(owner)]
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": more}
        return self.api.add(self.path(api_version, kind), body)

    def path(self, api_version: str, kind: str, name: str = "") -> str:
        group, slash, version = api_version.partition("/")
        group, version = (group, version) if slash else ("", group)
        plural = KINDS[api_version][kind]
        collection = paths.collection(group, version, plural, NAMESPACE)
        return paths.member(collection, name) if name else collection

    def change(self, path: str, change: Callable[[Raw], None]) -> None:
        """Change an object as somebody else would."""
        held = self.api.read(path)
        change(held)
        self.api.replace(path, held)
        self.api.requests.pop()

    def bind(self, name: str) -> None:
        """Bind a pod as the loop does: with its group in an annotation."""
        group = self.group_of(name).partition("/")[2]

        def bound(pod: Raw) -> None:
            pod["spec"]["nodeName"] = "gpu-1"
            pod["metadata"]["annotations"] = {POD_GROUP: group}

        self.change(paths.pod(NAMESPACE, name), bound)

    # What happens

    def turn(self, after_s: float = 0.0) -> None:
        self.clock.advance(after_s)
        for _ in range(500):
            before = len(self.api.requests)
            self.hear()
            while self.grouping.turn():
                pass
            if len(self.api.requests) == before:
                return
        raise AssertionError("the grouper never comes to rest")

    def hear(self) -> None:
        """Bring the stores up to date."""
        self._watch(paths.pods(NAMESPACE), self.pods, Pod)
        if self.hears_groups:
            self._watch(GROUPS, self.pod_groups, PodGroup)

    def _watch(self, path: str, store: Store[Any], type_: type[Any]) -> None:
        names = self.api.names(path)
        for name in names:
            obj = msgspec.convert(self.api.read(paths.member(path, name)), type_)
            held = store.get(f"{NAMESPACE}/{name}")
            if held is None or held.metadata.resource_version != obj.metadata.resource_version:
                store.apply("MODIFIED", obj, self.clock.monotonic())
        for key, held in store.snapshot().items():
            if held.metadata.name not in names:
                version = str(store.heard_version + 1000)
                meta = msgspec.structs.replace(held.metadata, resource_version=version)
                store.apply("DELETED", msgspec.structs.replace(held, metadata=meta), self.clock.monotonic())
                assert store.get(key) is None

    # What is seen

    def group_of(self, pod: str) -> str:
        return self.grouping.view().members[f"{NAMESPACE}/{pod}"].group

    def sub_group_of(self, pod: str) -> str:
        return self.grouping.view().members[f"{NAMESPACE}/{pod}"].sub_group

    def problem_of(self, pod: str) -> str:
        return self.grouping.view().problems.get(f"{NAMESPACE}/{pod}", "")

    def written(self) -> dict[str, Raw]:
        """Give every PodGroup that the server has."""
        return {name: self.api.read(paths.member(GROUPS, name)) for name in self.api.names(GROUPS)}

    def only_group(self) -> Raw:
        (found,) = self.written().values()
        return found

    def reads_of(self, path: str) -> int:
        return sum(1 for one in self.api.requests if one.method == "GET" and one.path == path)

    def writes_to(self, part: str) -> list[Request]:
        return [one for one in self.api.writes() if part in one.path]


def reference_to(owner: Raw) -> Raw:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
