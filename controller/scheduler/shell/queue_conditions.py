"""What is wrong or worth knowing about a queue, in sentences. Pure.

Orphan and OverQuota are KAI's types; ParentLoop, Shortage and Invalid are ours. A queue that is wrong, and all below it,
takes part in nothing; the others are served as if it were not there.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final

import msgspec

from controller.scheduler.amounts import GPU, MEMORY, RESOURCE_NAMES, RESOURCES, UNLIMITED
from controller.scheduler.model import Queue, Snapshot
from controller.scheduler.nodes import PartHealth
from controller.scheduler.plan import Plan, Share

ORPHAN: Final = "Orphan"
PARENT_LOOP: Final = "ParentLoop"
OVER_QUOTA: Final = "OverQuota"
SHORTAGE: Final = "Shortage"
INVALID: Final = "Invalid"
TYPES: Final = (INVALID, ORPHAN, PARENT_LOOP, OVER_QUOTA, SHORTAGE)
_SHOWN: Final = 5
_UNREADABLE: Final = "Queue "
_MIB: Final = 1 << 20


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """It holds; a type that is not named does not."""

    type: str
    reason: str
    message: str


def unreadable(problems: Iterable[str]) -> dict[str, str]:
    """Give what could not be read of queues, by name."""
    found: dict[str, str] = {}
    for problem in problems:
        if problem.startswith(_UNREADABLE):
            name, _, words = problem.removeprefix(_UNREADABLE).partition(": ")
            found[name] = words
    return found


def of_place(name: str, parents: Mapping[str, str], known: Set[str]) -> Condition | None:
    """Say what is wrong with where a queue hangs: its parents run in a loop, or one of them is not there.

    `parents`: of all Queues of the cluster by name, "" = a root; `known`: those that this scheduler could read in its pool.
    """
    chain = [name]
    while parent := parents.get(chain[-1], ""):
        child = chain[-1]
        if parent in chain:
            loop = " -> ".join((*chain[chain.index(parent) :], parent))
            where = "" if parent == name else f', below which "{name}" hangs'
            return Condition(
                type=PARENT_LOOP,
                reason="ParentsRunInALoop",
                message=f"spec.parentQueue: {loop} is a loop{where}; one of them must be a root or have another parent",
            )
        whose = "" if child == name else f' of queue "{child}", above this one,'
        if parent not in parents:
            return Condition(
                type=ORPHAN,
                reason="ParentNotFound",
                message=f'spec.parentQueue{whose} is "{parent}", and there is no such Queue',
            )
        if parent not in known:
            return Condition(
                type=ORPHAN,
                reason="ParentNotUsable",
                message=f'spec.parentQueue{whose} is "{parent}", which is of another node pool or cannot be read',
            )
        chain.append(parent)
    return None


def over_quota(share: Share) -> Condition | None:
    """Say which resources a queue holds more of than its quota; without numbers, which change all the time."""
    over = [
        RESOURCE_NAMES[resource]
        for resource in RESOURCES
        if share.deserved[resource] != UNLIMITED and share.allocated[resource] > share.deserved[resource]
    ]
    if not over:
        return None
    words = f"it holds more {' and '.join(over)} than its quota, and may be asked to give the surplus back"
    return Condition(type=OVER_QUOTA, reason="AboveQuota", message=words)


def shortages(plan: Plan, snapshot: Snapshot) -> dict[str, Condition]:
    """Say of each queue whose fair share is below the quota that it asks for how much it is short of, and what is gone.

    That is so only where the quotas asked for exceed what there is: the capacity was lost, or never there.
    """
    specs = {queue.name: queue for queue in snapshot.queues}
    shares = {share.queue: share for share in plan.shares if share.queue in specs}
    short = {
        name: lacking
        for name, share in shares.items()
        if (lacking := [resource for resource in RESOURCES if _is_short(share, specs[name], resource)])
    }
    gone = _gone(snapshot) if short else ""
    return {
        name: Condition(
            type=SHORTAGE,
            reason="CapacityBelowQuotas",
            message="; ".join(_short_of(name, specs, shares, resource, plan) for resource in lacking) + gone,
        )
        for name, lacking in short.items()
    }


def _is_short(share: Share, spec: Queue, resource: int) -> bool:
    deserved, limit = share.deserved[resource], spec.quotas[resource].limit
    if deserved == UNLIMITED:
        return False
    asked = min(deserved, share.requested[resource])
    return share.fair_share[resource] < (asked if limit == UNLIMITED else min(asked, limit))


def _short_of(
    name: str, specs: Mapping[str, Queue], shares: Mapping[str, Share], resource: int, plan: Plan
) -> str:
    share, parent = shares[name], specs[name].parent
    quotas = sum(
        one.deserved[resource]
        for other, one in shares.items()
        if specs[other].parent == parent and one.deserved[resource] != UNLIMITED
    )
    whole, where = plan.total, "the pool has"
    if parent in shares:
        whole, where = shares[parent].fair_share, f'queue "{parent}" may use'
    told, asked = _amount(resource, share.fair_share[resource]), _amount(resource, share.deserved[resource])
    return (
        f"its share is {told} of a quota of {asked}: {where} {_amount(resource, whole[resource])}"
        f" where quotas add up to {_amount(resource, quotas)}"
    )


def _amount(resource: int, amount: int) -> str:
    if resource == MEMORY:
        return f"{amount // _MIB} MiB of memory"
    return f"{amount / 1000:g} {'GPUs' if resource == GPU else 'CPUs'}"


def _gone(snapshot: Snapshot) -> str:
    """Name what is no capacity: whole nodes first, then single cards."""
    nodes = [
        f"node {node.name} ({len(node.gpus)} GPUs, {node.closed or 'out'})"
        for node in snapshot.nodes
        if node.out
    ]
    cards = [
        f"{gpu.uuid} of node {node.name} ({gpu.why or gpu.health.value})"
        for node in snapshot.nodes
        if not node.out
        for gpu in node.gpus
        if gpu.health is PartHealth.SICK
    ]
    found = nodes + cards
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"; out of service: {', '.join(found[:_SHOWN])}{more}"
