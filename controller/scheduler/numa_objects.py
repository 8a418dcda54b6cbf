"""NUMA zones as Kubernetes' objects tell of them: NodeResourceTopology, and KAI's record of a pod's zones. Pure.

Sources: topology.node.k8s.io/v1alpha2; KAI Scheduler's annotations kai.scheduler/numa-placement-observed (what its agent saw
at kubelet) and -predicted (what its scheduler foretold), a JSON list of zones with amounts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.scheduler.amounts import Amount, ZoneAmounts
from controller.scheduler.nodes import NumaTopology, NumaZone, TopologyPolicy, TopologyScope
from kube import quantity
from kube.scheduling import NodeResourceTopology

OBSERVED: Final = "kai.scheduler/numa-placement-observed"
PREDICTED: Final = "kai.scheduler/numa-placement-predicted"
POLICY: Final = "topologyManagerPolicy"
SCOPE: Final = "topologyManagerScope"
NUMA_NODE: Final = "Node"
MOST_ZONES: Final = 16
"""Twice what kubelet takes by default; sets of zones are tried one by one, so their number must be bounded."""
CPU: Final = "cpu"
LEGACY: Final = {
    "SingleNUMANodePodLevel": (TopologyPolicy.SINGLE, TopologyScope.POD),
    "SingleNUMANodeContainerLevel": (TopologyPolicy.SINGLE, TopologyScope.CONTAINER),
    "RestrictedPodLevel": (TopologyPolicy.RESTRICTED, TopologyScope.POD),
    "RestrictedContainerLevel": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "Restricted": (TopologyPolicy.RESTRICTED, TopologyScope.CONTAINER),
    "BestEffortPodLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.POD),
    "BestEffortContainerLevel": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
    "BestEffort": (TopologyPolicy.BEST_EFFORT, TopologyScope.CONTAINER),
}
"""The deprecated field topologyPolicies says policy and scope in one word."""


class _Recorded(msgspec.Struct, frozen=True):
    zone: str
    amount: dict[str, str | int] = {}


def predicted(zones: ZoneAmounts) -> str:
    """Write zones as the record of what kubelet is expected to give, which `recorded` reads back."""
    listed = [
        {
            "zone": zone,
            "amount": {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts},
        }
        for zone, amounts in zones
    ]
    return msgspec.json.encode(listed).decode()


def recorded(annotations: Mapping[str, str]) -> ZoneAmounts:
    """Give a pod's zones as they are recorded on it, observed before predicted; nothing where no record can be read.

    A record that cannot be read is as good as none: nobody then knows the pod's zones.
    """
    for key in (OBSERVED, PREDICTED):
        try:
            zones = msgspec.json.decode(annotations.get(key) or "[]", type=tuple[_Recorded, ...])
            found = tuple((zone.zone, amounts_of(zone.amount)) for zone in zones)
        except ValueError:
            continue
        if found:
            return found
    return ()


def amounts_of(quantities: Mapping[str, str | int]) -> tuple[Amount, ...]:
    """Read quantities by resource: CPU in millicores, the rest in whole units.

    Raises: ValueError for a quantity that is none, or is below 0.
    """
    found = []
    for name, text in sorted(quantities.items()):
        amount = quantity.milli(str(text)) if name == CPU else quantity.whole(str(text))
        if amount < 0:
            raise ValueError(f"{name} is {str(text)!r}: must not be below 0")
        found.append((name, amount))
    return tuple(found)


def in_order(zones: Iterable[NumaZone]) -> tuple[NumaZone, ...]:
    """Sort zones by the number that their names end in, as kubelet counts them; such without one come last, by name."""
    return tuple(sorted(zones, key=_number))


def _number(zone: NumaZone) -> tuple[bool, int, str]:
    digits = re.search(r"[0-9]+\Z", zone.id)
    return (digits is None, int(digits[0]) if digits else 0, zone.id)


def topology_of(told: NodeResourceTopology) -> NumaTopology | None:
    """Give a node's NUMA topology, None where the object names no NUMA node.

    Raises: ValueError for a quantity that is none or below 0, a zone that is named twice, zones beyond MOST_ZONES.
    """
    told_zones = [zone for zone in told.zones if zone.type == NUMA_NODE]
    if len(told_zones) > MOST_ZONES:
        raise ValueError(f"{len(told_zones)} NUMA zones: must be {MOST_ZONES} or fewer")
    counts = Counter(zone.name for zone in told_zones)
    twice = min((name for name, count in counts.items() if count > 1), default=None)
    if twice is not None:
        raise ValueError(f"names zone {twice!r} twice")
    zones = [
        NumaZone(
            id=zone.name,
            allocatable=dict(amounts_of({each.name: each.allocatable for each in zone.resources})),
            available=dict(amounts_of({each.name: each.available for each in zone.resources})),
        )
        for zone in told_zones
    ]
    if not zones:
        return None
    attributes = {each.name: each.value for each in told.attributes}
    if attributes.get(POLICY):
        policy, scope = _policy(attributes[POLICY]), _scope(attributes.get(SCOPE, ""))
    else:
        legacy = told.topology_policies[0] if told.topology_policies else ""
        policy, scope = LEGACY.get(legacy, (TopologyPolicy.NONE, TopologyScope.CONTAINER))
    return NumaTopology(policy=policy, scope=scope, zones=in_order(zones))


def _policy(word: str) -> TopologyPolicy:
    """A policy that nobody knows refuses nobody."""
    return TopologyPolicy(word) if word in list(TopologyPolicy) else TopologyPolicy.NONE


def _scope(word: str) -> TopologyScope:
    return TopologyScope(word) if word in list(TopologyScope) else TopologyScope.CONTAINER
