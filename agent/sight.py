"""One look at this machine without a running agent: for `--once` and for `validate`. Changes nothing, needs no cluster."""

import stat
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from agent.config import Config
from agent.host.boot import BootIdUnreadable, read_boot_id
from agent.host.inventory import read_inventory
from agent.host.kmsg import KernelLog
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


def look(
    config: Config,
    checks: Sequence[Check],
    clock: Clock,
    *,
    saved: State | None = None,
    cleared_before: datetime | None = None,
    gpus: int | None = None,
) -> Judging:
    """Read and judge everything once: ten seconds at most, and where a call of NVML hangs until that is given up.

    `saved` is what a running agent remembers of this boot: then only what came after it is read. `cleared_before` says
    that everything older was dealt with. `gpus` is the number that is demanded here; it decides as spec.expected does.
    """
    probes = probes_of(config)
    sources = [probe.source for probe in probes]
    judging = Judging(checks, config, single_look=True, looked_at=sources)
    judging.ask(
        NodeHealthSpec(cleared_before=cleared_before, expected=Expected(gpus=gpus, source="as demanded"))
    )
    judging.count_parts(read_inventory(config.roots.sys, config.roots.proc))
    try:
        judging.begin_boot(read_boot_id(config.roots.proc), saved)
    except BootIdUnreadable as error:
        judging.cannot_tell_boot(str(error))
        judging.judge([], None, clock.now())
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
        _read_out(log, judging, clock, PIPE_SETTLES_S if _is_pipe(section.path) else 0.0)
    finally:
        log.close()
    said = one_round(config.nvml, clock, judging.boot_id, wish_of(judging))
    said += look_once(probes, clock)
    judging.judge([_final(seen) for seen in said], None, clock.now())
    return judging


def _read_out(log: Source, judging: Judging, clock: Clock, settles_s: float) -> None:
    """Judge all that is there, until the log is at its end or fails or the time is up."""
    end = clock.monotonic() + LONGEST_S
    at_end = False
    while clock.monotonic() < end:
        observations = log.poll(settles_s if at_end else 1.0)
        judging.judge([_final(seen) for seen in observations], log.cursor, clock.now())
        if any(isinstance(seen, SourceFailed) for seen in observations):
            return
        if at_end and not observations:
            return
        at_end = at_end or any(isinstance(seen, SourceRead) for seen in observations)
        if at_end and settles_s == 0:
            return
    if not at_end:
        said = f"its end was not reached within {LONGEST_S:.0f} s"
        failed = SourceFailed(source=KERNEL_LOG, error=said, tries=TRIES_BEFORE_UNKNOWN, seen_at=clock.now())
        judging.judge([failed], log.cursor, clock.now())


def _final(seen: Observation) -> Observation:
    """One failed try is final here, since nobody comes back for the next."""
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
