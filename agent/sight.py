"""One look at this machine without a running agent: for `--once` and for `validate`. Changes nothing, needs no cluster."""

import stat
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from agent.config import Config
from agent.host.boot import BootIdUnreadable, read_boot_id
from agent.host.inventory import read_inventory
from agent.host.kmsg import Cursor, KernelLog
from agent.judging import Judging
from agent.nvml_feed import one_round, wish_of
from agent.probes import look_once
from agent.probing import probes_of
from agent.reader import TRIES_BEFORE_UNKNOWN, Source
from agent.state_file import State
from checks.check import Check
from checks.observation import KERNEL_LOG, Observation, SourceFailed, SourceRead
from kube.clock import Clock
from kube.nodehealth import Expected, NodeHealthSpec

LONGEST_S = 10.0
# A pipe is at its end whenever its writer takes breath; a device and a file are at their end when they say so.
PIPE_SETTLES_S = 0.5
INVENTORY = "inventory: "


Keep = Callable[[Sequence[Observation], datetime], None]


def look(
    config: Config,
    checks: Sequence[Check],
    clock: Clock,
    *,
    saved: State | None = None,
    cleared_before: datetime | None = None,
    gpus: int | None = None,
    keep: Keep | None = None,
    looks: int = 1,
    interval_s: float = 0.0,
) -> Judging:
    """Read and judge everything once: ten seconds at most, and where a call of NVML hangs until that is given up.

    `saved` is what a running agent remembers of this boot: then only what came after it is read. `cleared_before` says
    that everything older was dealt with. `gpus` is the number that is demanded here; it decides as spec.expected does.
    `keep` is given whatever is judged, and when. NVML, sysfs and the like are looked at `looks` times, `interval_s` apart.
    """
    probes = probes_of(config)
    sources = [probe.source for probe in probes]
    judging = Judging(checks, config, single_look=True, looked_at=sources)
    sight = _Sight(judging, clock, keep)
    judging.ask(
        NodeHealthSpec(cleared_before=cleared_before, expected=Expected(gpus=gpus, source="as demanded"))
    )
    judging.count_parts(read_inventory(config.roots.sys, config.roots.proc))
    try:
        judging.begin_boot(read_boot_id(config.roots.proc), saved)
    except BootIdUnreadable as error:
        judging.cannot_tell_boot(str(error))
        sight.judge([], None)
        return judging
    section = config.kernel_log
    log = KernelLog(
        section.path,
        judging.boot_id,
        judging.cursor,
        admit_foreign=section.admit_foreign,
        after_sequence=section.after_sequence,
        clock=clock,
    )
    try:
        sight.read_out(log, PIPE_SETTLES_S if _is_pipe(section.path) else 0.0)
    finally:
        log.close()
    for number in range(looks):
        if number:
            clock.sleep(interval_s)
        said = one_round(config.nvml, clock, judging.boot_id, wish_of(judging))
        sight.judge([*said, *look_once(probes, clock)], None)
    return judging


class _Sight:
    """One look under way."""

    def __init__(self, judging: Judging, clock: Clock, keep: Keep | None) -> None:
        self._judging = judging
        self._clock = clock
        self._keep = keep

    def judge(self, observations: Sequence[Observation], cursor: Cursor | None) -> None:
        """Judge what was seen; one failed try is final here, since nobody comes back for the next."""
        now = self._clock.now()
        final = [_final(seen) for seen in observations]
        if self._keep is not None:
            self._keep(final, now)
        self._judging.judge(final, cursor, now)

    def read_out(self, log: Source, settles_s: float) -> None:
        """Judge all that is there, until the log is at its end or fails or the time is up."""
        clock = self._clock
        end = clock.monotonic() + LONGEST_S
        at_end = False
        while clock.monotonic() < end:
            observations = log.poll(settles_s if at_end else 1.0)
            self.judge(observations, log.cursor)
            if any(isinstance(seen, SourceFailed) for seen in observations):
                return
            if at_end and not observations:
                return
            at_end = at_end or any(isinstance(seen, SourceRead) for seen in observations)
            if at_end and settles_s == 0:
                return
        if not at_end:
            said = f"its end was not reached within {LONGEST_S:.0f} s"
            failed = SourceFailed(
                source=KERNEL_LOG, error=said, tries=TRIES_BEFORE_UNKNOWN, seen_at=clock.now()
            )
            self.judge([failed], log.cursor)


def _final(seen: Observation) -> Observation:
    if isinstance(seen, SourceFailed):
        return msgspec.structs.replace(seen, tries=max(seen.tries, TRIES_BEFORE_UNKNOWN))
    return seen


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except OSError:
        return False


def unreadable(judging: Judging) -> tuple[str, ...]:
    """Say what could not be read and why, one sentence each."""
    said = [
        f"{source.name}: {source.error}"
        for _, source in sorted(judging.sources.items())
        if not source.readable
    ]
    if judging.inventory_error:
        said.append(f"{INVENTORY}{judging.inventory_error}")
    if judging.boot_error:
        said.append(f"boot id: {judging.boot_error}")
    return tuple(said)
