"""Plans one cycle of a saved snapshot, and tells it to people.

A snapshot file holds `model.Snapshot` as JSON, or one case of KAI's conformance suite, or a list of such cases. The clock
stands still: the steps alone bound a search, so that a file gives the same plan on every machine.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from controller.scheduler import casefile
from controller.scheduler.amounts import RESOURCE_NAMES, UNLIMITED, WHOLE_GPU, Amounts
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import PodSet, Queue, Snapshot, SubGroup
from controller.scheduler.plan import Plan, Share
from controller.scheduler.rules import Rules


class BadSnapshot(ValueError):
    """A file that is no snapshot; the words name the file, the field, its value and what would be right."""


def load(path: Path, case: str = "") -> Snapshot:
    """Read a snapshot file; `case` names the case where it is a list of them.

    Raises: BadSnapshot.
    """
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise BadSnapshot(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"{path} is no JSON: {error}") from error
    if isinstance(raw, list):
        raw = _chosen(path, raw, case)
    if not isinstance(raw, dict):
        raise BadSnapshot(f"{path} holds {json.dumps(raw)[:80]}: must be an object, a snapshot or a case")
    try:
        if "actions" in raw:
            return casefile.snapshot_of(casefile.read(raw))
        snapshot = msgspec.convert(raw, Snapshot)
    except msgspec.ValidationError as error:
        raise BadSnapshot(f"{path}: {_said(error, raw)}") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise BadSnapshot(f"{path}: {error}") from error
    for problem in problems(snapshot):
        raise BadSnapshot(f"{path}: {problem}")
    return snapshot


def save(snapshot: Snapshot) -> bytes:
    """Give a snapshot as its file."""
    return msgspec.json.encode(snapshot)


def _chosen(path: Path, cases: list[Any], name: str) -> Any:
    named = {str(case["id"]): case for case in cases if isinstance(case, dict) and "id" in case}
    if not name:
        raise BadSnapshot(f"{path} holds {len(cases)} cases: name one with --case")
    if name not in named:
        raise BadSnapshot(f"{path} has no case {name!r}: must be one of {', '.join(named) or 'none'}")
    return named[name]


def _said(error: msgspec.ValidationError, raw: Any) -> str:
    """Put the value beside the field that msgspec names by its path: `$.jobs[0].tasks[1].status`."""
    words, at, path = str(error).partition(" - at `$")
    steps = path.removesuffix("`").replace("[", ".").replace("]", "").split(".")[1:]
    value = raw
    for step in steps:
        if isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return str(error)
    return f"field {'.'.join(steps)} is {json.dumps(value)[:80]}: {words}" if at else words


def problems(snapshot: Snapshot) -> Iterator[str]:
    """Say what contradicts itself in a snapshot: names twice, pods on nodes that are not there, parts beyond a whole, quotas
    below nothing."""
    yield from _twice("nodes", (node.name for node in snapshot.nodes))
    yield from _twice("queues", (queue.name for queue in snapshot.queues))
    yield from _twice("jobs", (job.id for job in snapshot.jobs))
    tasks = [task for job in snapshot.jobs for task in job.tasks]
    yield from _twice("tasks", (task.id for task in (*tasks, *snapshot.others)))
    for queue in snapshot.queues:
        yield from _odd_quotas(queue)
    nodes = {node.name for node in snapshot.nodes}
    for task in (*tasks, *snapshot.others):
        if task.node and task.node not in nodes:
            yield f"task {task.id}: node is {task.node!r}: must be the name of a node of the snapshot"
        if not 0 <= task.request.portion <= WHOLE_GPU:
            yield f"task {task.id}: request.portion is {task.request.portion}: must be between 0 and {WHOLE_GPU}"
    for job in snapshot.jobs:
        yield from _twice(f"job {job.id}: pod sets", (leaf.name for leaf in _leaves(job.root)))
        yield from (
            f"task {task.id}: job is {task.job!r}: must be {job.id!r}"
            for task in job.tasks
            if task.job != job.id
        )


def _odd_quotas(queue: Queue) -> Iterator[str]:
    named = (*zip(RESOURCE_NAMES, queue.quotas, strict=True), *queue.models)
    for resource, quota in named:
        for field, bound in (("deserved", quota.deserved), ("limit", quota.limit)):
            if bound < UNLIMITED:
                yield f"queue {queue.name}: {field} of {resource} is {bound}: must be 0 or more, or -1 for no bound"
        if quota.weight < 0:
            yield f"queue {queue.name}: weight of {resource} is {quota.weight}: must be 0 or more"


def _leaves(group: SubGroup) -> Iterator[PodSet]:
    yield from group.pod_sets
    for child in group.groups:
        yield from _leaves(child)


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, number in Counter(names).items():
        if number > 1:
            yield f"{what}: {name!r} is there {number} times: each name must be there once"


def replay(snapshot: Snapshot, rules: Rules) -> Plan:
    """Plan one cycle of it."""
    return run_cycle(snapshot, rules)


def plan_lines(plan: Plan) -> Iterator[str]:
    """Tell a plan to people, in the order of its decisions."""
    yield f"total: {_amounts(plan.total)}"
    for share in plan.shares:
        yield f"queue {share.queue}: {_share(share)}"
    for bind in plan.binds:
        cards = f" ({', '.join(bind.gpus)}{_part(bind.milli)})" if bind.gpus else ""
        yield f"bind {bind.task} to {bind.node}{cards}"
    for eviction in plan.evictions:
        moved = f", to go on at {eviction.moved_to}" if eviction.moved_to else ""
        yield f"evict {eviction.task} from {eviction.node}{moved}: {eviction.why}"
    for place in plan.pipelined:
        yield f"hold {place.node} for {place.task}"
    for wait in plan.waits:
        yield f"wait {wait.job}: {wait.code}: {wait.message}"
        yield from (f"  {reason.count} x {reason.text}" for reason in wait.reasons)
    for action in plan.exhausted:
        yield f"{action} ran out of steps or time"
    if plan.reserved_for:
        yield f"reserved for {plan.reserved_for}"


def _part(milli: int) -> str:
    return f", {milli} milli each" if 0 < milli < WHOLE_GPU else ""


def _share(share: Share) -> str:
    words = [
        f"{name} deserves {_number(index, share.deserved[index])}, may have {_number(index, share.fair_share[index])},"
        f" has {_number(index, share.allocated[index])}, asks for {_number(index, share.requested[index])}"
        for index, name in enumerate(RESOURCE_NAMES)
        if share.requested[index] or share.allocated[index]
    ]
    return "; ".join(words) or "asks for nothing"


def _amounts(amounts: Amounts) -> str:
    return ", ".join(f"{name} {_number(index, amounts[index])}" for index, name in enumerate(RESOURCE_NAMES))


def _number(resource: int, amount: int) -> str:
    """Whole GPUs and cores to a thousandth, memory in MiB."""
    if amount == UNLIMITED:
        return "unlimited"
    if RESOURCE_NAMES[resource] == "Memory":
        return f"{amount // (1 << 20)} MiB"
    whole, part = divmod(amount, 1000)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)
