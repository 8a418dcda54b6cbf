"""Intake: what is new about an open incident since it was last saved, taken into its working status. Pure.

Deliveries of messages, further evidence, other automations' marks, and the sight of our own mark on the Node. None of it is
a decision; it is saved together with the next one.
"""

import msgspec

from controller import outbox
from controller.assess import name_parts
from controller.case import Case
from controller.incident import Mark, has_taint, holds, read_mark, told, with_evidence
from controller.ownership import with_marker
from controller.survey import Survey
from controller.terms import Terms
from controller.view import Fleet
from controller.workloads import hold_words, suspect, with_holders
from kube.nodehealth import HealthFinding
from kube.remediation import (
    WORKLOAD_ACKNOWLEDGED,
    NodeBefore,
    Phase,
    Remediation,
    RemediationStatus,
)
from kube.types import Node

# From Revalidating on, and with a person, there is no repair left to hold.
_BEFORE_PROOF = frozenset(
    {Phase.SUSPECTED, Phase.WAITING, Phase.QUARANTINED, Phase.DRAINING, Phase.REPAIRING}
)

# What is in force where no policy is: nothing is permitted, and recoveries run with the defaults.
UNGOVERNED = Terms(name="")


def case_of(looked: Survey, remediation: Remediation, node: Node) -> Case:
    """Put together everything that a phase may look at."""
    name = node.metadata.name
    verdict = looked.verdicts[name]
    status = with_deliveries(remediation.status, looked.fleet)
    status = msgspec.structs.replace(
        status,
        evidence=status.evidence or remediation.spec.evidence,
        phase_since=status.phase_since or remediation.spec.opened_at,
    )
    status, attached = with_evidence(status, verdict.standing)
    if attached:
        line = f"further evidence: {name_parts(attached)}"
        status = msgspec.structs.replace(
            status, timeline=told(status.timeline, looked.now, status.phase, line)
        )
    status = with_marker(status, looked.owners.get(name), looked.now)
    terms = looked.terms_on.get(name, UNGOVERNED)
    live = tuple(f for f in verdict.standing if terms.drills_are_real or not f.drill)
    due = tuple(f for f in live if looked.now >= f.first_seen + terms.wait_for(f))
    status = with_holders(status, looked.fleet.pods.get(name, ()))
    status = _with_suspect(status, remediation, looked, terms, due)
    return Case(
        survey=looked,
        remediation=remediation,
        status=_with_mark(status, remediation, node, looked),
        node=node,
        verdict=verdict,
        terms=terms,
        ungoverned=looked.left_alone.get(name, ""),
        pool=looked.pool_on(name),
        live=live,
        due=due,
    )


def with_deliveries(status: RemediationStatus, fleet: Fleet) -> RemediationStatus:
    """Write down what became of the incident's messages."""
    rows = outbox.settle(status.notifications, fleet.deliveries, fleet.settings.sinks)
    return status if rows == status.notifications else msgspec.structs.replace(status, notifications=rows)


def _with_suspect(
    status: RemediationStatus,
    remediation: Remediation,
    looked: Survey,
    terms: Terms,
    due: tuple[HealthFinding, ...],
) -> RemediationStatus:
    """Note the workload that is suspected of this incident, from then on until a person says otherwise."""
    if status.phase not in _BEFORE_PROOF:
        return status
    held, said = status.suspect, terms.workload_acknowledged
    acknowledged = WORKLOAD_ACKNOWLEDGED in remediation.metadata.annotations
    if held is not None and (acknowledged or (said is not None and held.since <= said)):
        line = f"a person says that {held.owner} is not at fault"
        timeline = told(status.timeline, looked.now, status.phase, line)
        return msgspec.structs.replace(status, suspect=None, timeline=timeline)
    if held is not None or acknowledged:
        return status
    found = suspect(looked.traces, terms, remediation.spec.node_name, due, looked.now)
    if found is None:
        return status
    line = hold_words(found, terms.workload_within)
    return msgspec.structs.replace(
        status, suspect=found, timeline=told(status.timeline, looked.now, status.phase, line)
    )


def _with_mark(
    status: RemediationStatus, remediation: Remediation, node: Node, looked: Survey
) -> RemediationStatus:
    """Note the first sight of our change on the Node.

    The mark says what the Node looked like before, since it was written in the same request. Where somebody took the mark
    off at once, our taint still tells that the change was made.
    """
    if status.before is not None and status.before.applied_at is not None:
        return status
    name = remediation.metadata.name
    mark = read_mark(node)
    if isinstance(mark, Mark) and holds(node, name):
        found = NodeBefore(
            unschedulable=mark.unschedulable_before, cordoned=mark.cordoned, tainted=mark.tainted, at=mark.at
        )
    elif status.before is not None and has_taint(node, name):
        found = status.before
    else:
        return status
    applied = msgspec.structs.replace(
        found, applied_at=looked.now, applied_version=node.metadata.resource_version
    )
    return msgspec.structs.replace(status, before=applied)
