"""Runs as the container of a repair or a revalidation: waits while its gate is closed, then becomes the real command.

This is how a drill holds an incident in Repairing or Revalidating: the Job's pod really runs, and takes its time. Called by
path: `python held_command.py GATE COMMAND...`; the gate is a file in the simulated machine's folder.
"""

import os
import sys
import time
from pathlib import Path

_LONGEST_S = 600.0


def closed(root: Path, gate: str) -> Path:
    """Name the file that keeps the gate closed."""
    return root / f"gate-{gate}-closed"


def waiting(root: Path, gate: str) -> Path:
    """Name the file that says that a command waits there."""
    return root / f"gate-{gate}-waiting"


def main(gate: str, command: list[str]) -> None:
    """Wait, then become `command`."""
    root = Path(os.environ["NODEMEND_SANDBOX_NODE_DIR"])
    deadline = time.monotonic() + _LONGEST_S
    while closed(root, gate).exists() and time.monotonic() < deadline:
        waiting(root, gate).touch()
        time.sleep(0.05)
    os.execv(command[0], command)  # noqa: S606 - becoming the command is this script's whole purpose


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
