"""Nodes on which starts fail again and again are put aside for a while, and jobs that fail so go back with pauses. Pure.

A node that stays Ready while kubelet or the runtime can start nothing wins every bin-packing and eats a pod a second
(pytorch/ci-infra #1058: 554 pods in 1 h 46 min; kai.md 7.4). So failed starts are counted by node and by workload, from the
pods themselves (`starts`): nothing else is remembered that could not be read again from the pods that are still there.

- One broken workload never condemns a node: it takes `LEAST` failed pods of two workloads within `WINDOW`, or that many of
  one whose pods of the same template start elsewhere at the time. A start that may be the pod's own fault counts only if
  its workload does not fail on other nodes too, or starts there.
- A start on the node takes back what failed before it; a start without a GPU only what failed without one.
- A condemned node takes no new pod for `FIRST`, or for as long as the configuration says; after that one pod at a time
  (`probing`). The first that starts clears it, the next failure puts it aside for twice as long, up to `LONGEST`. Where
  none comes for `PROBE_LASTS` it may be that only gangs wait that need more places there: two are let in then, and so on.
- At most `SHARE` of the pool, at least one node, is put aside or on probation so: what fails everywhere is no node's fault.

A node put aside stays capacity, and nobody is evicted for it: for the core it is like a node that nobody can see into.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from checks.pod_starts import FAULT_CLASS, REPEATED_START_FAILURES
from controller.scheduler.model import Snapshot, TaskStatus
from controller.scheduler.nodes import Node
from controller.scheduler.shell.pauses import Pause, Pauses
from controller.scheduler.shell.starts import Blame, Start, start_of
from kube.types import Node as KubeNode
from kube.types import NodeCondition, Pod

CONDITION: Final = FAULT_CLASS.condition

LEAST: Final = 3
WINDOW: Final = timedelta(minutes=10)
FIRST: Final = timedelta(minutes=10)
LONGEST: Final = timedelta(hours=2)
SHARE: Final = 10
"""Percent of the pool."""
FORGET_AFTER: Final = timedelta(hours=12)
"""A node on probation that got no pod for so long begins anew."""
PROBE_LASTS: Final = timedelta(minutes=10)
"""A pod that starts for longer (an image that cannot be pulled, say) no longer counts as the probe."""
PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
CLOSED: Final = "node(s) were put aside since starts failed there again and again"
FEW_AT_A_TIME: Final = "node(s) took few pods at a time since starts failed there again and again"

_NO_NEW_POD: Final = "it takes no new pod until"
_MOST_DOUBLED: Final = 7
_ON_PROBATION: Final = re.compile(r"it takes (one pod|\d{1,3} pods) at a time until one starts$")
_MOST_NODES: Final = 20_000
_MOST_EVENTS: Final = 64
_MOST_TEMPLATES: Final = 50_000


class _Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A condemned node. `since`: the first time in this row; `until`: when it may be tried again; `times` condemned."""

    since: datetime
    until: datetime
    times: int
    why: str


