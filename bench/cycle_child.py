"""One scene of `nodemend-bench cycle`, in a process of its own: `python -m bench.cycle_child SCENE ROUNDS`.

A process of its own, so that the memory is that of one scheduler, and no scene finds the heap of the one before. Prints one
line of JSON.
"""

import gc
import sys
import time
from pathlib import Path

import msgspec

from bench.cycle_scenes import SCENES, departments
from controller.scheduler import fairshare, queues
from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import Settings, Snapshot
from controller.scheduler.plan import Plan
from controller.scheduler.rules import DEFAULT

FAIR_SHARE = "fair_share_2000"
_DEPARTMENTS, _TEAMS = 40, 50


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a scene showed: seconds of each round, what was decided, the most memory in KiB.

    `bare_s`: the least that any scheduler must do for the same pods, written as plainly as Python can, in the same process.
    """

    seconds: tuple[float, ...]
    bare_s: tuple[float, ...] = ()
    binds: int = 0
    evictions: int = 0
    pipelined: int = 0
    waits: int = 0
    exhausted: tuple[str, ...] = ()
    peak_kib: int = 0


def main(scene: str, rounds: int) -> Sight:
    """Run a scene so often, after one round that is not counted. Raises KeyError for an unknown scene."""
    if scene == FAIR_SHARE:
        return _fair_share(rounds)
    snapshot = SCENES[scene]()
    gc.collect()
    gc.freeze()
    plan = _cycle(snapshot)
    seconds, bare = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        plan = _cycle(snapshot)
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        bare_placement(snapshot)
        bare.append(time.perf_counter() - began)
    return Sight(
        seconds=tuple(seconds),
        bare_s=tuple(bare),
        binds=len(plan.binds),
        evictions=len(plan.evictions),
        pipelined=len(plan.pipelined),
        waits=len(plan.waits),
        exhausted=plan.exhausted,
        peak_kib=_peak_kib(),
    )


def _cycle(snapshot: Snapshot) -> Plan:
    return run_cycle(snapshot, DEFAULT, ms=lambda: time.monotonic_ns() // 1_000_000)


def bare_placement(snapshot: Snapshot) -> int:
    """Place the pending pods first come first served by counting GPUs alone, and give how many found a place.

    No queues, no fairness, no constraints, no books: what is left is the loop that nobody can leave out.
    """
    free = {node.name: len(node.gpus) for node in snapshot.nodes}
    for job in snapshot.jobs:
        for task in job.tasks:
            if task.node:
                free[task.node] -= task.request.gpus
    open_nodes = sorted((node for node in free if free[node]), reverse=True)
    placed = 0
    for job in snapshot.jobs:
        for task in job.tasks:
            if task.node:
                continue
            while open_nodes and not free[open_nodes[-1]]:
                open_nodes.pop()
            if open_nodes and free[open_nodes[-1]] >= task.request.gpus:
                free[open_nodes[-1]] -= task.request.gpus
                placed += 1
    return placed


def _fair_share(rounds: int) -> Sight:
    gpus = 40_000
    specs, leaves = departments(_DEPARTMENTS, _TEAMS, gpus=gpus)
    states, _ = queues.build(tuple(specs))
    for rank, leaf in enumerate(leaves):
        queues.request(states[leaf], (rank % 50 * WHOLE_GPU, rank * 1000, rank << 30), 1)
    total = (gpus * WHOLE_GPU, 640_000_000, 5_000 << 40)
    seconds = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        fairshare.divide(states, total, Settings(), DEFAULT)
        seconds.append(time.perf_counter() - began)
    return Sight(seconds=tuple(seconds[1:]), peak_kib=_peak_kib())


def _peak_kib() -> int:
    """Read the most memory that this process ever had resident (VmHWM, proc(5))."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(main(sys.argv[1], int(sys.argv[2]))) + b"\n")
