"""The grouper on a cluster: every pod that waits for us gets its group, and every group its PodGroup. Shell.

One thread decides, on what the stores hold and what it reads of owners; nothing it waits for holds up another pod. The loop
places pods on the strength of `view`, so that a PodGroup may be written when there is room. Level-triggered: whatever was
missed is found again when all pods are looked at, after each full list and once a minute.
"""

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Final

import structlog

from controller.scheduler.grouper.fields import GrouperError
from controller.scheduler.grouper.owners import SKIP
from controller.scheduler.grouper.spec import Terms
from controller.scheduler.pod_tasks import SUB_GROUP
from controller.scheduler.shell.deciding import Ungroupable, decide
from controller.scheduler.shell.group_bodies import patch_of
from controller.scheduler.shell.group_inbox import Inbox
from controller.scheduler.shell.group_requests import label_pod, put_group
from controller.scheduler.shell.live_cluster import Surroundings
from controller.scheduler.shell.memberships import Decision, Grouped, GroupView, Memberships
from controller.scheduler.shell.owner_reads import OWNER_AGE_S, OwnerReads
from controller.scheduler.shell.paced_writes import WORKERS, PacedWrites, Request
from controller.scheduler.shell.path_reads import READERS, Key, NotRead, PathReads
from controller.scheduler.snapshot import POD_GROUP
from kube.api import Api
from kube.clock import Clock
from kube.scheduling import PodGroup, PriorityClass
from kube.store import Store
from kube.types import Pod

__all__ = ["GroupView", "Grouped", "Grouping"]

log = structlog.get_logger(__name__)

RESYNC_S: Final = 60.0
DECIDED_FOR_S: Final = 300.0
"""How long a decision about a pod that waits stands without looking at its owners again."""
FRESH_AGE_S: Final = 1.0
"""How old the owners may be, where a PodGroup went: it may have gone with its owner."""
RETRY_AGE_S: Final = 2.0
GONE_S: Final = 5.0
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
BATCH: Final = 500
"""After so many pods the loop is shown what there is."""
LABEL: Final = "label of "
FINISHED: Final = frozenset({"Succeeded", "Failed"})