class StartFailures:
    """Not thread-safe: only the loop's own thread uses it. `failed`: failed starts seen so far, by reason."""

    def __init__(self, first: timedelta = FIRST) -> None:
        """`first`: how long a node is put aside the first time in a row, at most `LONGEST`."""
        self._first = first
        self.failed: dict[str, int] = {}
        self._known: dict[str, Pod] = {}
        self._open: set[str] = set()
        self._failures: dict[str, dict[str, Start]] = {}
        self._started: dict[tuple[str, bool], datetime] = {}
        self._elsewhere: dict[str, dict[str, datetime]] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._failing: dict[str, dict[str, datetime]] = {}
        self._starting: set[str] = set()
        self._pauses = Pauses(PAUSES_S)
        self._warm = False

    def took(self, pods: Iterable[Pod], now: datetime) -> None:
        """Learn from all pods that there are; one that was taken before costs a look.

        A failure counts from when it was first seen, since a node's clock may be wrong; those that were there before the
        first call count from when the pod says.
        """
        self._shorten(now)
        before = self._known
        known: dict[str, Pod] = {}
        opened: set[str] = set()
        fresh: list[Start] = []
        self._starting.clear()
        for pod in pods:
            uid = pod.metadata.uid
            known[uid] = pod
            if before.get(uid) is pod and uid not in self._open:
                continue
            if not pod.spec.node_name:
                continue
            start = start_of(pod, now)
            if start is None:
                self._note_open(pod, now, opened)
            elif start.failure is None or uid not in self._failures.get(start.node, ()):
                fresh.append(start)
        self._known, self._open = known, opened
        if self._warm:
            fresh = [one if one.failure is None else msgspec.structs.replace(one, at=now) for one in fresh]
        for (
            start
        ) in fresh:  # whoever starts or fails elsewhere at the same time is heard before anybody is judged
            if start.failure is None:
                _note(self._elsewhere, start.template, start)
            else:
                _note(self._failing, start.owner, start)
        for start in sorted(fresh, key=lambda one: (one.at, one.failure is None, one.uid)):
            self._take(start)
        self._warm = True
        self._forget(now)

    def _note_open(self, pod: Pod, now: datetime, opened: set[str]) -> None:
        """Note a pod whose start is still open; one that hangs for long is no probe any more."""
        if pod.status.phase in ("", "Pending"):
            opened.add(pod.metadata.uid)
            began = pod.status.start_time or pod.metadata.creation_timestamp or now
            if now - began < PROBE_LASTS:
                self._starting.add(pod.spec.node_name)

    def _take(self, start: Start) -> None:
        if start.failure is None:
            self._took_success(start)
            return
        failures = self._failures.setdefault(start.node, {})
        reason = start.failure.reason
        self.failed[reason] = self.failed.get(reason, 0) + 1
        failures[start.uid] = start
        while len(failures) > _MOST_EVENTS:
            del failures[next(iter(failures))]
        if start.turned_away:
            for key in filter(None, (start.job, f"workload {start.owner}")):
                self._pauses.failed(
                    key, f"kubelet of {start.node} turned {start.pod} away: {reason}", start.at
                )
        self._judge(start)

    def _took_success(self, start: Start) -> None:
        for gpu in (False, True) if start.gpu else (False,):
            known = self._started.get((start.node, gpu), start.at)
            self._started[start.node, gpu] = max(known, start.at)
        for key in filter(None, (start.job, f"workload {start.owner}")):
            self._pauses.succeeded(key)
        trouble = self._troubles.get(start.node)
        if trouble is not None and not self._standing(start.node, trouble.since - WINDOW):
            del self._troubles[start.node]

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, latest: Start) -> None:
        """Condemn the node of this failure if it is enough."""
        node, at = latest.node, latest.at
        trouble = self._troubles.get(node)
        if trouble is not None and at < trouble.until:
            return
        after = at - WINDOW if trouble is None else max(trouble.until, at - WINDOW)
        counted = [one for one in self._standing(node, after) if self._speaks_against_node(one)]
        is_enough = _of_two_workloads(counted) or self._starts_elsewhere(counted)
        if trouble is not None and latest in counted:
            is_enough = is_enough or _blame(latest) is Blame.NODE or self._has_started_elsewhere(latest)
        if not is_enough:
            return
        times = trouble.times + 1 if trouble is not None else 1
        self._troubles[node] = _Trouble(
            since=trouble.since if trouble is not None else at,
            until=at + self._span(times),
            times=times,
            why=_words(counted, times),
        )

    def _span(self, times: int) -> timedelta:
        """Give for how long a node is put aside the n-th time in a row."""
        return min(self._first * (1 << min(times - 1, 16)), LONGEST)

    def _shorten(self, now: datetime) -> None:
        """Let nobody be put aside for longer than it was meant, where the clock stepped back."""
        for name, one in self._troubles.items():
            latest = now + self._span(one.times)
            if one.until > latest:
                self._troubles[name] = msgspec.structs.replace(one, since=min(one.since, now), until=latest)

    def _standing(self, node: str, after: datetime) -> list[Start]:
        """Give the failures on a node after that time which no start on it has taken back."""
        found = self._failures.get(node, {}).values()
        return [
            one for one in found if one.at > after and one.at >= self._started.get((node, one.gpu), one.at)
        ]

    def _speaks_against_node(self, start: Start) -> bool:
        blame = _blame(start)
        if blame is Blame.NODE or self._has_started_elsewhere(start):
            return True
        return blame is Blame.EITHER and not self._fails_elsewhere(start)

    def _has_started_elsewhere(self, start: Start) -> bool:
        places = self._elsewhere.get(start.template, {})
        return any(node != start.node and at >= start.at - WINDOW for node, at in places.items())

    def _fails_elsewhere(self, start: Start) -> bool:
        places = self._failing.get(start.owner, {})
        return any(node != start.node and at >= start.at - WINDOW for node, at in places.items())

    def _starts_elsewhere(self, counted: Iterable[Start]) -> bool:
        """Tell whether one workload that starts elsewhere fails here often enough by itself."""
        times: dict[str, int] = {}
        for one in counted:
            if self._has_started_elsewhere(one):
                times[one.owner] = times.get(one.owner, 0) + 1
        return max(times.values(), default=0) >= LEAST

    # --- what follows -----------------------------------------------------------------------------------------------

    def findings(self, now: datetime, pool: Collection[str]) -> Mapping[str, str]:
        """Say of every condemned node of the pool (names) what failed there, and what becomes of it."""
        kept = self._kept(pool)
        return {name: f"{one.why}; {self._what(name, one, now, kept)}" for name, one in self._in(pool)}

    def _what(self, name: str, trouble: _Trouble, now: datetime, kept: Collection[str]) -> str:
        if name not in kept:
            return f"it takes pods all the same, since {SHARE}% of the pool are put aside already"
        if now < trouble.until:
            return f"{_NO_NEW_POD} {trouble.until:%Y-%m-%dT%H:%M:%SZ}"
        most = _most_at_a_time(trouble, now)
        return f"it takes {'one pod' if most == 1 else f'{most} pods'} at a time until one starts"

    def aside(self, now: datetime, pool: Collection[str]) -> Mapping[str, str]:
        """Give the nodes of the pool (names) that take no new pod now, and why."""
        kept = self._kept(pool)
        return {
            name: one.why
            for name, one in self._in(pool)
            if name in kept and (now < one.until or name in self._starting)
        }

    def probing(self, now: datetime, pool: Collection[str]) -> Mapping[str, int]:
        """Give the nodes of the pool that take so many pods now, to see whether they start."""
        tried = self._kept(pool) - self.aside(now, pool).keys()
        return {name: _most_at_a_time(self._troubles[name], now) for name in tried}

    def holding(self, now: datetime) -> Mapping[str, Pause]:
        """Give who goes back for a while since kubelet turned its pods away: by pod group (namespace/name), and by
        `workload namespace/name` for those whose every pod is a group of its own."""
        longest = timedelta(seconds=PAUSES_S[-1])
        found = self._pauses.holding(now)
        return {key: one for key, one in found.items() if abs(one.at - now) <= longest}  # the clock may step

    def next_until(self, now: datetime) -> datetime | None:
        """Give when the next node may be tried again, or the next pause ends."""
        times = [one.until for one in self._troubles.values() if one.until > now]
        pause = self._pauses.next_until(now)
        return min([*times, pause] if pause is not None else times, default=None)

    def _in(self, pool: Collection[str]) -> list[tuple[str, _Trouble]]:
        """Give the condemned nodes of the pool, those condemned first before others."""
        found = [(name, one) for name, one in self._troubles.items() if name in pool]
        return sorted(found, key=lambda entry: (entry[1].since, entry[0]))

    def _kept(self, pool: Collection[str]) -> frozenset[str]:
        most = max(1, len(pool) * SHARE // 100)
        return frozenset(name for name, _ in self._in(pool)[:most])

    def _forget(self, now: datetime) -> None:
        """Drop what says nothing any more, and the oldest where there is too much."""
        for name in [name for name, one in self._troubles.items() if now - one.until > FORGET_AFTER]:
            del self._troubles[name]
        for name, failures in list(self._failures.items()):
            least = now - WINDOW
            if name in self._troubles:
                least = min(least, self._troubles[name].since - WINDOW)
            for uid in [uid for uid, one in failures.items() if one.at < least and uid not in self._known]:
                del failures[uid]
            if not failures:
                del self._failures[name]
        while len(self._failures) > _MOST_NODES:
            del self._failures[next(iter(self._failures))]
        while len(self._started) > 2 * _MOST_NODES:
            del self._started[next(iter(self._started))]


def _most_at_a_time(trouble: _Trouble, now: datetime) -> int:
    """Count the pods that a node on probation takes: the longer none came, the more."""
    return 1 << min((now - trouble.until) // PROBE_LASTS, _MOST_DOUBLED)


def _note(table: dict[str, dict[str, datetime]], key: str, start: Start) -> None:
    """Note where and when; of two nodes at most, which is enough to know one that is not a given one."""
    places = table.pop(key, {})
    places[start.node] = max(places.get(start.node, start.at), start.at)
    while len(places) > 2:
        del places[min(places, key=lambda name: (places[name], name))]
    table[key] = places
    while len(table) > _MOST_TEMPLATES:
        del table[next(iter(table))]


def _blame(start: Start) -> Blame:
    return start.failure.blame if start.failure is not None else Blame.WORKLOAD


def _of_two_workloads(counted: Collection[Start]) -> bool:
    return len(counted) >= LEAST and len({one.owner for one in counted}) > 1


def _words(counted: Collection[Start], times: int) -> str:
    reasons = sorted({one.failure.reason for one in counted if one.failure is not None})
    owners = len({one.owner for one in counted})
    again = f", for the {times}. time in a row" if times > 1 else ""
    pods = "1 pod" if len(counted) == 1 else f"{len(counted)} pods"
    whose = "1 workload" if owners == 1 else f"{owners} workloads"
    return f"{pods} of {whose} failed to start ({', '.join(reasons[:3])}){again}"


def put_aside(
    snapshot: Snapshot, aside: Mapping[str, str], probing: Mapping[str, int] = MappingProxyType({})
) -> Snapshot:
    """Give the snapshot in which nodes put aside take no new pod, and those on probation so many, or none during a bind.

    They stay capacity, and it is marked as want of knowledge (`Node.unseen`), so that nobody is evicted because of it.
    """
    if not aside and not probing:
        return snapshot
    binding = {
        task.node
        for job in snapshot.jobs
        for task in job.tasks
        if task.status is TaskStatus.BINDING and task.node in probing
    }
    closed = aside.keys() | binding
    nodes = tuple(_narrowed(node, closed, probing) for node in snapshot.nodes)
    return msgspec.structs.replace(snapshot, nodes=nodes)


def _narrowed(node: Node, closed: Collection[str], probing: Mapping[str, int]) -> Node:
    if node.closed:
        return node
    if node.name in closed:
        return msgspec.structs.replace(node, closed=CLOSED, unseen=(*node.unseen, "closed"))
    if node.name in probing:
        most, unseen = probing[node.name], (*node.unseen, "probe")
        return msgspec.structs.replace(node, probe=FEW_AT_A_TIME, probe_pods=most, unseen=unseen)
    return node


def read_back(nodes: Iterable[KubeNode]) -> tuple[dict[str, str], dict[str, int]]:
    """Give what Nodes' conditions say to whoever is not the scheduler: those put aside and why, and those on probation with
    the number of pods that they take at a time."""
    failing = [
        (node.metadata.name, held) for node in nodes if (held := node.condition(CONDITION)) is not None
    ]
    told = {name: held.message for name, held in failing if held.status == "True"}
    aside = {name: message for name, message in told.items() if _NO_NEW_POD in message}
    tried = {name: found[1] for name, message in told.items() if (found := _ON_PROBATION.search(message))}
    return aside, {name: 1 if few == "one pod" else int(few.split()[0]) for name, few in tried.items()}


def condition_of(node: KubeNode, why: str, now: datetime) -> NodeCondition | None:
    """Give the condition that is to be written on a Node, None = it says so already. `why` "" = starts do not fail there.

    A node that never failed gets no condition.
    """
    held = node.condition(CONDITION)
    if not why and (held is None or held.status == "False"):
        return None
    well = FAULT_CLASS.healthy
    status, reason = ("True", REPEATED_START_FAILURES.name) if why else ("False", well.reason)
    message = why or well.message
    if held is not None and (held.status, held.reason, held.message) == (status, reason, message):
        return None
    since = held.last_transition_time if held is not None and held.status == status else None
    return NodeCondition(
        type=CONDITION, status=status, reason=reason, message=message, last_transition_time=since or now
    )
