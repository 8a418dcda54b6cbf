"""The suspected workloads of a policy, as its status shows them, and the one page about each. Pure.

Who is suspected stands in the open Remediations; the policy's status adds since when, so that one suspicion is one page
under every leader, however many nodes come to it, and is resolved once no repair is held for it any more.
"""

import hashlib
from datetime import datetime

from controller import outbox
from controller.incident import is_open
from controller.survey import Survey
from kube.policy import Mode, RemediationPolicy, WorkloadStatus
from kube.remediation import WORKLOAD_ACKNOWLEDGED, Notification

_SHOWN_LIMIT = 50
_NODES_LIMIT = 20
_NAMES_LIMIT = 5
_ROWS_LIMIT = 200  # as for breakers: the schema holds 256


def suspected(looked: Survey, policy: RemediationPolicy) -> tuple[WorkloadStatus, ...]:
    """Give the workloads for which repairs under this policy are held, in a fixed order."""
    name = policy.metadata.name
    held: dict[tuple[str, str], set[str]] = {}
    since: dict[tuple[str, str], datetime] = {
        (one.owner, one.cause): one.since for one in policy.status.workloads
    }
    for one in looked.fleet.remediations.values():
        terms, suspect = looked.terms_on.get(one.spec.node_name), one.status.suspect
        if suspect is not None and is_open(one) and terms is not None and terms.name == name:
            held.setdefault((suspect.owner, suspect.cause), set()).add(one.spec.node_name)
    return tuple(
        WorkloadStatus(
            owner=owner,
            cause=cause,
            held=tuple(sorted(nodes)[:_NODES_LIMIT]),
            since=since.get((owner, cause), looked.now),
        )
        for (owner, cause), nodes in sorted(held.items())[:_SHOWN_LIMIT]
    )


def told_of_workloads(
    looked: Survey,
    policy: RemediationPolicy,
    now_suspected: tuple[WorkloadStatus, ...],
    rows: tuple[Notification, ...],
) -> tuple[Notification, ...]:
    """Page once for each, and resolve what is over. Under Observe nobody is paged, since nothing would be held."""
    terms, schedules = looked.terms[policy.metadata.name], looked.fleet.settings.sinks
    ids = {_owner(policy, one) for one in now_suspected}
    for one in now_suspected:
        silent = terms.mode is Mode.OBSERVE or len(rows) >= _ROWS_LIMIT
        if not silent and not outbox.was_told(rows, _owner(policy, one)):
            rows = outbox.page(
                rows, _owner(policy, one), _summary(policy, one), terms.sinks, schedules, looked.now
            )
    for one in policy.status.workloads:
        if _owner(policy, one) not in ids:
            over = f"workload {one.owner}: no repair is held for its {one.cause} any more"
            rows = outbox.resolve(rows, _owner(policy, one), over, schedules, looked.now)
    return rows


def _summary(policy: RemediationPolicy, one: WorkloadStatus) -> str:
    more = len(one.held) - _NAMES_LIMIT
    names = ", ".join(one.held[:_NAMES_LIMIT]) + (f" and {more} more" if more > 0 else "")
    return (
        f"workload suspected: {one.owner} leaves {one.cause} on one node after the other, and their hardware shows nothing "
        f"else; no drain or repair starts for it ({names}). Stop the workload, or let the repairs go: kubectl annotate "
        f"--overwrite remediationpolicy {policy.metadata.name} {WORKLOAD_ACKNOWLEDGED}=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    )


def _owner(policy: RemediationPolicy, one: WorkloadStatus) -> str:
    """Name one suspicion for its messages, the same under every leader."""
    words = f"{policy.metadata.name}|{policy.metadata.uid}|{one.owner}|{one.cause}|{one.since.isoformat()}"
    return f"workload-{hashlib.sha256(words.encode()).hexdigest()[:12]}"
