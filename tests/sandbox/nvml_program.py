"""Programs that use the fake NVML through nvidia-ml-py, as real ones use the real: in a process of their own."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandbox.fake_nvml import FakeDriver
from sandbox.fake_nvml.building import Built, build_all
from sandbox.go_modules import MissingProgramError

_BEGIN = """
import ctypes, json, os, signal, sys, threading, time
import pynvml
from pynvml import *
pynvml.nvmlLib = ctypes.CDLL(sys.argv[1])

def say(value):
    print(json.dumps(value, default=lambda other: other.decode() if isinstance(other, bytes) else str(other)), flush=True)

def code(function, *arguments):
    try:
        function(*arguments)
    except NVMLError as error:
        return error.value
    return 0

"""
_WITHIN_S = 30.0


def built_or_skip() -> Built:
    """Compile the fake, or skip the tests that need it, saying what is missing."""
    try:
        return build_all(lambda _: None)
    except MissingProgramError as error:
        pytest.skip(str(error))


def run(driver: FakeDriver, program: str, *, init: bool = True) -> Any:
    """Run `program` and give back the last value it said. `init`: NVML is initialised, `h` is the first GPU, if any."""
    with running(driver, program, init=init) as process:
        output, errors = process.communicate(timeout=_WITHIN_S)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@contextmanager
def running(driver: FakeDriver, program: str, *, init: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Have `program` running; it is killed at the end if it is still there."""
    start = (
        "nvmlInit()\nh = nvmlDeviceGetHandleByIndex(0) if nvmlDeviceGetCount() else None\n" if init else ""
    )
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN + start + textwrap.dedent(program), str(driver.library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> Any:
    """Wait for the next value that the program says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return json.loads(line)


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a program go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def nvidia_smi(driver: FakeDriver, *arguments: str) -> tuple[int, str]:
    """Run the stand-in for nvidia-smi: exit code and what it printed."""
    done = subprocess.run(
        [driver.nvidia_smi, *arguments], capture_output=True, text=True, timeout=_WITHIN_S, check=False
    )
    return done.returncode, done.stdout + done.stderr
