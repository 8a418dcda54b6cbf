"""Which NUMA zones of a node a pod would get, and whether its kubelet would refuse it. Pure.

kubelet's Topology Manager aligns what a pod holds alone: whole CPUs, memory and huge pages of Guaranteed pods, devices of
all. By its policy a pod (or each container of it, by its scope) must fit one zone (single-numa-node), or as few zones as the
machine could ever hold it in, for each resource as many (restricted), or is refused with TopologyAffinityError; best-effort
refuses nobody. Among equals it takes the zones with the lowest numbers.
Sources: Kubernetes, "Control Topology Management Policies on a node"; KAI Scheduler, plugins/numa (evaluator.go).
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

from controller.scheduler.amounts import Amount
from controller.scheduler.model import TaskStatus
from controller.scheduler.nodes import TopologyPolicy, TopologyScope
from controller.scheduler.requests import Alignment, Request
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeState, NumaState, Placement, TaskState

REFUSED: Final = {
    TopologyPolicy.SINGLE: "node(s) had no NUMA zone with room for the pod, which policy single-numa-node demands",
    TopologyPolicy.RESTRICTED: "node(s) had not as few NUMA zones with room for the pod as policy restricted demands",
}
"""What kubelet would refuse a pod with as TopologyAffinityError, by policy."""
_NO_SPAN: Final = 1 << 16

Free = list[dict[str, int]]
Zones = tuple[int, ...]


def why_not(request: Request, numa: NumaState, later: bool) -> str | None:
    """Say why a node's kubelet could not align a pod now or, with `later`, once all is gone that is being released."""
    alignment = request.alignment
    if alignment is None or numa.policy not in REFUSED or placement(alignment, numa, later) is not None:
        return None
    return REFUSED[numa.policy]


def choose(task: TaskState, node: NodeState, later: bool, rules: Rules) -> Placement:
    """Give what a pod gets of each zone of a node; nothing where it is not aligned there.

    Rule stay_on_card: an evicted pod whose own zones still have room for it stays in them.
    """
    numa, alignment = node.numa, task.spec.request.alignment
    if numa is None or alignment is None:
        return ()
    if (
        rules.stay_on_card
        and task.status is TaskStatus.RELEASING
        and task.node is node
        and all(_covers(numa.free(later), (zone,), amounts) for zone, amounts in task.zones)
        and task.zones
    ):
        return task.zones
    return placement(alignment, numa, later) or ()


def placement(alignment: Alignment, numa: NumaState, later: bool) -> Placement | None:
    """Give the zones that kubelet would take, None where it refuses (or, best-effort, finds no room to align in).

    Containers that run beside each other draw on the same zones; init containers that end before have them to themselves.
    """
    by_pod = numa.scope is TopologyScope.POD
    free = numa.free(later)
    if not by_pod and any(_zones(numa, free, _needs(numa, unit)) is None for unit in alignment.init):
        return None
    drawn: dict[int, dict[str, int]] = {}
    for unit in (alignment.pod,) if by_pod else alignment.containers:
        needs = _needs(numa, unit)
        zones = _zones(numa, free, needs)
        if zones is None:
            return None
        for name, amount in needs:
            _draw(free, zones, name, amount, drawn)
    return tuple((zone, tuple(sorted(drawn[zone].items()))) for zone in sorted(drawn))


def _needs(numa: NumaState, unit: Iterable[Amount]) -> tuple[Amount, ...]:
    """Give what of a request the node keeps by zone."""
    return tuple((name, amount) for name, amount in unit if amount > 0 and name in numa.resources)


def _zones(numa: NumaState, free: Free, needs: Sequence[Amount]) -> Zones | None:
    if not needs:
        return ()
    if numa.policy is TopologyPolicy.BEST_EFFORT:
        return _few(free, needs)
    width = 1 if numa.policy is TopologyPolicy.SINGLE else _width(numa, needs)
    for zones in combinations(range(len(free)), width):
        if _covers(free, zones, needs):
            return zones
    return None


def _width(numa: NumaState, needs: Sequence[Amount]) -> int:
    """Give the one number of zones that every resource is best held by, more than there are where there is none."""
    none = len(numa.idle) + 1
    widths = {
        next((width for width, total in enumerate(numa.largest[name], 1) if total >= amount), none)
        for name, amount in needs
    }
    return widths.pop() if len(widths) == 1 else none


def _covers(free: Free, zones: Zones, needs: Iterable[Amount]) -> bool:
    return all(sum(free[zone].get(name, 0) for zone in zones) >= amount for name, amount in needs)


def _few(free: Free, needs: Sequence[Amount]) -> Zones | None:
    """Gather zones one by one, always the one that covers most of what is still needed."""
    left, zones = dict(needs), []
    while any(amount > 0 for amount in left.values()):
        covered, first = max(
            (
                (sum(min(amount, free[zone][name]) for name, amount in left.items() if amount > 0), -zone)
                for zone in range(len(free))
                if zone not in zones
            ),
            default=(0, 0),
        )
        if covered <= 0:
            return None
        zones.append(-first)
        for name in left:
            left[name] -= free[-first][name]
    return tuple(zones)


def _draw(free: Free, zones: Zones, name: str, amount: int, drawn: dict[int, dict[str, int]]) -> None:
    """Take an amount off zones, the first as far as it goes. kubelet leaves open how it divides it."""
    for zone in zones:
        taken = min(amount, free[zone][name])
        if taken > 0:
            free[zone][name] -= taken
            given = drawn.setdefault(zone, {})
            given[name] = given.get(name, 0) + taken
            amount -= taken


def is_for_guaranteed(resource: str) -> bool:
    """Tell whether kubelet aligns a resource for Guaranteed pods only: its CPU and Memory Managers do, devices are all's."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


class Spans:
    """Over how many zones pods would be spread, by node: fewer is better."""

    def __init__(self, nodes: Iterable[NodeState]) -> None:
        zoned = [node for node in nodes if node.spec.numa is not None]
        self._most = max((len(node.spec.numa.zones) for node in zoned if node.spec.numa), default=0)
        self._devices = frozenset(
            name
            for node in zoned
            if node.numa is not None
            for name in node.numa.resources
            if not is_for_guaranteed(name)
        )

    def matter_to(self, request: Request) -> bool:
        """Tell whether a pod would rather be on few zones."""
        alignment = request.alignment
        if not self._most or alignment is None:
            return False
        return alignment.guaranteed or any(name in self._devices for name, _ in alignment.pod)

    def of(self, request: Request, node: NodeState, later: bool) -> int:
        """Give how many zones a pod would be spread over; where nobody aligns it, the worst is assumed."""
        spec, numa, alignment = node.spec.numa, node.numa, request.alignment
        if spec is None or not spec.zones:
            return self._most
        if numa is None or alignment is None:
            return len(spec.zones)
        if not (alignment.guaranteed or any(name in numa.resources for name, _ in alignment.pod)):
            return len(spec.zones)
        zones = placement(alignment, numa, later)
        return _NO_SPAN if zones is None else max(len(zones), 1)
