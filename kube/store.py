"""A local copy of one resource, kept by a Reflector, that knows whether it is complete and how fresh it is.

Resource versions are compared as integers: within one resource they are, and since Kubernetes 1.35 are promised to be,
ever-growing numbers of one sequence (KEP-5504). What was heard up to `heard_version` is therefore complete, and an absent
object whose version is not beyond it was deleted. No tombstones are needed and the store holds nothing but live objects.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, Literal, Protocol, TypeVar

from kube.types import ObjectMeta


class Change(StrEnum):
    """What happened to an object; SYNCED = the first or a renewed full list is in."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


class Stored(Protocol):
    """Anything with Kubernetes' metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Stored)
Subscriber = Callable[[Change, T | None], None]


def key_of(metadata: ObjectMeta) -> str:
    """Name an object within its resource: `namespace/name`, or `name` where it has no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def version_of(text: str) -> int:
    """Read a resource version; 0 for none. Raises ValueError for one that is not a number."""
    return int(text) if text else 0


class Store(Generic[T]):
    """Objects of one resource by key. All methods may be called from any thread.

    `index` gives the one further key objects are found by (pods by node name); objects with an empty one are not indexed.
    Subscribers are called in the thread that changed the store, outside its lock: they must be quick and never raise.
    """

    def __init__(self, *, index: Callable[[T], str] | None = None) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}
        self._index = index
        self._indexed: dict[str, dict[str, T]] = {}
        self._snapshot: Mapping[str, T] | None = None
        self._subscribers: tuple[Subscriber[T], ...] = ()
        self._synced = threading.Event()
        self._heard_version = 0
        self._last_heard = float("-inf")

    @property
    def synced(self) -> bool:
        """Whether a full list was ever in; stays True over reconnects, see `fresh`."""
        return self._synced.is_set()

    @property
    def last_heard(self) -> float:
        """When the server last said anything about this resource, on the monotonic clock; -inf for never."""
        return self._last_heard

    @property
    def heard_version(self) -> int:
        """Everything up to this resource version is in."""
        return self._heard_version

    def fresh(self, now_monotonic: float, limit_s: float) -> bool:
        """Whether the server was heard within `limit_s` seconds; bookmarks come about once a minute."""
        return self.synced and now_monotonic - self._last_heard <= limit_s

    def wait_synced(self, timeout_s: float) -> bool:
        """Block until the first full list is in, at most `timeout_s` seconds; give `synced`."""
        return self._synced.wait(timeout_s)

    def subscribe(self, callback: Subscriber[T]) -> None:
        """Call `callback(change, object)` after each change from now on; the object of SYNCED is None."""
        with self._lock:
            self._subscribers = (*self._subscribers, callback)

    def get(self, key: str) -> T | None:
        with self._lock:
            return self._objects.get(key)

    def snapshot(self) -> Mapping[str, T]:
        """Give an unchanging view of all objects; costs one copy per change, none while nothing changed."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(dict(self._objects))
            return self._snapshot

    def values(self) -> tuple[T, ...]:
        return tuple(self.snapshot().values())

    def by_index(self, index_key: str) -> tuple[T, ...]:
        """Give the objects for which `index` gave this key."""
        with self._lock:
            return tuple(self._indexed.get(index_key, {}).values())

    def __len__(self) -> int:
        return len(self._objects)

    def replace(self, objects: Iterable[T], resource_version: str, at: float) -> None:
        """Take a full list, read at `resource_version` and at `at` on the monotonic clock.

        What our own writes brought in and the list could not yet know is kept. A list older than what was heard before
        means that the server's history went back (a restored backup): then the list counts and nothing else.
        """
        version = version_of(resource_version)
        listed = {key_of(obj.metadata): obj for obj in objects}
        changes: list[tuple[Change, T | None]] = []
        with self._lock:
            restored = version < self._heard_version
            for key, held in list(self._objects.items()):
                ours_is_newer = not restored and version_of(held.metadata.resource_version) > version
                if key not in listed and not ours_is_newer:
                    self._remove(key, held, changes)
            for key, obj in listed.items():
                previous = self._objects.get(key)
                if previous is None or restored or _newer(obj, previous):
                    self._put(key, obj, changes)
            self._heard_version = version
            self._last_heard = at
        self._synced.set()
        changes.append((Change.SYNCED, None))
        self._tell(changes)

    def apply(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], obj: T, at: float) -> None:
        """Take one event of the watch, heard at `at` on the monotonic clock; an older one than what is held is dropped."""
        key = key_of(obj.metadata)
        changes: list[tuple[Change, T | None]] = []
        with self._lock:
            held = self._objects.get(key)
            stale = held is not None and not _newer(obj, held)
            if kind == "DELETED":
                if held is not None and (not stale or _same_version(obj, held)):
                    self._remove(key, held, changes)
            elif not stale:
                self._put(key, obj, changes)
            self._heard(version_of(obj.metadata.resource_version), at)
        self._tell(changes)

    def heard(self, resource_version: str, at: float) -> None:
        """Take a bookmark: the server is there, and nothing up to `resource_version` is missing here."""
        with self._lock:
            self._heard(version_of(resource_version), at)

    def offer(self, obj: T) -> bool:
        """Take the answer to a write of our own, so that we read what we wrote before the watch brings it.

        Gives whether it was taken: not when the watch already brought something newer, nor when the object was deleted
        since.
        """
        key = key_of(obj.metadata)
        changes: list[tuple[Change, T | None]] = []
        with self._lock:
            held = self._objects.get(key)
            known = version_of(held.metadata.resource_version) if held is not None else self._heard_version
            if version_of(obj.metadata.resource_version) > known:
                self._put(key, obj, changes)
        self._tell(changes)
        return bool(changes)

    def _heard(self, version: int, at: float) -> None:
        self._heard_version = max(self._heard_version, version)
        self._last_heard = at

    def _put(self, key: str, obj: T, changes: list[tuple[Change, T | None]]) -> None:
        held = self._objects.get(key)
        if held is not None and held.metadata.uid != obj.metadata.uid:
            self._remove(key, held, changes)
            held = None
        self._objects[key] = obj
        self._snapshot = None
        if self._index is not None:
            if held is not None:
                self._unindex(key, held)
            if index_key := self._index(obj):
                self._indexed.setdefault(index_key, {})[key] = obj
        changes.append((Change.ADDED if held is None else Change.MODIFIED, obj))

    def _remove(self, key: str, held: T, changes: list[tuple[Change, T | None]]) -> None:
        del self._objects[key]
        self._snapshot = None
        self._unindex(key, held)
        changes.append((Change.DELETED, held))

    def _unindex(self, key: str, held: T) -> None:
        if self._index is None or not (index_key := self._index(held)):
            return
        bucket = self._indexed[index_key]
        del bucket[key]
        if not bucket:
            del self._indexed[index_key]

    def _tell(self, changes: list[tuple[Change, T | None]]) -> None:
        for change, obj in changes:
            for subscriber in self._subscribers:
                subscriber(change, obj)


def _newer(obj: Stored, held: Stored) -> bool:
    return version_of(obj.metadata.resource_version) > version_of(held.metadata.resource_version)


def _same_version(obj: Stored, held: Stored) -> bool:
    return obj.metadata.resource_version == held.metadata.resource_version
