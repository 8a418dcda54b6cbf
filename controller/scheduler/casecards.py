"""Where the pods of a case stand, and which cards they hold. Pure."""

from collections.abc import Iterable

import msgspec

from controller.scheduler.amounts import ZoneAmounts
from controller.scheduler.casewords import Case, CaseJob, CaseNode, CaseTask
from controller.scheduler.model import TaskStatus
from controller.scheduler.numa_objects import recorded

ON_NODE = frozenset(
    {
        TaskStatus.ALLOCATED,
        TaskStatus.BINDING,
        TaskStatus.BOUND,
        TaskStatus.RUNNING,
        TaskStatus.RELEASING,
        TaskStatus.STUCK,
    }
)
"""Pods that hold something of their node."""


class Standing(msgspec.Struct, frozen=True):
    """Where a pod stands now, the cards that it holds, by UUID, and its NUMA zones."""

    status: TaskStatus
    node: str = ""
    gpus: tuple[str, ...] = ()
    zones: ZoneAmounts = ()


def first_standings(case: Case) -> dict[str, Standing]:
    """Give each pod its status, node and cards as the case says.

    Equal GPU groups of one node are one card; a shared pod without a group sits on a card of its own, and so does each
    whole GPU. Cards are given in order of the groups' names, then of the pods' ids.
    """
    pods = sorted((task_id(job, index), task) for job in case.jobs for index, task in enumerate(job.tasks))
    cards = _Cards(case.nodes, ((pod.node, x) for _, pod in pods if _shares(pod) for x in pod.gpu_groups))
    return {
        name: Standing(status_of(pod), pod.node, cards.of(pod), recorded(pod.annotations))
        for name, pod in pods
    }


def task_id(job: CaseJob, index: int) -> str:
    """Name a pod as the suite does."""
    return f"{job.name}-{index}"


class _Cards:
    """Who sits on which card of which node."""

    def __init__(self, nodes: Iterable[CaseNode], groups: Iterable[tuple[str, str]]) -> None:
        self._free = {
            node.name: [uuid_of(node.name, index) for index in range(card_count(node))] for node in nodes
        }
        self._groups: dict[tuple[str, str], str] = {}
        for node, group in sorted(set(groups)):
            self._groups[node, group] = self._take(node)

    def of(self, pod: CaseTask) -> tuple[str, ...]:
        if not holds(pod):
            return ()
        if _shares(pod):
            grouped = tuple(self._groups[pod.node, group] for group in pod.gpu_groups)
            return grouped or tuple(self._take(pod.node) for _ in range(pod.requests.gpu_devices))
        return tuple(self._take(pod.node) for _ in range(int(pod.requests.gpus_total)))

    def _take(self, node: str) -> str:
        free = self._free.get(node, [])
        # More pods than cards: the case is about that, so the last ones hold a card that is not there.
        return free.pop(0) if free else f"{node}-gpu-none"


def uuid_of(node: str, index: int) -> str:
    """Name a card: the suite has none."""
    return f"{node}-gpu-{index}"


def card_count(node: CaseNode) -> int:
    """How many cards a pod may be given: none where all of them are cut into MIG instances."""
    return 0 if node.mig_strategy == "mixed" else node.gpus


def holds(pod: CaseTask) -> bool:
    """Whether a pod holds something of its node as the case says."""
    return bool(pod.node) and status_of(pod) in ON_NODE


def _shares(pod: CaseTask) -> bool:
    """Whether it sits on a card beside others: a whole GPU has no group that means anything."""
    return holds(pod) and bool(pod.requests.gpu_portion or pod.requests.gpu_memory_mib)


def status_of(pod: CaseTask) -> TaskStatus:
    try:
        return TaskStatus(pod.state)
    except ValueError:
        known = ", ".join(TaskStatus)
        raise ValueError(f"tasks.state is {pod.state!r}: must be one of {known}") from None
