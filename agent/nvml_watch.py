"""One NVML child as the agent watches it: which call it is in, for how long, and how far its ending has come. Pure.

Every call that the child announces has a deadline. A child that is to end gets SIGTERM, then SIGKILL, and is then given up:
nobody waits for a process that the kernel does not let go. All times are monotonic seconds that the caller gives.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from agent.nvml_wire import CallBegins, Order
from checks.observation import NvmlHung

_WAITS, _INITIALISES = "nvmlEventSetWait", "nvmlInit"
START = "the start of the child process"
ANSWER = "the answer of the child process"


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All in seconds. `start_s` is for a new process until its first call; no round takes longer than `round_s`. `init_s` is
    for nvmlInit, which brings up every GPU in turn where no persistence daemon keeps them up.

    `end_s` after SIGTERM comes SIGKILL, `kill_s` after that the process is given up. The two back-offs are the first ones.
    """

    period_s: float = 30.0
    deadline_s: float = 15.0
    start_s: float = 60.0
    init_s: float = 60.0
    round_s: float = 600.0
    event_wait_s: float = 10.0
    end_s: float = 5.0
    kill_s: float = 5.0
    back_off_s: float = 1.0
    hang_back_off_s: float = 5.0


class Start(msgspec.Struct, frozen=True):
    child: int


class Ask(msgspec.Struct, frozen=True):
    child: int
    order: Order


class Terminate(msgspec.Struct, frozen=True):
    """Close its input and send SIGTERM."""

    child: int


class Kill(msgspec.Struct, frozen=True):
    child: int


Action = Start | Ask | Terminate | Kill


class Stage(StrEnum):
    UP = "up"
    ENDING = "ending"
    KILLED = "killed"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was announced and not yet followed by anything; `at` is `since` by the wall clock."""

    call: str
    pci: str = ""
    since: float
    at: datetime
    deadline_s: float

    def named(self) -> str:
        return f"{self.call} to the GPU at {self.pci}" if self.pci else self.call


class Watch:
    """Watches one child. `quiet` is what the round under way leaves alone; `hung` is set where that is why it ends."""

    def __init__(self, number: int, timing: Timing, now: float) -> None:
        self.number = number
        self.started = now
        self.stage = Stage.UP
        self.next_at = now
        """When it is to be asked again; once it is ending, when to go further."""
        self.asked_at: float | None = None
        self.quiet: Mapping[str, str] = {}
        self.hung: NvmlHung | None = None
        self.explained = False
        """Why it ends was told already."""
        self._timing = timing
        self._soon = False
        self._by = float("inf")
        self._calls: dict[str, Call] = {}

    @property
    def hears(self) -> bool:
        """Whether its words still count."""
        return self.stage is Stage.UP and not self.explained

    def has_lasted(self, now: float) -> bool:
        """Tell whether it is past its first round: a process that ends after each first one is none to rely on."""
        return now - self.started >= self._timing.period_s

    def ask(self, order: Order, quiet: Mapping[str, str], now: float, at: datetime) -> Ask:
        """Let it begin a round."""
        first = self.asked_at is None and now == self.started
        self.asked_at, self.quiet, self._soon = now, quiet, False
        self._by = self._by if self._by > now else float("inf")
        deadline_s = self._timing.start_s if first else self._timing.deadline_s
        self._calls["round"] = Call(call=START if first else ANSWER, since=now, at=at, deadline_s=deadline_s)
        return Ask(self.number, order)

    def answered(self, now: float) -> None:
        """Take that the round is over; the next one begins a period after this one began."""
        began = self.asked_at if self.asked_at is not None else now
        self.asked_at = None
        self.next_at = now if self._soon else max(now, min(self._by, began + self._timing.period_s))
        self._calls.pop("round", None)

    def ask_soon(self, now: float) -> None:
        """Let the next round begin at once, or as soon as the one under way is over."""
        if self.stage is Stage.UP:
            self._soon, self.next_at = True, min(self.next_at, now)

    def ask_by(self, at: float) -> None:
        """Let the next round begin at `at` at the latest; one that is under way then is followed by another."""
        if self.stage is Stage.UP:
            self._by = min(self._by, at)
            self.next_at = min(self.next_at, at)

    def begins(self, said: CallBegins, pci: str, now: float, at: datetime) -> None:
        """Take that a thread of it enters a call, or (no name) waits for something of its own."""
        if not said.call:
            self._calls.pop(said.t, None)
            return
        deadline_s = self._timing.deadline_s
        if said.call.startswith(_WAITS):
            deadline_s += self._timing.event_wait_s
        elif said.call.startswith(_INITIALISES):
            deadline_s = max(deadline_s, self._timing.init_s)
        self._calls[said.t] = Call(call=said.call, pci=pci, since=now, at=at, deadline_s=deadline_s)

    def inside(self) -> Call | None:
        """Give the call of the round that it is in."""
        return self._calls.get("round")

    def late(self, now: float) -> Call | None:
        """Give the call that has not come back in time, the one that began first."""
        late = [call for call in self._calls.values() if now - call.since > call.deadline_s]
        if self.asked_at is not None and now - self.asked_at > self._timing.round_s:
            late = list(self._calls.values())
        return min(late, key=lambda call: call.since, default=None)

    def end(self, now: float) -> Action:
        """Begin to end it."""
        self.stage, self.next_at = Stage.ENDING, now + self._timing.end_s
        return Terminate(self.number)

    def press(self, now: float) -> Action | None:
        """Go one step further with a child that should be gone; None where there is none any more."""
        if self.stage is Stage.KILLED:
            return None
        self.stage, self.next_at = Stage.KILLED, now + self._timing.kill_s
        return Kill(self.number)

    def forgive(self, away_s: float) -> None:
        """Move every deadline by time in which nobody looked."""
        self.next_at += away_s
        self._by += away_s
        self.asked_at = None if self.asked_at is None else self.asked_at + away_s
        self._calls = {
            thread: msgspec.structs.replace(call, since=call.since + away_s)
            for thread, call in self._calls.items()
        }
