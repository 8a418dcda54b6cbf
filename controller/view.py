"""Fleet: everything the controller's core may know, as one value made from the stores' snapshots. Pure.

The core never reads anything else: no clock, no API, no memory of its own. What the shell learnt from carrying out earlier
steps (a webhook's answer, a refused eviction, a failed request) comes back in here, as `deliveries`, `evictions` and
`failures`; losing those at a restart costs one early retry and nothing else.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.types import DaemonSet, Job, Lease, Node, Pod

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What controller.toml says to the core.

    `repairs` are the names a ladder may hold. `sinks` are the configured receivers with the waits before each try.
    Under `dry_run` every policy reads as Observe. `system_namespaces` hold our own pods: never drained, never waited for.
    """

    silent_after: timedelta = timedelta(minutes=5)
    evidence_max_age: timedelta = timedelta(minutes=5)
    retention: timedelta = timedelta(days=30)
    dry_run: bool = False
    repairs: frozenset[str] = frozenset({"reset-gpu", "reboot"})
    sinks: Mapping[str, Sequence[timedelta]] = {}
    system_namespaces: frozenset[str] = frozenset({"nodemend-system", "nodemend-repairs"})


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one try to send one message: the `attempt`-th, counted from 1. An empty `error` means accepted.

    `gone`: the receiver will never take it (410): no further try. `not_before`: the receiver's own Retry-After.
    """

    attempt: int
    at: datetime
    error: str = ""
    gone: bool = False
    not_before: datetime | None = None


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the last eviction of one pod. An empty `refused` means accepted; `tries` counts refusals in a row.

    `refused` is the server's reason without changing numbers: it is persisted and shown.
    """

    incident: str
    at: datetime
    refused: str = ""
    tries: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The last write for one node that failed, `tries` times in a row; it is tried again only after a pause.

    A Conflict is no failure: the newer object arrives by watch and the plan is made anew.
    """

    step: str
    at: datetime
    tries: int
    why: str


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """One instant. `pods` are by node name, `leases` (the agents') and `healths` by node name, `jobs` by Job name.

    `daemonsets` are keyed `namespace/name`. `deliveries` are keyed by notification id, `evictions` by pod UID, `failures`
    by node name. `heard_since` is since when the controller hears the API server without a break: an agent is not
    called silent for a time in which the controller could not have heard it.
    """

    nodes: Mapping[str, Node] = {}
    healths: Mapping[str, NodeHealth] = {}
    remediations: Mapping[str, Remediation] = {}
    policies: Mapping[str, RemediationPolicy] = {}
    leases: Mapping[str, Lease] = {}
    pods: Mapping[str, Sequence[Pod]] = {}
    pods_synced: bool = True
    jobs: Mapping[str, Job] = {}
    daemonsets: Mapping[str, DaemonSet] = {}
    deliveries: Mapping[str, Delivery] = {}
    evictions: Mapping[str, Eviction] = {}
    failures: Mapping[str, Failure] = {}
    heard_since: datetime | None = None
    settings: Settings = Settings()


def build(
    *,
    nodes: Iterable[Node],
    healths: Iterable[NodeHealth],
    remediations: Iterable[Remediation],
    policies: Iterable[RemediationPolicy],
    leases: Iterable[Lease],
    pods: Mapping[str, Sequence[Pod]] | Iterable[Pod],
    jobs: Iterable[Job],
    daemonsets: Iterable[DaemonSet],
    settings: Settings,
    pods_synced: bool = True,
    deliveries: Mapping[str, Delivery] | None = None,
    evictions: Mapping[str, Eviction] | None = None,
    failures: Mapping[str, Failure] | None = None,
    heard_since: datetime | None = None,
) -> Fleet:
    """Key the stores' objects as the core wants them.

    `pods` may be a mapping by node name (a view of an indexed store: only nodes with an incident are ever looked up) or
    all pods. `leases` and `jobs` must be of one namespace each, since they are keyed by name.
    """
    return Fleet(
        nodes={node.metadata.name: node for node in nodes},
        healths={health.metadata.name: health for health in healths},
        remediations={one.metadata.name: one for one in remediations},
        policies={policy.metadata.name: policy for policy in policies},
        leases={lease.metadata.name: lease for lease in leases},
        pods=pods if isinstance(pods, Mapping) else by_node(pods),
        pods_synced=pods_synced,
        jobs={job.metadata.name: job for job in jobs},
        daemonsets={f"{ds.metadata.namespace}/{ds.metadata.name}": ds for ds in daemonsets},
        deliveries=deliveries or {},
        evictions=evictions or {},
        failures=failures or {},
        heard_since=heard_since,
        settings=settings,
    )


def by_node(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group pods by the node they are bound to; unbound ones are left out."""
    grouped: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name:
            grouped.setdefault(pod.spec.node_name, []).append(pod)
    return grouped


def refreshed(
    fleet: Fleet,
    name: str,
    *,
    node: Node | None,
    health: NodeHealth | None,
    remediation: Remediation | None = None,
    pods: Sequence[Pod] | None = None,
) -> Fleet:
    """Put what was just read of the node `name` into the fleet, so that a guard can be asked again on it.

    None for `node` or `health` means that it was read and is not there; `pods` or `remediation` None means not read.
    """
    remediations = fleet.remediations
    if remediation is not None:
        remediations = {**remediations, remediation.metadata.name: remediation}
    return msgspec.structs.replace(
        fleet,
        nodes=_with(fleet.nodes, name, node),
        healths=_with(fleet.healths, name, health),
        remediations=remediations,
        pods=fleet.pods if pods is None else {name: pods},
    )


def _with(known: Mapping[str, T], name: str, read: T | None) -> Mapping[str, T]:
    others = {key: value for key, value in known.items() if key != name}
    return others if read is None else {**others, name: read}
