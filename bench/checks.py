"""`nodemend-bench checks`: what a round of all checks costs, what ten thousand leave behind, what a storm of lines does.

The rounds need no Kubernetes (bench.checks_rounds): a machine of eight GPUs with eighteen NVLinks each and eight HCAs, the
real child, the real readers, every check. The storm (bench.checks_storm) is poured over the real program, which writes to an
API server of its own.
"""

import logging
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog

from bench import checks_storm
from bench.checks_reads import reads_of
from bench.checks_rounds import GPUS, SYSFS, Cost, Floor, Rounds
from bench.figures import Figure
from bench.outcome import NotMeasured, Say

ROUNDS = 10_000
FEWEST = 100
STORM_S = 10
ROUND_MS, GROWN_KIB = 25, 512
_TIMED, _WARM_UP = 200, 20
_LOOKS = 5


def measure(say: Say, *, rounds: int = ROUNDS, storm_s: int = STORM_S) -> list[Figure]:
    """Run it all. Raises NotMeasured, MissingProgramError, and what the sandbox raises."""
    if rounds < FEWEST:
        raise NotMeasured(f"{rounds} rounds are too few to see anything grow; {FEWEST} is the least")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="nodemend-bench-") as folder:
        figures = measure_rounds(say, Path(folder), rounds, _TIMED)
    return [*figures, *checks_storm.measure(say, seconds=storm_s)]


def measure_rounds(say: Say, root: Path, rounds: int, timed: int) -> list[Figure]:
    """Time `timed` rounds beside their floor, then let `rounds` pass and look at memory. Raises NotMeasured."""
    run = Rounds(root)
    try:
        floor = Floor(reads_of(run.config_file, SYSFS))
        for _ in range(_WARM_UP):
            run.go()
        _be_well(run)
        say(f"{timed} rounds of {GPUS} GPUs and {GPUS} HCAs, each beside its floor")
        costs, bare = [], []
        for _ in range(timed):
            costs.append(run.go())
            bare.append(floor.go(run.said))
        figures = _costs(costs, bare, floor, lines=len(run.said))
        looks = {
            probe.source: statistics.median(run.look_ns(probe) for _ in range(_LOOKS))
            for probe in run.probes
            if probe.source not in SYSFS
        }
        figures += [
            Figure(name=f"{source.replace('-', '_')}_look_cpu_ms", value=spent / 1e6)
            for source, spent in looks.items()
        ]
        figures += _growth(say, run, rounds)
        _be_well(run)
        return figures
    finally:
        run.end()


def _costs(costs: Sequence[Cost], bare: Sequence[int], floor: Floor, *, lines: int) -> list[Figure]:
    whole, least = statistics.median(cost.whole for cost in costs) / 1e6, statistics.median(bare) / 1e6
    what = f"reading the same {len(floor.reads)} files and {lines} lines of the child, nothing made of them"
    return [
        Figure(
            name="round_cpu_ms",
            value=whole,
            aim=ROUND_MS,
            beside=f"{whole / least:.2f} x {what} ({least:.4g} ms)",
        ),
        *(
            Figure(
                name=f"round_{part}_cpu_ms",
                value=statistics.median(getattr(cost, part) for cost in costs) / 1e6,
            )
            for part in ("child", "decoding", "pci", "infiniband", "judging", "reporting")
        ),
        Figure(name="bare_round_cpu_ms", value=least),
        Figure(name="rounds_timed", value=len(costs)),
    ]


def _growth(say: Say, run: Rounds, rounds: int) -> list[Figure]:
    """Let the rounds pass; what agent and child hold at the end, against what they held after the first tenth."""
    held: list[int] = []
    pids = (os.getpid(), run.child_pid)
    begun = run.done
    for tenth in range(1, 11):
        while run.done - begun < rounds * tenth // 10:
            run.go()
        held.append(sum(written_kib(Path(f"/proc/{pid}/smaps_rollup").read_text()) for pid in pids))
        say(f"after {run.done - begun} rounds agent and child hold {held[-1]} KiB that they wrote themselves")
    return [
        Figure(
            name="round_memory_growth_kib",
            value=held[-1] - held[0],
            aim=GROWN_KIB,
            beside=f"{held[0]} KiB that both held after the first tenth",
        ),
        Figure(name="rounds", value=rounds),
    ]


def written_kib(rollup: str) -> int:
    """Read /proc/PID/smaps_rollup (proc(5)): the private memory that the process wrote, and what of it is swapped out.

    Pages that it only reads (of libraries) are private or not by what other programs happen to run.
    """
    rows = [line.split() for line in rollup.splitlines()]
    return sum(int(row[1]) for row in rows if row[0] in {"Private_Dirty:", "Swap:"})


def _be_well(run: Rounds) -> None:
    """Refuse figures of a machine that a check takes for ill, or of a check that broke. Raises NotMeasured."""
    if why := run.why_not_well():
        raise NotMeasured(f"after {run.done} rounds: {why}")
