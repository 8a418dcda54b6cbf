"""An installation in FakeApi: what the server does by itself when a namespace or a CRD goes, and a controller that acts."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cli.uninstall_plan import ALL, CRD, PART_OF, PROGRAMS, RIGHTS, Kind
from controller import node_patch
from controller.incident import Mark, read_mark
from controller.steps import Restore
from kube import paths
from kube.api import NotFound, PatchType
from kube.remediation import CANCEL
from kube.timestamps import micro_time
from kube.types import Node
from tests.cli.objects import INCIDENT, NOW, Answer, Cluster, health, node, policy, quarantined, remediation
from tests.fakes import FakeApi, FakeClock

SYSTEM, REPAIRS = "nodemend-system", "nodemend-repairs"
LEASE = paths.lease(SYSTEM, "nodemend-controller")
INSIDE = ("pods", "configmaps", "jobs", "leases", "serviceaccounts", "roles", "rolebindings")
CRDS = ("nodehealths", "remediations", "remediationpolicies")
_GROUPS = {
    "jobs": "batch",
    "leases": "coordination.k8s.io",
    "roles": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
}


class InstalledApi(FakeApi):
    """Answers access reviews; empties a namespace and a kind that is deleted, as the server's own controllers do."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.denied: set[tuple[str, str]] = set()
        self.lets_go = True  # False: pods do not end

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes:
        if path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.denied
            return msgspec.json.encode({"status": {"allowed": allowed}})
        return super().create(path, body, query)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        answer = super().delete(path, body)
        self.follow(path)
        return answer

    def follow(self, path: str) -> None:
        """Let go what an object takes with it."""
        if not self.lets_go:
            return
        parent, _, name = path.rpartition("/")
        if parent == paths.namespaces():
            for plural in INSIDE:
                self._empty(paths.collection(_GROUPS.get(plural, ""), "v1", plural, name))
        if parent == CRD.collection() and name.endswith(".nodemend.dev"):
            self._empty(f"{paths.NODEMEND}/{name.partition('.')[0]}")
        if parent.endswith("/daemonsets"):
            self._empty(paths.pods(SYSTEM))

    def _empty(self, collection: str) -> None:
        for name in self.names(collection):
            self.remove(paths.member(collection, name))


class Leader:
    """A controller that leads: renews its Lease and closes what is cancelled, whenever somebody sleeps."""

    def __init__(self, api: FakeApi, clock: FakeClock) -> None:
        self._api = api
        self._clock = clock
        self.alive = True
        self.closes = True
        self.ends: dict[str, float] = {}  # incident: when its revalidation gives the node back
        self.next: list[Callable[[], object]] = []  # what happens in the next rounds, one each

    def tick(self) -> None:
        if not self.alive:
            return
        if self.next:
            self.next.pop(0)()
        try:
            lease = self._api.read(LEASE)
        except NotFound:
            return
        lease["spec"]["renewTime"] = micro_time(self._clock.now())
        self._write(LEASE, {"spec": lease["spec"]})
        for name in self._api.names(paths.remediations()) if self.closes else ():
            self._look_at(self._api.read(paths.remediation(name)))

    def _look_at(self, one: dict[str, Any]) -> None:
        name = one["metadata"]["name"]
        if CANCEL in (one["metadata"].get("annotations") or {}):
            phase = "Cancelled"
        elif self.ends.get(name, float("inf")) <= self._clock.monotonic():
            phase = "Returned"
        else:
            return
        if one["status"]["phase"] != phase:
            self._write(paths.remediation_status(name), {"status": {"phase": phase}})
            return  # the node comes with the next round
        node = msgspec.convert(self._api.read(paths.node(one["spec"]["nodeName"])), Node)
        mark = read_mark(node)
        step = Restore(
            node=node.metadata.name,
            node_uid=node.metadata.uid,
            resource_version=node.metadata.resource_version,
            incident=name,
            uncordon=isinstance(mark, Mark) and mark.cordoned and not mark.unschedulable_before,
            untaint=True,
        )
        if operations := node_patch.restore(step, node):
            FakeApi.patch(self._api, paths.node(node.metadata.name), operations, PatchType.JSON)
            self._api.requests.pop()  # not a request of the command

    def _write(self, path: str, body: dict[str, Any]) -> None:
        FakeApi.patch(self._api, path, body, PatchType.MERGE)
        self._api.requests.pop()  # not a request of the command


