"""An API server in a dictionary, behind kube.api.Api.

It answers as kube-apiserver 1.37 does in all that nodemend relies on: resource versions, conflicts, UID preconditions,
status subresources, paging, watches with bookmarks and 410. It checks no schema, runs no controller and admits
everything; what depends on those belongs into a cluster test.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from kube.api import PatchType
from tests.fake_storage import KINDS, STATUS_AT_CREATE, Address, FakeStorage, selected


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived; `method` is GET, LIST, WATCH, CREATE, PATCH, REPLACE or DELETE."""

    method: str
    path: str
    body: Any = None
    query: dict[str, str] = {}
    patch_type: PatchType | None = None


Predicate = Callable[[Request], bool]


def request_to(method: str, path_part: str) -> Predicate:
    """Match requests of one method (or `*`) whose path contains `path_part`."""
    return lambda request: method in ("*", request.method) and path_part in request.path


class Tells(Protocol):
    """Whoever knows the time: tests.fakes.FakeClock, kube.clock.SYSTEM."""

    @property
    def now(self) -> Callable[[], datetime]: ...


class _Failure(msgspec.Struct):
    predicate: Predicate
    error: Exception
    left: int | None
    after: bool


class FakeApi:
    """Seed it with `add`, look into it with `read`, see `requests` and `writes()`.

    `stream` yields what is new, then waits for more until `close()`, or ends at once where `streams_end` is set.
    """

    def __init__(self, clock: Tells | None = None, *, streams_end: bool = False) -> None:
        self.requests: list[Request] = []
        self.streams_end = streams_end
        self._changed = threading.Condition()
        self._storage = FakeStorage(clock.now if clock is not None else lambda: datetime.now(UTC))
        self._bookmarks = 0
        self._failures: list[_Failure] = []
        self._closed = False

    # What tests do

    def add(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Put a whole object in, status included, under a collection's path; gives it as stored."""
        with self._changed:
            self._changed.notify_all()
            return copy.deepcopy(self._storage.insert(Address.parse(path), obj, keep_status=True))

    def read(self, path: str) -> dict[str, Any]:
        """Look at one object without leaving a request behind. Raises NotFound."""
        with self._changed:
            return copy.deepcopy(self._storage.held(Address.parse(path)))

    def names(self, path: str) -> list[str]:
        """Look at the names in a collection without leaving a request behind."""
        with self._changed:
            items = self._storage.list_page(Address.parse(path), {})["items"]
            return [item["metadata"]["name"] for item in items]

    def remove(self, path: str) -> None:
        """Let an object vanish, as its owner or a garbage collector would. Raises NotFound."""
        with self._changed:
            address = Address.parse(path)
            self._storage.held(address)
            self._storage.drop(address.key())
            self._changed.notify_all()

    def writes(self) -> list[Request]:
        """All requests that could have changed something, in order."""
        return [request for request in self.requests if request.method not in ("GET", "LIST", "WATCH")]

    def fail_next(
        self, predicate: Predicate, error: Exception, *, times: int | None = 1, after: bool = False
    ) -> None:
        """Raise `error` for the next `times` matching requests (None: for all of them).

        With `after`, the request is carried out first: only its answer got lost.
        """
        self._failures.append(_Failure(predicate, error, times, after))

    def stop_failing(self) -> None:
        self._failures.clear()

    def compact(self) -> None:
        """Forget history: open watches and watches from before get 410, and every continue token too."""
        with self._changed:
            self._storage.compact()
            self._changed.notify_all()

    def bookmark(self) -> None:
        """Send a bookmark into every open watch."""
        with self._changed:
            self._bookmarks += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End every open watch and every later one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # kube.api.Api

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        address = Address.parse(path)
        if address.name:
            request = Request(method="GET", path=path, query=dict(query or {}))
            return self._serve(request, lambda: self._storage.held(address))
        request = Request(method="LIST", path=path, query=dict(query or {}))
        return self._serve(request, lambda: self._storage.list_page(address, request.query))

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes:
        address = Address.parse(path)
        request = Request(method="CREATE", path=path, body=copy.deepcopy(dict(body)), query=dict(query or {}))
        if address.subresource == "eviction":
            preconditions = (body.get("deleteOptions") or {}).get("preconditions") or {}
            evict = self._storage.check if "dryRun" in request.query else self._storage.delete
            return self._serve(request, lambda: evict(address, preconditions))
        if address.subresource == "binding":
            return self._serve(request, lambda: self._storage.bind(address, body))
        keep = address.plural in STATUS_AT_CREATE
        return self._serve(request, lambda: self._storage.insert(address, body, keep_status=keep))

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        address = Address.parse(path)
        copied = copy.deepcopy(body)
        request = Request(
            method="PATCH", path=path, body=copied, query=dict(query or {}), patch_type=patch_type
        )
        return self._serve(request, lambda: self._storage.patch(address, copied, patch_type))

    def replace(self, path: str, body: Mapping[str, Any]) -> bytes:
        address = Address.parse(path)
        copied = copy.deepcopy(dict(body))
        request = Request(method="REPLACE", path=path, body=copied)
        return self._serve(
            request, lambda: self._storage.update(address, copied, copied.get("metadata") or {})
        )

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        address = Address.parse(path)
        request = Request(method="DELETE", path=path, body=copy.deepcopy(dict(body or {})))
        preconditions = (body or {}).get("preconditions") or {}
        return self._serve(request, lambda: self._storage.delete(address, preconditions))

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> Iterator[bytes]:
        request = Request(method="WATCH", path=path, query=dict(query))
        self._serve(request, dict)
        return self._events(Address.parse(path), request.query, read_timeout_s)

    # How it works

    def _serve(self, request: Request, action: Callable[[], dict[str, Any]]) -> bytes:
        with self._changed:
            self.requests.append(request)
            failure = next((f for f in self._failures if f.left != 0 and f.predicate(request)), None)
            if failure is not None and failure.left is not None:
                failure.left -= 1
            if failure is not None and not failure.after:
                raise failure.error
            answer = msgspec.json.encode(action())
            self._changed.notify_all()
            if failure is not None:
                raise failure.error
            return answer

    def _events(self, address: Address, query: Mapping[str, str], read_timeout_s: float) -> Iterator[bytes]:
        storage = self._storage
        version = int(query.get("resourceVersion") or storage.version)
        place, bookmarks, compactions = 0, self._bookmarks, storage.compactions
        expired = version < storage.compacted
        while True:
            lines: list[bytes] = []
            with self._changed:
                expired = expired or storage.compactions > compactions
                if not expired:
                    lines = [
                        _line(kind, obj)
                        for at, kind, key, obj in storage.log[place:]
                        if at > version and address.holds(key) and selected(obj, query)
                    ]
                    place = len(storage.log)
                if self._bookmarks > bookmarks:
                    bookmarks = self._bookmarks
                    lines.append(_line("BOOKMARK", _bookmark(address, storage.version)))
                if not lines and not expired:
                    if self.streams_end or self._closed:
                        return
                    if not self._changed.wait(read_timeout_s):
                        raise TimeoutError(f"{address.plural}: nothing heard for {read_timeout_s} s")
            yield from lines
            if expired:
                yield _line("ERROR", TOO_OLD)
                return


TOO_OLD = {
    "kind": "Status",
    "status": "Failure",
    "reason": "Expired",
    "code": 410,
    "message": "too old resource version",
}


def _bookmark(address: Address, version: int) -> dict[str, Any]:
    return {"kind": KINDS.get(address.plural, ""), "metadata": {"resourceVersion": str(version)}}


def _line(kind: str, obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj})
