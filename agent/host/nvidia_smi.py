"""nvidia-smi of the driver that is loaded, from the driver root: never from the image, never by the NVIDIA runtime.

A driver root that holds the device nodes is a root file system of its own (the host's, or the driver pod's): nvidia-smi runs
in it, where its library and the persistence daemon's socket lie where it looks for them. Any other holds the files alone:
then it runs from there, with the library beside it.

Each call ends by its deadline. One that hangs is asked to end, then killed, and left where the kernel does not let it go:
waiting for it would hang us as well.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import msgspec

from agent.host.nvml_library import FOLDERS, OPERATOR_ROOT, resolve

PROGRAM = "usr/bin/nvidia-smi"
_ENDS_WITHIN_S = 5.0
_SAID = 2048


class NvidiaSmiMissing(Exception):
    """There is no nvidia-smi in the driver root; the message names every place that was looked at."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended: its exit status, or -1 where it did not start or not end; `said` is its output, on one line."""

    status: int
    said: str
    lines: tuple[str, ...] = ()


class NvidiaSmi:
    """Runs it. Raises NvidiaSmiMissing where it is not there."""

    def __init__(self, driver_root: Path) -> None:
        self._command, self._environment = _find(str(driver_root))

    def run(self, *arguments: str, timeout_s: float) -> Answer:
        """Run it, at most `timeout_s` seconds and a few more; never raises."""
        argv = [*self._command, *arguments]
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._environment},
                )
            except OSError as error:
                return Answer(status=-1, said=str(error))
            try:
                ended = _end(process, timeout_s)
            except BaseException:  # we are being ended, and it with us
                process.terminate()
                raise
            output.seek(0)
            text = output.read(_SAID).decode(errors="replace")
        lines = tuple(line.strip() for line in text.splitlines() if line.strip())
        said = _printable(" ".join(lines))
        if not ended:
            return Answer(
                status=-1, said=f"it did not end within {timeout_s:g} s {said}".strip(), lines=lines
            )
        return Answer(status=process.returncode, said=said, lines=lines)


def _find(root: str) -> tuple[list[str], dict[str, str]]:
    for base in (root, f"{root}/{OPERATOR_ROOT}"):
        program = resolve(base, PROGRAM)
        if program is None or not os.access(program, os.X_OK):
            continue
        inside = f"/{os.path.relpath(program, base)}"
        if os.path.realpath(base) == "/":
            return [inside], {}
        if Path(base, "dev/nvidiactl").exists():
            return ["chroot", base, inside], {}
        return [program], {"LD_LIBRARY_PATH": ":".join(f"{base}/{folder}" for folder in FOLDERS)}
    raise NvidiaSmiMissing(
        f"{PROGRAM} is not under {root}, nor under {OPERATOR_ROOT} in it; --driver-root (or nvml.driver_root) must be the "
        "root of the file system that the driver is installed in"
    )


def _end(process: "subprocess.Popen[bytes]", timeout_s: float) -> bool:
    """Wait for the end of a process, then make it end; tell whether it ended by itself."""
    for wait_s, stop in (
        (timeout_s, process.terminate),
        (_ENDS_WITHIN_S, process.kill),
        (_ENDS_WITHIN_S, None),
    ):
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            if stop is None:
                return False
            stop()
        else:
            return stop == process.terminate
    return False


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
