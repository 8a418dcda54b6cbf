"""The tree of queues and what each holds and asks for. Pure but for the numbers of `QueueState`, which it keeps.

Jobs sit in leaves; what they hold and ask for counts on the whole way up (KAI's Queue v2, spec.parentQueue).
"""

from collections.abc import Iterable, Iterator

from controller.scheduler.amounts import GPU, UNLIMITED, Amounts
from controller.scheduler.model import Queue
from controller.scheduler.state import QueueState, TaskState


def build(specs: Iterable[Queue]) -> tuple[dict[str, QueueState], dict[str, str]]:
    """Make the tree, parents before children and otherwise by name, the same for any order of `specs`.

    A queue whose chain of parents ends nowhere or runs in a circle is left out with all below it, and told of in the second
    value, a sentence by name: a share worked out from half a tree would be wrong for everybody.
    """
    by_name = {spec.name: spec for spec in specs}
    states: dict[str, QueueState] = {}
    lost: dict[str, str] = {}
    on_way: set[str] = set()
    for name in sorted(by_name):
        chain, above = [], name
        while above in by_name and above not in states and above not in lost and above not in on_way:
            chain.append(above)
            on_way.add(above)
            above = by_name[above].parent
        why = _why_not_rooted(above, by_name, states, lost) if chain else ""
        for link in reversed(chain):
            if why:
                lost[link] = why
            else:
                spec = by_name[link]
                states[link] = QueueState(spec, states.get(spec.parent))
    for state in states.values():
        state.children.sort(key=lambda child: child.name)
    return states, {name: f'queue "{name}" is left out: {lost[name]}' for name in sorted(lost)}


def _why_not_rooted(
    above: str, by_name: dict[str, Queue], states: dict[str, QueueState], lost: dict[str, str]
) -> str:
    """Say what is wrong with what a chain of parents ends at, or nothing."""
    if not above or above in states:
        return ""
    if above not in by_name:
        return f'there is no parent queue "{above}"'
    return lost.get(above, f'its parents run in a circle at queue "{above}"')


def add(queue: QueueState, amounts: Amounts, sign: int, preemptible: bool) -> None:
    """Count something as held (sign 1) or no longer held (-1), by the queue and all above it."""
    gpu, cpu, memory = amounts
    if sign < 0:
        gpu, cpu, memory = -gpu, -cpu, -memory
    for state in queue.path:
        held = state.allocated
        held[0] += gpu
        held[1] += cpu
        held[2] += memory
        if not preemptible:
            held = state.allocated_np
            held[0] += gpu
            held[1] += cpu
            held[2] += memory


def request(queue: QueueState, amounts: Amounts, sign: int) -> None:
    """Count something as asked for (sign 1) or no longer asked for (-1), by the queue and all above it."""
    for state in queue.path:
        asked = state.requested
        asked[0] += sign * amounts[0]
        asked[1] += sign * amounts[1]
        asked[2] += sign * amounts[2]


def add_model(queue: QueueState, model: str, milli: int, sign: int, preemptible: bool) -> None:
    """Count GPUs of one model as held or no longer held, in milli-GPU, where a queue on the way up has a quota for it.

    Rule `quota_per_model`; costs nothing where `queue.counts_models` is False.
    """
    for state in queue.path:
        counts = state.by_model.get(model)
        if counts is not None:
            counts[0] += sign * milli
            if not preemptible:
                counts[1] += sign * milli


def count_model(task: TaskState, sign: int) -> None:
    """Count a pod that is on a node for quotas by GPU model (`add_model`)."""
    job = task.job
    if job is None or job.queue is None or not job.queue.counts_models:
        return
    for model, part in models_of(task):
        add_model(job.queue, model, part, sign, job.spec.preemptible)


def models_of(task: TaskState) -> Iterator[tuple[str, int]]:
    """Give what a pod that is on a node holds of each GPU model, by the cards that it has, each its part.

    Where these are not known, as of a claim on whole GPUs, the node's first card stands for them.
    """
    left = task.amounts[GPU]
    if task.node is None or left == 0:
        return
    devices = [device for device in task.devices if device.counts] or task.node.devices[:1]
    for at, device in enumerate(devices):
        part = left // (len(devices) - at)
        left -= part
        yield device.spec.model, part


def allocatable(queue: QueueState, resource: int) -> int:
    """What a queue may hold of a resource for good: its limit where its quota has no bound, else the larger of quota and
    fair share, within the limit (KAI's allocatable share)."""
    limit = queue.limit[resource]
    deserved = queue.quota[resource]
    if deserved == UNLIMITED:
        return limit
    fair = queue.fair_share[resource]
    share = max(deserved, fair)
    return share if limit == UNLIMITED or share < limit else limit