class Grouping:
    """`wake` is called, in this one's thread, when the view changed. `may_write`: whether this replica leads."""

    def __init__(
        self,
        *,
        pods: Store[Pod],
        pod_groups: Store[PodGroup],
        priority_classes: Store[PriorityClass],
        reads: Api,
        writes: Api,
        terms: Terms,
        scheduler_name: str,
        clock: Clock,
        wake: Callable[[], None],
        may_write: Callable[[], bool],
        calm: Callable[[], bool],
        hands: Executor | None = None,
    ) -> None:
        self._pods = pods
        self._pod_groups = pod_groups
        self._classes = priority_classes
        self._terms = terms
        self._scheduler_name = scheduler_name
        self._clock = clock
        self._wake = wake
        self._hands = hands or ThreadPoolExecutor(READERS + WORKERS, thread_name_prefix="grouping")
        self._bell = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grouping", daemon=True)
        self._inbox = Inbox(scheduler_name, self._bell.set)
        self._resync_due = 0.0
        self._again: dict[str, float] = {}
        self._waiting: dict[Key, set[str]] = {}
        self._tries: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._retries: list[tuple[float, str]] = []
        self._known = Memberships()
        self._reads = PathReads(reads, clock, self._hands, self._bell.set)
        self._around = Surroundings(OwnerReads(self._reads), terms)
        self._writes = PacedWrites(
            writes,
            clock,
            self._hands,
            make=self._request,
            ring=self._bell.set,
            may_write=may_write,
            calm=calm,
        )
        self._inbox.subscribe(pods, pod_groups, priority_classes)

    def start(self) -> None:
        """Start the thread. It decides once the stores are in."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Start nothing more; wait for what is under way, at most so long."""
        self._stop.set()
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._hands.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether anything is still decided."""
        return self._thread.is_alive()

    def view(self) -> GroupView:
        """Give what is decided so far. Any thread."""
        return self._known.view()

    # The thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._bell.clear()
            try:
                more = self.turn()
            except Exception:
                log.exception("grouping.failed")
                more = False
                self._stop.wait(1.0)
            if not more:
                self._bell.wait(self.pause_s())

    def pause_s(self) -> float:
        """Say how long there is nothing to do, unless somebody rings."""
        now = self._clock.monotonic()
        dues = [self._resync_due, self._reads.next_due(), self._writes.next_due()]
        dues.append(self._retries[0][0] if self._retries else None)
        return min(max(due - now, 0.01) for due in dues if due is not None)

    def turn(self) -> bool:
        """Do what there is to do at this moment; say whether there is more. Called by one thread."""
        now = self._clock.monotonic()
        if not (self._pods.synced and self._pod_groups.synced and self._classes.synced):
            self._resync_due = now + 1.0
            return False
        for key in self._reads.collect():
            self._inbox.put(self._waiting.pop(key, ()))
        while self._retries and self._retries[0][0] <= now:
            due, pod = heapq.heappop(self._retries)
            if self._retry_at.get(pod) == due:
                del self._retry_at[pod]
                self._again.setdefault(pod, RETRY_AGE_S)
                self._inbox.put((pod,))
        self._take_classes()
        self._resync(now)
        self._take_groups(now)
        more = self._take_pods(now)
        self._writes.turn()
        self._reads.start()
        if self._known.take_changed():
            self._wake()
        return more

    def _take_classes(self) -> None:
        if not self._inbox.take_classes():
            return
        classes = frozenset(self._classes.snapshot())
        if classes != self._around.classes:
            self._around.classes = classes
            for pod in self._known.pods():
                self._again.setdefault(pod, OWNER_AGE_S)
            self._inbox.put(self._known.pods())

    def _resync(self, now: float) -> None:
        """Look at every pod again, now and then: most of them are settled, and seen to be so at once."""
        listed = self._inbox.take_listed()
        if not listed and now < self._resync_due:
            return
        self._resync_due = now + RESYNC_S
        ours = [
            key
            for key, pod in self._pods.snapshot().items()
            if pod.spec.scheduler_name == self._scheduler_name
        ]
        self._inbox.put((*ours, *self._known.pods()))
        if listed:
            for key, group in self._pod_groups.snapshot().items():
                namespace, _, name = key.partition("/")
                self._around.take_group(namespace, name, group)

    def _take_groups(self, now: float) -> None:
        for key in self._inbox.take_groups():
            existing = self._pod_groups.get(key)
            namespace, _, name = key.partition("/")
            self._around.take_group(namespace, name, existing)
            group = self._known.group(key)
            if group is None:
                if existing is None:  # pods that run may be its members, unless they end with it
                    self._resync_due = min(self._resync_due, now + GONE_S)
                else:
                    self._inbox.put(pod for pod in self._known.troubled() if self._names(pod, key))
            elif existing is None:
                self._writes.drop(key)
                self._again.update(dict.fromkeys(group.members, FRESH_AGE_S))
                self._inbox.put(group.members)
            else:
                self._settle(key)

    def _take_pods(self, now: float) -> bool:
        keys, more = self._inbox.take_pods(BATCH)
        for key in keys:
            try:
                self._consider(key, now)
            except Exception:
                log.exception("grouping.pod_failed", pod=key)
                self._fail(key, "a defect of the scheduler, see its log", now)
        return more

    # One pod

    def _consider(self, key: str, now: float) -> None:
        pod = self._pods.get(key)
        again = self._again.pop(key, None)
        ours = pod if pod is not None and self._is_ours(pod) else None
        namespace, _, name = key.partition("/")
        self._around.take_pod(namespace, name, ours)
        held = self._known.decision(key)
        if ours is None or (held is not None and held.pod.metadata.uid != ours.metadata.uid):
            self._forget(key)
            held = None
        if ours is None:
            return
        max_age_s = OWNER_AGE_S if again is None else again
        if ours.spec.node_name:
            group_key = f"{namespace}/{ours.metadata.annotations.get(POD_GROUP, '')}"
            if self._is_settled(ours, group_key):
                if not self._writes.is_wanted(group_key):
                    self._forget(key)
                return
            if held is not None and again is None and held.grouped.group == group_key:
                self._settle_pod(key, ours, held)
                return
            if self._pod_groups.get(group_key) is None:
                max_age_s = min(max_age_s, FRESH_AGE_S)
        elif held is not None and again is None and held.is_about(ours) and now - held.at < DECIDED_FOR_S:
            self._settle_pod(key, ours, held)
            return
        self._decide(key, ours, max_age_s, now)

    def _is_ours(self, pod: Pod) -> bool:
        """Whether the pod is one that we place or placed, is not about to go, and lets itself be grouped."""
        meta = pod.metadata
        return (
            pod.spec.scheduler_name == self._scheduler_name
            and meta.deletion_timestamp is None
            and pod.status.phase not in FINISHED
            and SKIP not in meta.annotations
            and (not pod.spec.node_name or POD_GROUP in meta.annotations)
        )

    def _names(self, key: str, group_key: str) -> bool:
        pod = self._pods.get(key)
        return (
            pod is not None
            and group_key == f"{pod.metadata.namespace}/{pod.metadata.annotations.get(POD_GROUP)}"
        )

    def _is_settled(self, pod: Pod, group_key: str) -> bool:
        existing = self._pod_groups.get(group_key)
        return existing is not None and (not existing.spec.sub_groups or SUB_GROUP in pod.metadata.labels)

    def _decide(self, key: str, pod: Pod, max_age_s: float, now: float) -> None:
        waits = not pod.spec.node_name
        try:
            decided = decide(pod, self._around, max_age_s)
        except NotRead as error:
            self._waiting.setdefault(error.key, set()).add(key)
            if max_age_s != OWNER_AGE_S:
                self._again[key] = max_age_s
            if error.why and waits and self._known.decision(key) is None:
                self._known.trouble(key, f"{error.key.path} cannot be read yet: {error.why}")
            return
        except (GrouperError, Ungroupable) as error:
            self._fail(key, str(error) if waits else "", now)
            return
        self._tries.pop(key, None)
        self._retry_at.pop(key, None)
        spec = decided.spec
        named = pod.metadata.annotations.get(POD_GROUP, spec.name)
        if named != spec.name:  # somebody else's word, which is kept
            lost = waits and self._pod_groups.get(f"{spec.namespace}/{named}") is None
            why = f"its annotation {POD_GROUP} names the PodGroup {named}, which is not there" if lost else ""
            self._forget(key, why)
            return
        held = self._known.decision(key)
        if held is not None and held.grouped.group != f"{spec.namespace}/{spec.name}":
            self._forget(key)
        group = self._known.decide(key, pod, spec, now)
        group.ending = decided.ending
        self._settle_pod(key, pod, self._known.decision(key))

    def _fail(self, key: str, why: str, now: float) -> None:
        """Let the pod wait, and look at it again with growing pauses."""
        count = self._tries.get(key, 0)
        self._forget(key, why)
        self._tries[key] = count + 1
        due = now + min(FIRST_RETRY_S * 2.0 ** min(count, 10), LAST_RETRY_S)
        self._retry_at[key] = due
        heapq.heappush(self._retries, (due, key))

    def _forget(self, key: str, why: str = "") -> None:
        """Let a pod be in no group, for this reason if it waits."""
        self._known.trouble(key, why)
        self._tries.pop(key, None)
        self._retry_at.pop(key, None)
        self._writes.drop(LABEL + key)
        if emptied := self._known.forget(key):
            self._writes.drop(emptied)

    def _settle_pod(self, key: str, pod: Pod, decision: Decision | None) -> None:
        if decision is None:
            return
        self._settle(decision.grouped.group)
        wanted = decision.grouped.sub_group
        if wanted and pod.metadata.labels.get(SUB_GROUP) != wanted:
            self._writes.want(LABEL + key, urgent=True)

    def _settle(self, key: str) -> None:
        """Ask for the write that a group still needs, if any."""
        group = self._known.group(key)
        if group is None:
            return
        existing = self._pod_groups.get(key)
        self._known.show_made(key, existing is not None)
        if existing is None:
            if not group.ending:
                self._writes.want(key, urgent=not group.single)
            return
        version = (existing.metadata.uid, existing.metadata.resource_version)
        if group.compared != version:
            if patch_of(group.spec, existing, self._terms.node_pool_label):
                self._writes.want(key, urgent=True)
            else:
                group.compared = version

    def _request(self, key: str) -> Request | None:
        """Make the write of this moment."""
        if key.startswith(LABEL):
            return self._label_request(key.removeprefix(LABEL))
        group, existing = self._known.group(key), self._pod_groups.get(key)
        if group is None or (existing is None and group.ending):
            return None
        pool_label = self._terms.node_pool_label
        if existing is not None and not patch_of(group.spec, existing, pool_label):
            return None
        return partial(
            put_group, spec=group.spec, held=existing, pool_label=pool_label, offer=self._pod_groups.offer
        )

    def _label_request(self, key: str) -> Request | None:
        pod, decision = self._pods.get(key), self._known.decision(key)
        if pod is None or decision is None or pod.metadata.uid != decision.grouped.uid:
            return None
        if pod.metadata.labels.get(SUB_GROUP) == decision.grouped.sub_group:
            return None
        return partial(label_pod, pod=pod, sub_group=decision.grouped.sub_group)
