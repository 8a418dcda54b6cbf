"""Pods of ours that somebody else bound while we lead: counted, and told of at most once a minute. Shell.

A second scheduler for the same pods (another Lease name, another cluster's file) shows in nothing else: both bind, each on
books that lack the other's last binds, and a node gets more than it has. Nothing is decided here, it is bookkeeping.

Ours is what we sent to that node for that pod and the server took, or nobody knows whether it did: a bind whose answer was
lost may show long after it was given up. One that the server refused, or that was never sent, is not. While the answer is on
its way nothing is said. A pod counts only if this process saw it wait: not one that was created on its node, nor what was
bound before we led. A late request of the last leader does count, and is harmless.
"""

import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from controller.outcome import Result
from controller.scheduler.model import Snapshot
from controller.scheduler.shell.orders import GangOrder
from controller.scheduler.shell.outcomes import Bound
from kube.store import Change, key_of
from kube.types import Pod

log = structlog.get_logger(__name__)

TOLD_EVERY: Final = timedelta(minutes=1)
GROUPED_WITHIN: Final = timedelta(seconds=10)
"""For so long a bound pod may lack its group, by which it is known whether it is of our pool."""
MEANING: Final = (
    "pods that wait for this scheduler were bound by somebody else: a second scheduler for the same pods and pool, a "
    "person, or, right after a change of the leader, a late request of the last one"
)
LOOK_FOR: Final = (
    "a nodemend-scheduler with the same scheduler_name and pool and another leader.name; the API server's audit record says "
    "who created pods/binding"
)
_MAY_BE_TAKEN: Final = frozenset({Result.DONE, Result.UNAVAILABLE})


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that waited and shows a node."""

    pod: str
    uid: str
    node: str


class _Open(_Shown, frozen=True, kw_only=True):
    """One that is not judged yet. `since`: when it was first looked at; `in_pool`: it is known to be of our pool."""

    since: datetime
    in_pool: bool = False


class ForeignBinds:
    """`see` is called in any thread; all else is the loop's. `count` is told how many more there are."""

    def __init__(self, scheduler_name: str, count: Callable[[int], object]) -> None:
        self._scheduler_name = scheduler_name
        self._count = count
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._new: list[_Shown] = []
        self._gone: list[str] = []
        self._is_looking = False  # who follows, or plans only, never looks, for months
        self._open: list[_Open] = []
        self._under_way: dict[str, str] = {}  # by UID, the node of a bind whose answer is to come
        # By UID, the nodes of binds that were taken, or may have been.
        self._perhaps_ours: dict[str, set[str]] = {}
        self._before: Snapshot | None = None  # of the last look; None = we did not lead yet
        self._untold: list[_Shown] = []
        self._told_at: datetime | None = None

    @property
    def remembered(self) -> int:
        """How many pods something is held of."""
        held = (self._waiting, self._new, self._gone, self._open, self._under_way, self._perhaps_ours)
        return sum(map(len, held))

    def see(self, change: Change, pod: Pod | None) -> None:
        """Take a change of the pods' store. One that is bound already costs a look."""
        if pod is None:
            return
        uid, node = pod.metadata.uid, pod.spec.node_name
        with self._lock:
            if change is not Change.DELETED and not node:
                if pod.spec.scheduler_name == self._scheduler_name:
                    self._waiting.add(uid)
            elif uid in self._waiting:
                self._waiting.discard(uid)
                if not self._is_looking:
                    return  # it was bound before we led
                if change is Change.DELETED:
                    self._gone.append(uid)
                else:
                    self._new.append(_Shown(pod=key_of(pod.metadata), uid=uid, node=node))

    def ordered(self, gangs: Iterable[GangOrder]) -> None:
        """Take what is about to be sent."""
        for gang in gangs:
            self._under_way |= {member.uid: member.bind.node for member in gang.members}

    def took_bind(self, outcome: Bound) -> None:
        """Learn what came of a bind."""
        uid, node = outcome.order.uid, outcome.order.bind.node
        if self._under_way.get(uid) != node:
            return
        del self._under_way[uid]
        if outcome.answer.result in _MAY_BE_TAKEN:
            self._perhaps_ours.setdefault(uid, set()).add(node)

    def look(self, snapshot: Snapshot, now: datetime) -> None:
        """Judge what came to show since the last time. What did before the first look was bound before we led."""
        with self._lock:
            self._is_looking = True
            new, self._new = self._new, []
            gone, self._gone = self._gone, []
        for uid in gone:
            self._forget(uid)
        before, self._before = self._before, snapshot
        if before is None:
            return
        self._open += [_Open(pod=one.pod, uid=one.uid, node=one.node, since=now) for one in new]
        if self._open:
            self._judge(before, snapshot, now)
        self._tell(now)

    def _judge(self, before: Snapshot, snapshot: Snapshot, now: datetime) -> None:
        suspects: list[_Open] = []
        judged, self._open = self._open, []
        for one in judged:
            if one.node in self._perhaps_ours.get(one.uid, ()):
                self._forget(one.uid)
            elif self._under_way.get(one.uid) == one.node:  # most of them, for a moment
                self._open.append(msgspec.structs.replace(one, in_pool=True))
            else:
                suspects.append(one)
        if not suspects:
            return
        # By the last cycle, too: a pod that was bound without its group's name on it is in no group any more.
        tasks = _tasks(before) | _tasks(snapshot)
        for one in suspects:
            if one.in_pool or one.pod in tasks:
                self._forget(one.uid)
                self._count(1)
                self._untold.append(one)
            elif now - one.since < GROUPED_WITHIN:
                self._open.append(one)
            else:  # another pool's scheduler bound it
                self._forget(one.uid)

    def _forget(self, uid: str) -> None:
        self._under_way.pop(uid, None)
        self._perhaps_ours.pop(uid, None)

    def _tell(self, now: datetime) -> None:
        if not self._untold or (self._told_at is not None and now - self._told_at < TOLD_EVERY):
            return
        last = self._untold[-1]
        log.warning(
            "bind.foreign",
            pod=last.pod,
            node=last.node,
            count=len(self._untold),
            meaning=MEANING,
            look_for=LOOK_FOR,
        )
        self._untold, self._told_at = [], now


def _tasks(snapshot: Snapshot) -> set[str]:
    return {task.id for job in snapshot.jobs for task in job.tasks}
