"""The controller's local copies of the cluster: one store and one reflector for each resource it looks at. Shell.

They are kept warm on every replica, so that a new leader decides at once. `why_not_fresh` is asked before anything is
planned: on a copy that the server has not been heard about for too long, nothing is decided at all.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kube import paths
from kube.api import Api
from kube.clock import Clock
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.store import Change, Store, Stored
from kube.types import DaemonSet, Job, Lease, Node, Pod
from kube.watch import Reflector

# Bookmarks come about once a minute and a silent watch is given up after 90 s: beyond that, the copy may be any age.
STALE_AFTER_S = 120.0


class Stores:
    """Eight stores. `wake` is called, in a reflector's thread, after a change that a decision may depend on.

    What changes without meaning for any decision (a heartbeat, the renewal of a Lease, a pod of a node without incident)
    wakes nobody: the loop would otherwise turn with every kubelet's report. `watched` names the nodes whose pods matter.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.nodes: Store[Node] = Store()
        self.healths: Store[NodeHealth] = Store()
        self.remediations: Store[Remediation] = Store(index=lambda one: one.spec.node_name)
        self.policies: Store[RemediationPolicy] = Store()
        self.leases: Store[Lease] = Store()
        self.pods: Store[Pod] = Store(index=lambda pod: pod.spec.node_name)
        self.jobs: Store[Job] = Store()
        self.daemonsets: Store[DaemonSet] = Store()
        self.watched: frozenset[str] = frozenset()
        self._wake = wake
        self._shown: dict[str, tuple[Any, ...]] = {}
        for store in (self.healths, self.remediations, self.policies, self.jobs):
            store.subscribe(lambda _change, _obj: wake())
        self.nodes.subscribe(self._node_changed)
        self.pods.subscribe(self._pod_changed)

    def all(self) -> Mapping[str, Store[Any]]:
        """Name every store, for metrics and for saying which one is not in."""
        return {
            "nodes": self.nodes,
            "nodehealths": self.healths,
            "remediations": self.remediations,
            "remediationpolicies": self.policies,
            "leases": self.leases,
            "pods": self.pods,
            "jobs": self.jobs,
            "daemonsets": self.daemonsets,
        }

    def why_not_synced(self) -> str | None:
        missing = [name for name, store in self.all().items() if not store.synced]
        return f"not read yet: {', '.join(missing)}" if missing else None

    def why_not_fresh(self, now: float) -> str | None:
        """Say which resources the server was not heard about lately; `now` is on the monotonic clock."""
        stale = [name for name, store in self.all().items() if not store.fresh(now, STALE_AFTER_S)]
        return (
            f"the API server was not heard for {STALE_AFTER_S:g} s about {', '.join(stale)}"
            if stale
            else None
        )

    def offer(self, obj: Stored) -> None:
        """Take the server's answer to a request of ours, so that the next plan sees what was written."""
        match obj:
            case Node():
                self.nodes.offer(obj)
            case NodeHealth():
                self.healths.offer(obj)
            case Remediation():
                self.remediations.offer(obj)
            case RemediationPolicy():
                self.policies.offer(obj)
            case Job():
                self.jobs.offer(obj)

    def _node_changed(self, change: Change, node: Node | None) -> None:
        if node is None:
            self._wake()
            return
        name = node.metadata.name
        if change is Change.DELETED:
            self._shown.pop(name, None)
            self._wake()
            return
        shown = _shown(node)
        if self._shown.get(name) != shown:
            self._shown[name] = shown
            self._wake()

    def _pod_changed(self, _change: Change, pod: Pod | None) -> None:
        if pod is None or pod.spec.node_name in self.watched:
            self._wake()


def _shown(node: Node) -> tuple[Any, ...]:
    """Everything of a Node that decides, without its heartbeats; equal values mean that nothing happened."""
    meta = node.metadata
    return (
        meta.uid,
        meta.deletion_timestamp,
        meta.labels,
        meta.annotations,
        node.spec,
        node.status.node_info.boot_id,
        tuple((c.type, c.status, c.reason, c.message) for c in node.status.conditions),
    )


def reflectors(
    stores: Stores,
    api: Api,
    *,
    agents_namespace: str,
    jobs_namespace: str,
    clock: Clock,
    stop: threading.Event,
) -> list[Reflector[Any]]:
    """Make the reflectors; each needs a thread of its own."""
    wanted: list[tuple[str, type[Any], Store[Any]]] = [
        (paths.nodes(), Node, stores.nodes),
        (paths.node_healths(), NodeHealth, stores.healths),
        (paths.remediations(), Remediation, stores.remediations),
        (paths.policies(), RemediationPolicy, stores.policies),
        (paths.leases(agents_namespace), Lease, stores.leases),
        (paths.pods(), Pod, stores.pods),
        (paths.jobs(jobs_namespace), Job, stores.jobs),
        (paths.daemonsets(), DaemonSet, stores.daemonsets),
    ]
    return [Reflector(api, path, type_, store, clock=clock, stop=stop) for path, type_, store in wanted]
