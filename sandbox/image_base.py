"""The base of the product's image where there is no registry: Debian's own Python and little else, 50 MiB.

mmdebstrap fetches and unpacks the packages (its variant `extract` configures nothing, which no program here needs).
"""

import hashlib
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sandbox import long_command
from sandbox.go_modules import MissingProgramError
from sandbox.long_command import Progress
from sandbox.node_files import snapshotter

# dash: the Containerfile's RUN. util-linux: the reboot enters the host's mount namespace by nsenter. libstdc++:
# grpcio, in the stand-in device plugin.
PACKAGES = ("python3", "python3-minimal", "libpython3-stdlib", "dash", "util-linux", "libstdc++6")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/lib/*/gconv/*")
_OLDEST = "bookworm"  # the first with Python 3.11
_WITHIN_S = 900.0


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """One base: its archive is a root file system. `python` is its Python's version, as in `3.11`."""

    name: str
    archive: Path
    python: str
    storage_driver: str

    @property
    def image(self) -> str:
        return f"localhost/nodemend-base:{self.name}"

    def wheel_tags(self) -> list[str]:
        """Give the options of `pip download` for this base, whatever Python runs pip."""
        machine = platform.machine()
        platforms = (
            "any",
            f"manylinux2014_{machine}",
            *(f"manylinux_2_{n}_{machine}" for n in (17, 26, 27, 28, 34)),
        )
        abis = (f"cp{self.python.replace('.', '')}", "abi3", "none")
        options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={self.python}"]
        return options + [f"--abi={abi}" for abi in abis] + [f"--platform={name}" for name in platforms]


def find_or_make_base(images: Path, progress: Progress, env: Mapping[str, str]) -> Base:
    """Return the base for this machine's Debian, made once. Raises MissingProgramError with mmdebstrap's words."""
    suite = _suite()
    name = hashlib.sha256(json.dumps([suite, PACKAGES, LEFT_OUT]).encode()).hexdigest()[:16]
    archive = images / f"base-{name}.tar"
    if not archive.exists():
        with tempfile.TemporaryDirectory() as scratch:
            _make(suite, archive, Path(scratch), progress, env)
    storage_driver = "overlay" if snapshotter(images) == "overlayfs" else "vfs"
    return Base(name=name, archive=archive, python=_python(archive), storage_driver=storage_driver)


def _make(suite: str, archive: Path, scratch: Path, progress: Progress, env: Mapping[str, str]) -> None:
    pending = archive.with_name(f".{archive.name}.{os.getpid()}.tar")
    exclude = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    command = ["mmdebstrap", "--mode=root", "--variant=extract", f"--include={','.join(PACKAGES)}", *exclude]
    try:
        long_command.run(
            [*command, suite, str(pending)],
            label=f"making the base image of Debian {suite}'s packages (once)",
            log=scratch / "mmdebstrap.log",
            env=env,
            cwd=scratch,
            progress=progress,
            within_s=_WITHIN_S,
        )
        pending.rename(archive)
    except long_command.CommandFailed as error:
        raise MissingProgramError(f"{error}\nA Debian mirror is needed once.") from error
    finally:
        pending.unlink(missing_ok=True)


def _suite() -> str:
    """Take this machine's own Debian, whose mirror is surely reached; elsewhere the oldest that has what we need."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return _OLDEST
    return release.get("VERSION_CODENAME", _OLDEST) if release.get("ID") == "debian" else _OLDEST


def _python(archive: Path) -> str:
    with tarfile.open(archive) as tar:
        return tar.getmember("./usr/bin/python3").linkname.removeprefix("python")
