"""Silence: the agents that nobody hears any more. Pure.

A silent agent's False turns Unknown, since nobody looks; its True stays and says when it was last confirmed, since losing
sight of a sick part does not heal it. Kubernetes itself does this for Ready and the kubelet's own pressure types (node
lifecycle controller), not for others'.
"""

from datetime import datetime, timedelta

from checks.condition import MESSAGE_LIMIT, Status
from controller.assess import Verdict, our_conditions
from controller.incident import clock
from controller.steps import Silence
from controller.survey import Survey
from kube.types import Node, NodeCondition

AGENT_SILENT = "AgentSilent"
STEPS_AT_ONCE = 100
_CONFIRMED = "last confirmed at"
# After the controller itself was deaf, two renewals of a Lease (30 s each) have to be possible before silence is believed.
_HEARING = timedelta(minutes=1)


def silence(looked: Survey) -> tuple[list[Silence], datetime | None]:
    """Give the nodes whose conditions are to be turned, and when the next agent would count as silent."""
    after = looked.fleet.settings.silent_after
    deaf_until = looked.fleet.heard_since and looked.fleet.heard_since + _HEARING
    steps: list[Silence] = []
    next_at: datetime | None = None
    for name, verdict in looked.verdicts.items():
        if verdict.confirmed_at is None:
            continue
        silent_at = verdict.confirmed_at + after
        if deaf_until is not None:
            silent_at = max(silent_at, deaf_until)
        if looked.now < silent_at:
            next_at = silent_at if next_at is None or silent_at < next_at else next_at
        elif step := _step(looked, looked.fleet.nodes[name], verdict):
            steps.append(step)
    return steps[:STEPS_AT_ONCE], next_at


def _step(looked: Survey, node: Node, verdict: Verdict) -> Silence | None:
    name = node.metadata.name
    turned = []
    for condition in our_conditions(node, looked.fleet.healths.get(name)):
        changed = _turned(condition, verdict.confirmed_at)
        if changed is not None:
            turned.append(changed)
    if not turned:
        return None
    return Silence(
        node=name,
        node_uid=node.metadata.uid,
        resource_version=node.metadata.resource_version,
        conditions=tuple(turned),
    )


def _turned(condition: NodeCondition, confirmed_at: datetime | None) -> tuple[str, str, str, str] | None:
    at = "never" if confirmed_at is None else clock(confirmed_at)
    if condition.status == Status.FALSE:
        return (condition.type, Status.UNKNOWN, AGENT_SILENT, f"the agent is silent; last heard at {at}")
    if condition.status == Status.TRUE and _CONFIRMED not in condition.message:
        ending = f" (the agent is silent; {_CONFIRMED} {at})"
        return (
            condition.type,
            Status.TRUE,
            condition.reason,
            condition.message[: MESSAGE_LIMIT - len(ending)] + ending,
        )
    return None
