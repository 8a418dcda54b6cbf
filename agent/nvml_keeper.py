"""What is done about the NVML child, and what is made of its words. Pure: times come in, actions and observations go out.

A child is started, asked for one round after another, and ended when a call hangs, when it writes garbage, when NVML cannot
be used, or when somebody needs the driver. After a failure the next child waits, longer each time in a row; an out-of-date
library gets a fresh child at once. After a hang the GPU that hung is left alone. A process that cannot even be killed is
left and counted, and beyond a few of those no further child is started. Time in which nobody looked (a machine that slept,
a process that was stopped) counts for no deadline.
"""

from collections.abc import Mapping
from datetime import datetime
from random import Random

import msgspec

from agent.nvml_quiet import GPU_IS_LOST, STUCK, XID, Quiet, lifted
from agent.nvml_reading import Readings
from agent.nvml_watch import Action, Call, Stage, Start, Timing, Watch
from agent.nvml_wire import Broke, CallBegins, EventSaid, EventsSaid, FailedSaid, Message, Order, RoundSaid
from agent.pacing import Backoff
from agent.release import Wanted
from checks.check import Clearing
from checks.finding import Part
from checks.nvml_error import told
from checks.observation import (
    NVML,
    NvmlError,
    NvmlEvent,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
    SourceFailed,
    SourceRead,
)
from kube.nodehealth import Released

LIB_RM_VERSION_MISMATCH = 18
MOST_LEFT = 3
"""Children that cannot be killed, beyond which no further one is started."""
LONGEST_BACK_OFF_S, LONGEST_HANG_BACK_OFF_S = 60.0, 600.0
LOOK_S = 1.0
"""How often is looked while something is under way; at rest nothing is due before the next round."""
REST_S = 10.0
AWAY_S = 2.0
HURRY_S = 5.0
"""The shortest time between two rounds that are asked for out of turn, however often records are lost."""
AGAIN_S = 60.0
"""How often what stands is said again: that nothing may be started, or that all is released."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of the agent wants. `gpus` are those of sysfs; `sick` says why a GPU is not to be asked.

    `lost` counts the records of the kernel log that nobody read: where it grows, NVML is asked soon what they may have said.
    """

    gpus: tuple[Part, ...] = ()
    sick: Mapping[str, str] = {}
    release: Wanted | None = None
    cleared_before: datetime | None = None
    clearings: tuple[Clearing, ...] = ()
    lost: int = 0


