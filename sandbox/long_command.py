"""Runs a program that takes minutes: with a line of progress every few seconds, bounded, ended with us."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.processes import launched, tail

Progress = Callable[[str], None]
_HEARTBEAT_S = 10.0


class CommandFailed(Exception):
    """The command ended with another status than 0, or did not end in time; the message ends with the end of its log."""


def run(
    argv: Sequence[str],
    *,
    label: str,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    within_s: float,
) -> str:
    """Run `argv` and return its standard output; its errors go to `log`, whose last line is shown as progress.

    Raises CommandFailed.
    """
    began = time.monotonic()
    progress(label)
    with log.open("wb") as errors, log.with_suffix(".out").open("w+b") as output:
        process = subprocess.Popen(
            launched(argv, name=Path(argv[0]).name),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            _wait(process, progress, label, log, began, within_s)
        finally:
            if process.poll() is None:  # Ctrl-C, or out of time
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        if process.returncode == 0:
            return output.read().decode(errors="replace")
    last = "\n".join(tail(log).splitlines()[-12:])
    raise CommandFailed(f"{label} failed.\nThe end of {log}:\n{last}")


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def _wait(
    process: "subprocess.Popen[bytes]",
    progress: Progress,
    label: str,
    log: Path,
    began: float,
    within_s: float,
) -> None:
    while True:
        try:
            process.wait(_HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - began
            if elapsed > within_s:
                raise CommandFailed(f"{label}: not done after {clock(elapsed)}; gave up") from None
            doing = (tail(log, 2000).splitlines() or [""])[-1].removeprefix("go: ")
            progress(f"{label}: {clock(elapsed)} so far{f' ({doing})' if doing else ''}")
        else:
            return
