"""nodemend-bench: how fast, beside what, on what machine.

`detect`: kernel line to condition. `quarantine`: condition to quarantine, one by one and 750 nodes at once. `agent`: what
a node pays for its agent while nothing happens. `nvml`: whether thousands of rounds of NVML leave anything behind. `checks`:
what a round of all checks costs and leaves behind, and what a storm of kernel lines does. `cycle`: a cycle of the scheduler.
`scheduler`: from the first create to the last bind, beside kube-scheduler and a bare client.
Exit: 0 it was measured, whatever the aims; 1 it could not be measured (and why); 2 bad use; 3 this machine lacks something.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec

from bench import agent, checks, checks_storm, cycle, detect, hardware, nvml_soak, quarantine, scheduler
from bench.figures import Figure, flat, table
from bench.outcome import NotMeasured
from kube.api import ApiError
from sandbox.cluster import KubectlError
from sandbox.control_plane import NotReady
from sandbox.install import ManifestsMissing
from sandbox.programs import MissingProgramError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark; see the module's docstring."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _end_cleanly)
    machine = hardware.look()
    _say(f"on {machine.words()}")
    try:
        if arguments.what == "detect":
            measured = detect.measure(_say, samples=arguments.samples)
        elif arguments.what == "agent":
            measured = agent.measure(_say, window_s=arguments.window, hours=arguments.hours)
        elif arguments.what == "nvml":
            measured = nvml_soak.measure(_say, rounds=arguments.rounds)
        elif arguments.what == "checks":
            measured = checks.measure(_say, rounds=arguments.rounds, storm_s=arguments.storm)
        elif arguments.what == "cycle":
            measured = cycle.measure(_say, rounds=arguments.rounds)
        elif arguments.what == "scheduler":
            measured = scheduler.measure(
                _say, nodes=arguments.nodes, pods=arguments.pods, rounds=arguments.rounds
            )
        else:
            measured = quarantine.measure(
                _say, nodes=arguments.nodes, sick=arguments.sick, samples=arguments.samples
            )
    except MissingProgramError as error:
        _say(f"this machine lacks something: {error}")
        return 3
    except (NotMeasured, NotReady, KubectlError, ManifestsMissing, ApiError, TimeoutError) as error:
        _say(f"not measured: {error}")
        return 1
    except KeyboardInterrupt:
        _say("not measured: interrupted")
        return 1
    figures = [*measured, *_machine(machine)]
    _say("")
    for line in table(figures):
        _say(line)
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(flat(figures)), indent=2) + b"\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodemend-bench", description="measure nodemend on this machine")
    commands = parser.add_subparsers(dest="what", required=True)
    for name, words, options in (
        ("detect", "from a kernel line to the Node condition", (_samples(detect.SAMPLES),)),
        (
            "quarantine",
            "from the condition to the quarantine",
            (
                _samples(quarantine.SAMPLES),
                ("nodes", "N", quarantine.NODES, "nodes of the fleet"),
                ("sick", "N", quarantine.SICK, "how many fail at once"),
            ),
        ),
        (
            "agent",
            "memory, processor and writes of one agent while nothing happens",
            (
                ("window", "S", agent.WINDOW_S, "real seconds to watch it for, at least 60"),
                ("hours", "N", agent.HOURS, "hours on a clock that runs ahead"),
            ),
        ),
        (
            "nvml",
            "whether rounds of NVML leave files, threads, processes or memory behind",
            (("rounds", "N", nvml_soak.ROUNDS, f"how many rounds, at least {nvml_soak.FEWEST}"),),
        ),
        (
            "checks",
            "a round of all checks, and a storm of kernel lines",
            (
                ("rounds", "N", checks.ROUNDS, f"how many rounds, at least {checks.FEWEST}"),
                ("storm", "S", checks.STORM_S, f"seconds of {checks_storm.LINES_PER_S} lines each"),
            ),
        ),
        (
            "cycle",
            "a cycle of the scheduler, in process, up to 5,000 nodes",
            (("rounds", "N", cycle.ROUNDS, "rounds of each scene; the median counts"),),
        ),
        (
            "scheduler",
            "from the first create to the last bind, beside kube-scheduler and a bare client",
            (
                ("nodes", "N", scheduler.NODES, "nodes of 8 GPUs"),
                ("pods", "N", scheduler.PODS, "pods of one GPU in a turn"),
                ("rounds", "N", scheduler.ROUNDS, "rounds of three turns"),
            ),
        ),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument(
            "--json", metavar="FILE", type=Path, help="write the figures to FILE as one flat object"
        )
        for option, metavar, default, meaning in options:
            command.add_argument(
                f"--{option}",
                metavar=metavar,
                type=_count,
                default=default,
                help=f"{meaning} (default {default})",
            )
    return parser


def _samples(default: int) -> tuple[str, str, int, str]:
    return "samples", "N", default, "how many samples"


def _count(text: str) -> int:
    """Read a number from 1 up. Raises ValueError, which argparse says."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _machine(machine: hardware.Hardware) -> list[Figure]:
    return [
        Figure(name="cores", value=machine.cores),
        Figure(name="memory_mib", value=machine.memory_mib),
        Figure(name="load_1m_at_start", value=machine.load_1m),
    ]


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _end_cleanly(_number: int, _frame: FrameType | None) -> None:
    """Take SIGTERM as Ctrl-C is taken: the cluster ends with the benchmark."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
