"""Whether so many nodes turned ill at once that their observer is suspected, by the controller's own breaker. Pure.

The controller and the scheduler ask the same functions (`controller.terms`, `controller.assess`, `controller.breaker`) about
the same objects, so both stop and go on together: what the controller does not drain for, the scheduler evicts nobody for.
While the breaker is open, verdicts stand as they are: an ill part takes nothing new, what ran goes on, and a lost GPU
(effect node-out) is no capacity; only nobody is evicted. GPU nodes that no policy governs are one pool more, with the
breaker's defaults: a cluster without the controller has an observer that may fail all the same. For those a person who
believes what is reported makes a RemediationPolicy (mode Observe will do) and writes the acknowledgement on it.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from checks.condition import Status
from controller import terms as terms_
from controller.assess import assess_in, our_conditions
from controller.breaker import Turn, burst
from controller.budget import Pool, PoolKey
from controller.ownership import why_not_act
from controller.scheduler.unseen import Unseen
from controller.survey import turns_on, without_ended
from controller.terms import Terms
from controller.view import Fleet, Settings
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.types import Node

UNGOVERNED: Final = "(no policy)"
"""The pool of GPU nodes that no policy governs."""
_GPU_RESOURCE: Final = "nvidia.com/"
_DEFAULTS: Final = Terms(name="")


class _Known(NamedTuple):
    """What was found of one node. `key` None = it is of no pool; `is_well`: all of our conditions on it are False."""

    node: Node
    health: NodeHealth | None
    key: PoolKey | None
    terms: Terms
    is_well: bool


class Memory:
    """Whom each node belongs to and whether it is well, kept from one call to the next; as large as the fleet.

    Every second one node of thousands changes: looking at all of them in each cycle would cost more than the cycle.
    """

    def __init__(self) -> None:
        self._policies: tuple[RemediationPolicy, ...] = ()
        self._settings: Settings | None = None
        self._read: list[Terms] = []
        self._nodes: dict[str, _Known] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self, fleet: Fleet) -> Mapping[str, _Known]:
        """Give what is known of every node of the fleet."""
        policies = tuple(fleet.policies.values())
        is_same = len(policies) == len(self._policies) and all(
            one is held for one, held in zip(policies, self._policies, strict=True)
        )
        before = self._nodes if is_same and fleet.settings is self._settings else {}
        if before is not self._nodes:
            self._read = sorted(
                (terms_.read(policy, fleet.settings) for policy in policies),
                key=lambda one: (-one.priority, one.name),
            )
        found: dict[str, _Known] = {}
        for name, node in fleet.nodes.items():
            held, health = before.get(name), fleet.healths.get(name)
            is_known = held is not None and held.node is node and held.health is health
            found[name] = held if is_known and held is not None else self._look(fleet, node, health)
        self._policies, self._settings, self._nodes = policies, fleet.settings, found
        return found

    def _look(self, fleet: Fleet, node: Node, health: NodeHealth | None) -> _Known:
        terms, _ = terms_.choose(node, self._read)
        key = ("", UNGOVERNED) if terms is None else (terms.name, terms.pool_of(node))
        is_counted = terms is not None or _has_gpus(node, fleet)
        is_well = all(one.status == Status.FALSE for one in our_conditions(node, health))
        return _Known(node, health, key if is_counted else None, terms or _DEFAULTS, is_well)


def suspected(
    fleet: Fleet, now: datetime, pool: Collection[str] | None = None, memory: Memory | None = None
) -> str:
    """Give the breaker's words where it is open, "" = closed.

    `fleet` holds all nodes, since the breaker counts by the policies' pools; only bursts that hold a node of `pool` (names;
    None = all) count. Pods, Jobs and what was sent are not looked at. `memory` saves looking at what did not change.
    """
    incidents: dict[str, list[Remediation]] = {}
    for incident in fleet.remediations.values():
        incidents.setdefault(incident.spec.node_name, []).append(incident)
    sizes: dict[PoolKey, int] = {}
    terms_of: dict[PoolKey, Terms] = {}
    turns: dict[PoolKey, list[Turn]] = {}
    for name, one in (Memory() if memory is None else memory).nodes(fleet).items():
        key = one.key
        if key is None:
            continue
        sizes[key] = sizes.get(key, 0) + 1
        terms_of[key] = one.terms
        mine = incidents.get(name, ())
        if one.is_well and not mine:
            continue  # most are, and cost one look
        if turned := _turns(fleet, one.node, mine, one.terms, now):
            turns.setdefault(key, []).extend(turned)
    for key, turned in sorted(turns.items()):
        found = burst(turned, sizes[key], terms_of[key])
        if found.nodes and (pool is None or not found.nodes.isdisjoint(pool)):
            return Pool(key, terms_of[key]).breaker_hold().why
    return ""


def _turns(
    fleet: Fleet, node: Node, incidents: Collection[Remediation], terms: Terms, now: datetime
) -> list[Turn]:
    """Give when a node turned ill, as the controller's survey does."""
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
