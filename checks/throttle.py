"""GPUs that are slowed down, by heat, by the machine's power supply, or by somebody's setting.

**What it means.** A GPU that is too hot, or is told to by the power supply, lowers its clocks, in hardware by half or more.
It computes rightly, and a job over many GPUs goes no faster than this one.

**How it is detected.** As a share of time, not as a moment: the bit of a slowdown flashes whenever a GPU changes its
performance state, and that is nothing. The driver counts for how long each kind of slowdown lasted (NVML fields 269 to 271,
nanoseconds); their growth over the last `window_seconds` must be more than `hw_percent` of it for a slowdown by hardware,
`sw_percent` for one by the driver. Where a kind is not counted (older drivers, and HwSlowdown always) the bits of each round
are taken as samples, each for the time since the round before and at most a minute, against `sampled_percent`. Time counts
only while the agent watches. A single look (`--once`, validation) knows no share: it takes the bits of that moment, and
leaves HwSlowdown out, which is the one that flashes.

A finding ends when its share has been below the threshold for `clear_seconds`, and a whole window was watched.

**What is no fault.** The power cap (SwPowerCap): a GPU under full load is held at its power limit, as it is built to be.
Sync boost, idleness and application clocks are somebody's choice; PinnedClocks warns when a busy GPU stays below
`pinned_percent` of its highest clock with no limit that explains it. TemperatureNearLimit warns within `margin_c` degrees of
the slowdown, by the margin that newer GPUs tell (T.Limit), else by temperature and threshold.

**What nodemend does.** It keeps new work off the GPU where it can and pages: no reset cools anything. Nothing is drained.

**What on-call does.** Read the reason's own text: the cause is in the cooling, the power supply or the rack.

**Unknown** (ThrottleUnreadable) after three rounds in which a GPU's call failed or NVML did not answer. A finding stands
meanwhile.

**Not evaluated** is what a GPU or driver does not tell (utilisation under MIG, temperature margins before Ada).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from checks.check import Check, Context, Judgement
from checks.condition import Healthy
from checks.finding import Finding, Part, Reason, has_gpu
from checks.gpu_health import Clocks, GpuHealth
from checks.gpu_looks import GpuLooks, LooksMemory, fact, not_shown, untold
from checks.nvml_word import not_asked, why_not_asked
from checks.observation import GpuReading, Observation
from checks.polled import Rule, Word, restored
from checks.throttle_reasons import (
    HOT,
    HW_SLOWDOWN,
    HW_THERMAL,
    PINNED,
    POWER_BRAKE,
    REASONS,
    SW_THERMAL,
    UNREADABLE,
)

NAME = "throttle"
# nvmlClocksEventReasons, nvml.h
IDLE, POWER_CAP, SLOWED, SYNC_BOOST, SW_HOT, HW_HOT, BRAKED = 0x1, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80
LIMITED = POWER_CAP | SLOWED | SYNC_BOOST | SW_HOT | HW_HOT | BRAKED
MOST_SAMPLED_MS = 60_000
MOST_APART_MS = 150_000  # rounds of NVML are two minutes apart at most
"""A bit that is seen once stands for no more than this."""
MOST_MS = 2**50
WHY = "why it is slowed down"


class Kind(NamedTuple):
    """One kind of slowdown: its bit, the driver's count of it (empty where there is none), the threshold of its share."""

    reason: Reason
    bit: int
    counter: str
    percent: str

    def is_set(self, reasons: int) -> bool:
        """Tell whether the bit is set; the general one counts only where no cause is named beside it."""
        named = self.bit == SLOWED and reasons & (HW_HOT | BRAKED)
        return bool(reasons & self.bit) and not named


KINDS = (
    Kind(HW_THERMAL, HW_HOT, "hw_thermal", "hw_percent"),
    Kind(POWER_BRAKE, BRAKED, "power_brake", "hw_percent"),
    Kind(HW_SLOWDOWN, SLOWED, "", "sampled_percent"),
    Kind(SW_THERMAL, SW_HOT, "sw_thermal", "sw_percent"),
)


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """The driver's own count of one slowdown, in milliseconds, and the watched time at which it was read."""

    total_ms: int
    at_ms: int


class ThrottleMemory(LooksMemory, frozen=True, kw_only=True):
    """`counted` holds what the newest round told, by GPU and counter; the shares are kept in `rates`."""

    counted: dict[str, Counted] = {}


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge how every GPU is slowed down. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    kept = memory if isinstance(memory, ThrottleMemory) else ThrottleMemory()
    judging = _Judging(kept, context)
    judging.looks.hear(observations, judging.words)
    return judging.looks.judgement(UNREADABLE, judging.memory())


