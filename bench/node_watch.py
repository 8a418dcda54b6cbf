"""What an outsider sees of the nodes: one watch, each change with the time at which it was in. Shell."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from kube.api import Api
from kube.clock import SYSTEM, Clock
from kube.store import Store, Stored
from kube.watch import Reflector

T = TypeVar("T", bound=Stored)
_SYNCED_WITHIN_S = 60.0


class Outside(Generic[T]):
    """Calls `see(object, monotonic seconds)` for every change of a resource, in one thread, until the block ends.

    An object is handed over again after each change, and all of them after a new list: the callee knows what is new.
    """

    def __init__(
        self, api: Api, path: str, type_: type[T], see: Callable[[T, float], None], clock: Clock = SYSTEM
    ) -> None:
        self.store: Store[T] = Store()
        self.store.subscribe(lambda _change, seen: see(seen, clock.monotonic()) if seen is not None else None)
        self._stop = threading.Event()
        reflector = Reflector(api, path, type_, self.store, clock=clock, stop=self._stop)
        self._thread = threading.Thread(target=reflector.run, name=f"outside {path}", daemon=True)
        self._path = path

    def __enter__(self) -> Self:
        """Begin; returns when everything that is there has been seen. Raises TimeoutError."""
        self._thread.start()
        if not self.store.wait_synced(_SYNCED_WITHIN_S):
            self._stop.set()
            raise TimeoutError(f"{self._path} could not be listed within {_SYNCED_WITHIN_S:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go. The thread itself ends with the next event, or with the session."""
        self._stop.set()
