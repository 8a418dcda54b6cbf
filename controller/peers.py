"""What a node should hold by its policy, and what most nodes of its kind show of their compute fabric. Pure.

Both go into NodeHealth.spec, from where the agent's checks take them. The policy's word is authoritative; what a person
wrote there by hand was written for this very node and is never touched. The peers are a hint, and the only thing that finds
the node on which every port is slow alike: looked at alone it looks well.

A node's peers are the other nodes of its instance type, with its GPU model and under its policy. Not of its pool: a pool is
often a rail or a block, and where a switch is slow all of its nodes are slow alike. Every fresh report votes, a quarantined
node's too: it shows what its hardware does, and a few sick ones move no majority. No value that more than half of them
share says nothing. Neither do fewer than LEAST votes: but what peers of the same kind said before then stands, since
nodes that are switched off or silent make no slow node well.

Written only when ports or rate are others than before, at most once in SETTLE a node and WRITES_AT_ONCE at a time, so that
a majority that comes and goes, or a fleet that joins, is no storm of writes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from checks.expected import GFD_PRODUCT_LABEL, INSTANCE_TYPE_LABEL
from checks.infiniband_reading import INFINIBAND
from controller.steps import WriteExpected
from controller.survey import Survey
from controller.terms import Terms
from kube.nodehealth import Expected, FabricPorts, NodeHealth, Peers
from kube.types import Node

LEAST = 3
SETTLE = timedelta(minutes=1)
RECOUNT = timedelta(days=1)  # the number of peers alone is no news: it changes whenever a node joins
WRITES_AT_ONCE = 64
BY_POLICY = "policy "
"""How the source of what a policy says begins; any other source is a person's."""

Kind = tuple[str, str, str]
"""Instance type, GPU model, policy."""


class _Votes:
    """What the nodes of one kind show; a node's own vote is taken out when it is asked about."""

    def __init__(self, shown: Mapping[str, FabricPorts]) -> None:
        self._shown = shown
        # The two most common: one vote less can make only the second of them the first.
        self._ports = Counter(one.active for one in shown.values()).most_common(2)
        self._rates = Counter(one.rate_mbps for one in shown.values()).most_common(2)

    def others(self, node: str) -> int:
        """Count the votes of the others."""
        return len(self._shown) - (node in self._shown)

    def of_others(self, node: str, kind: Kind) -> Peers | None:
        """Give what more than half of the others share, or None."""
        mine = self._shown.get(node)
        counted = self.others(node)
        if counted < LEAST:
            return None
        ports = _majority(self._ports, None if mine is None else mine.active, counted)
        rate = _majority(self._rates, None if mine is None else mine.rate_mbps, counted)
        if not ports:  # none at all, or most show no port: nothing to be held against
            return None
        return Peers(ports=ports, rate_mbps=rate or None, counted=counted, source=_source(kind))


def expectations(looked: Survey, busy: Iterable[str]) -> tuple[list[WriteExpected], datetime | None]:
    """Give what is to be written, and when what has to wait may be. `busy` are nodes whose spec is written anyway now."""
    kinds = {name: kind for name, node in looked.fleet.nodes.items() if (kind := _kind(looked, node))}
    votes = _votes(looked, kinds)
    taken = set(busy)
    steps: list[WriteExpected] = []
    times: list[datetime] = []
    for name in sorted(looked.fleet.nodes.keys() & looked.fleet.healths.keys() - taken):
        spec = looked.fleet.healths[name].spec
        expected = _expected(looked, name, spec.expected)
        peers, due = spec.peers, None
        if name in kinds:
            kind, given = kinds[name], votes.get(kinds[name], _Votes({}))
            is_said = spec.peers is not None and spec.peers.source == _source(kind)
            if given.others(name) >= LEAST or not is_said:
                peers, due = _settled(spec.peers, given.of_others(name, kind), looked.now)
        times += [due] if due is not None else []
        if (expected, peers) == (spec.expected, spec.peers):
            continue
        if len(steps) == WRITES_AT_ONCE:
            times.append(looked.now + timedelta(milliseconds=20))
            break
        steps.append(WriteExpected(node=name, expected=expected, peers=peers))
    return steps, min(times, default=None)


