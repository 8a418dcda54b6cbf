"""Whether so many nodes turned ill at once that their observer is suspected, by the controller's own breaker. Pure.

The controller and the scheduler ask the same functions (`controller.terms`, `controller.assess`, `controller.breaker`) about
the same objects, so both stop and go on together: what the controller does not drain for, the scheduler evicts nobody for.
While the breaker is open, verdicts stand as they are: an ill part takes nothing new, what ran goes on, and a lost GPU
(effect node-out) is no capacity; only nobody is evicted. GPU nodes that no policy governs are one pool more, with the
breaker's defaults: a cluster without the controller has an observer that may fail all the same. For those a person who
believes what is reported makes a RemediationPolicy (mode Observe will do) and writes the acknowledgement on it.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from checks.condition import Status
from controller import terms as terms_
from controller.assess import assess_in, our_conditions
from controller.breaker import Turn, burst
from controller.budget import Pool, PoolKey
from controller.ownership import why_not_act
from controller.scheduler.unseen import Unseen
from controller.survey import turns_on, without_ended
from controller.terms import Terms
from controller.view import Fleet
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.types import Node

UNGOVERNED: Final = "(no policy)"
"""The pool of GPU nodes that no policy governs."""
_GPU_RESOURCE: Final = "nvidia.com/"
_DEFAULTS: Final = Terms(name="")


def suspected(fleet: Fleet, now: datetime, pool: Collection[str] | None = None) -> str:
    """Give the breaker's words where it is open, "" = closed.

    `fleet` holds all nodes, since the breaker counts by the policies' pools; only bursts that hold a node of `pool` (names;
    None = all) count. Pods, Jobs and what was sent are not looked at.
    """
    read = sorted(
        (terms_.read(policy, fleet.settings) for policy in fleet.policies.values()),
        key=lambda one: (-one.priority, one.name),
    )
    incidents: dict[str, list[Remediation]] = {}
    for one in fleet.remediations.values():
        incidents.setdefault(one.spec.node_name, []).append(one)
    sizes: dict[PoolKey, int] = {}
    terms_of: dict[PoolKey, Terms] = {}
    turns: dict[PoolKey, list[Turn]] = {}
    for name, node in fleet.nodes.items():
        terms, _ = terms_.choose(node, read)
        if terms is None and not _has_gpus(node, fleet):
            continue
        key = ("", UNGOVERNED) if terms is None else (terms.name, terms.pool_of(node))
        sizes[key] = sizes.get(key, 0) + 1
        terms_of[key] = terms or _DEFAULTS
        turned = _turns(fleet, node, incidents.get(name, ()), terms_of[key], now)
        if turned:
            turns.setdefault(key, []).extend(turned)
    for key, turned in sorted(turns.items()):
        found = burst(turned, sizes[key], terms_of[key])
        if found.nodes and (pool is None or not found.nodes.isdisjoint(pool)):
            return Pool(key, terms_of[key]).breaker_hold().why
    return ""


def _turns(
    fleet: Fleet, node: Node, incidents: Collection[Remediation], terms: Terms, now: datetime
) -> list[Turn]:
    """Give when a node turned ill, as the controller's survey does; most nodes are well and cost one look."""
    health = fleet.healths.get(node.metadata.name)
    if not incidents and all(one.status == Status.FALSE for one in our_conditions(node, health)):
        return []
    verdict = without_ended(assess_in(fleet, node, now), node, incidents, {})
    return turns_on(fleet, node, verdict, incidents, terms, now, owned=why_not_act(node) is not None)


def _has_gpus(node: Node, fleet: Fleet) -> bool:
    """Tell whether a node has GPUs, or an agent that speaks of such."""
    return node.metadata.name in fleet.healths or any(
        name.startswith(_GPU_RESOURCE) for name in node.status.capacity
    )


def unseen(
    policies: Iterable[RemediationPolicy], nodes: Collection[Node], configured: Unseen = Unseen.ADMIT
) -> Unseen:
    """Say whether GPU nodes of this pool that no agent ever reported take new GPU pods.

    One policy that governs a node and refuses is enough, be it otherwise as wrong as it may: refusing is the safe side. Of
    the policies that select a node those of the highest priority govern it. Where none refuses the configuration counts.
    """
    every = list(policies)
    if not any(one.spec.unseen == Unseen.REFUSE for one in every):
        return configured
    return Unseen.REFUSE if any(_refuses(every, node) for node in nodes) else configured


def _refuses(policies: list[RemediationPolicy], node: Node) -> bool:
    labels = node.metadata.labels.items()
    mine = [one.spec for one in policies if one.spec.node_selector.items() <= labels]
    top = max((spec.priority for spec in mine), default=0)
    return any(spec.priority == top and spec.unseen == Unseen.REFUSE for spec in mine)
