"""Breaker: when too many nodes of a pool turn ill within a short time, the observer is suspected and not the nodes. Pure.

It has no memory: whether a burst stands follows from when conditions turned and incidents opened, so it survives a restart
and an event of last week cannot trip it (NVIDIA/NVSentinel#450). A burst stands for as long as its nodes are ill, not just
for the window: waiting ten minutes proves nothing. It ends when its nodes recover, when people end incidents one by one, or
when a person writes `nodemend.dev/breaker-acknowledged` on the policy: they believe it. Only what the burst set off is held;
incidents from before, later ones, and every recovery go on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from checks.condition import Status
from controller.assess import Verdict, our_conditions
from controller.incident import is_open
from controller.terms import Terms
from kube.nodehealth import NodeHealth
from kube.remediation import Remediation
from kube.types import Node


class Turn(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A node turned ill: a condition became True or Unknown, or an incident opened."""

    at: datetime
    node: str


class Burst(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one pool that turned ill too close together; empty where nothing of the kind happened."""

    nodes: frozenset[str] = frozenset()
    since: datetime | None = None


NO_BURST = Burst()


def turns_of(
    node: Node,
    health: NodeHealth | None,
    verdict: Verdict,
    remediations: Iterable[Remediation],
    terms: Terms,
    now: datetime,
    *,
    in_hands: bool,
) -> list[Turn]:
    """Give when this node turned ill. `verdict` holds no finding that a person or a repair already dealt with.

    Left out: drills that are not real, and Unknown on a node that just joined (nobody looked at it yet) or that others or
    people took out (`in_hands`: they are at work on it).
    """
    if not (verdict.standing or verdict.unproven or verdict.unknown):
        ill: set[str] = set()
    else:
        faults = {f.condition for f in verdict.standing if terms.drills_are_real or not f.drill}
        ill = {*faults, *verdict.unproven, *verdict.unknown}
    turns = []
    for condition in our_conditions(node, health) if ill else ():
        at = condition.last_transition_time
        if condition.type not in ill or at is None:
            continue
        if condition.status != Status.TRUE and (in_hands or _young(node, at, terms.breaker_window)):
            continue
        turns.append(Turn(at=at, node=node.metadata.name))
    for one in remediations:
        drill = all(f.drill for f in one.spec.evidence) and not terms.drills_are_real
        recent = now - one.spec.opened_at < terms.breaker_window
        if not drill and (is_open(one) or recent):
            turns.append(Turn(at=one.spec.opened_at, node=node.metadata.name))
    return turns


def burst(turns: Iterable[Turn], pool_size: int, terms: Terms) -> Burst:
    """Find the nodes that turned ill within one window in greater number than the policy's threshold."""
    acknowledged = terms.breaker_acknowledged
    events = sorted(turn for turn in turns if acknowledged is None or turn.at > acknowledged)
    most = max(terms.breaker_threshold.of(pool_size), terms.breaker_min_nodes - 1)
    if len(events) <= most:
        return NO_BURST
    return _dense(events, terms.breaker_window, most)


def _dense(events: Sequence[Turn], window: timedelta, most: int) -> Burst:
    inside: Counter[str] = Counter()
    left = marked = 0
    members: set[str] = set()
    since: datetime | None = None
    for right, event in enumerate(events):
        inside[event.node] += 1
        while event.at - events[left].at > window:
            inside[events[left].node] -= 1
            if not inside[events[left].node]:
                del inside[events[left].node]
            left += 1
        if len(inside) > most:
            members.update(turn.node for turn in events[max(left, marked) : right + 1])
            marked = right + 1
            since = since or event.at
    return Burst(nodes=frozenset(members), since=since)


def _young(node: Node, at: datetime, window: timedelta) -> bool:
    created = node.metadata.creation_timestamp
    return created is not None and at - created < window
