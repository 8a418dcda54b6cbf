"""Doing things at fixed times, come what may. Shell."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from kube.clock import Clock

T = TypeVar("T")


def play(clock: Clock, start: float, plan: Iterable[tuple[float, T]], do: Callable[[T], None]) -> float:
    """Call `do` with each thing at `start` plus its seconds; give by how many seconds the latest was late."""
    latest = 0.0
    for at_s, thing in plan:
        early = start + at_s - clock.monotonic()
        if early > 0:
            clock.sleep(early)
        latest = max(latest, -early)
        do(thing)
    return latest


class Players:
    """Several plans at once, each in a thread of its own; `join` raises what went wrong in any of them."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, name: str, call: Callable[[], object]) -> None:
        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - carried over to whoever joins
                self._errors.append(error)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait until all have ended. Raises the first error."""
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
