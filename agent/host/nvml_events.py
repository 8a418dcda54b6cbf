"""Waiting for NVML's events, in a thread of the child: they are quick and not complete, so the kernel log stays the proof.

Only kinds that a GPU supports are asked of it, since one unsupported bit makes the whole registration fail. A GPU that is
lost makes every wait return at once, for ever: so after any answer but an event or a timeout the set is freed, a pause
follows that grows, and a new set is made of the GPUs that can still be registered. A set is never used by two threads.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agent.host.nvml_binding import Binding, Event, pointer
from agent.host.nvml_codes import ABSENT, Refused, error_of
from agent.host.nvml_round import Watched

DOUBLE_BIT_ECC, XID, GPU_UNAVAILABLE, RECOVERY_ACTION = 0x2, 0x8, 0x4000, 0x8000
WANTED = DOUBLE_BIT_ECC | XID | GPU_UNAVAILABLE | RECOVERY_ACTION
TIMEOUT = 10
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# The same event of the same GPU within this time is one: a program that ends badly brings thousands.
SAME_WITHIN_S = 1.0
_MOST_REMEMBERED = 256

Say = Callable[[dict[str, Any]], None]


class EventWatch:
    """Owns the event set and its thread; `follow` says which GPUs to listen to and may be called from another thread."""

    def __init__(self, binding: Binding, say: Say, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._nvml = binding
        self._say = say
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._gpus: list[Watched] = []
        self._wait_ms = 0
        self._generation = 0
        self._failures = 0
        self._said: dict[tuple[str, int, int], float] = {}
        self._trouble: dict[str, Any] | None = None

    def follow(self, gpus: Sequence[Watched], wait_ms: int) -> None:
        """Listen to these GPUs from the next wait on, each wait so long at most."""
        with self._changed:
            self._wait_ms = wait_ms
            if [(gpu.index, gpu.pci) for gpu in gpus] != [(gpu.index, gpu.pci) for gpu in self._gpus]:
                self._generation += 1
                self._changed.notify_all()
            self._gpus = list(gpus)

    def run(self) -> None:
        """Listen for ever."""
        while True:
            self._nvml.rest()
            with self._changed:
                self._changed.wait_for(lambda: bool(self._gpus))
                gpus, generation = list(self._gpus), self._generation
            pause_s = self._session(gpus, generation)
            self._nvml.rest()
            with self._changed:
                self._changed.wait_for(partial(self._is_over, generation), timeout=pause_s)

    def _is_over(self, generation: int) -> bool:
        return self._generation != generation

    def _session(self, gpus: Sequence[Watched], generation: int) -> float | None:
        """Listen with one event set until other GPUs are named; give the seconds to pause, None = until they are."""
        try:
            event_set = self._nvml.event_set()
        except Refused as refused:
            return self._failed(refused)
        try:
            registered, why = self._register(gpus, event_set)
            if not registered:
                return None if why is None else self._failed(why)
            self._note(why)
            while not self._is_over(generation):
                self._listen(event_set, gpus)
            return 0.0
        except Refused as refused:
            return self._failed(refused)
        finally:
            self._free(event_set)

    def _register(self, gpus: Sequence[Watched], event_set: Any) -> tuple[int, Refused | None]:
        """Register what can be; give how many GPUs that are and why the last of the others is not among them.

        What has no events at all is left out in silence.
        """
        registered, why = 0, None
        for gpu in gpus:
            self._nvml.about = (gpu.index, gpu.pci)
            try:
                kinds = WANTED & self._nvml.supported_events(gpu.handle)
                if kinds:
                    self._nvml.register(gpu.handle, kinds, event_set)
                    registered += 1
            except Refused as refused:
                if refused.code not in ABSENT:
                    why = refused
        self._nvml.about = (-1, "")
        return registered, why

    def _listen(self, event_set: Any, gpus: Sequence[Watched]) -> None:
        try:
            event = self._nvml.wait(event_set, self._wait_ms)
        except Refused as refused:
            if refused.code != TIMEOUT:
                raise
        else:
            self._tell(event, gpus)
        self._failures = 0

    def _tell(self, event: Event, gpus: Sequence[Watched]) -> None:
        pci, uuid = self._whose(event, gpus)
        key, now = (pci, event.kind, event.data), self._monotonic()
        if now - self._said.get(key, float("-inf")) < SAME_WITHIN_S:
            return
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said[key] = now
        self._say({"k": "event", "kind": event.kind, "data": event.data, "pci": pci, "uuid": uuid})

    def _whose(self, event: Event, gpus: Sequence[Watched]) -> tuple[str, str]:
        """Tell the GPU by its handle, else by asking the driver; empty where neither knows."""
        for gpu in gpus:
            if pointer(gpu.handle) == event.handle:
                return gpu.pci, gpu.uuid
        try:
            pci = self._nvml.pci(event.device)
        except Refused:
            return "", ""
        return pci, next((gpu.uuid for gpu in gpus if gpu.pci == pci), "")

    def _failed(self, refused: Refused) -> float | None:
        self._note(refused)
        if refused.code in ABSENT:
            return None
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return pause_s

    def _note(self, refused: Refused | None) -> None:
        """Say why there are no events, or that there are again; only where that is new."""
        trouble = error_of(refused) if refused is not None else None
        if trouble != self._trouble:
            self._trouble = trouble
            self._say({"k": "events", "error": trouble})

    def _free(self, event_set: Any) -> None:
        try:
            self._nvml.free(event_set)
        except Refused as refused:
            self._note(refused)
