"""The books of a node's NUMA zones: what is free in each, what is being released, who holds what where. Pure.

What a pod holds in zones is a part of its place (`TaskState.zones`), so that whatever the ledger takes back, it takes back
here too. A node's zones begin as what they can give less what is recorded of its pods: its own report of what is available
comes late, both after a pod began and after one ended.
Source: KAI Scheduler, plugins/numa (reconstruct.go, seed_placements.go).
"""

from collections.abc import Iterable

from controller.scheduler.amounts import Amount, ZoneAmounts
from controller.scheduler.model import HOLDING, TaskStatus
from controller.scheduler.nodes import TopologyPolicy
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeState, NumaState, Placement, TaskState


def node_state(node: NodeState, rules: Rules) -> NumaState | None:
    """Give a node's zones with everything free; None where its kubelet aligns nothing, or nobody tells."""
    spec = node.spec.numa
    if spec is None or spec.policy is TopologyPolicy.NONE or not spec.zones:
        return None
    return NumaState(spec, counts_ending=not rules.ending_keeps_zones)


def load(tasks: Iterable[TaskState], nodes: Iterable[NodeState], rules: Rules) -> None:
    """Set up the zones of all nodes, and take off what pods hold of them."""
    aligned = []
    for node in nodes:
        if node.spec.numa is not None:
            node.numa = node_state(node, rules)
            if node.numa is not None:
                aligned.append(node.numa)
    if not aligned:
        return
    for task in tasks:
        if task.node is not None and task.node.numa is not None:
            _load(task, task.node.numa)
    if rules.believe_numa_report:
        for numa in aligned:
            if numa.unrecorded:
                _bound(numa)


def _load(task: TaskState, numa: NumaState) -> None:
    if task.status is TaskStatus.PIPELINED:
        return
    recorded = task.spec.zones
    if recorded and all(identity in numa.ids for identity, _ in recorded):
        task.zones = tuple(sorted((numa.ids[identity], amounts) for identity, amounts in recorded))
        _book(task.node, task.zones, task.status, 1)
    elif (aligned := task.spec.request.alignment) is not None:
        numa.unrecorded = numa.unrecorded or any(name in numa.resources for name, _ in aligned.pod)


def _bound(numa: NumaState) -> None:
    """Let zones with pods that nobody knows the zones of give no more than the node reports as available."""
    for idle, leaving, zone in zip(numa.idle, numa.leaving, numa.spec.zones, strict=True):
        for name in idle:
            idle[name] = min(idle[name], max(zone.available.get(name, 0), -leaving[name]))


def move(task: TaskState, status: TaskStatus, node: NodeState | None, zones: Placement) -> None:
    """Follow a pod from its place to its next one: this status, on this node, in these zones.

    A pod that is evicted and claims a new place still holds, and releases, the one that it has.
    """
    turns = {task.status, status} == {TaskStatus.RELEASING, TaskStatus.PIPELINED}
    if not (turns and task.status is TaskStatus.RELEASING):
        _book(task.node, task.zones, task.status, -1)
    if not (turns and status is TaskStatus.RELEASING):
        _book(node, zones, status, 1)


def _book(node: NodeState | None, zones: Placement, status: TaskStatus, sign: int) -> None:
    if node is None or node.numa is None:
        return
    numa = node.numa
    for zone, amounts in zones:
        if status in HOLDING or status in (TaskStatus.RELEASING, TaskStatus.STUCK):
            _add(numa.idle[zone], amounts, -sign)
        if status is TaskStatus.RELEASING:
            _add(numa.leaving[zone], amounts, sign)
        elif status is TaskStatus.PIPELINED:
            _add(numa.leaving[zone], amounts, -sign)


def _add(counters: dict[str, int], amounts: tuple[Amount, ...], sign: int) -> None:
    for name, amount in amounts:
        if name in counters:
            counters[name] += sign * amount


def by_id(task: TaskState) -> ZoneAmounts:
    """Give what a placed pod gets of each zone, by the zone's own name."""
    if not task.zones or task.node is None or task.node.numa is None:
        return ()
    zones = task.node.numa.spec.zones
    return tuple((zones[zone].id, amounts) for zone, amounts in task.zones)