class Keeper:
    """Owns the decisions of one boot, for one thread: everything is told to it, then `step` says what is to be done."""

    def __init__(self, timing: Timing, boot_id: str, random: Random) -> None:
        self.released: Released | None = None
        """Set while no handle is held because somebody asked."""
        self.spent_us: Mapping[str, int] = {}
        """Of the last round, by group of calls."""
        self.events_error: NvmlError | None = None
        """Why no events come."""
        self.started = 0
        """How many children were started."""
        self._timing = timing
        self._boot_id = boot_id
        self._wish = Wish()
        self._readings = Readings()
        self._child: Watch | None = None
        self._left: dict[int, NvmlHung | None] = {}
        self._last_hung: NvmlHung | None = None
        self._rounds = 0
        self._start_at = self._again_at = float("-inf")
        self._quiet: dict[str, Quiet] = {}
        self._by_pci = False
        self._missed: set[str] = set()
        self._failing: tuple[int, datetime] | None = None
        self._tries = 0
        self._backoff = Backoff(timing.back_off_s, LONGEST_BACK_OFF_S, random)
        self._hang_backoff = Backoff(timing.hang_back_off_s, LONGEST_HANG_BACK_OFF_S, random)
        self._look_by = float("inf")
        self._hurried_at = float("-inf")
        self._out: list[Observation] = []

    @property
    def left(self) -> int:
        """How many children could not be killed and are still there."""
        return len(self._left)

    @property
    def quiet(self) -> dict[str, str]:
        """The GPUs that are left alone, by PCI address, each with the reason."""
        return {**{pci: quiet.why for pci, quiet in self._quiet.items()}, **self._wish.sick}

    def take(self) -> list[Observation]:
        """Give what is to be told, once."""
        out, self._out = self._out, []
        return out

    def wish(self, wish: Wish, now: float) -> None:
        """Take what is wanted from now on."""
        quiet, before, self._wish = self.quiet, self._wish, wish
        self._readings.shown(wish.gpus)
        if (wish.cleared_before, wish.clearings) != (before.cleared_before, before.clearings):
            self._quiet = lifted(self._quiet, wish.cleared_before, wish.clearings)
        if self.quiet != quiet and self._child is not None:
            self._child.ask_soon(now)
        if wish.lost > before.lost and self._child is not None:
            if self._hurried_at <= now:  # else one is to come that will see what this would have said
                self._hurried_at = max(now, self._hurried_at + HURRY_S)
            self._child.ask_by(self._hurried_at)
        if wish.release is None and before.release is not None:
            self.released, self._failing, self._tries = None, None, 0
            self._start_at = now

    # What is due

    def step(self, now: float, at: datetime) -> tuple[list[Action], float]:
        """Give what is to be done now, and the seconds until the next step makes sense."""
        child = self._child
        if child is not None and now - self._look_by > AWAY_S:
            child.forgive(now - self._look_by)
        actions = self._without_child(now, at) if child is None else self._with_child(child, now, at)
        wait_s = self._wait_s(now)
        self._look_by = now + wait_s
        return actions, wait_s

    def _wait_s(self, now: float) -> float:
        child = self._child
        if child is None:
            may_start = self._wish.release is None and self.left < MOST_LEFT
            due = self._start_at if may_start else self._again_at
        elif child.stage is Stage.UP and child.asked_at is None:
            due = child.next_at
        else:
            due = now
        return min(REST_S, due - now) if due > now else LOOK_S

    def _without_child(self, now: float, at: datetime) -> list[Action]:
        if self._wish.release is not None:
            self._release(self._wish.release, now, at)
        elif self.left >= MOST_LEFT:
            if now >= self._again_at and self._last_hung is not None:
                self._say_hung(self._last_hung, now, at, gone=False)
        elif now >= self._start_at:
            self.started += 1
            self._child = Watch(self.started, self._timing, now)
            return [Start(self.started), self._ask(self._child, now, at)]
        return []

    def _release(self, release: Wanted, now: float, at: datetime) -> None:
        """Say that no handle is held; never while a process is left that may hold one."""
        held = self.released
        new = held is None or (held.why, held.by) != (release.why, release.by)
        if self.left or not (new or now >= self._again_at):
            return
        if new:
            self.released = Released(since=at, why=release.why, by=release.by)
        self._again_at = now + AGAIN_S
        self._out.append(NvmlReleased(seen_at=at, why=release.why))

    def _with_child(self, child: Watch, now: float, at: datetime) -> list[Action]:
        if child.stage is Stage.UP:
            late = child.late(now)
            if late is not None and not child.explained:
                child.hung = self._hung(child, late, at)
            child.explained = child.explained or self._wish.release is not None
            if child.explained or child.hung is not None:
                return [child.end(now)]
            if child.asked_at is None and now >= child.next_at:
                return [self._ask(child, now, at)]
        elif now >= child.next_at:
            action = child.press(now)
            if action is not None:
                return [action]
            if child.hung is None and (inside := child.inside()) is not None:
                child.hung = self._hung(child, inside, at)  # told to end for another reason, it cannot
            self._left[child.number] = child.hung
            self._gone(child, "it could not be killed", now, at, gone=False)
        return []

    def _hung(self, child: Watch, call: Call, at: datetime) -> NvmlHung:
        return NvmlHung(
            seen_at=at,
            child=child.number,
            call=call.call,
            pci=call.pci,
            uuid=self._readings.part(call.pci).uuid if call.pci else "",
            since=call.at,
            child_gone=False,
        )

    def _ask(self, child: Watch, now: float, at: datetime) -> Action:
        self._rounds += 1
        quiet = self.quiet
        order = Order(
            round=self._rounds,
            known=tuple((index, pci) for pci, index in sorted(self._readings.places().items())),
            quiet=tuple(sorted(quiet)),
            by_pci=self._by_pci,
            event_wait_ms=int(self._timing.event_wait_s * 1000),
        )
        return child.ask(order, quiet, now, at)

    # What was heard

    def heard(self, number: int, message: Message, now: float, at: datetime) -> None:
        """Take one message of a child; one that is given up has nothing to say any more."""
        child = self._child
        if child is None or child.number != number or not child.hears:
            return
        match message:
            case CallBegins():
                pci = message.pci or (self._readings.at(message.index) if message.index >= 0 else "")
                child.begins(message, pci, now, at)
            case RoundSaid():
                self._round(child, message, now, at)
            case FailedSaid():
                self._failed(child, message, now, at)
            case EventSaid():
                self._event(message, now, at)
            case EventsSaid(error=error):
                self.events_error = error
                if error is not None:
                    child.ask_soon(now)  # a lost GPU or a driver that went away shows here first
            case Broke(error=error):
                self.garbled(number, f"broke: {error}", now, at)

    def garbled(self, number: int, why: str, now: float, at: datetime) -> None:
        """Take that what a child wrote is no message: nothing of it can be trusted, so it is ended."""
        child = self._child
        if child is not None and child.number == number and child.hears:
            self._source_failed(number, f"the NVML child {why}", at)
            self._start_at = now + self._backoff.failed()
            child.explained = True

    def ended(self, number: int, how: str, now: float, at: datetime) -> None:
        """Take that a child's process is gone, or never came to be."""
        child = self._child
        if number in self._left:
            hung = self._left.pop(number)
            if hung is not None:
                self._say_hung(hung, now, at, gone=True)
        elif child is not None and child.number == number:
            self._gone(child, how, now, at, gone=True)

    def _gone(self, child: Watch, how: str, now: float, at: datetime, *, gone: bool) -> None:
        self._child, self.events_error = None, None
        if child.hung is not None:
            self._say_hung(child.hung, now, at, gone=gone)
            self._after_hang(child.hung, now, at)
        elif not child.explained:
            inside = child.inside()
            during = f" during {inside.named()}" if inside is not None else ""
            self._source_failed(child.number, f"the NVML child ended by itself{during}: {how}", at)
            self._start_at = now + self._backoff.failed()

    def _say_hung(self, hung: NvmlHung, now: float, at: datetime, *, gone: bool) -> None:
        self._again_at = now + AGAIN_S
        self._last_hung = msgspec.structs.replace(hung, seen_at=at, child_gone=gone)
        self._out.append(self._last_hung)

    def _after_hang(self, hung: NvmlHung, now: float, at: datetime) -> None:
        on = f" to the GPU at {hung.pci}" if hung.pci else ""
        self._source_failed(hung.child, f"{hung.call}{on} has not come back", at)
        self._start_at = now + self._hang_backoff.failed()
        if hung.pci:
            self._leave_alone(hung.pci, f"{hung.call} has not come back", now, at)
        else:
            self._by_pci = True  # so that the next one names the GPU, where it is one

    def _round(self, child: Watch, said: RoundSaid, now: float, at: datetime) -> None:
        if child.asked_at is None:
            self.garbled(child.number, "answered what nobody asked", now, at)
            return
        read = self._readings.take(said, child.quiet, child=child.number, at=at)
        child.answered(now)
        self._failing, self._tries = None, 0
        self._hang_backoff.succeeded()  # a hang takes its deadline each time, so this cannot spin
        if child.has_lasted(now):
            self._backoff.succeeded()
            self._count_anew(child, read, now)
        self.spent_us = said.spent_us
        self._out += [read, SourceRead(source=NVML, seen_at=at)]
        for gpu in read.gpus:
            if gpu.pci and any(error.code == GPU_IS_LOST for error in gpu.errors):
                self._leave_alone(gpu.pci, "GpuIsLost", now, at)

    def _count_anew(self, child: Watch, read: NvmlRead, now: float) -> None:
        """Let a fresh child look, once, for GPUs that sysfs shows and NVML did not count when it was initialised."""
        missed = {part.pci for part in self._wish.gpus if part.pci} - {gpu.pci for gpu in read.gpus}
        if missed - self._missed:
            self._start_at = now
            child.explained = True
        self._missed = missed

    def _failed(self, child: Watch, said: FailedSaid, now: float, at: datetime) -> None:
        first, since = self._failing or (child.number, at)
        fresh = child.number > first
        self._source_failed(child.number, told(said.error) + (f": {said.detail}" if said.detail else ""), at)
        failed = NvmlFailed(seen_at=at, child=child.number, error=said.error, since=since, fresh=fresh)
        self._out.append(failed)
        stale = said.error.code == LIB_RM_VERSION_MISMATCH and not fresh
        self._start_at = now if stale else now + self._backoff.failed()
        child.explained = True

    def _event(self, said: EventSaid, now: float, at: datetime) -> None:
        self._out.append(
            NvmlEvent(
                seen_at=at,
                boot_id=self._boot_id,
                kind=said.kind,
                data=said.data,
                pci=said.pci,
                uuid=said.uuid,
            )
        )
        if said.kind == XID and said.data in STUCK and said.pci:
            self._leave_alone(said.pci, f"XID {said.data}", now, at)

    def _leave_alone(self, pci: str, why: str, now: float, at: datetime) -> None:
        if pci not in self._quiet:
            self._quiet[pci] = Quiet(part=self._readings.part(pci), why=why, since=at)
            if self._child is not None:
                self._child.ask_soon(now)

    def _source_failed(self, child: int, error: str, at: datetime) -> None:
        self._failing = self._failing or (child, at)
        self._tries += 1
        self._out.append(SourceFailed(source=NVML, error=error[:1024], tries=self._tries, seen_at=at))
