"""The books of a cycle: who is where, what is free, what queues hold, with marks and exact undo. Pure.

The operations are those of KAI's statement (framework/statement.go): allocate, pipeline, evict, unevict and the turning of
allocated pods into pipelined ones. Each leaves an entry in the journal; `undo_to` takes them back, the newest first.
Versions and `changes` only ever go forward, so that nobody's cache believes in a state that was undone.
"""

from collections.abc import Callable

from controller.scheduler import counting, gpu_choice, loading, node_books, numa, numa_books, queues, room
from controller.scheduler.amounts import Amounts
from controller.scheduler.model import ACTIVE_USED, HOLDING, Settings, Snapshot, TaskStatus
from controller.scheduler.rules import Rules
from controller.scheduler.state import DeviceState, JobState, NodeState, Placement, QueueState, TaskState

Devices = tuple[DeviceState, ...]
# A pod's place: status, node, cards, milli and MiB of each, what it counts, why it is evicted, its NUMA zones.
Place = tuple[TaskStatus, NodeState | None, Devices, int, int, Amounts, str, Placement]

ALLOCATE, PIPELINE, EVICT, UNEVICT, TO_PIPELINED = range(5)


class Ledger:
    """All states of a cycle. Nobody else writes to them.

    `total` is what fair shares are divided from. `changes`: indexes of nodes that were touched, append-only, for whoever
    keeps an index. `min_gpu_mib`, `max_gpu_mib`: the smallest and the largest card of the cluster, 0 where there is none.
    `problems`: queues that were left out, in words. `requested` of queues stays what it was at the start: what is evicted
    or placed within a cycle is asked for all the same.
    """

    def __init__(self, snapshot: Snapshot, rules: Rules) -> None:
        self.rules = rules
        self.settings: Settings = snapshot.settings
        self.nodes = loading.node_states(snapshot.nodes, rules)
        self.node_by_name = {node.name: node for node in self.nodes}
        self.queues, self.problems = queues.build(snapshot.queues)
        self.jobs = loading.job_states(snapshot, self.queues, rules)
        self.tasks = {task.id: task for job in self.jobs.values() for task in job.tasks}
        self.others = [TaskState(spec, None) for spec in sorted(snapshot.others, key=lambda task: task.id)]
        self.changes: list[int] = []
        self.min_gpu_mib, self.max_gpu_mib = _card_range(self.nodes)
        self._journal: list[tuple[int, TaskState, Place] | Callable[[], None]] = []
        self._home: dict[str, Place] = {}
        loading.settle([*self.tasks.values(), *self.others], self.node_by_name, rules)
        numa_books.load([*self.tasks.values(), *self.others], self.nodes, rules)
        counted = loading.counted_nodes(snapshot, self.nodes, rules)
        for task in self.others:
            task.amounts = counting.placed_amounts(task.spec.request, task.devices, self.min_gpu_mib, rules)
        self.total = loading.total_of(snapshot, self.nodes, counted, self.others, rules)
        loading.count_queues(self.jobs.values(), counted, self.min_gpu_mib, rules)

    # --- questions ---------------------------------------------------------------------------------------------------

    def why_not_room(self, task: TaskState, node: NodeState, later: bool) -> str | None:
        """Say why a node has no room for a pod now or, with `later`, once all is gone that is being released."""
        request = task.spec.request
        why = room.why_not(request, node, later, self.rules)
        if why is None and node.numa is not None:
            return numa.why_not(request, node.numa, later)
        return why

    def choose_devices(self, task: TaskState, node: NodeState, later: bool) -> Devices | None:
        """Give the cards of a node that a pod would get, None where it has to go elsewhere or wait; see `gpu_choice`."""
        return gpu_choice.choose(task.spec.request, node, later, self.settings.gpu_sharing_order, self.rules)

    # --- marks -------------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Remember this moment for `undo_to`."""
        return len(self._journal)

    def undo_to(self, mark: int) -> None:
        """Take back everything since the mark, exactly, the newest first."""
        journal = self._journal
        while len(journal) > mark:
            entry = journal.pop()
            if callable(entry):
                entry()
            else:
                self._undo(*entry)

    def journal(self, undo: Callable[[], None]) -> None:
        """Let others keep books of their own in step: `undo` is called when this moment is taken back."""
        self._journal.append(undo)

    # --- operations --------------------------------------------------------------------------------------------------

    def allocate(self, task: TaskState, node: NodeState, devices: Devices = ()) -> None:
        """Give a pending pod its place on idle resources. Raises ValueError where it needs cards and none are free."""
        if task.status is not TaskStatus.PENDING:
            raise ValueError(f"{task.id} is {task.status}, not pending")
        chosen: Devices | None = devices
        if not devices:
            chosen = self.choose_devices(task, node, later=False)
        if chosen is None:
            raise ValueError(f"{task.id} needs cards of {node.name} and none are free")
        before = self._place_of(task)
        zones = numa.choose(task, node, False, self.rules) if node.numa is not None else ()
        node_books.hold(task.spec.request, node, chosen, 1)
        node.tasks[task.id] = task
        self._move(task, self._new_place(task, TaskStatus.ALLOCATED, node, chosen, zones))
        self._journal.append((ALLOCATE, task, before))

    def pipeline(self, task: TaskState, node: NodeState, devices: Devices = ()) -> None:
        """Give a pod, pending or evicted in this cycle, a claim on what is being released.

        Whole GPUs are claimed by count. An evicted pod that lands where it is stays there instead: it is unevicted.
        Raises ValueError for any other pod, and for a share without a card.
        """
        request = task.spec.request
        moved = task.status is TaskStatus.RELEASING and task.id in self._home
        if task.status is not TaskStatus.PENDING and not moved:
            raise ValueError(f"{task.id} is {task.status}, neither pending nor evicted in this cycle")
        if request.gpus:
            devices = ()
        elif request.is_shared and not devices:
            chosen = self.choose_devices(task, node, later=True)
            if chosen is None:
                raise ValueError(f"{task.id} needs cards of {node.name} and none will be free")
            devices = chosen
        zones = numa.choose(task, node, True, self.rules)
        if moved and task.node is node and self._stays_on(task, devices, zones):
            self.unevict(task)
            return
        before = self._place_of(task)
        node_books.claim(request, node, devices, 1)
        node.tasks[task.id] = task
        self._move(task, self._new_place(task, TaskStatus.PIPELINED, node, devices, zones))
        self._journal.append((PIPELINE, task, before))

    def evict(self, task: TaskState, why: str) -> None:
        """Begin the release of what a pod holds. A pod that only has a claim loses that, and is what it was before.

        Raises ValueError for a pod that neither holds nor claims anything.
        """
        before = self._place_of(task)
        if task.status is TaskStatus.PIPELINED and task.node is not None:
            self._unpipeline(task, task.node)
            return
        if task.status not in HOLDING:
            raise ValueError(f"{task.id} is {task.status}, and holds nothing")
        if task.node is not None:
            node_books.free(task.spec.request, task.node, task.devices, 1)
        self._home[task.id] = before
        self._move(task, (TaskStatus.RELEASING, *before[1:6], why, before[7]))
        self._journal.append((EVICT, task, before))

    def unevict(self, task: TaskState) -> None:
        """Put a pod that this cycle evicted back where it was. Raises ValueError for any other."""
        home = self._home.get(task.id)
        if home is None:
            raise ValueError(f"{task.id} was not evicted in this cycle")
        if task.status is TaskStatus.PIPELINED and task.node is not None:
            self._unpipeline(task, task.node)
        before = self._place_of(task)
        del self._home[task.id]
        if home[1] is not None:
            node_books.free(task.spec.request, home[1], home[2], -1)
        self._move(task, home)
        self._journal.append((UNEVICT, task, before))

    def to_pipelined(self, job: JobState, since: int = 0) -> None:
        """Turn what was allocated to a job since the mark into claims, on the same nodes and shared cards.

        A gang of which one pod has to wait waits as a whole: nothing of it may be bound.
        """
        allocated = [
            entry[1]
            for entry in self._journal[since:]
            if not callable(entry) and entry[0] == ALLOCATE and entry[1].job is job
        ]
        for task in dict.fromkeys(allocated):
            node = task.node
            if task.status is not TaskStatus.ALLOCATED or node is None:
                continue
            before = self._place_of(task)
            request = task.spec.request
            devices = task.devices if request.is_shared else ()
            node_books.hold(request, node, task.devices, -1)
            node_books.claim(request, node, devices, 1)
            self._move(task, self._new_place(task, TaskStatus.PIPELINED, node, devices, task.zones))
            self._journal.append((TO_PIPELINED, task, before))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _stays_on(self, task: TaskState, devices: Devices, zones: Placement) -> bool:
        """Whether an evicted pod's claim is on the cards and in the zones that it is on. KAI gives a card that would be
        empty a new name, and takes the pod for moved."""
        if zones and zones != task.zones:
            return False
        if not task.spec.request.is_shared:
            return True
        if set(devices) != set(task.devices):
            return False
        return self.rules.stay_on_card or all(node_books.is_shared_later(device) for device in devices)

    def _unpipeline(self, task: TaskState, node: NodeState) -> None:
        before = self._place_of(task)
        node_books.claim(task.spec.request, node, task.devices, -1)
        home = self._home.get(task.id)
        order = list(node.tasks.values())
        if home is None:
            after: Place = (TaskStatus.PENDING, None, (), 0, 0, self._amounts(task, ()), "", ())
        else:
            after = (TaskStatus.RELEASING, *home[1:6], task.evicted, home[7])
        if home is None or home[1] is not node:
            del node.tasks[task.id]
        self._move(task, after)
        self._journal.append(lambda: self._undo_unpipeline(task, node, before, order))

    def _undo_unpipeline(
        self, task: TaskState, node: NodeState, before: Place, order: list[TaskState]
    ) -> None:
        node_books.claim(task.spec.request, node, before[2], 1)
        node.tasks.clear()
        node.tasks.update((other.id, other) for other in order)
        self._move(task, before)

    def _undo(self, operation: int, task: TaskState, before: Place) -> None:
        if operation == EVICT:
            del self._home[task.id]
        elif operation == UNEVICT:
            self._home[task.id] = self._place_of(task)
        if task.node is not None:
            _undo_books(operation, task, task.node, before)
        self._move(task, before)

    def _place_of(self, task: TaskState) -> Place:
        held = (task.devices, task.milli, task.mib)
        return (task.status, task.node, *held, task.amounts, task.evicted, task.zones)

    def _new_place(
        self, task: TaskState, status: TaskStatus, node: NodeState, devices: Devices, zones: Placement
    ) -> Place:
        request = task.spec.request
        milli, mib = node_books.on_card(request, devices[0]) if devices else (0, 0)
        amounts = task.amounts
        if request.gpu_memory_mib or task.status is not TaskStatus.PENDING:
            amounts = self._amounts(task, devices)
        return (status, node, devices, milli, mib, amounts, task.evicted, zones)

    def _amounts(self, task: TaskState, devices: Devices) -> Amounts:
        return counting.placed_amounts(task.spec.request, devices, self.min_gpu_mib, self.rules)

    def _move(self, task: TaskState, place: Place) -> None:
        """Write a pod's new place, and what follows of it: queues, the subgroup's count, versions, changes."""
        node, job = task.node, task.job
        was, now = task.status in ACTIVE_USED, place[0] in ACTIVE_USED
        if was and job is not None and job.queue is not None:
            _count(task, job, job.queue, -1)
        if task.zones or place[7]:
            numa_books.move(task, place[0], place[1], place[7])
        task.status, task.node, task.devices, task.milli, task.mib, task.amounts, task.evicted, task.zones = (
            place
        )
        if now and job is not None and job.queue is not None:
            _count(task, job, job.queue, 1)
        if job is not None:
            job.version += 1
            if was != now:
                job.pod_sets[task.spec.pod_set].held += 1 if now else -1
        if node is not None:
            node.version += 1
            self.changes.append(node.index)
        if place[1] is not None and place[1] is not node:
            place[1].version += 1
            self.changes.append(place[1].index)


def _count(task: TaskState, job: JobState, queue: QueueState, sign: int) -> None:
    queues.add(queue, task.amounts, sign, job.spec.preemptible)
    if queue.counts_models:
        queues.count_model(task, sign)


def build(snapshot: Snapshot, rules: Rules) -> Ledger:
    """Load a snapshot."""
    return Ledger(snapshot, rules)


def _undo_books(operation: int, task: TaskState, node: NodeState, before: Place) -> None:
    request = task.spec.request
    if operation == ALLOCATE:
        node_books.hold(request, node, task.devices, -1)
    elif operation == EVICT:
        node_books.free(request, node, task.devices, -1)
    elif operation == UNEVICT:
        node_books.free(request, node, task.devices, 1)
    else:
        node_books.claim(request, node, task.devices, -1)
    if operation == TO_PIPELINED:
        node_books.hold(request, node, before[2], 1)
    elif before[1] is not node:
        del node.tasks[task.id]


def _card_range(nodes: list[NodeState]) -> tuple[int, int]:
    sizes = {
        node.devices[0].mib
        for node in nodes
        if node.devices and node.devices[0].mib and node.spec.gpu_memory_known
    }
    return (min(sizes), max(sizes)) if sizes else (0, 0)
