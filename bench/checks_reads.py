"""Which files a look at sysfs reads: run as a program with an agent's configuration, one path a line. For the floor.

A process of its own, since an audit hook (PEP 578) cannot be taken away again, and would be paid for in what is measured.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.config import load
from agent.probing import probes_of
from bench.outcome import NotMeasured
from checks.check import discover

_WITHIN_S = 60


def reads_of(config: Path, sources: Sequence[str]) -> list[str]:
    """Give the files that one look at these sources reads, once for each time. Raises NotMeasured."""
    command = [sys.executable, "-m", "bench.checks_reads", str(config), *sources]
    home = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
    if done.returncode or not done.stdout:
        raise NotMeasured(f"{' '.join(command)}: status {done.returncode}: {done.stderr[-500:]}")
    return [path for path in done.stdout.splitlines() if Path(path).is_file()]


def main(config: Path, sources: Sequence[str]) -> None:
    """Look twice, and print what the second look opened: the first one learns what needs no second."""
    probes = [probe for probe in probes_of(load(config, discover(), {})) if probe.source in sources]
    opened: list[str] | None = None

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and opened is not None:
            opened.append(os.fspath(arguments[0]))

    for probe in probes:
        probe.read()
    sys.addaudithook(note)
    opened = []
    for probe in probes:
        probe.read()
    found, opened = opened, None
    sys.stdout.write("".join(f"{path}\n" for path in found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
