"""What NodeHealth.spec asks of this machine, in the checks' own words, and what the agent publishes of its memory. Pure."""

from typing import TypedDict

from checks.check import Clearing, Drill
from checks.finding import Part, PartKind
from checks.last_validated import Validated
from kube.nodehealth import AskedDrill, Expected, LastValidated, NodeHealthSpec, Peers


class Asked(TypedDict):
    """The fields of MachineFacts that NodeHealth.spec fills; see there."""

    clearings: tuple[Clearing, ...]
    expected: int | None
    expected_source: str
    expected_ports: int | None
    expected_rate_mbps: int | None
    expected_ports_source: str
    peer_ports: int | None
    peer_rate_mbps: int | None
    peers_counted: int
    drills: tuple[Drill, ...]


def asked(spec: NodeHealthSpec) -> Asked:
    """Give what is expected here, what the peers show, and which parts were dealt with."""
    expected, peers = spec.expected or Expected(), spec.peers or Peers()
    return Asked(
        clearings=tuple(Clearing(uuid=c.uuid, pci=c.pci, before=c.before) for c in spec.cleared),
        expected=expected.gpus,
        expected_source=expected.source,
        expected_ports=expected.ports,
        expected_rate_mbps=expected.rate_mbps,
        expected_ports_source=expected.ports_source,
        peer_ports=peers.ports,
        peer_rate_mbps=peers.rate_mbps,
        peers_counted=peers.counted,
        drills=tuple(_drill(one) for one in spec.drills if one.part.kind in set(PartKind)),
    )


def _drill(one: AskedDrill) -> Drill:
    part = Part(kind=PartKind(one.part.kind), pci=one.part.pci, uuid=one.part.uuid, name=one.part.name)
    return Drill(id=one.id, reason=one.reason, part=part, since=one.since, until=one.until)


def published(held: Validated | None) -> LastValidated | None:
    """Write what was last validated as NodeHealth.status holds it."""
    if held is None:
        return None
    return LastValidated(gpus=held.gpus, at=held.at, ports=held.ports, rate_mbps=held.rate_mbps)


def recalled(held: LastValidated) -> Validated:
    """Read it back; at which addresses the GPUs were is not published."""
    fabric_at = held.at if held.ports is not None else None
    return Validated(
        gpus=held.gpus, at=held.at, ports=held.ports, rate_mbps=held.rate_mbps, ports_at=fabric_at
    )
