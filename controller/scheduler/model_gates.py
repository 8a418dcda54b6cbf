"""Who may take GPUs of one model back by name, and whose are safe: quotas by GPU model (rule `quota_per_model`). Pure.

A quota of a model is a claim by name, whatever the queue holds besides. Within it a queue may take back cards of that model
from queues which hold more of it than their own quota of it; a queue that has none holds all of it beyond. What is within
such a quota is safe from everybody who has no claim by name. All that is beyond is shared like any GPU, by fair share.

What is free goes to whoever has a claim first (`job_order`), where his pods may get no other model.

A claim is made where two paths part, by the queue that stands there, and every queue of the path below that has a quota of
the model must have room for it. On the victim's side every queue that has one must hold more than that, down to the leaf.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from controller.scheduler import queues
from controller.scheduler.amounts import GPU, WHOLE_GPU, Amounts
from controller.scheduler.reclaim_gates import level, spares_quota
from controller.scheduler.state import NodeState, QueueState, TaskState

Piece: TypeAlias = tuple[Amounts, dict[str, int]]
"""What leaves together: amounts, and how much of which GPU model, in milli-GPU."""
Losses: TypeAlias = Sequence[tuple[QueueState, Sequence[Piece]]]


def model_of(node: NodeState) -> str:
    """Name the model of a node's cards, "" where it has none or several: then nobody can tell which a pod would get."""
    models = {device.spec.model for device in node.devices}
    return models.pop() if len(models) == 1 else ""


def cards_of(nodes: Iterable[NodeState]) -> dict[str, int]:
    """Count the cards of nodes that are capacity, by model, in milli-GPU."""
    found: dict[str, int] = {}
    for node in nodes:
        if not node.spec.out:
            for device in node.devices:
                if device.counts:
                    found[device.spec.model] = found.get(device.spec.model, 0) + WHOLE_GPU
    return found


def held_by(tasks: Iterable[TaskState]) -> dict[str, int]:
    """Add up what pods hold, by GPU model."""
    found: dict[str, int] = {}
    for task in tasks:
        for model, milli in queues.models_of(task):
            found[model] = found.get(model, 0) + milli
    return found


def may_start(queue: QueueState, milli: int) -> bool:
    """Tell whether a queue may have a claim by name to so much of any model."""
    named = {model for state in queue.path for model in state.model_quota}
    return milli > 0 and any(_has_room(_lowest(queue, model), model, milli) for model in named)


def has_claim(reclaimer: QueueState, victim: QueueState, model: str, milli: int) -> bool:
    """Tell whether a queue has a claim by name against another: so much more of the model is within its quota of it."""
    return claims(level(reclaimer, victim)[0], reclaimer, model, milli)


def claims(top: QueueState, queue: QueueState, model: str, milli: int) -> bool:
    """Tell whether so much more of a model is within the quota of it that `top` has, and within those below it."""
    if milli <= 0 or model not in top.model_quota:
        return False
    return all(_has_room(state, model, milli) for state in _below(queue, top, model))


def may_be_victim(reclaimer: QueueState, milli: int, victim: QueueState, models: Iterable[str]) -> bool:
    """Tell whether jobs of a queue that hold these models may be looked at for a claim by name."""
    _, theirs = level(reclaimer, victim)
    return any(
        has_claim(reclaimer, victim, model, milli)
        and all(
            state.by_model[model][0] > state.model_quota[model] for state in _below(victim, theirs, model)
        )
        for model in models
    )


def spares(reclaimer: QueueState, losses: Losses, besides: str = "") -> bool:
    """Tell whether all these may go and leave no queue below a quota by model in anything that it loses, `besides` one."""
    left: dict[tuple[str, str], int] = {}
    for queue, pieces in losses:
        theirs = level(reclaimer, queue)[1]
        for _amounts, models in pieces if queue.counts_models else ():
            for model, milli in models.items():
                for state in _below(queue, theirs, model):
                    key = (state.name, model)
                    left[key] = left.get(key, state.by_model[model][0]) - milli
                    if model != besides and left[key] < state.model_quota[model]:
                        return False
    return True


def may_take_back(
    reclaimer: QueueState, model: str, milli: int, losses: Losses, spare_quota: bool = False
) -> bool:
    """Tell whether a queue may take all these by its claim to so much of a model; numbers are those before the evictions.

    Each piece must hold some of the model, and its queues more than their quota of it before it goes. With `spare_quota` no
    quota is touched at all; a search tries that first, so that what one indivisible job of others blocks can still be had.
    """
    left: dict[str, int] = {}
    for queue, pieces in losses:
        theirs = level(reclaimer, queue)[1]
        if not has_claim(reclaimer, queue, model, milli):
            return False
        for _amounts, models in pieces:
            if not models.get(model):
                return False
            for state in _below(queue, theirs, model):
                held = left.get(state.name, state.by_model[model][0])
                if held <= state.model_quota[model]:
                    return False
                left[state.name] = held - models[model]
    if not spare_quota:
        return spares(reclaimer, losses, besides=model)
    amounts = [(queue, [piece[0] for piece in pieces]) for queue, pieces in losses]
    return spares(reclaimer, losses) and spares_quota(reclaimer, amounts)


def may_move(reclaimer: QueueState, task: TaskState, was: NodeState) -> bool:
    """Tell whether a pod that is moved for another queue leaves none of its own below a quota of a model; numbers are those
    after all moves. `was`: its node before."""
    queue = task.job.queue if task.job is not None else None
    if queue is None or queue is reclaimer or task.node is None or task.amounts[GPU] == 0:
        return True
    if model_of(was) and model_of(was) == model_of(task.node):
        return True
    theirs = level(reclaimer, queue)[1]
    return not any(
        state.by_model[model][0] < state.model_quota[model]
        for model in {device.spec.model for device in was.devices}
        for state in _below(queue, theirs, model)
    )


def _has_room(state: QueueState, model: str, milli: int) -> bool:
    return state.by_model[model][0] + milli <= state.model_quota[model]


def _lowest(queue: QueueState, model: str) -> QueueState:
    return next(state for state in reversed(queue.path) if model in state.model_quota)


def _below(queue: QueueState, top: QueueState, model: str) -> Iterator[QueueState]:
    """Give the queues that have a quota of the model, from one on a queue's path down to the queue itself."""
    return (state for state in queue.path[len(top.path) - 1 :] if model in state.model_quota)
