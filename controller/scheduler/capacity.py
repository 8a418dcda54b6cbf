"""Limits and quotas that hold at every level of the queue tree when something is placed (kai.md 3.6). Pure."""

from typing import NamedTuple

from controller.scheduler import counting
from controller.scheduler.amounts import GPU, MEMORY, RESOURCE_NAMES, RESOURCES, UNLIMITED, Amounts
from controller.scheduler.ledger import Ledger
from controller.scheduler.state import NodeState, QueueState, TaskState

OVER_LIMIT = "OverLimit"
NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"


class Refusal(NamedTuple):
    """`code` as KAI writes it to a PodGroup, a sentence for people, and which queue refuses."""

    code: str
    message: str
    queue: str


def why_not(
    queue: QueueState, amounts: Amounts, preemptible: bool, model: str = ""
) -> tuple[str, str] | None:
    """Say why a queue may not take so much more, as a code of KAI's and a message; None = it may.

    The limit holds for everything, the quota for what is not preemptible: nobody could take it back. Both hold at the
    queue and at every one above it, and only for resources that are asked for. `model`: the GPU model asked for or found
    on the node; where a queue on the way has a quota for it, that holds besides (rule `quota_per_model`: pass a model
    only where it is on). A model that a queue does not name is bound by its GPU quota alone.
    """
    refusal = (
        why_over_limit(queue, amounts)
        or why_over_quota(queue, amounts, preemptible)
        or (
            _why_not_model(queue, amounts[GPU], preemptible, model) if model and queue.counts_models else None
        )
    )
    return None if refusal is None else (refusal.code, refusal.message)


def why_not_there(ledger: Ledger, task: TaskState, node: NodeState) -> str | None:
    """Say why its queue may not take a pod on this node, though it may on others; None = it may, or nobody asks.

    GPU memory is a larger part of a smaller card, and GPU models may have quotas. On a node with cards of several models
    the pod must fit the quota of each: which it gets is decided after this.
    """
    job = task.job
    if job is None or job.queue is None or not node.devices:
        return None
    asked = counting.amounts_of(task.spec.request, node.devices[0].mib, ledger.min_gpu_mib, ledger.rules)
    models = [""]
    if ledger.rules.quota_per_model and job.queue.counts_models:
        models = sorted({device.spec.model for device in node.devices})
    refusals = (why_not(job.queue, asked, job.spec.preemptible, model) for model in models)
    return next((refusal[1] for refusal in refusals if refusal is not None), None)


def why_over_limit(queue: QueueState, amounts: Amounts) -> Refusal | None:
    """Say which queue on the way up would be over its limit, or None."""
    for state in reversed(queue.path):
        for resource in RESOURCES:
            asked, limit = amounts[resource], state.limit[resource]
            if asked > 0 and limit != UNLIMITED and state.allocated[resource] + asked > limit:
                return _refusal(
                    OVER_LIMIT,
                    state,
                    RESOURCE_NAMES[resource],
                    resource,
                    limit,
                    state.allocated[resource],
                    asked,
                )
    return None


def why_over_quota(queue: QueueState, amounts: Amounts, preemptible: bool) -> Refusal | None:
    """Say why something not preemptible may not go beyond the quota, or None; the limit is not looked at."""
    if preemptible:
        return None
    for state in reversed(queue.path):
        for resource in RESOURCES:
            asked, quota, held = amounts[resource], state.deserved[resource], state.allocated_np[resource]
            if asked > 0 and quota != UNLIMITED and held + asked > quota:
                name = RESOURCE_NAMES[resource]
                return _refusal(NON_PREEMPTIBLE_OVER_QUOTA, state, name, resource, quota, held, asked)
    return None


def _why_not_model(queue: QueueState, milli: int, preemptible: bool, model: str) -> Refusal | None:
    for state in reversed(queue.path):
        counts = state.by_model.get(model)
        if counts is None or milli <= 0:
            continue
        quota = next(quota for name, quota in state.spec.models if name == model)
        if quota.limit != UNLIMITED and counts[0] + milli > quota.limit:
            return _refusal(OVER_LIMIT, state, f"GPU {model}", GPU, quota.limit, counts[0], milli)
        if not preemptible and quota.deserved != UNLIMITED and counts[1] + milli > quota.deserved:
            return _refusal(
                NON_PREEMPTIBLE_OVER_QUOTA, state, f"GPU {model}", GPU, quota.deserved, counts[1], milli
            )
    return None


def _refusal(
    code: str, state: QueueState, name: str, resource: int, bound: int, held: int, asked: int
) -> Refusal:
    kind = "limit" if code == OVER_LIMIT else "quota for non-preemptible jobs"
    bound_text, held_text, asked_text = (written(amount, resource) for amount in (bound, held, asked))
    text = f"queue {state.name} has a {name} {kind} of {bound_text}, holds {held_text} and would need {asked_text} more"
    return Refusal(code, text, state.name)


def written(amount: int, resource: int) -> str:
    """Write an amount for people: GPUs and cores with at most three decimals, memory in GB of 10**9 bytes, as KAI does."""
    unit = 1_000_000_000 if resource == MEMORY else 1000
    whole, part = divmod(amount, unit)
    thousandths = f"{part * 1000 // unit:03}".rstrip("0")
    number = f"{whole}.{thousandths}" if thousandths else str(whole)
    return f"{number} GB" if resource == MEMORY else number
