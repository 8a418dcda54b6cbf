"""Books of a small cluster."""

from datetime import UTC, datetime

from controller.scheduler import ledger as ledgers
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import (
    Job,
    Order,
    Queue,
    Quota,
    Settings,
    Snapshot,
    Task,
    TaskStatus,
)
from controller.scheduler.nodes import Device, Gpu, Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.rules import DEFAULT, Rules

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


OPEN = Quota(deserved=-1, limit=-1, weight=1000)


HALF = Request(portion=500)


ONE = Request(gpus=1)


def gpu(index: int, health: PartHealth = PartHealth.HEALTHY, why: str = "", avoid: str = "") -> Gpu:
    """Give a card of 80,000 MiB."""
    return Gpu(uuid=f"card-{index}", index=index, memory_mib=80_000, health=health, why=why, avoid=avoid)


def cards(count: int) -> tuple[Gpu, ...]:
    """Give so many healthy cards."""
    return tuple(gpu(index) for index in range(count))


def pod(
    name: str, request: Request, on: str = "", held: tuple[str, ...] = (), status: str = "Running"
) -> Task:
    """Give a pod, pending where it is on no node."""
    return Task(
        id=name,
        job="job",
        request=request,
        node=on,
        gpus=held,
        status=TaskStatus(status if on else "Pending"),
    )


def load(
    nodes: list[Node],
    pods: list[Task],
    rules: Rules = DEFAULT,
    order: Order = Order.BINPACK,
    preemptible: bool = True,
    others: tuple[Task, ...] = (),
    devices: tuple[Device, ...] = (),
) -> Ledger:
    """Load these pods as one job of the queue team, below the queue all."""
    queues = (Queue(name="all", quotas=(OPEN,) * 3), Queue(name="team", parent="all", quotas=(OPEN,) * 3))
    job = Job(id="job", queue="team", created_at=NOW, preemptible=preemptible, tasks=tuple(pods))
    return ledgers.build(
        Snapshot(
            now=NOW,
            nodes=tuple(nodes),
            queues=queues,
            jobs=(job,),
            others=others,
            devices=devices,
            settings=Settings(gpu_sharing_order=order),
        ),
        rules,
    )


def uuids(books: Ledger, name: str, later: bool = False) -> tuple[str, ...] | None:
    """Give the UUIDs that a pod would get on the first node."""
    chosen = books.choose_devices(books.tasks[name], books.nodes[0], later)
    return None if chosen is None else tuple(device.uuid for device in chosen)


def place(books: Ledger, *names: str) -> None:
    """Allocate pods on the first node, on the cards of its choice."""
    for name in names:
        books.allocate(books.tasks[name], books.nodes[0])
