"""A Reflector keeps a Store equal to one resource of the API server: a paged list, then a watch, for as long as it runs.

Invariants: objects are decoded one by one, straight from the wire into slim structs; one that cannot be decoded is counted
and named, and what was last known of it stays, since "could not read" is not "is gone". A watch that neither brings an
event nor a bookmark for 90 s is taken for dead (the server sends a bookmark about once a minute), and a list comes before
the next one: of a resource that never changed since it started the API server sends no bookmark (`Cacher.dispatchEvents`
waits for a first event, or for etcd's progress, which by default comes every ten minutes). Every failure is
followed by a growing, jittered pause, and only a change between heard and not heard is logged.
"""

import random
import threading
from collections.abc import Callable
from typing import Generic, Literal, TypeVar, cast

import msgspec
import structlog

from kube.answers import ServerStatus, from_status
from kube.api import Api, Gone
from kube.clock import Clock
from kube.store import Store, Stored, key_of, version_of
from kube.types import ObjectMeta, Struct

READ_TIMEOUT_S = 90.0
FIRST_PAUSE_S = 0.2
# The controller decides nothing while it is deaf, so it must hear soon after an outage. A pause is drawn anew each time from
# 0.2 s up to this, so a fleet's watches come back spread over it: 1,500 agents are some 300 cheap requests a second.
LONGEST_PAUSE_S = 10.0
LIST_RESTARTS = 3
SETTLED_S = 5.0

T = TypeVar("T", bound=Stored)

log = structlog.get_logger()


