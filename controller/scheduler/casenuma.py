"""NUMA zones of a case: its nodes', its pods', and whether they came out as expected. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from controller.scheduler.amounts import Amount
from controller.scheduler.casecards import Standing
from controller.scheduler.casewords import Case, CaseJob, CaseNuma, CaseRequests
from controller.scheduler.model import ACTIVE_USED
from controller.scheduler.nodes import NumaTopology, NumaZone, TopologyPolicy
from controller.scheduler.numa_objects import amounts_of, in_order
from controller.scheduler.requests import Alignment

GPU: Final = "nvidia.com/gpu"
NAMES: Final = {"gpu": GPU, "gpus": GPU}
"""A case's own words for resources."""
WHOLE_CPU: Final = 1000


def numa_of(told: CaseNuma) -> NumaTopology:
    return NumaTopology(
        policy=told.policy,
        scope=told.scope,
        zones=in_order(
            NumaZone(id=zone.id, allocatable=_amounts(zone.allocatable), available=_amounts(zone.available))
            for zone in told.zones
        ),
    )


def _amounts(amounts: Mapping[str, Decimal]) -> dict[str, int]:
    return {NAMES.get(name, name): int(amount) for name, amount in amounts.items()}


def alignment_of(job: CaseJob, asks: CaseRequests) -> Alignment:
    """Give what of a pod's request is aligned: a pod of a case is one container."""
    guaranteed = job.qos_class == "Guaranteed"
    shared = bool(asks.gpu_portion or asks.gpu_memory_mib)
    amounts = {GPU: 0 if shared else int(asks.gpus_total), **asks.mig}
    if guaranteed:
        cpu = int(asks.cpu_milli)
        amounts |= {"cpu": 0 if cpu % WHOLE_CPU else cpu, "memory": int(asks.memory_bytes)}
    unit = tuple(sorted((name, amount) for name, amount in amounts.items() if amount > 0))
    return Alignment(guaranteed=guaranteed, pod=unit, containers=(unit,))


def zone_problems(case: Case, name: str, stood: Standing, wanted: tuple[int, ...]) -> Iterator[str]:
    """Say where a pod is in other zones than expected."""
    places = _places(case, stood.node)
    got = tuple(places[zone] for zone, _ in stood.zones if zone in places)
    if got != wanted:
        yield f"{name} is in NUMA zones {list(got)} instead of {list(wanted)}"


def room_problems(
    case: Case, name: str, standings: Iterable[Standing], wanted: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Say where another amount of a node's zones is free than expected, once all is gone that is being released."""
    numa = next((node.numa for node in case.nodes if node.name == name), None)
    if numa is None or not wanted:
        return
    topology = numa_of(numa)
    reported = topology.policy is TopologyPolicy.NONE
    free = {zone.id: dict(zone.available if reported else zone.allocatable) for zone in topology.zones}
    for stood in standings:
        if stood.node == name and stood.status in ACTIVE_USED and not reported:
            for zone, amounts in stood.zones:
                _take(free.get(zone, {}), amounts)
    left = [free[zone.id] for zone in topology.zones]
    for key, texts in wanted.items():
        place = int(key)
        for resource, amount in amounts_of({NAMES.get(word, word): text for word, text in texts.items()}):
            got = left[place].get(resource, 0) if place < len(left) else 0
            if got != amount:
                yield f"node {name} has {got} of {resource} free in NUMA zone {place} instead of {amount}"


def _take(free: dict[str, int], amounts: Iterable[Amount]) -> None:
    for name, amount in amounts:
        if name in free:
            free[name] -= amount


def _places(case: Case, node: str) -> dict[str, int]:
    numa = next((each.numa for each in case.nodes if each.name == node), None)
    return {} if numa is None else {zone.id: place for place, zone in enumerate(numa_of(numa).zones)}
