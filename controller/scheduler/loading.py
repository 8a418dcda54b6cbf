"""From a snapshot to the states of a cycle: who holds which cards, what each queue holds and asks for, the total. Pure."""

from collections.abc import Iterable
from operator import attrgetter

from controller.scheduler import counting, node_books, queues, task_order
from controller.scheduler.amounts import NOTHING, WHOLE_GPU, Amounts, minus, plus
from controller.scheduler.model import ACTIVE_USED, HOLDING, Snapshot, SubGroup, Task, TaskStatus
from controller.scheduler.node_terms import CONDITION_TAINTS, HARD_EFFECTS, why_not_taints
from controller.scheduler.nodes import Node, PartHealth
from controller.scheduler.requests import Constraints, Request, Taint
from controller.scheduler.rules import Rules
from controller.scheduler.state import DeviceState, JobState, NodeState, PodSetState, QueueState, TaskState

ON_NODE = HOLDING | {TaskStatus.RELEASING, TaskStatus.STUCK, TaskStatus.PIPELINED}
HUNDRED_MIB = 100
_THERE = ACTIVE_USED | {TaskStatus.PENDING, TaskStatus.GATED}


def node_states(nodes: Iterable[Node], rules: Rules) -> list[NodeState]:
    """Make the nodes in order of name, everything on them free."""
    return [
        _node_state(spec, index, rules)
        for index, spec in enumerate(sorted(nodes, key=lambda node: node.name))
    ]


def _node_state(spec: Node, index: int, rules: Rules) -> NodeState:
    node = NodeState(spec, index)
    node.idle_cpu, node.idle_memory, node.idle_pods = spec.cpu_milli, spec.memory_bytes, spec.pods
    if spec.other or spec.mig:
        node.idle_other = dict(spec.other)
        for profile, count in spec.mig.items():
            node.idle_other[counting.mig_resource(profile)] = count
        node.releasing_other = dict.fromkeys(node.idle_other, 0)
    node.devices = tuple(sorted(node.devices, key=attrgetter("index", "uuid")))
    idle = 0
    healthy, sick = PartHealth.HEALTHY, PartHealth.SICK
    for device in node.devices:
        gpu = device.spec
        if not rules.exact_gpu_memory:
            # KAI floors to hundreds of MiB, and takes 100 where it knows nothing.
            device.mib = device.mib // HUNDRED_MIB * HUNDRED_MIB or HUNDRED_MIB
        device.counts = gpu.health is not sick
        if gpu.health is healthy and gpu.offered:
            device.open = True
            idle += 1
    node.idle_gpus = idle
    return node


def job_states(snapshot: Snapshot, by_name: dict[str, QueueState], rules: Rules) -> dict[str, JobState]:
    """Make the jobs in order of id, with their pods in their order and their leaf subgroups by name."""
    succeeded = TaskStatus.SUCCEEDED if rules.gang_survives_success else None
    jobs: dict[str, JobState] = {}
    for spec in sorted(snapshot.jobs, key=attrgetter("id")):
        job = JobState(spec, by_name.get(spec.queue))
        _add_pod_sets(job, spec.root)
        some_done = False
        for task_spec in sorted(spec.tasks, key=_by_index) if len(spec.tasks) > 1 else spec.tasks:
            task = TaskState(task_spec, job)
            job.tasks.append(task)
            pod_set = job.pod_sets.get(task_spec.pod_set)
            if pod_set is None:
                # A pod of a subgroup that its group does not have: no minimum counts it.
                pod_set = job.pod_sets[task_spec.pod_set] = PodSetState(task_spec.pod_set, 0)
            pod_set.tasks.append(task)
            if task_spec.status in ACTIVE_USED:
                pod_set.held += 1
            elif task_spec.status is succeeded:
                some_done = True
        # A pod of a subgroup that the tree lacks would be a second pod set.
        if len(job.tasks) == 1 and job.is_flat and len(job.pod_sets) == 1:
            (job.lone,) = job.pod_sets.values()
            job.lone.tasks = job.tasks  # one list for both: there are thousands of such jobs
        for pod_set in job.pod_sets.values():
            if len(pod_set.tasks) > 1:
                pod_set.tasks.sort(key=task_order.key)
            if some_done:
                pod_set.min_available = _least_beside_done(pod_set)
        jobs[job.id] = job
    return jobs


