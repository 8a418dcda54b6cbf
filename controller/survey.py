"""Survey: all that is worked out of a Fleet once, before any node is decided on. Pure.

Policies read and matched, every node judged, incidents sorted to their nodes, the books of every pool with its burst. The
plan and the guards (asked again by the shell, right before a destructive request) look at a Survey made the same way.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from controller import terms as terms_
from controller.assess import Verdict, assess_in
from controller.breaker import Turn, burst, turns_of
from controller.budget import CONTAINED, Pool, PoolKey
from controller.incident import dealt_with, holds, is_open
from controller.ownership import why_not_act
from controller.terms import Terms
from controller.view import Fleet
from controller.workloads import Traces, traces
from kube.nodehealth import HealthFinding
from kube.remediation import Remediation
from kube.types import Node

_NO_TIME = timedelta(0)


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Keyed by node name but for `terms` (by policy) and `pools`.

    `terms_on` holds the policy in force, `left_alone` why there is none. `verdicts` are without findings that closed
    incidents dealt with; those are in `ended`, with the incident. `owners` are other automations that hold a node.
    `traces` are what looks like the doing of a workload.
    """

    fleet: Fleet
    now: datetime
    terms: Mapping[str, Terms]
    terms_on: Mapping[str, Terms]
    left_alone: Mapping[str, str]
    verdicts: Mapping[str, Verdict]
    ended: Mapping[str, Remediation]
    owners: Mapping[str, str]
    remediations: Mapping[str, list[Remediation]]
    pools: Mapping[PoolKey, Pool]
    traces: Traces = Traces()

    def pool_on(self, node: str) -> Pool | None:
        terms = self.terms_on.get(node)
        if terms is None:
            return None
        return self.pools[(terms.name, terms.pool_of(self.fleet.nodes[node]))]

    def open_on(self, node: str) -> Remediation | None:
        """Give the node's open incident; of several (a person made one by hand) the one that came first."""
        found = [one for one in self.remediations.get(node, ()) if is_open(one)]
        return min(found, key=lambda one: (one.spec.opened_at, one.metadata.name), default=None)


def survey(fleet: Fleet, now: datetime) -> Survey:
    """Work out everything that is the same for all decisions of this instant."""
    terms = {name: terms_.read(policy, fleet.settings) for name, policy in fleet.policies.items()}
    remediations: dict[str, list[Remediation]] = {}
    for one in fleet.remediations.values():
        remediations.setdefault(one.spec.node_name, []).append(one)
    terms_on: dict[str, Terms] = {}
    left_alone: dict[str, str] = {}
    verdicts: dict[str, Verdict] = {}
    ended: dict[str, Remediation] = {}
    owners: dict[str, str] = {}
    by_priority = sorted(terms.values(), key=lambda one: (-one.priority, one.name))
    for name, node in fleet.nodes.items():
        chosen, why = terms_.choose(node, by_priority)
        if chosen is None:
            left_alone[name] = why
        else:
            terms_on[name] = chosen
        verdicts[name] = without_ended(assess_in(fleet, node, now), node, remediations.get(name, ()), ended)
        if owner := why_not_act(node):
            owners[name] = owner
    found = Survey(
        fleet=fleet,
        now=now,
        terms=terms,
        terms_on=terms_on,
        left_alone=left_alone,
        verdicts=verdicts,
        ended=ended,
        owners=owners,
        remediations=remediations,
        pools={},
        traces=traces(
            fleet, now - 2 * max((one.workload_within for one in terms.values()), default=_NO_TIME)
        ),
    )
    return msgspec.structs.replace(found, pools=_pools(found))


def without_ended(
    verdict: Verdict, node: Node, remediations: Iterable[Remediation], ended: dict[str, Remediation]
) -> Verdict:
    """Leave out what closed incidents dealt with; those are added to `ended`."""
    if not verdict.standing or not remediations:
        return verdict
    standing: list[HealthFinding] = []
    for finding in verdict.standing:
        closed = dealt_with(remediations, node.metadata.uid, finding)
        if closed is None:
            standing.append(finding)
        else:
            ended[verdict.node] = closed
    if len(standing) == len(verdict.standing):
        return verdict
    return msgspec.structs.replace(verdict, standing=tuple(standing))


def _pools(found: Survey) -> dict[PoolKey, Pool]:
    pools: dict[PoolKey, Pool] = {}
    turns: dict[PoolKey, list[Turn]] = {}
    for name, terms in found.terms_on.items():
        node = found.fleet.nodes[name]
        key = (terms.name, terms.pool_of(node))
        pool = pools.get(key)
        if pool is None:
            pool = pools[key] = Pool(key, terms)
        mine = found.remediations.get(name, ())
        owned = name in found.owners
        pool.enter(
            name,
            out_of_service=owned or node.spec.unschedulable or not is_ready(node),
            incidents=mine,
            now=found.now,
        )
        turned = turns_on(found.fleet, node, found.verdicts[name], mine, terms, found.now, owned=owned)
        if turned:
            turns.setdefault(key, []).extend(turned)
    for key, pool in pools.items():
        pool.burst = burst(turns.get(key, ()), len(pool.nodes), pool.terms)
    return pools


def turns_on(
    fleet: Fleet,
    node: Node,
    verdict: Verdict,
    incidents: Iterable[Remediation],
    terms: Terms,
    now: datetime,
    *,
    owned: bool,
) -> list[Turn]:
    """Give when a node turned ill; `owned`: another automation has it in hand."""
    health = fleet.healths.get(node.metadata.name)
    in_hands = owned or (node.spec.unschedulable and not _contained(node, incidents))
    return turns_of(node, health, verdict, incidents, terms, now, in_hands=in_hands)


def is_ready(node: Node) -> bool:
    """Tell whether kubelet says Ready; anything but a clear yes is no."""
    condition = node.condition("Ready")
    return condition is not None and condition.status == "True"


def _contained(node: Node, remediations: Iterable[Remediation]) -> bool:
    return any(
        is_open(one) and one.status.phase in CONTAINED and holds(node, one.metadata.name)
        for one in remediations
    )