def _kind(looked: Survey, node: Node) -> Kind | None:
    """Say of which kind a node is; None while nobody can say: then what stands is left as it is."""
    name = node.metadata.name
    labels = node.metadata.labels
    health = looked.fleet.healths.get(name)
    if health is None:
        return None
    model = _models(health) or labels.get(GFD_PRODUCT_LABEL, "")
    if not model:
        return None
    terms = looked.terms_on.get(name)
    return (labels.get(INSTANCE_TYPE_LABEL, ""), model, terms.name if terms is not None else "")


def _source(kind: Kind) -> str:
    return f"other nodes of {f'instance type {kind[0]}' if kind[0] else kind[1]}"


def _models(health: NodeHealth) -> str:
    """Name the GPUs as gpu-feature-discovery does, whose label stands in where the driver names none."""
    models = {part.model for part in health.status.parts} - {""}
    return ",".join(sorted(models)).replace(" ", "-")


def _votes(looked: Survey, kinds: dict[str, Kind]) -> dict[Kind, _Votes]:
    votes: dict[Kind, dict[str, FabricPorts]] = {}
    for name, kind in kinds.items():
        health, verdict = looked.fleet.healths[name], looked.verdicts[name]
        shown = health.status.fabric_ports
        if shown is not None and verdict.fresh and verdict.usable and _is_read(health):
            votes.setdefault(kind, {})[name] = shown
    return {kind: _Votes(given) for kind, given in votes.items()}


def _is_read(health: NodeHealth) -> bool:
    """Tell whether the agent could read its ports when it last tried: what it showed before says nothing of today."""
    return all(source.readable for source in health.status.sources if source.name == INFINIBAND)


def _majority(leading: Sequence[tuple[int, int]], mine: int | None, counted: int) -> int | None:
    """Give the value of more than half of the others, `mine` taken out."""
    for value, votes in leading:
        if 2 * (votes - (value == mine)) > counted:
            return value
    return None


def _settled(held: Peers | None, found: Peers | None, now: datetime) -> tuple[Peers | None, datetime | None]:
    """Give what is to stand now, and when something else may: not within SETTLE of the last change."""
    stamped = msgspec.structs.replace(found, at=now) if found is not None else None
    if held is None or held.at is None:
        return stamped if held is None or found != held else held, None
    said = (found.ports, found.rate_mbps) if found is not None else None
    if said == (held.ports, held.rate_mbps):
        moved = found is not None and found.counted != held.counted
        return (stamped if moved and now - held.at >= RECOUNT else held), None
    due = held.at + SETTLE
    return (stamped, None) if now >= due else (held, due)


def _expected(looked: Survey, name: str, held: Expected | None) -> Expected | None:
    """Give what the policy in force says of this node, beside what a person wrote by hand."""
    terms = looked.terms_on.get(name)
    if held is None and (terms is None or not terms.expected):
        return None
    if terms is None and held is not None and _is_known(looked, held):
        return held  # the policy stands and cannot be read now: its last word counts meanwhile
    before = held or Expected()
    said = _said(terms, looked.fleet.nodes[name]) if terms is not None else Expected()
    wanted = before
    if before.gpus is None or before.source.startswith(BY_POLICY):
        wanted = msgspec.structs.replace(wanted, gpus=said.gpus, source=said.source)
    by_hand = before.ports is not None or before.rate_mbps is not None
    if not by_hand or before.ports_source.startswith(BY_POLICY):
        wanted = msgspec.structs.replace(
            wanted, ports=said.ports, rate_mbps=said.rate_mbps, ports_source=said.ports_source
        )
    return held if wanted == before else wanted if wanted != Expected() else None


def _said(terms: Terms, node: Node) -> Expected:
    """Read the policy's first row for this instance type, or for all."""
    instance_type = node.metadata.labels.get(INSTANCE_TYPE_LABEL, "")
    source = f"{BY_POLICY}{terms.name}"
    for row in terms.expected:
        if row.instance_type in ("", instance_type):
            fabric = row.ports is not None or row.rate_gbps is not None
            return Expected(
                gpus=row.gpus,
                source=source if row.gpus is not None else "",
                ports=row.ports,
                rate_mbps=None if row.rate_gbps is None else row.rate_gbps * 1000,
                ports_source=source if fabric else "",
            )
    return Expected()


def _is_known(looked: Survey, held: Expected) -> bool:
    names = {s.removeprefix(BY_POLICY) for s in (held.source, held.ports_source) if s.startswith(BY_POLICY)}
    return names <= looked.fleet.policies.keys()
