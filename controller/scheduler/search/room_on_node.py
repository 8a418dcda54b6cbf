"""The cheapest pods to evict on one node so that one more pod has room there. Pure but for tries that are taken back.

Whole GPUs and single cards are a matter of counting: the cheapest set that frees enough is found exactly, over all sets. All
else (CPU, memory, MIG, claims, ports) is tried: the cheapest single eviction that does it, or else the cheapest pods
one after the other until it does, and then those that can be spared, the most expensive first, stay.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from controller.scheduler.amounts import GPU, Amounts
from controller.scheduler.model import ACTIVE_USED
from controller.scheduler.search.units import Over, Prices, Unit, may_leave, newness, units_on
from controller.scheduler.session import Session
from controller.scheduler.state import DeviceState, JobState, NodeState, TaskState

MOST_SINGLES: Final = 16
"""How many single evictions are tried on one node where counting does not answer."""
_NEVER: Final = 1 << 62
_Likeness: TypeAlias = tuple[str, Amounts, tuple[str, ...]]


class Choice:
    """What to evict on a node, cheapest found; `cost` in milli-GPU-seconds, `rank` with priorities (see `units.Unit`)."""

    __slots__ = ("cost", "newness", "node", "rank", "units", "version")

    def __init__(self, node: NodeState, units: list[Unit]) -> None:
        self.node = node
        self.units = units
        self.cost = sum(unit.cost for unit in units)
        self.rank = sum(unit.rank for unit in units)
        self.newness = min(newness(unit.job) for unit in units)
        self.version = node.version

    def over(self, prices: Prices) -> Over:
        """Say how the most over-served queue that loses something is served at the moment."""
        return min([prices.over(unit.job, unit.amounts[GPU] > 0, self.node) for unit in self.units])

    @property
    def is_current(self) -> bool:
        """Whether node and jobs are still as they were when this was worked out."""
        return self.version == self.node.version and all(
            unit.version == unit.job.version for unit in self.units
        )

    def renew(self) -> None:
        """Take this for current: what changed was taken back."""
        self.version = self.node.version
        for unit in self.units:
            unit.version = unit.job.version

    @property
    def tasks(self) -> list[TaskState]:
        """The pods that go, each once."""
        return list({task.id: task for unit in self.units for task in unit.tasks}.values())


def choose(
    session: Session,
    prices: Prices,
    task: TaskState,
    node: NodeState,
    may_go: Callable[[JobState], bool],
    allowed: Callable[[list[Unit], NodeState], bool],
    takes: Callable[[TaskState, NodeState], bool],
) -> Choice | None:
    """Find what to evict on a node for one pod; None where nothing that may go would do.

    `may_go` says which jobs may be victims, `allowed` whether queues can bear the loss of all these together, `takes`
    whether the pod can go there as things stand.
    """
    if not any(may_leave(other) and other.job and may_go(other.job) for other in node.tasks.values()):
        return None
    if session.fit.refusal(session.fit.of(task)[0], node) is not None:
        return None
    units = _bearable(candidates(prices, node, may_go), node, allowed)
    if not units:
        return None
    request = task.spec.request
    chosen: list[Unit] | None = None
    if request.gpus:
        chosen = _whole(units, node, request.gpus - node.idle_gpus - node.releasing_gpus)
    elif request.is_shared and request.devices == 1:
        chosen = _on_one_card(units, node, request.portion, request.gpu_memory_mib)
    if not chosen or not allowed(chosen, node) or not _has_room(session, takes, task, node, chosen):
        chosen = _by_trying(session, task, node, units, allowed, takes)
    return Choice(node, chosen) if chosen else None


def candidates(prices: Prices, node: NodeState, may_go: Callable[[JobState], bool]) -> list[Unit]:
    """List what may leave a node: the cheapest first, of equals what the most over-served queue has, then the newest job."""
    jobs = {task.job.id: task.job for task in node.tasks.values() if task.job is not None and may_leave(task)}
    units = [unit for job in jobs.values() if may_go(job) for unit in units_on(node, job, prices)]
    units.sort(key=lambda unit: unit.order)
    if len({unit.job.spec.queue for unit in units}) > 1:
        units.sort(key=lambda unit: (unit.rank, prices.over(unit.job, unit.amounts[GPU] > 0, node)))
    return units


def _bearable(
    units: list[Unit], node: NodeState, allowed: Callable[[list[Unit], NodeState], bool]
) -> list[Unit]:
    """Leave out what a queue cannot bear to lose. Jobs of one pod and one queue that hold the same are alike to every judge,
    so the first of them is asked about for all."""
    known: dict[_Likeness, bool] = {}
    found: list[Unit] = []
    for unit in units:
        likeness = _likeness(unit)
        may_go = known.get(likeness) if likeness is not None else None
        if may_go is None:
            may_go = allowed([unit], node)
            if likeness is not None:
                known[likeness] = may_go
        if may_go:
            found.append(unit)
    return found


def _likeness(unit: Unit) -> _Likeness | None:
    """What decides whether a job of one pod may go; None for every other, since what it needs to go on decides too."""
    lone = unit.job.lone
    if lone is None or lone.min_available < 1:
        return None
    models = tuple([device.spec.model for device in unit.tasks[0].devices])
    return unit.job.spec.queue, unit.amounts, models


# --- by counting -----------------------------------------------------------------------------------------------------


def _whole(units: list[Unit], node: NodeState, lacking: int) -> list[Unit] | None:
    """Find the cheapest set that frees so many whole cards."""
    if lacking <= 0:
        return None
    options: list[tuple[int, int, tuple[Unit, ...]]] = []
    on_card: dict[int, list[Unit]] = {}
    for unit in units:
        cards = 0
        for task in unit.tasks:
            if task.node is not node:
                continue
            cards += task.spec.request.gpus
            if not task.spec.request.gpus:
                for device in task.devices:
                    on_card.setdefault(device.index, []).append(unit)
        if cards:
            options.append((unit.rank, cards, (unit,)))
    for device in node.devices:
        sharers = list(dict.fromkeys(on_card.get(device.index, ())))
        if (
            sharers
            and _uses(sharers, device) >= device.used_milli - device.releasing_milli + device.claimed_milli
        ):
            options.append((sum(unit.rank for unit in sharers), 1, tuple(sharers)))
    return _cheapest(options, lacking)


def _uses(units: list[Unit], device: DeviceState) -> int:
    return sum(task.milli for unit in units for task in unit.tasks if device in task.devices)


def _on_one_card(units: list[Unit], node: NodeState, milli: int, mib: int) -> list[Unit] | None:
    """Find the cheapest set that frees so much of a single card."""
    best: tuple[int, int, list[Unit]] | None = None
    for device in node.devices:
        if not device.open:
            continue
        free = device.mib - device.used_mib + device.releasing_mib - device.claimed_mib
        free_milli = 1000 - device.used_milli + device.releasing_milli - device.claimed_milli
        lacking = mib - free if mib else milli - free_milli
        options: list[tuple[int, int, tuple[Unit, ...]]] = []
        for unit in units:
            on_card = [task for task in unit.tasks if device in task.devices]
            amount = sum((task.mib if mib else task.milli) for task in on_card)
            if amount:
                options.append((unit.rank, amount, (unit,)))
        found = _cheapest(options, lacking) if lacking > 0 else None
        if found is not None:
            cost = sum(unit.rank for unit in found)
            if best is None or cost < best[0]:
                best = (cost, device.index, found)
    return best[2] if best is not None else None


def _cheapest(options: list[tuple[int, int, tuple[Unit, ...]]], lacking: int) -> list[Unit] | None:
    """Find the set of options that frees at least `lacking` for the least cost; of equals, what stops the fewest jobs.

    By what is still lacking: the least cost so far and how it came about, one option after the other.
    """
    best: dict[int, tuple[int, tuple[Unit, ...]]] = {lacking: (0, ())}
    for cost, amount, units in options:
        for left, (before, chosen) in sorted(best.items()):
            if left == 0:
                continue
            now = max(left - amount, 0)
            least, known = best.get(now, (_NEVER, ()))
            together = (*chosen, *units)
            is_better = before + cost < least or (
                # Only of whole answers: of halves, that which stops fewer jobs may be the one that cannot be completed.
                not now and before + cost == least and _stopped(together) < _stopped(known)
            )
            if is_better and not _overlap(chosen, units):
                best[now] = (before + cost, together)
    if 0 not in best:
        return None
    return list(dict.fromkeys(best[0][1]))


def _overlap(some: tuple[Unit, ...], others: tuple[Unit, ...]) -> bool:
    """Tell whether a pod is in two of them, alone and with its job: it gives its cards only once."""
    return any(
        one is not other and one.job is other.job and any(task in other.tasks for task in one.tasks)
        for one in some
        for other in others
    )


def _stopped(units: tuple[Unit, ...]) -> int:
    return len({unit.job.id for unit in units if not unit.surplus})


# --- by trying -------------------------------------------------------------------------------------------------------


def _has_room(
    session: Session,
    takes: Callable[[TaskState, NodeState], bool],
    task: TaskState,
    node: NodeState,
    units: list[Unit],
) -> bool:
    """Tell whether the node would take the pod without these."""
    ledger = session.ledger
    mark = ledger.mark()
    for victim in {each.id: each for unit in units for each in unit.tasks}.values():
        if victim.status in ACTIVE_USED:
            ledger.evict(victim, "tried")
    works = takes(task, node)
    ledger.undo_to(mark)
    for unit in units:
        unit.version = unit.job.version
    return works


def _by_trying(
    session: Session,
    task: TaskState,
    node: NodeState,
    units: list[Unit],
    allowed: Callable[[list[Unit], NodeState], bool],
    takes: Callable[[TaskState, NodeState], bool],
) -> list[Unit] | None:
    for unit in units[:MOST_SINGLES]:
        if _has_room(session, takes, task, node, [unit]):
            return [unit]
    chosen: list[Unit] = []
    for unit in units:
        if allowed([*chosen, unit], node):
            chosen.append(unit)
    if len(chosen) < 2 or not _has_room(session, takes, task, node, chosen):
        return None
    while len(chosen) > 2 and _has_room(session, takes, task, node, chosen[: len(chosen) // 2]):
        chosen = chosen[: len(chosen) // 2]
    for unit in reversed(list(chosen)):
        others = [other for other in chosen if other is not unit]
        if others and _has_room(session, takes, task, node, others):
            chosen = others
    return chosen
