"""`nodemend-bench cycle`: how long a scheduling cycle takes and how much memory it needs, in process, without an API server.

A cycle is what runs between a snapshot and a plan: books, shares, all actions. Each scene runs in a process of its own, and
beside it the plainest loop that places the same pods by counting GPUs. What KAI Scheduler needs for the same is named where
it was measured on a machine of this kind.
"""

import subprocess
import sys
from statistics import median

import msgspec

from bench.cycle_child import FAIR_SHARE, Sight
from bench.figures import Figure, beside
from bench.outcome import NotMeasured, Say

ROUNDS = 3
_LONGEST_S = 300
_KIB_PER_MIB = 1024

# Aims in seconds, and what KAI v0.17 took for the same on two cores of this kind (its own in-process benchmarks).
_AIMS: dict[str, tuple[float | None, str]] = {
    "allocate_500": (0.4, "KAI 0.38 s"),
    "cycle_500": (None, ""),
    "cycle_2000": (None, ""),
    "cycle_5000": (1.0, ""),
    "unschedulable_gang": (1.0, "KAI 68 s"),
    "reclaim_many": (3.0, "KAI 30 s"),
    FAIR_SHARE: (0.2, ""),
}
_MEMORY_AIM_MIB = 500


def measure(say: Say, *, rounds: int = ROUNDS) -> list[Figure]:
    """Run every scene. Raises NotMeasured where one could not be run to its end."""
    figures: list[Figure] = []
    for scene, (aim, kai) in _AIMS.items():
        sight = _run(scene, rounds)
        say(_words(scene, sight))
        floor = [beside(median(sight.seconds), median(sight.bare_s), "the bare loop")] if sight.bare_s else []
        words = ", ".join([*floor, *([kai] if kai else [])])
        figures.append(Figure(name=f"{scene}_s", value=median(sight.seconds), aim=aim, beside=words))
        if scene == "cycle_5000":
            peak = sight.peak_kib / _KIB_PER_MIB
            figures.append(Figure(name="scheduler_rss_mib_5000", value=peak, aim=_MEMORY_AIM_MIB))
    growth = _value(figures, "cycle_5000_s") / _value(figures, "cycle_500_s")
    figures.append(Figure(name="cycle_growth_500_to_5000", value=growth, beside="ten times the nodes"))
    return figures


def _run(scene: str, rounds: int) -> Sight:
    command = [sys.executable, "-m", "bench.cycle_child", scene, str(rounds)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"scene {scene} did not end within {_LONGEST_S} s") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotMeasured(f"scene {scene} failed: {lines[-1] if lines else done.returncode}")
    return msgspec.json.decode(done.stdout, type=Sight)


def _words(scene: str, sight: Sight) -> str:
    rounds = ", ".join(f"{one:.3f}" for one in sight.seconds)
    decided = (
        f"{sight.binds} bound, {sight.evictions} evicted, {sight.pipelined} promised, {sight.waits} waits"
    )
    ended = f"; search cut short in {', '.join(sight.exhausted)}" if sight.exhausted else ""
    return f"{scene}: {rounds} s; {decided}{ended}; at most {sight.peak_kib // _KIB_PER_MIB} MiB"


def _value(figures: list[Figure], name: str) -> float:
    return next(one.value for one in figures if one.name == name)
