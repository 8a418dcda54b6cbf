"""No eviction because something became Unknown: what would not have been decided with all parts in sight is not done. Pure.

An Unknown part takes nothing new, so a job that would have gone there looks for victims instead, and a victim that could
have gone there cannot return. Both would be evictions by a mere silence. So where a plan evicts while parts are Unknown,
the same cycle is decided once more as if they were well, and only who is evicted there may be evicted here.
"""

import msgspec

from controller.scheduler.model import Snapshot
from controller.scheduler.node_terms import CONDITION_TAINTS
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.plan import Plan


def all_in_sight(snapshot: Snapshot) -> Snapshot | None:
    """Give the snapshot with every Unknown part as if it were well; None where none is."""
    closed = any(device.closed for device in snapshot.devices)
    if not closed and not any(_is_unknown(node) for node in snapshot.nodes):
        return None
    return msgspec.structs.replace(
        snapshot,
        nodes=tuple(map(_seen, snapshot.nodes)),
        devices=tuple(msgspec.structs.replace(device, closed="") for device in snapshot.devices)
        if closed
        else snapshot.devices,
    )


def _is_unknown(node: Node) -> bool:
    return bool(node.unseen) or any(gpu.health is PartHealth.UNKNOWN for gpu in node.gpus)


def _seen(node: Node) -> Node:
    if not _is_unknown(node):
        return node
    gpus = tuple(
        msgspec.structs.replace(gpu, health=PartHealth.HEALTHY, why="")
        if gpu.health is PartHealth.UNKNOWN
        else gpu
        for gpu in node.gpus
    )
    taints = node.taints
    if "closed" in node.unseen:
        taints = tuple(taint for taint in taints if taint.key not in CONDITION_TAINTS)
    limits = dict.fromkeys(node.unseen, "")
    return msgspec.structs.replace(node, gpus=gpus, taints=taints, unseen=(), **limits)


def evicts_only(plan: Plan, sure: Plan) -> bool:
    """Tell whether everybody whom the plan evicts is evicted in the other one too."""
    return {one.task for one in plan.evictions} <= {one.task for one in sure.evictions}
