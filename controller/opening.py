"""Opening: from a fault that stands on a node without an incident to a new Remediation. Pure.

One incident a node: what else stands is attached to it (NVIDIA/NVSentinel#1025). Evidence that a closed incident dealt with
opens nothing. The new incident is advanced once before it is created, so that a fault which nothing holds is written down as
Quarantined at once, and its node is cordoned one request earlier.
"""

from controller.advance import Advance, move_of
from controller.assess import name_parts, needs_person, takes_node
from controller.incident import latched, name_of, occurrence_of, told
from controller.intake import case_of
from controller.steps import Open
from controller.survey import Survey
from kube.nodehealth import HealthFinding
from kube.remediation import Phase, Remediation, RemediationSpec, RemediationStatus
from kube.types import Node, ObjectMeta


def candidates(looked: Survey) -> list[Node]:
    """Give the nodes on which an incident is to be opened, those that lost the most first, then the longest ill."""
    found = []
    for name, verdict in looked.verdicts.items():
        if verdict.standing and name in looked.terms_on and looked.open_on(name) is None:
            leading = _leading(verdict.standing)
            found.append((not takes_node(leading), leading.first_seen, name))
    return [looked.fleet.nodes[name] for _, _, name in sorted(found)]


def open_incident(looked: Survey, node: Node) -> Advance:
    """Open the incident of one candidate."""
    name = node.metadata.name
    verdict = looked.verdicts[name]
    leading = _leading(verdict.standing)
    occurrence = occurrence_of(looked.remediations.get(name, ()), node.metadata.uid, leading)
    spec = RemediationSpec(
        node_name=name,
        node_uid=node.metadata.uid,
        provider_id=node.spec.provider_id,
        boot_id=node.status.node_info.boot_id,
        policy=looked.terms_on[name].name,
        evidence=latched(verdict.standing),
        opened_at=looked.now,
    )
    opened = f"opened on {name_parts(spec.evidence)}"
    new = Remediation(
        metadata=ObjectMeta(name=name_of(node.metadata.uid, leading, occurrence)),
        spec=spec,
        status=RemediationStatus(
            phase_since=looked.now,
            message=opened,
            evidence=spec.evidence,
            timeline=told((), looked.now, Phase.SUSPECTED, opened),
        ),
    )
    move = move_of(case_of(looked, new, node))
    step = Open(node=name, name=new.metadata.name, spec=spec, status=move.status)
    return Advance(
        steps=(step,), recheck_at=move.recheck_at, line=f"{move.status.phase}: {move.status.message}"
    )


def _leading(standing: tuple[HealthFinding, ...]) -> HealthFinding:
    """Give the finding that names the incident: the worst real one, so that a drill never stands for a fault."""
    return min(standing, key=lambda f: (f.drill, not takes_node(f), not needs_person(f), standing.index(f)))
