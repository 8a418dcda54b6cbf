"""Compiles the fake library and the stand-in for nvidia-smi with gcc, once for each state of their sources."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sandbox.build_cache import build_lock, cache_folder
from sandbox.fake_nvml.symbols import SOURCES
from sandbox.go_modules import MissingProgramError
from sandbox.long_command import Progress

_BUILD_WITHIN_S = 120.0
_OF_BOTH = ("codes.c", "state.c", "state_edit.c")
_OF_LIBRARY = ("call.c", "system.c", "device.c", "memory.c", "mig.c", "links.c", "fields.c", "events.c")
_OF_PROGRAM = ("nvidia_smi.c", "smi_reset.c")
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-pthread")
# The soname must be this one exactly: programs link to it and look for it by it.
_LIBRARY_FLAGS = (
    *("-DBESIDE_LIBRARY", "-shared", "-fPIC", "-fvisibility=hidden"),
    *("-Wl,-soname,libnvidia-ml.so.1", "-Wl,-z,defs"),
)
# Static: the program then runs in any container, whatever C library that has, or none.
_PROGRAM_FLAGS = ("-static",)


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What was compiled."""

    library: Path
    nvidia_smi: Path


def build(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Path:
    """Return the library, compiling it where it is not in the cache. Raises as `build_all` does."""
    return build_all(progress, env).library


def build_all(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Built:
    """Return library and nvidia-smi, compiled once into `$XDG_CACHE_HOME/nodemend/fake-nvml/HASH`.

    Raises MissingProgramError where gcc is missing, with the line that installs it, and where it fails, with its words.
    """
    folder = cache_folder(env) / "fake-nvml" / _hash()
    built = Built(library=folder / "libnvidia-ml.so.1", nvidia_smi=folder / "nvidia-smi")
    if built.library.exists() and built.nvidia_smi.exists():
        return built
    compiler = shutil.which("gcc", path=env.get("PATH", ""))
    if compiler is None:
        raise MissingProgramError(
            "gcc is missing: the fake NVML is compiled where it is used (apt-get install gcc libc6-dev)"
        )
    with build_lock(folder, progress, name="build.lock", what="the fake NVML"):
        if not (built.library.exists() and built.nvidia_smi.exists()):
            progress("compiling the fake NVML")
            _compile(compiler, (*_OF_BOTH, *_OF_LIBRARY), _LIBRARY_FLAGS, built.library)
            _compile(compiler, (*_OF_BOTH, *_OF_PROGRAM), _PROGRAM_FLAGS, built.nvidia_smi)
    return built


def _compile(compiler: str, sources: tuple[str, ...], flags: tuple[str, ...], target: Path) -> None:
    """Write whole or not at all: another process may look for `target` at any instant."""
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        output = Path(scratch) / target.name
        command = [compiler, *_FLAGS, *flags, "-o", str(output), *(str(SOURCES / name) for name in sources)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_BUILD_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired as expired:
            raise MissingProgramError(
                f"gcc took more than {expired.timeout:.0f} s for {target.name}"
            ) from None
        if done.returncode:
            raise MissingProgramError(f"gcc could not make {target.name}:\n{done.stderr[-2000:]}")
        output.replace(target)


def _hash() -> str:
    """Name the sources with their flags and the compiler's target, so that a changed one is compiled anew."""
    digest = hashlib.sha256(repr((_FLAGS, _LIBRARY_FLAGS, _PROGRAM_FLAGS, os.uname().machine)).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in {".c", ".h", ".def"}:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
