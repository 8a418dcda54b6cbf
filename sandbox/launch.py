"""Runs as a script before each program of a sandbox: ties it to its parent, records it, becomes it.

Invariant: no program of a sandbox runs unrecorded. The record (pid and start time) is written by the child itself before it
becomes the program, so a parent that dies by kill -9 at any instant leaves nothing that a later start could not find.
Stands alone on the standard library: it is run by path, isolated (`python -I -S`), so that it costs 20 ms and no imports.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it ends; leave at once if it is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def record(folder: Path, name: str) -> None:
    """Write `folder/PID` holding the start time in clock ticks since boot (proc(5), field 22) and the name."""
    stat = Path("/proc/self/stat").read_text()
    start_time = stat.rpartition(")")[2].split()[19]
    pending = folder / f".{os.getpid()}"
    pending.write_text(f"{start_time} {name}\n")
    pending.rename(folder / str(os.getpid()))


def main(arguments: list[str]) -> None:
    """Take RECORDS NAME PARENT_PID PROGRAM ARGUMENT... and never return; RECORDS may be empty for "unrecorded"."""
    folder, name, parent, *command = arguments
    die_with_parent(int(parent))
    if folder:
        record(Path(folder), name)
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the program is this script's whole purpose
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
