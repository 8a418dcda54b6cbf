"""Any sequence of operations is undone exactly, overfills no card, and leaves the books that a recount would give."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler import ledger as ledgers
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import (
    ACTIVE_USED,
    HOLDING,
    Job,
    Order,
    Queue,
    Quota,
    Settings,
    Snapshot,
    Task,
    TaskStatus,
)
from controller.scheduler.node_books import on_card, whole
from controller.scheduler.nodes import Gpu, Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.state import DeviceState, NodeState, TaskState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OPEN = Quota(deserved=-1, limit=-1, weight=1000)
# What a pod holds or claims on a node: the node, its cards there, and how: held, being released, claimed.
Stay = tuple[NodeState, tuple[DeviceState, ...], str]

requests = st.one_of(
    st.builds(Request, gpus=st.integers(1, 3), cpu_milli=st.integers(0, 40)),
    st.builds(Request, portion=st.integers(1, 1000), devices=st.integers(1, 2), cpu_milli=st.just(7)),
    st.builds(Request, gpu_memory_mib=st.integers(1, 50_000), devices=st.integers(1, 2)),
    st.builds(Request, mig=st.just((("1g.10gb", 1),)), memory_bytes=st.integers(0, 9)),
    st.builds(Request, cpu_milli=st.integers(1, 60), other=st.just((("rdma/hca", 1),))),
)
healths = st.sampled_from([PartHealth.HEALTHY] * 5 + [PartHealth.UNKNOWN, PartHealth.SICK])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Give a node of up to four cards of which some may be ill, or of MIG instances."""
    mib = draw(st.sampled_from([40_000, 46_068]))
    gpus = tuple(
        Gpu(uuid=f"{name}-{index}", index=index, memory_mib=mib, health=draw(healths))
        for index in range(draw(st.integers(0, 4)))
    )
    whole = draw(st.one_of(st.none(), st.integers(0, 4)))
    mig = {} if gpus else {"1g.10gb": 2}
    return Node(
        name=name,
        cpu_milli=100,
        memory_bytes=20,
        pods=6,
        other={"rdma/hca": 2},
        gpus=gpus,
        whole_gpus=whole,
        mig=mig,
    )


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    """Give a job of a few pods, of which some are where they fit or not: what runs is what it is."""
    tasks = []
    for index in range(draw(st.integers(1, 5))):
        status = draw(
            st.sampled_from(["Pending", "Pending", "Running", "Releasing", "StuckInReleasing", "Gated"])
        )
        node = draw(st.sampled_from(["a", "b", "gone"])) if status not in ("Pending", "Gated") else ""
        tasks.append(
            Task(id=f"{name}-{index}", job=name, request=draw(requests), status=TaskStatus(status), node=node)
        )
    queue = draw(st.sampled_from(["left", "right"]))
    return Job(id=name, queue=queue, created_at=NOW, preemptible=draw(st.booleans()), tasks=tuple(tasks))


@st.composite
def ledgers_of(draw: st.DrawFn) -> Ledger:
    """Give the books of a small cluster, in either mode and order."""
    queues = tuple(
        Queue(name=name, parent="" if name == "all" else "all", quotas=(OPEN,) * 3)
        for name in ("all", "left", "right")
    )
    snapshot = Snapshot(
        now=NOW,
        nodes=(draw(nodes("a")), draw(nodes("b"))),
        queues=queues,
        jobs=(draw(jobs("x")), draw(jobs("y")), draw(jobs("z"))),
        settings=Settings(gpu_sharing_order=draw(st.sampled_from(list(Order)))),
    )
    rules: Rules = draw(st.sampled_from([DEFAULT, COMPATIBLE]))
    return ledgers.build(snapshot, rules)


def picture(books: Ledger) -> object:
    """Give every number and place, but for versions, which only go forward."""
    skipped = {
        "version",
        "spec",
        "devices",
        "tasks",
        "node",
        "job",
        "queue",
        "pod_sets",
        "parent",
        "children",
        "path",
    }

    def numbers(state: object) -> dict[str, object]:
        slots: tuple[str, ...] = state.__slots__  # type: ignore[attr-defined]
        return {slot: _copy(getattr(state, slot)) for slot in slots if slot not in skipped}

    return (
        [
            (numbers(node), list(node.tasks), [numbers(device) for device in node.devices])
            for node in books.nodes
        ],
        [numbers(queue) for queue in books.queues.values()],
        [
            (numbers(task), task.node and task.node.name, [card.uuid for card in task.devices])
            for task in books.tasks.values()
        ],
        [[(pods.name, pods.held) for pods in job.pod_sets.values()] for job in books.jobs.values()],
    )


def _copy(value: object) -> object:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def stays(books: Ledger, homes: dict[str, Stay]) -> list[tuple[TaskState, Stay]]:
    """Give all that is held, released and claimed, from the pods alone."""
    found: list[tuple[TaskState, Stay]] = []
    for task in books.tasks.values():
        if task.node is not None and (task.status in HOLDING or task.status is TaskStatus.STUCK):
            found.append((task, (task.node, task.devices, "held")))
        elif task.node is not None and task.status is TaskStatus.PIPELINED:
            found.append((task, (task.node, task.devices, "claimed")))
        elif task.node is not None and task.status is TaskStatus.RELEASING:
            found.append((task, (task.node, task.devices, "released")))
        if task.status is TaskStatus.PIPELINED and task.id in homes:
            found.append((task, homes[task.id]))
    return found


