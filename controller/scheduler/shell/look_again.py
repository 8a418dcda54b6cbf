"""Right before a bind or an eviction: is the world still the one that was planned on? Shell over the stores, quick, from
any thread.

Between the plan and the request lie milliseconds, or seconds in a long line, and a node can fall ill in them. What changed
in a way that decides is not judged here: nothing is sent, and the next cycle decides anew.
"""

import msgspec

from controller.scheduler.shell.meaning import meaning_of_node
from controller.scheduler.shell.orders import BindOrder, VictimSet
from controller.scheduler.shell.stores import Stores
from kube.clock import Clock
from kube.nodehealth import NodeHealth


class LookAgain:
    """Holds nothing but the stores."""

    def __init__(self, stores: Stores, clock: Clock) -> None:
        self._stores = stores
        self._clock = clock

    def why_not(self, order: BindOrder) -> str:
        """Say why this bind may not be sent any more; "" = it may."""
        task, name = order.bind.task, order.bind.node
        if stale := self._stores.why_not_fresh(self._clock.monotonic()):
            return stale
        pod = self._stores.pods.get(task)
        if pod is None or pod.metadata.uid != order.uid:
            return "the pod is gone"
        if pod.metadata.deletion_timestamp is not None:
            return "the pod is being deleted"
        if pod.spec.node_name:
            return f"the pod is on node {pod.spec.node_name} already"
        node = self._stores.nodes.get(name)
        if node is None:
            return f"node {name} is gone"
        if node is not order.node and meaning_of_node(node) != meaning_of_node(order.node):
            return f"node {name} changed since it was chosen"
        health = self._stores.healths.get(name)
        if health is not order.health and _told(health) != _told(order.health):
            return f"what is known of node {name} changed since it was chosen"
        return ""

    def why_not_evict(self, victims: VictimSet) -> str:
        """Say why these may not be evicted any more; "" = they may. Who is gone already, or leaves, is no reason."""
        if stale := self._stores.why_not_fresh(self._clock.monotonic()):
            return stale
        for victim in victims.victims:
            task, node = victim.evict.task, victim.evict.node
            pod = self._stores.pods.get(task)
            if pod is not None and pod.metadata.uid == victim.uid and pod.spec.node_name != node:
                return f"{task} is not on node {node} any more"
        return ""


def _told(health: NodeHealth | None) -> object:
    """Give what decides of a NodeHealth. When it was written does not, nor who holds a part, which changes with every pod
    that starts: a gang over many nodes would never find them all unchanged.
    """
    if health is None:
        return None
    status = health.status
    faults = [
        (one.condition, one.reason, one.severity, one.effect, one.urgency, one.part, one.drill)
        for one in status.findings
    ]
    parts = [msgspec.structs.replace(part, held=None, held_by="") for part in status.parts]
    return (status.node_uid, status.boot_id, status.published_conditions, faults, parts)
