"""Workloads: when the same program leaves the same XID on node after node, the program is suspected and not the nodes. Pure.

A node that was reset or rebooted for what a program did is lost for nothing, and so is the next one that the program's
controller starts it on. So where one owner's pods held the part on three nodes (`spec.workload.nodes`) within a day
(`spec.workload.within`) when it showed the same cause, and the parts show nothing else, what the last of them and all
further ones would be repaired for is held, and one page says so. Containment goes on: only drains and repairs wait.

Cause: an XID that the catalogue lays to programs, driver or firmware; all of a program's own (13, 31, 43, 45 and their like)
are one cause, since one broken program shows now this one and now that. What the driver then asks for (XID 154) has the
cause that it names. Never one of memory, links, bus or board: a job on a thousand GPUs meets three such faults in a day, and
no program causes them.

Owner: the controller of the pod, as long as the pod can be seen; that is written down in the Remediation. Where the pod was
gone before, its own name must do. Either less the endings that Kubernetes gives names (`workload_of`), so that a pod that is
gone has the owner of one that is there, and a CronJob's next Job is no other program. A wrong guess holds a repair, and a
person lets it go. Where pods of several owners share the part, none of them is suspected.

It has no memory of its own: it follows from NodeHealths and Remediations, and what an incident is held for stands in it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache

import msgspec

from checks.finding import Severity
from checks.recovery import CODE as RECOVERY_CODE
from checks.xid_catalog import Category, catalog
from checks.xid_recovery import RECOVERY_REASONS
from checks.xid_repeats import SEVERAL, workload_of
from controller.assess import Key, key, part_key
from controller.terms import Terms
from controller.view import Fleet
from kube.nodehealth import HealthFinding
from kube.remediation import HeldBy, Remediation, RemediationStatus, Suspect
from kube.types import Pod

APPLICATION = "XIDs of the application"
NODES_NAMED = 5
_XID = "GpuXidError"
_MAY_BE_CAUSED = (Category.APP, Category.DRIVER, Category.FIRMWARE)
_RECOVERIES = frozenset(reason.name for reason in RECOVERY_REASONS.values())
_HOLDERS_LIMIT = 20

_SEEN = re.compile(r"\bXID (\d{1,3})\b")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Whose doing a fault looks like. A drill is a drill's doing, and never stands beside a real one."""

    owner: str
    cause: str
    drill: bool


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """`seen`: where and when each was seen, oldest first. `on`: what each finding of a node looks like, by its key.

    A finding that no workload explains, or whose part shows something else beside it, is in neither.
    """

    seen: Mapping[Trace, tuple[tuple[datetime, str], ...]] = {}
    on: Mapping[str, Mapping[Key, Trace]] = {}

    def nodes(self, trace: Trace, after: datetime, until: datetime) -> list[str]:
        """Name the nodes on which it was seen in that time, in the order in which it came to them."""
        return list(dict.fromkeys(node for at, node in self.seen.get(trace, ()) if after < at <= until))


def traces(fleet: Fleet, since: datetime) -> Traces:
    """Read what every node shows and what incidents hold, as far as it was first seen after `since`."""
    incidents: dict[str, list[Remediation]] = {}
    for one in fleet.remediations.values():
        incidents.setdefault(one.spec.node_name, []).append(one)
    seen: dict[Trace, list[tuple[datetime, str]]] = {}
    on: dict[str, dict[Key, Trace]] = {}
    shown = {name for name, health in fleet.healths.items() if health.status.findings}
    for name in sorted(shown | incidents.keys()):
        found = _found(fleet, name, incidents.get(name, ()), since)
        if not any(finding.holder for finding in found.values()):
            continue
        owners = _owners(fleet, name, found.values(), incidents.get(name, ()))
        for finding_key, trace in _clean(found, owners):
            on.setdefault(name, {})[finding_key] = trace
            if found[finding_key].first_seen > since:
                seen.setdefault(trace, []).append((found[finding_key].first_seen, name))
    return Traces(seen={trace: tuple(sorted(places)) for trace, places in seen.items()}, on=on)


def suspect(
    found: Traces, terms: Terms, node: str, due: Sequence[HealthFinding], now: datetime
) -> Suspect | None:
    """Say which workload is suspected of all that is due on a node, or None: then its repair is the node's own affair."""
    mine = found.on.get(node, {})
    traced = [(finding, mine[key(finding)]) for finding in due if key(finding) in mine]
    if not terms.workload_nodes or len(traced) < len(due):
        return None
    suspects = {}
    for finding, trace in traced:
        after = max(filter(None, (finding.first_seen - terms.workload_within, terms.workload_acknowledged)))
        nodes = found.nodes(trace, after, finding.first_seen)
        if node in nodes and len(nodes) >= terms.workload_nodes:
            named = tuple(nodes[:NODES_NAMED])
            suspects[trace.owner] = Suspect(owner=trace.owner, cause=trace.cause, nodes=named, since=now)
    if not suspects or any(trace.owner not in suspects for _, trace in traced):
        return None
    return next(suspects[trace.owner] for _, trace in traced)


