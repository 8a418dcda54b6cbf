"""What the stores tell the grouper, until its thread takes it: names only, as the newest state is read at its use. Shell.

It holds at most one entry for each pod and group there is.
"""

import threading
from collections.abc import Callable, Iterable
from itertools import islice

from controller.scheduler.pod_tasks import name_of
from kube.scheduling import PodGroup, PriorityClass
from kube.store import Change, Store, key_of
from kube.types import Pod


class Inbox:
    """`ring` is called, in a reflector's thread, when something came."""

    def __init__(self, scheduler_name: str, ring: Callable[[], None]) -> None:
        self._scheduler_name = scheduler_name
        self._ring = ring
        self._lock = threading.Lock()
        self._pods: dict[str, None] = {}
        self._groups: dict[str, None] = {}
        self._listed = True
        self._classes = True

    def subscribe(self, pods: Store[Pod], pod_groups: Store[PodGroup], classes: Store[PriorityClass]) -> None:
        """Hear of every change from now on."""
        pods.subscribe(self._pod_changed)
        pod_groups.subscribe(self._group_changed)
        classes.subscribe(self._class_changed)

    def put(self, pods: Iterable[str]) -> None:
        """Have pods looked at again."""
        with self._lock:
            self._pods.update(dict.fromkeys(pods))

    def take_pods(self, limit: int) -> tuple[list[str], bool]:
        """Give some pods, the longest here first, and whether there are more."""
        with self._lock:
            keys = list(islice(self._pods, limit))
            for key in keys:
                del self._pods[key]
            return keys, bool(self._pods)

    def take_groups(self) -> tuple[str, ...]:
        with self._lock:
            keys, self._groups = tuple(self._groups), {}
        return keys

    def take_listed(self) -> bool:
        """Whether there was a full list since this was asked last; True the first time."""
        with self._lock:
            listed, self._listed = self._listed, False
        return listed

    def take_classes(self) -> bool:
        """Whether priority classes changed since this was asked last; True the first time."""
        with self._lock:
            changed, self._classes = self._classes, False
        return changed

    def _pod_changed(self, change: Change, pod: Pod | None) -> None:
        with self._lock:
            if pod is None:
                self._listed = True
            elif pod.spec.scheduler_name == self._scheduler_name or change is Change.DELETED:
                self._pods[name_of(pod)] = None
            else:
                return
        self._ring()

    def _group_changed(self, _change: Change, group: PodGroup | None) -> None:
        with self._lock:
            if group is None:
                self._listed = True
            else:
                self._groups[key_of(group.metadata)] = None
        self._ring()

    def _class_changed(self, _change: Change, _one: PriorityClass | None) -> None:
        with self._lock:
            self._classes = True
        self._ring()