def _least_beside_done(pod_set: PodSetState) -> int:
    """Give how many pods have to run together where others of the set have succeeded.

    Of a Job with 8 completions of which 3 are there no 8 pods will ever live again: the 5 others are all of the gang. But a
    Job with more completions than it runs at a time goes on by its minimum, and whatever lives starts as one, so that no
    success makes singles of a gang. Pods that end or failed are not there: their successors are waited for.
    """
    statuses = [task.status for task in pod_set.tasks]
    done = statuses.count(TaskStatus.SUCCEEDED)
    alive = sum(status in _THERE for status in statuses)
    return max(pod_set.min_available - done, min(pod_set.min_available, alive))


def _by_index(task: Task) -> tuple[int, str]:
    return (task.index, task.id)


def _add_pod_sets(job: JobState, group: SubGroup) -> None:
    for pod_set in group.pod_sets:
        job.pod_sets[pod_set.name] = PodSetState(pod_set.name, pod_set.min_available)
    for below in group.groups:
        _add_pod_sets(job, below)


def settle(tasks: Iterable[TaskState], nodes: dict[str, NodeState], rules: Rules) -> None:
    """Put pods on their nodes and cards: first those whose cards are known, then, in order, the others on what is free."""
    unknown: list[tuple[TaskState, NodeState]] = []
    for task in tasks:
        if task.status not in ON_NODE or task.spec.node not in nodes:
            continue
        node = task.node = nodes[task.spec.node]
        wanted = _devices_wanted(task)
        if wanted:
            task.devices = _named(task, node)
            if len(task.devices) < wanted:
                unknown.append((task, node))
                continue
        _settle(task, node)
    for task, node in unknown:
        task.devices = _with_free(task, node, _devices_wanted(task))
        _settle(task, node)
    for node in nodes.values():
        if node.spec.probe:
            node.idle_pods = min(node.idle_pods, node.spec.probe_pods)
    if rules.believe_device_count:
        for node in nodes.values():
            if node.spec.whole_gpus is not None:
                _believe(node, node.spec.whole_gpus)


def _devices_wanted(task: TaskState) -> int:
    request = task.spec.request
    if request.gpus:
        return 0 if task.status is TaskStatus.PIPELINED else request.gpus
    if request.is_shared:
        return request.devices
    return len(task.spec.gpus)


def _named(task: TaskState, node: NodeState) -> tuple[DeviceState, ...]:
    uuids = task.spec.gpus
    return tuple(device for uuid in uuids for device in node.devices if device.uuid == uuid)


def _with_free(task: TaskState, node: NodeState, wanted: int) -> tuple[DeviceState, ...]:
    """Fill up with cards that have room: empty ones first, of those the open. A card is never overfilled by a guess."""
    known = task.devices
    fitting = sorted(
        (device for device in node.devices if device not in known and _has_room(task, device)),
        key=lambda device: (bool(device.used_milli or device.used_mib), not device.open, device.index),
    )
    return (*known, *fitting[: wanted - len(known)])


def _has_room(task: TaskState, device: DeviceState) -> bool:
    milli, mib = node_books.on_card(task.spec.request, device)
    return device.used_milli + milli <= WHOLE_GPU and device.used_mib + mib <= device.mib


def _settle(task: TaskState, node: NodeState) -> None:
    request, devices = task.spec.request, task.devices
    node.tasks[task.id] = task
    if devices:
        task.milli, task.mib = node_books.on_card(request, devices[0])
    if task.status is TaskStatus.PIPELINED:
        node_books.claim(request, node, devices, 1)
        return
    node_books.hold(request, node, devices, 1)
    if task.status is TaskStatus.RELEASING:
        node_books.free(request, node, devices, 1)


