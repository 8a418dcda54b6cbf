"""Nodes with NUMA zones, and pods that ask for them."""

from collections.abc import Sequence

from hypothesis import strategies as st

from controller.scheduler.amounts import Amount
from controller.scheduler.nodes import Node, NumaTopology, NumaZone, TopologyPolicy, TopologyScope
from controller.scheduler.requests import Alignment, Request
from kube.scheduling import Attribute, NodeResourceTopology, Zone, ZoneResource
from kube.types import ObjectMeta
from tests.scheduler.words import node

SINGLE, RESTRICTED, BEST_EFFORT = TopologyPolicy.SINGLE, TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT


POD, CONTAINER = TopologyScope.POD, TopologyScope.CONTAINER


Unit = tuple[Amount, ...]


def cpu(number: int) -> Unit:
    """Ask for whole CPUs."""
    return (("cpu", 1000 * number),)


def zones(
    *amounts: Unit,
    policy: TopologyPolicy = SINGLE,
    scope: TopologyScope = POD,
    reported: Sequence[Unit] | None = None,
) -> NumaTopology:
    """Give zones z0, z1, ... with these amounts, of which `reported` is available."""
    free = reported or amounts
    return NumaTopology(
        policy=policy,
        scope=scope,
        zones=tuple(
            NumaZone(id=f"z{place}", allocatable=dict(unit), available=dict(free[place]))
            for place, unit in enumerate(amounts)
        ),
    )


def asks(*containers: Unit, init: Sequence[Unit] = (), guaranteed: bool = True) -> Request:
    """Ask for what these containers hold alone."""
    total: dict[str, int] = {}
    for unit in containers:
        for name, amount in unit:
            total[name] = total.get(name, 0) + amount
    pod = tuple(sorted(total.items()))
    alignment = Alignment(guaranteed=guaranteed, pod=pod, containers=containers, init=tuple(init))
    return Request(cpu_milli=total.get("cpu", 0), alignment=alignment)


def zoned(name: str, numa: NumaTopology | None) -> Node:
    """Give a node without GPUs."""
    return node(name, 0, numa=numa)


amounts = st.integers(1, 4).map(cpu)


def told(
    *, attributes: dict[str, str], legacy: tuple[str, ...] = (), kind: str = "Node"
) -> NodeResourceTopology:
    """Give the object of a node with two zones, the second listed first."""
    return NodeResourceTopology(
        metadata=ObjectMeta(name="n"),
        attributes=tuple(Attribute(name=name, value=value) for name, value in attributes.items()),
        topology_policies=legacy,
        zones=tuple(
            Zone(
                name=f"node-{number}",
                type=kind,
                resources=(ZoneResource(name="cpu", allocatable="4", available="2500m"),),
            )
            for number in (10, 9)
        ),
    )