class ListMeta(Struct, frozen=True, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(Struct, frozen=True, kw_only=True):
    """One page of a list, its items not yet looked into."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class Event(Struct, frozen=True, kw_only=True):
    """One line of a watch, its object not yet looked into."""

    type: str
    object: msgspec.Raw


class Bare(Struct, frozen=True, kw_only=True):
    """All that a bookmark holds, and all that we need to name an object that cannot be decoded."""

    metadata: ObjectMeta


_PAGE = msgspec.json.Decoder(Page)
_EVENT = msgspec.json.Decoder(Event)
_BARE = msgspec.json.Decoder(Bare)
_STATUS = msgspec.json.Decoder(ServerStatus)
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


def pause_s(failures: int) -> float:
    """Draw the pause before the next try, in seconds, after so many failures in a row."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 10))
    return random.uniform(FIRST_PAUSE_S, longest)  # noqa: S311 - spreads load, guards nothing


class Reflector(Generic[T]):
    """`run` blocks until `stop` is set; give it a thread of its own. It ends within a read when the session is closed.

    `unreadable` names the objects that could not be decoded and why; empty when all is well. `pause` waits between tries.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        type_: type[T],
        store: Store[T],
        *,
        clock: Clock,
        stop: threading.Event,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.unreadable: dict[str, str] = {}
        self._api = api
        self._path = path
        self._decode: Callable[[msgspec.Raw], T] = msgspec.json.Decoder(type_).decode
        self._store = store
        self._clock = clock
        self._stop = stop
        self._selectors = {
            name: value
            for name, value in (("labelSelector", label_selector), ("fieldSelector", field_selector))
            if value
        }
        self._page_size = page_size
        self._pause = pause or stop.wait
        self._version: int | None = None  # what the next watch starts from; None = list first
        self._failures = 0
        self._interrupted = False

    def run(self) -> None:
        """Keep the store until `stop` is set; no failure of the server ends this."""
        while not self._stop.is_set():
            began = self._clock.monotonic()
            error: Exception | None = None  # none: ended by the server, as it does every few minutes
            try:
                if self._version is None:
                    self._version = self._list()
                self._watch(self._version)
            except Gone as gone:
                self._version, error = None, gone
            except Exception as failed:  # noqa: BLE001 - the edge of this thread: whatever came, the store must go on
                error = failed
                if self._clock.monotonic() - self._store.last_heard >= READ_TIMEOUT_S:
                    self._version = None  # a new watch may be as silent: only a list says how things are
            if not self._stop.is_set():
                self._recover(error, settled=self._clock.monotonic() - began > SETTLED_S)

    def _recover(self, error: Exception | None, *, settled: bool) -> None:
        """Pause before the next try, longer each time in a row; a watch that stood for a while starts a new row."""
        if settled:
            self._failures = 0
        if error is None and settled:
            return
        if error is not None and not self._interrupted:
            self._interrupted = True
            log.warning("watch.interrupted", path=self._path, error=str(error) or repr(error))
        self._failures += 1
        self._pause(pause_s(self._failures))

    def _heard(self) -> float:
        """Note that the server speaks; give the time on the monotonic clock."""
        if self._interrupted:
            self._interrupted = False
            log.info("watch.resumed", path=self._path, attempt=self._failures)
        return self._clock.monotonic()

    def _list(self) -> int:
        """Read the whole resource into the store; give the version that the watch starts from."""
        for _ in range(LIST_RESTARTS):
            try:
                return self._list_once()
            except Gone:  # the server forgot the instant that the first page showed: begin anew
                continue
        return self._list_once()

    def _list_once(self) -> int:
        objects: list[T] = []
        unreadable: dict[str, str] = {}
        query = {**self._selectors, "limit": str(self._page_size)}
        while True:
            page = _PAGE.decode(self._api.get(self._path, query))
            for item in page.items or ():
                try:
                    objects.append(self._decode(item))
                except msgspec.MsgspecError as error:
                    bare = self._name_odd(item, error, unreadable)
                    held = self._store.get(key_of(bare.metadata)) if bare is not None else None
                    if held is not None:
                        objects.append(held)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self.unreadable = unreadable
        self._store.replace(objects, page.metadata.resource_version, self._heard())
        return version_of(page.metadata.resource_version)

    def _watch(self, version: int) -> None:
        """Follow the resource from `version` until the server ends the watch or something fails."""
        query = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(version),
            "timeoutSeconds": str(random.randint(300, 600)),  # noqa: S311 - keeps a fleet's watches from ending at once
        }
        for line in self._api.stream(self._path, query, READ_TIMEOUT_S):
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                raise from_status(f"WATCH {self._path}", _STATUS.decode(event.object))
            if event.type in _CHANGES:
                reached = self._take(cast(Literal["ADDED", "MODIFIED", "DELETED"], event.type), event.object)
            else:  # BOOKMARK, or a kind of event that does not exist yet
                reached = version_of(_BARE.decode(event.object).metadata.resource_version)
                self._store.heard(str(reached), self._heard())
            if reached < version:
                raise Gone(
                    f"WATCH {self._path}: the server's history went back from {version} to {reached}",
                    code=410,
                )
            self._version = version = reached
            self._failures = 0
            if self._stop.is_set():
                return

    def _take(self, kind: Literal["ADDED", "MODIFIED", "DELETED"], raw: msgspec.Raw) -> int:
        """Bring one changed object into the store; give its version."""
        try:
            obj = self._decode(raw)
        except msgspec.MsgspecError as error:
            return self._take_odd(kind, raw, error)
        if self.unreadable:
            self._forget_odd(key_of(obj.metadata))
        self._store.apply(kind, obj, self._heard())
        return version_of(obj.metadata.resource_version)

    def _take_odd(self, kind: str, raw: msgspec.Raw, error: msgspec.MsgspecError) -> int:
        """Keep what was last known of an object that cannot be decoded, unless it was deleted."""
        odd = dict(self.unreadable)
        bare = self._name_odd(raw, error, odd)
        if bare is None:
            return self._version or 0
        self.unreadable = odd
        key = key_of(bare.metadata)
        held = self._store.get(key)
        if kind == "DELETED":
            self._forget_odd(key)
            if held is not None:
                self._store.apply("DELETED", held, self._heard())
        self._store.heard(bare.metadata.resource_version, self._heard())
        return version_of(bare.metadata.resource_version)

    def _forget_odd(self, key: str) -> None:
        self.unreadable = {name: why for name, why in self.unreadable.items() if name != key}

    def _name_odd(self, raw: msgspec.Raw, error: msgspec.MsgspecError, odd: dict[str, str]) -> Bare | None:
        """Put an object that cannot be decoded into `odd` under its key, where it has one, and log it the first time."""
        try:
            bare = _BARE.decode(raw)
        except msgspec.MsgspecError:
            bare = None
        key = key_of(bare.metadata) if bare is not None else ""
        odd[key] = str(error)[:200]
        if key not in self.unreadable:
            log.warning("object.skipped", path=self._path, key=key, error=odd[key])
        return bare
