"""What is mounted where, from `<proc>/1/mountinfo` (proc_pid_mountinfo(5)): the view of the machine's first process.

Each mount has two fields of options: its own, and those of the file system (the super block). A file system that the
kernel made read-only after an error shows it in the second alone.
"""

import re
from pathlib import Path

import msgspec

_LIMIT = 4 * 1024 * 1024
_ESCAPE = re.compile(r"\\([0-7]{3})")

HOST_ROOT = "1/root"
"""Below the host's /proc: the root of the machine's first process."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One mount, the uppermost where several lie on one path."""

    path: str
    fstype: str
    source: str
    options: str
    super_options: str

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written there, for either reason."""
        return "ro" in self.options.split(",") or "ro" in self.super_options.split(",")


def host_root(proc_root: Path) -> Path:
    """Give the directory below which the host's files and mounts lie: the root of the machine's first process.

    Where the agent reads its own /proc and may not look into that process, it is taken to live among them itself. Raises
    OSError where the process cannot be looked at otherwise.
    """
    root = proc_root / HOST_ROOT
    try:
        root.stat()
    except PermissionError:
        if proc_root == Path("/proc"):
            return Path("/")
        raise
    return root


def read_mountinfo(proc_root: Path) -> dict[str, Mount]:
    """Give the mounts of the machine's first process by path. Raises OSError, or ValueError for what is no mountinfo."""
    path = proc_root / "1/mountinfo"
    with path.open("rb") as file:
        mounts = parse(file.read(_LIMIT).decode(errors="surrogateescape"))
    if not mounts:
        raise ValueError(f"{path} names no mount; at least / is mounted")
    return mounts


def parse(text: str) -> dict[str, Mount]:
    """Read the text of a mountinfo; a line that does not fit is left out. Later lines lie over earlier ones."""
    mounts = {}
    for line in text.splitlines():
        own, _, of_file_system = line.partition(" - ")
        fields, rest = own.split(" "), of_file_system.split(" ")
        if len(fields) >= 6 and len(rest) >= 3:
            path = _unescaped(fields[4])
            mounts[path] = Mount(
                path=path,
                fstype=rest[0],
                source=_unescaped(rest[1])[:256],
                options=fields[5],
                super_options=rest[2],
            )
    return mounts


def mount_of(path: str, mounts: dict[str, Mount]) -> Mount | None:
    """Give the mount that a path without symbolic links lies in."""
    while path not in mounts and path not in ("", "/"):
        path = path.rpartition("/")[0] or "/"
    return mounts.get(path)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)