def with_holders(status: RemediationStatus, pods: Iterable[Pod]) -> RemediationStatus:
    """Write down who owns the pods that held the sick parts, as long as they can be seen."""
    wanted = {pod for finding in status.evidence for pod in pods_of(finding)}
    wanted -= {row.pod for row in status.holders}
    if not wanted or len(status.holders) >= _HOLDERS_LIMIT:
        return status
    found = sorted((_name(pod), _owner(pod)) for pod in pods if _name(pod) in wanted)
    if not found:
        return status
    rows = (*status.holders, *(HeldBy(pod=pod, owner=owner) for pod, owner in found))
    return msgspec.structs.replace(status, holders=rows[:_HOLDERS_LIMIT])


def pods_of(finding: HealthFinding) -> tuple[str, ...]:
    """Name the pods that held the part, as namespace/name; none where they are not all named."""
    if not finding.holder or SEVERAL in finding.holder:
        return ()
    return tuple(finding.holder.split(", "))


def cause_of(finding: HealthFinding) -> str:
    """Name what a workload may have done to show this finding; empty where it cannot have."""
    if finding.condition != _XID:
        return ""
    if finding.reason not in _RECOVERIES:
        return _by_reason().get(finding.reason, "")
    codes = [int(code) for code in _SEEN.findall(finding.detail) if int(code) != RECOVERY_CODE]
    causes = [_by_reason().get(catalog()[code].reason, "") if code in catalog() else "" for code in codes]
    return causes[0] if causes and all(causes) else ""


def hold_words(found: Suspect, within: timedelta) -> str:
    """Say why a repair is held, in words that stay the same while it is."""
    minutes = int(within.total_seconds()) // 60
    time = f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
    return (
        f"workload suspected: {found.owner} left {found.cause} on {', '.join(found.nodes)} within {time}, "
        "and their hardware shows nothing else"
    )


def _found(
    fleet: Fleet, name: str, incidents: Iterable[Remediation], since: datetime
) -> dict[Key, HealthFinding]:
    """Give what the node shows now, warnings too, and what its incidents were lately about."""
    latched = (f for one in incidents for f in (*one.spec.evidence, *one.status.evidence))
    found = {key(f): f for f in latched if f.first_seen > since}
    node, health = fleet.nodes.get(name), fleet.healths.get(name)
    if node is not None and health is not None and health.status.node_uid == node.metadata.uid:
        found.update((key(finding), finding) for finding in health.status.findings)
    return found


def _owners(
    fleet: Fleet, name: str, found: Iterable[HealthFinding], incidents: Iterable[Remediation]
) -> dict[str, str]:
    """Name the owner of every pod that held a part."""
    owners = {pod: workload_of(pod) for finding in found for pod in pods_of(finding)}
    owners.update((_name(pod), _owner(pod)) for pod in fleet.pods.get(name, ()) if _name(pod) in owners)
    owners.update((row.pod, row.owner) for one in incidents for row in one.status.holders)
    return owners


def _clean(found: Mapping[Key, HealthFinding], owners: Mapping[str, str]) -> Iterator[tuple[Key, Trace]]:
    """Give the findings that a workload explains, on parts where nothing else stands that it does not explain."""
    by_part: dict[str, list[tuple[Key, HealthFinding, str]]] = {}
    for finding_key, finding in found.items():
        suspects = {owners[pod] for pod in pods_of(finding)} if cause_of(finding) else set()
        owner = suspects.pop() if len(suspects) == 1 else ""
        by_part.setdefault(part_key(finding.part), []).append((finding_key, finding, owner))
    for rows in by_part.values():
        faults = {owner for _, finding, owner in rows if finding.severity == Severity.FAULT}
        for finding_key, finding, owner in rows:
            if owner and faults <= {owner}:
                yield finding_key, Trace(owner=owner, cause=cause_of(finding), drill=finding.drill)


def _owner(pod: Pod) -> str:
    owner = next((one.name for one in pod.metadata.owner_references if one.controller), pod.metadata.name)
    return workload_of(f"{pod.metadata.namespace}/{owner}")


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


@cache
def _by_reason() -> Mapping[str, str]:
    caused = (xid for xid in catalog().values() if xid.category in _MAY_BE_CAUSED)
    return {xid.reason: APPLICATION if xid.category is Category.APP else xid.reason for xid in caused}
