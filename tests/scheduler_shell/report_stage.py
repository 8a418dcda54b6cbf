"""A cluster for the reporter's tests: an API server in a dictionary, stores that follow it, and real cycles over them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.scheduler.cycle import run_cycle
from controller.scheduler.plan import Plan
from controller.scheduler.shell.report import Happened, Report, Reporter
from controller.scheduler.snapshot import Objects, Options, build
from kube import paths
from kube.nodehealth import NodeHealth
from kube.scheduling import PodGroup, Queue
from kube.store import Store
from kube.types import Node, Pod
from tests.fakes import FakeApi, FakeClock
from tests.scheduler.kube_words import node

OURS = "nodemend-scheduler"
NAMESPACE = "team"


class Stage:
    """`calm` and `may_write` may be set. `cycle` tells the reporter what a real cycle over the stores decides; `round` lets
    it write.
    """

    def __init__(self, *nodes: Node) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()
        self.calm = True
        self.may_write = True
        self.nodes = nodes or (node("n1", 4),)
        self.healths: tuple[NodeHealth, ...] = ()
        self.pods: Store[Pod] = Store()
        self.groups: Store[PodGroup] = Store()
        self.queues: Store[Queue] = Store()
        self.restart()

    def restart(self) -> None:
        """Let another leader begin, who knows only what stands there."""
        self.reporter = Reporter(
            api=self.api,
            pods=self.pods,
            pod_groups=self.groups,
            queues=self.queues,
            clock=self.clock.clock,
            instance="replica-1",
            scheduler_name=OURS,
            calm=lambda: self.calm,
            may_write=lambda: self.may_write,
        )

    # Objects

    def queue(self, name: str = "research", parent: str = "", gpus: float = -1, **resources: Any) -> None:
        """Add a Queue without bounds but its quota of GPUs."""
        free = {"quota": -1, "limit": -1}
        wanted = {"gpu": {**free, "quota": gpus}, "cpu": free, "memory": free, **resources}
        spec = {"parentQueue": parent} if parent else {}
        self.api.add(paths.queues(), {"metadata": {"name": name}, "spec": {**spec, "resources": wanted}})
        self.follow()

    def group(self, name: str, least: int = 1, queue: str = "research", **spec: Any) -> None:
        """Add a PodGroup."""
        raw = {"metadata": {"name": name}, "spec": {"queue": queue, "minMember": least, **spec}}
        self.api.add(paths.pod_groups(NAMESPACE), raw)
        self.follow()

    def pod(self, name: str, group: str, *, gpus: int = 1, on: str = "", **spec: Any) -> None:
        """Add a Pod of a group; `on` a node it runs."""
        requests = {"nvidia.com/gpu": str(gpus), "cpu": "500m", "memory": "1Gi"}
        raw = {
            "metadata": {"name": name, "annotations": {"pod-group-name": group}},
            "spec": {
                "schedulerName": OURS,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
                **({"nodeName": on} if on else {}),
                **spec,
            },
            "status": {"phase": "Running" if on else "Pending"},
        }
        self.api.add(paths.pods(NAMESPACE), raw)
        self.follow()

    def bind(self, name: str, to: str) -> None:
        """Let a pod run on a node, as a bind and its kubelet would."""
        pod = self.api.read(paths.pod(NAMESPACE, name))
        self.api.remove(paths.pod(NAMESPACE, name))
        pod["spec"]["nodeName"], pod["status"]["phase"] = to, "Running"
        self.api.add(paths.pods(NAMESPACE), pod)
        self.follow()

    def remove(self, name: str) -> None:
        """Let a pod vanish."""
        self.api.remove(paths.pod(NAMESPACE, name))
        self.follow()

    def follow(self) -> None:
        """Bring the stores up to date, without leaving a request behind."""
        _fill(self.pods, self.api, paths.pods(), Pod)
        _fill(self.groups, self.api, paths.collection("scheduling.run.ai", "v2alpha2", "podgroups"), PodGroup)
        _fill(self.queues, self.api, paths.queues(), Queue)

    # What is told

    def report(self, *happened: Happened, suspected: str = "", **changes: Any) -> Report:
        """Run a cycle over what the stores hold now."""
        objects = Objects(
            nodes=self.nodes,
            health=self.healths,
            pods=self.pods.values(),
            pod_groups=self.groups.values(),
            queues=self.queues.values(),
        )
        options = Options(scheduler_name=OURS, suspected=suspected)
        snapshot, problems = build(objects, self.clock.now(), options)
        waiting = {job.id: tuple(task.id for task in job.tasks if not task.node) for job in snapshot.jobs}
        made = Report(
            plan=run_cycle(snapshot),
            snapshot=snapshot,
            problems=problems,
            happened=happened,
            waiting_pods={job: pods for job, pods in waiting.items() if pods},
        )
        return msgspec.structs.replace(made, **changes)

    def cycle(self, *happened: Happened, **changes: Any) -> Plan:
        """Tell the reporter of a cycle."""
        made = self.report(*happened, **changes)
        self.reporter.took(made)
        return made.plan

    def round(self, after_s: float = 0.0) -> list[str]:
        """Let the reporter write after a while; give what it asked for: method and path below the version."""
        self.clock.advance(after_s)
        before = len(self.api.requests)
        self.reporter.round()
        self.follow()
        return [f"{one.method} {_short(one.path)}" for one in self.api.requests[before:]]

    def settled(self, **changes: Any) -> list[str]:
        """Tell of a cycle and write all there is, until nothing more comes: the words have stood for long enough."""
        self.cycle(**changes)
        asked = self.round()
        for _ in range(20):
            asked += self.round(after_s=6.0)
        return asked

    # What stands there

    def group_raw(self, name: str) -> dict[str, Any]:
        """Give a PodGroup as it is stored."""
        return self.api.read(paths.pod_group(NAMESPACE, name))

    def condition(self, name: str) -> dict[str, Any]:
        """Give the one scheduling condition of a group."""
        (found,) = self.group_raw(name)["status"]["schedulingConditions"]
        return dict(found)

    def pod_condition(self, name: str) -> dict[str, Any]:
        """Give a pod's PodScheduled; empty where there is none."""
        status = self.api.read(paths.pod(NAMESPACE, name))["status"]
        return next((one for one in status.get("conditions", ()) if one["type"] == "PodScheduled"), {})

    def queue_conditions(self, name: str) -> dict[str, dict[str, Any]]:
        """Give the conditions of a queue by type."""
        status = self.api.read(f"{paths.queues()}/{name}").get("status", {})
        return {one["type"]: one for one in status.get("conditions", ())}

    def events(self) -> list[dict[str, Any]]:
        """Give all Events, in order of their names."""
        path = paths.events(NAMESPACE)
        return [self.api.read(f"{path}/{name}") for name in self.api.names(path)]


def said(event: Mapping[str, Any]) -> str:
    """Give an Event in short: about what, its type and reason."""
    about = event["regarding"]
    return f"{about['kind']} {about['name']}: {event['type']} {event['reason']}"


def _short(path: str) -> str:
    words = path.split("/")
    return "/".join(words[words.index("namespaces") + 2 :] if "namespaces" in words else words[4:])


def _fill(store: Store[Any], api: FakeApi, path: str, kind: type[Any]) -> None:
    asked = len(api.requests)
    raw = msgspec.json.decode(api.get(path))
    del api.requests[asked:]
    held = {(one.metadata.namespace, one.metadata.name): one for one in store.values()}
    items = []
    for item in raw["items"]:
        made = msgspec.convert(item, kind, strict=False)
        before = held.get((made.metadata.namespace, made.metadata.name))
        same = before is not None and before.metadata.resource_version == made.metadata.resource_version
        items.append(before if same else made)
    store.replace(items, raw["metadata"]["resourceVersion"], 0.0)