def check(books: Ledger, homes: dict[str, Stay]) -> None:
    """Recount cards, nodes and queues from the pods."""
    found = stays(books, homes)
    for node in books.nodes:
        here = [(task, devices, how) for task, (where, devices, how) in found if where is node]
        assert set(node.tasks) == {task.id for task, _devices, _how in here}
        held = [task.spec.request for task, _devices, how in here if how != "claimed"]
        assert node.idle_cpu == node.spec.cpu_milli - sum(request.cpu_milli for request in held)
        assert node.idle_pods == node.spec.pods - len(held)
        leaving = [
            (-1 if how == "claimed" else 1) * task.spec.request.cpu_milli
            for task, _devices, how in here
            if how != "held"
        ]
        assert node.releasing_cpu == sum(leaving)
        check_whole(
            node, [(task, len(devices), how) for task, devices, how in here if task.spec.request.gpus]
        )
        for device in node.devices:
            check_card(device, [(task, how) for task, devices, how in here if device in devices])
    for queue in books.queues.values():
        names = [queue.name] if queue.name != "all" else ["left", "right"]
        counted = [
            task.amounts
            for task in books.tasks.values()
            if task.status in ACTIVE_USED and task.job and task.job.spec.queue in names
        ]
        assert queue.allocated == [sum(amounts[resource] for amounts in counted) for resource in range(3)]


def check_whole(node: NodeState, here: list[tuple[TaskState, int, str]]) -> None:
    """Recount whole GPUs: empty open cards, less the debt of pods that hold more than there is, less what is claimed."""
    debt = [(task.spec.request.gpus - devices, how) for task, devices, how in here if how != "claimed"]
    claims = sum(task.spec.request.gpus for task, _devices, how in here if how == "claimed")
    added = [whole(device) for device in node.devices]
    assert node.idle_gpus == sum(idle for idle, _later in added) - sum(owed for owed, _how in debt)
    leaving = sum(owed for owed, how in debt if how == "released")
    assert node.releasing_gpus == sum(later for _idle, later in added) + leaving - claims


def check_card(device: DeviceState, here: list[tuple[TaskState, str]]) -> None:
    """Recount one card, which is never overfilled, and what it adds to whole ones."""

    def of(*hows: str) -> tuple[int, int]:
        sizes = [on_card(task.spec.request, device) for task, how in here if how in hows]
        return sum(milli for milli, _mib in sizes), sum(mib for _milli, mib in sizes)

    assert (device.used_milli, device.used_mib) == of("held", "released")
    assert (device.releasing_milli, device.releasing_mib) == of("released")
    assert (device.claimed_milli, device.claimed_mib) == of("claimed")
    assert device.used_milli <= 1000
    assert device.used_mib <= device.mib


def step(books: Ledger, task: TaskState, node: NodeState, what: str, homes: dict[str, Stay]) -> None:
    """Do one operation if the pod is in a state for it, and the node has room."""
    may_move = task.status is TaskStatus.PENDING or (
        task.status is TaskStatus.RELEASING and task.evicted != ""
    )
    if what == "allocate" and task.status is TaskStatus.PENDING:
        devices = books.choose_devices(task, node, later=False)
        if books.why_not_room(task, node, later=False) is None and devices is not None:
            books.allocate(task, node, devices)
            assert all(device.open for device in task.devices)
    elif what == "pipeline" and may_move and books.why_not_room(task, node, later=True) is None:
        devices = books.choose_devices(task, node, later=True)
        if devices is not None:
            books.pipeline(task, node, devices)
            assert all(device.open for device in task.devices) or task.status is TaskStatus.RUNNING
    elif what == "evict" and task.status in ACTIVE_USED:
        if task.status is not TaskStatus.PIPELINED and task.node is not None:
            homes[task.id] = (task.node, task.devices, "released")
        books.evict(task, "because")
    elif what == "unevict" and task.evicted:
        books.unevict(task)
    elif what == "to_pipelined" and task.job is not None:
        books.to_pipelined(task.job)


steps = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.integers(0, 1),
        st.sampled_from(["allocate", "pipeline", "evict", "unevict", "to_pipelined", "mark", "undo"]),
    ),
    max_size=30,
)


@given(books=ledgers_of(), doing=steps)
@settings(max_examples=150, deadline=None)
def test_any_sequence_is_undone_exactly_and_agrees_with_a_recount(
    books: Ledger, doing: list[tuple[int, int, str]]
) -> None:
    """After every step the books are what the pods say, and every mark is a moment that comes back whole."""
    homes: dict[str, Stay] = {}
    tasks = list(books.tasks.values())
    check(books, homes)
    marks = [(books.mark(), picture(books), dict(homes))]
    for which, where, what in doing:
        if what == "mark":
            marks.append((books.mark(), picture(books), dict(homes)))
        elif what == "undo":
            mark, seen, old = marks[-1] if len(marks) == 1 else marks.pop()
            books.undo_to(mark)
            homes = dict(old)
            assert picture(books) == seen
        else:
            step(books, tasks[which % len(tasks)], books.nodes[where], what, homes)
        check(books, homes)
    for mark, seen, _old in reversed(marks):
        books.undo_to(mark)
        assert picture(books) == seen


@given(books=ledgers_of())
@settings(max_examples=60, deadline=None)
def test_what_is_promised_can_be_given(books: Ledger) -> None:
    """In our mode a node that has room now also has the cards, and a claim that has room later finds them."""
    if books.rules is not DEFAULT:
        return
    for task in books.tasks.values():
        for node in books.nodes:
            for later in (False, True):
                if books.why_not_room(task, node, later) is None:
                    assert books.choose_devices(task, node, later) is not None