class Installation(Cluster):
    """A cluster with nodemend installed. Its clock lets the controller act while the command sleeps."""

    def __init__(self) -> None:
        self.installed = InstalledApi(FakeClock(now=NOW))
        super().__init__(self.installed)
        self.leader = Leader(self.api, self.clock)
        self.clock.clock = msgspec.structs.replace(self.clock.clock, sleep=self._sleep)
        for kind in ALL:
            self._add(kind, f"nodemend-{kind.plural[:4]}", SYSTEM, labels={PART_OF: "nodemend"})
        self._add(PROGRAMS[1], "nodemend-agent", SYSTEM)
        self._add(RIGHTS[0], "nodemend-agent", SYSTEM)
        for name in (SYSTEM, REPAIRS):
            self.api.add(paths.namespaces(), {"metadata": {"name": name, "labels": {PART_OF: "nodemend"}}})
        for plural in CRDS:
            self.add_crd(plural, "nodemend.dev")
        pod = {
            "name": "nodemend-agent-1",
            "labels": {"app.kubernetes.io/name": "nodemend-agent", PART_OF: "nodemend"},
        }
        self.api.add(paths.pods(SYSTEM), {"metadata": pod, "spec": {"nodeName": "gpu-1"}})

    def add_crd(self, plural: str, group: str) -> None:
        """Put a kind in, of ours or of others, labelled as ours in both cases."""
        metadata = {"name": f"{plural}.{group}", "labels": {PART_OF: "nodemend"}}
        self.api.add(CRD.collection(), {"metadata": metadata, "spec": {"group": group}})

    def lead(self) -> Leader:
        """Let a controller hold the Lease, renewed as long as it is alive."""
        spec = {"holderIdentity": "controller-a", "leaseDurationSeconds": 15, "leaseTransitions": 1}
        spec["renewTime"] = micro_time(self.clock.now())
        self.api.add(paths.leases(SYSTEM), {"metadata": {"name": "nodemend-controller"}, "spec": spec})
        return self.leader

    def node(self, name: str) -> dict[str, Any]:
        """Give a Node without its version."""
        held = self.api.read(paths.node(name))
        held["metadata"].pop("resourceVersion")
        return held

    def uninstall(self, *more: str) -> Answer:
        return self.run("uninstall", "--yes", *more)

    def _add(self, kind: Kind, name: str, namespace: str, **metadata: Any) -> None:
        where = namespace if kind.namespaced else ""
        if kind.plural == "jobs":
            metadata["labels"] = {"nodemend.dev/incident": "inc-9"}
        self.api.add(kind.collection(where), {"metadata": {"name": name, **metadata}})

    def _sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.leader.tick()


# One installation in use, and what must be left of it

RUNS = {"number": 1, "kind": "reboot", "job": f"reboot-{INCIDENT}-1", "startedAt": "2026-11-29T02:56:00Z"}
RUNS |= {"deadline": "2026-11-29T03:41:00Z", "submittedAt": "2026-11-29T02:56:01Z"}


def healthy(name: str) -> dict[str, Any]:
    """Make a Node with a condition of ours between two of others."""
    made = node(name)
    made["status"]["conditions"].append({"type": "TheirFault", "status": "True", "reason": "Theirs"})
    return made


def by_hand(name: str) -> dict[str, Any]:
    """Make a Node that a person cordoned, and that no agent ever saw."""
    made = node(name, unschedulable=True)
    made["status"]["conditions"] = made["status"]["conditions"][:1]
    return made


def installation(phase: str = "Escalated", **status: Any) -> Installation:
    """Install: gpu-1 in an incident, gpu-2 healthy, gpu-3 cordoned by hand."""
    nodes = [quarantined(), healthy("gpu-2"), by_hand("gpu-3")]
    return Installation().add(
        nodes=nodes,
        healths=[health(f"gpu-{n}", publishedConditions=["GpuXidError"]) for n in (1, 2)],
        remediations=[
            remediation(INCIDENT, "gpu-1", phase, **status),
            remediation("inc-0", "gpu-2", "Returned"),
        ],
        policies=[policy()],
    )


def is_clean(cluster: Installation) -> bool:
    """Look from outside: everything of ours gone, everything of others as it was."""
    first, second, third = (cluster.node(f"gpu-{n}") for n in (1, 2, 3))
    keys = [taint["key"] for taint in first["spec"]["taints"]]
    assert keys == ["example.com/theirs", "node.kubernetes.io/unschedulable"]
    assert first["metadata"]["annotations"] == {"example.com/note": "keep"}
    assert [c["type"] for c in first["status"]["conditions"]] == ["Ready"]
    assert [c["type"] for c in second["status"]["conditions"]] == ["Ready", "TheirFault"]
    assert third["spec"]["unschedulable"] is True
    left = [cluster.api.names(kind.collection()) for kind in (*PROGRAMS, *RIGHTS)]
    left += [cluster.api.names(path) for path in (paths.namespaces(), CRD.collection(), paths.remediations())]
    return not any(left)