def _believe(node: NodeState, count: int) -> None:
    """Close the last cards that nobody uses, until no more are open than kubelet gives."""
    excess = sum(1 for device in node.devices if device.open) - count
    for device in reversed(node.devices):
        if excess <= 0:
            break
        if device.open and not (device.used_milli or device.used_mib or device.claimed_milli):
            node_books.close(device)
            excess -= 1


def counted_nodes(snapshot: Snapshot, nodes: list[NodeState], rules: Rules) -> list[bool]:
    """Tell of each node, by index, whether it is part of the total."""
    counted = [not node.spec.out for node in nodes]
    if not rules.taints_leave_total or not any(_hard_taints(node) for node in nodes):
        return counted
    seen: dict[int, Constraints] = {}
    for job in snapshot.jobs:
        for task in job.tasks:
            seen[id(task.constraints)] = task.constraints
    tolerations = list(dict.fromkeys(constraints.tolerations for constraints in seen.values()))
    known: dict[tuple[Taint, ...], bool] = {}
    for node in nodes:
        taints = _hard_taints(node)
        if taints and taints not in known:
            known[taints] = any(not why_not_taints(some, taints) for some in tolerations)
        if taints and not known[taints]:
            counted[node.index] = False
    return counted


def _hard_taints(node: NodeState) -> tuple[Taint, ...]:
    """Give the taints that may take a node off the total; a silent kubelet's does not, or silence would cost a pod."""
    if not node.spec.taints:
        return ()
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in HARD_EFFECTS and taint.key not in CONDITION_TAINTS
    )


def total_of(
    snapshot: Snapshot, nodes: list[NodeState], counted: list[bool], others: list[TaskState], rules: Rules
) -> Amounts:
    """Add up what the nodes that count have, less what pods of other schedulers hold there (KAI's total); never below 0,
    which they may reach where a node lost what they hold."""
    dra: dict[str, int] = {}
    for device in snapshot.devices:
        if "gpu" in device.device_class.lower():
            dra[device.node] = dra.get(device.node, 0) + 1
    total = NOTHING
    for node in nodes:
        if counted[node.index]:
            total = plus(total, counting.capacity_of(node.spec, dra.get(node.name, 0), rules))
    for task in others:
        if task.node is not None and counted[task.node.index]:
            total = minus(total, task.amounts)
    gpu, cpu, memory = total
    return (max(gpu, 0), max(cpu, 0), max(memory, 0))


def count_queues(jobs: Iterable[JobState], counted: list[bool], min_mib: int, rules: Rules) -> None:
    """Work out what each pod counts, and add up what queues hold and ask for."""
    known: dict[Request, Amounts] = {}
    for job in jobs:
        queue = job.queue
        for task in job.tasks:
            request = task.spec.request
            if task.node is None or not task.devices:
                found = known.get(request)
                if found is None:
                    found = known[request] = counting.amounts_of(request, None, min_mib, rules)
                amounts = found
            else:
                amounts = counting.placed_amounts(request, task.devices, min_mib, rules)
            if rules.allocated_leaves_with_total and _is_lost(task, counted):
                amounts = NOTHING
            task.amounts = amounts
            if queue is None:
                continue
            if task.status in ACTIVE_USED:
                queues.add(queue, amounts, 1, job.spec.preemptible)
                queues.count_model(task, 1)
                queues.request(queue, amounts, 1)
            elif task.status is TaskStatus.PENDING:
                queues.request(queue, amounts, 1)


def _is_lost(task: TaskState, counted: list[bool]) -> bool:
    """Tell whether a pod is on a node that is no capacity, or that is not there any more."""
    if task.node is None:
        return bool(task.spec.node) and task.status in HOLDING
    return not counted[task.node.index]