def restore(findings: Sequence[Finding], memory: Any) -> ThrottleMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, ThrottleMemory) else ThrottleMemory()
    return msgspec.structs.replace(kept, polled=restored(findings, kept.polled, REASONS))


class _Judging:
    """One judgement under way."""

    def __init__(self, kept: ThrottleMemory, context: Context) -> None:
        self._settings = context.settings
        self._window_ms = 1000 * max(0, self._settings["window_seconds"])
        self.looks = GpuLooks(NAME, REASONS, _rules(context.settings), kept, context, max(1, self._window_ms))
        self._clock_ms = self.looks.polled.clock_ms
        is_dealt_with = self.looks.polled.is_dealt_with()
        before = kept.counted if self.looks.same_boot else {}
        self._before = {key: one for key, one in before.items() if not is_dealt_with(key)}
        self._counted: dict[str, Counted] = {}

    def memory(self) -> ThrottleMemory:
        """Give what is to be kept; what the newest round did not tell begins anew."""
        looks = self.looks.memory()
        return ThrottleMemory(
            polled=looks.polled,
            rates=looks.rates,
            shown=looks.shown,
            counted=self._counted or self._before,
        )

    def words(self, _: GpuReading, health: GpuHealth, part: Part) -> Iterator[Word]:
        """Say all that one GPU told."""
        clocks = health.clocks or Clocks()
        for kind in KINDS:
            if self._window_ms == 0:
                yield _at_once(kind, clocks, health, part)
            elif clocks.reasons is None and kind.counter not in clocks.throttled_ns:
                yield untold(health, "clocks", kind.reason, part, WHY)
            else:
                yield from self._slowed(kind, clocks, part)
        yield from self._pinned(clocks, health, part)
        yield self._hot(clocks, health, part)

    def _slowed(self, kind: Kind, clocks: Clocks, part: Part) -> Iterator[Word]:
        """Judge one kind of slowdown: by the driver's count of it, else by samples of its bit."""
        total_ns = clocks.throttled_ns.get(kind.counter)
        if total_ns is not None:
            key, percent = f"{part.key()} {kind.counter}", self._settings[kind.percent]
            lasted_ms = self._lasted_ms(key, max(0, min(total_ns // 1_000_000, MOST_MS)))
        else:
            key, percent = f"{part.key()} sampled {kind.bit}", self._settings["sampled_percent"]
            lasted_ms = self._sampled_ms(key, kind.is_set(clocks.reasons or 0))
        rates = self.looks.rates
        rates.count(key, (rates.last(key) or 0) + lasted_ms)
        bad = rates.grown(key, self._window_ms) * 100 > percent * self._window_ms
        # Before a whole window was watched, that little was seen is no proof that a slowdown which stands is over.
        watched = rates.watched_ms(key) >= self._window_ms
        if bad or watched or not self.looks.polled.stands(kind.reason, part):
            detail = f"for more than {percent} % of the last {self._window_ms // 60_000} min"
            yield fact(kind.reason, part, bad, detail, partial(_shown, clocks))

    def _lasted_ms(self, key: str, total_ms: int) -> int:
        """Give how much of the window it lasted since the last round; at first sight nothing.

        No longer than was watched (an agent that was away sees the slowdowns of hours at once), and of a time that is
        longer than the window (a GPU that was left alone) the window's part.
        """
        held, elapsed_ms = self._take(key, total_ms)
        if held is None:
            return 0
        grown_ms = total_ms - held.total_ms if total_ms >= held.total_ms else total_ms
        lasted_ms = min(grown_ms, elapsed_ms)
        return lasted_ms if elapsed_ms <= self._window_ms else lasted_ms * self._window_ms // elapsed_ms

    def _sampled_ms(self, key: str, is_set: bool) -> int:
        """Give how much of the window one sample stands for; after a while without any the window begins anew."""
        _, elapsed_ms = self._take(key, 0)
        if elapsed_ms > MOST_APART_MS:
            self.looks.rates.forget(key)
        return min(elapsed_ms, MOST_SAMPLED_MS) if is_set else 0

    def _take(self, key: str, total_ms: int) -> tuple[Counted | None, int]:
        """Remember a total, and give the one before with the time since; of two at one instant the first counts."""
        held = self._counted.get(key) or self._before.get(key)
        if held is not None and held.at_ms == self._clock_ms:
            self._counted[key] = held
            return None, 0
        self._counted[key] = Counted(total_ms=total_ms, at_ms=self._clock_ms)
        return held, 0 if held is None else self._clock_ms - held.at_ms

    def _pinned(self, clocks: Clocks, health: GpuHealth, part: Part) -> Iterator[Word]:
        """Judge the clock of a GPU that works and that nothing limits; of any other it says nothing."""
        now, most, used, reasons = (
            clocks.sm_mhz,
            clocks.sm_max_mhz,
            clocks.utilisation_percent,
            clocks.reasons,
        )
        if now is None or most is None or used is None or reasons is None:
            yield untold(health, "clocks", PINNED, part, "clocks, utilisation and what limits them")
        elif used >= self._settings["busy_percent"] and not reasons & (IDLE | LIMITED):
            percent = self._settings["pinned_percent"]
            detail = f"below {percent} % of the highest clock while it works"
            yield fact(PINNED, part, now * 100 < percent * most, detail, partial(_shown, clocks))

    def _hot(self, clocks: Clocks, health: GpuHealth, part: Part) -> Word:
        margin = clocks.margin_c
        if margin is None and clocks.slowdown_c is not None and clocks.temperature_c is not None:
            margin = clocks.slowdown_c - clocks.temperature_c
        if margin is None:
            return untold(health, "clocks", HOT, part, "how far it is from its highest temperature")
        nearest = self._settings["margin_c"]
        return fact(
            HOT, part, margin <= nearest, f"within {nearest} degrees Celsius of it", partial(_shown, clocks)
        )


def _rules(settings: dict[str, Any]) -> dict[str, Rule]:
    clear_s = settings["clear_seconds"]
    rules = {reason.name: Rule(clear_after_s=clear_s) for reason in REASONS}
    rules[PINNED.name] = Rule(raise_after_s=settings["pinned_seconds"], clear_after_s=clear_s)
    rules[HOT.name] = Rule(raise_after_s=settings["margin_seconds"], clear_after_s=clear_s)
    return rules


def _at_once(kind: Kind, clocks: Clocks, health: GpuHealth, part: Part) -> Word:
    """Judge a single moment, by the bit alone."""
    if kind.bit == SLOWED:
        return not_shown(kind.reason, part, "a single look cannot tell a slowdown from a change of clocks")
    if clocks.reasons is None:
        return untold(health, "clocks", kind.reason, part, WHY)
    return fact(kind.reason, part, kind.is_set(clocks.reasons), "at this moment", partial(_shown, clocks))


def _shown(clocks: Clocks) -> tuple[str, ...]:
    reasons = "?" if clocks.reasons is None else f"{clocks.reasons:#x}"
    lasted = ", ".join(f"{name} {ns} ns" for name, ns in sorted(clocks.throttled_ns.items())[:12])
    return (
        f"reasons {reasons}, {clocks.temperature_c} C, margin {clocks.margin_c} C, SM {clocks.sm_mhz} MHz",
        f"slowed down since the driver was loaded: {lasted}",
    )


CHECK = Check(
    name=NAME,
    condition="GpuThrottled",
    healthy=Healthy(reason="NotThrottled", message="no GPU is slowed down by heat or power for long"),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=ThrottleMemory,
    runbook=__doc__,
    default_settings={
        "window_seconds": 600,
        "hw_percent": 10,
        "sw_percent": 50,
        "sampled_percent": 30,
        "clear_seconds": 300,
        "pinned_percent": 70,
        "busy_percent": 50,
        "pinned_seconds": 600,
        "margin_c": 3,
        "margin_seconds": 300,
    },
    why_settings={
        "window_seconds": "GPUd judges hardware slowdowns over ten minutes; shorter ones are starts and ends of jobs",
        "hw_percent": "a slowdown by hardware at least halves the clocks (nvml.h), so a tenth of the time already costs a "
        "job over many GPUs a twentieth; our own choice",
        "sw_percent": "the driver lowers clocks by little, and a warm room makes it do so now and then: only what lasts "
        "most of the time sets a GPU apart; our own choice",
        "sampled_percent": "GPUd's 0.6 hits a minute over ten minutes, at two rounds of NVML a minute",
        "clear_seconds": "half a window without it, so that a GPU which comes and goes with its load does not flap",
        "pinned_percent": "the base clock of data-centre GPUs lies at 60 to 80 % of their highest one; our own choice",
        "busy_percent": "a GPU that does little needs no high clock; our own choice",
        "pinned_seconds": "as long as the window of the slowdowns",
        "margin_c": "the slowdown begins at margin 0; three degrees are what a change of load does in a moment",
        "margin_seconds": "long enough that the fans have answered",
    },
    unknown_reasons=(UNREADABLE,),
    restore=restore,
    single_look={"window_seconds": 0, "clear_seconds": 0, "pinned_seconds": 0, "margin_seconds": 0},
)
