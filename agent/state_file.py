"""What the agent remembers over its own restarts: the checks' memories and how far the kernel log was judged.

One small JSON file, replaced atomically. It is a help, not the truth: garbage in it, a full disk or a read-only one are
said loudly, and the agent goes on with what NodeHealth holds. Beyond the bound nothing is written or read.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from agent.host.kmsg import Cursor
from agent.metrics import Metrics
from checks.last_validated import Validated
from kube.clock import Clock

LIMIT_BYTES = 1024 * 1024
SETTLE_S = 5.0
FORMAT = 1


class StateUnusable(Exception):
    """The file is there and cannot be used, or cannot be written; the message names the file and the cause."""


class SavedCursor(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    sequence: int

    def cursor(self) -> Cursor:
        return Cursor(boot_id=self.boot_id, sequence=self.sequence)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`memories` are by name of the check, each as the check's own `memory_type` writes it.

    All belongs to the boot `boot_id`, but for `last_validated`, which is the machine's.
    """

    format: int = FORMAT
    boot_id: str
    node_uid: str = ""
    cursor: SavedCursor | None = None
    memories: dict[str, Any] = {}
    seen: tuple[str, ...] = ()
    last_validated: Validated | None = None
    saved_at: datetime


class StateFile:
    """Owns `<folder>/state.json`. Its methods may be called from any one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "state.json"

    def load(self) -> State | None:
        """Give what was saved, None where nothing ever was. Raises StateUnusable."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(LIMIT_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateUnusable(f"{self.path}: {error}") from error
        if len(raw) > LIMIT_BYTES:
            raise StateUnusable(f"{self.path}: larger than {LIMIT_BYTES} bytes, none of it is used")
        try:
            state = msgspec.json.decode(raw, type=State)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise StateUnusable(f"{self.path}: {error}") from error
        if state.format != FORMAT:
            raise StateUnusable(f"{self.path}: format {state.format}, this agent knows {FORMAT}")
        return state

    def save(self, state: State) -> None:
        """Replace the file by `state`, wholly or not at all. Raises StateUnusable."""
        raw = msgspec.json.encode(state)
        if len(raw) > LIMIT_BYTES:
            raise StateUnusable(f"{self.path}: {len(raw)} bytes would be written, {LIMIT_BYTES} is the most")
        beside = self.path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise StateUnusable(f"{self.path}: {error}") from error


class Saver:
    """Decides when the state is saved: at once where a finding changed, else a few seconds after the first change.

    A save that fails is said once and counted each time; the next one is tried as if nothing had happened.
    """

    def __init__(self, file: StateFile, clock: Clock, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._file = file
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._log = structlog.get_logger()
        self._lock = threading.Lock()
        self._latest: State | None = None
        self._save_at = float("inf")
        self._failing = False

    def offer(self, state: State, *, urgent: bool) -> None:
        """Set what is to be saved; the newest wins. Any thread may call this."""
        with self._lock:
            due = self._clock.monotonic() + (0.0 if urgent else SETTLE_S)
            sooner = due < self._save_at
            self._latest = state
            self._save_at = min(self._save_at, due)
        if sooner:
            self._wake()

    def step(self) -> float:
        """Save where it is due; give the seconds until it will be."""
        now = self._clock.monotonic()
        with self._lock:
            if now < self._save_at:
                return self._save_at - now
        self.flush()
        return float("inf")

    def flush(self) -> None:
        """Save what was offered last, now."""
        with self._lock:
            state, self._latest, self._save_at = self._latest, None, float("inf")
        if state is None:
            return
        try:
            self._file.save(state)
        except StateUnusable as error:
            self._metrics.state_file_errors.inc()
            if not self._failing:
                self._log.error("state.lost", error=str(error))
            self._failing = True
        else:
            if self._failing:
                self._log.info("state.recovered")
            self._failing = False
