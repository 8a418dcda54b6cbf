"""Looks at file systems: the shared mounts that the configuration names, and the local ones that the machine lives on.

Only those are touched. Each is looked at by a child of its own (`agent.host.children`), below the host's root directory: in
a pod that is `<proc>/1/root`, the root of the machine's first process with all that is mounted there now, whatever the pod
itself was given a view of. Reading it takes no more than reading /proc/1/mountinfo, ptrace access to process 1, which a
privileged pod has; no namespace is entered and no hostPID is needed.
"""

import errno
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from agent.host.children import Children, Reply, program
from agent.host.mountinfo import Mount, host_root, mount_of, read_mountinfo
from agent.wanted_mount import WantedMount
from checks.storage_reading import MountReading, MountsRead

AUTOFS = "autofs"
NOT_THERE = f"statvfs: {os.strerror(errno.ENOENT)}"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How each look is made: `entry` reads one entry of the directory, `write` is the name of a file to write, if any."""

    entry: bool = False
    write: str = ""

    def command(self, proc_root: Path, path: str, deadline_s: float) -> tuple[str, ...]:
        """Give the command line of the child."""
        asked = [*(["entry"] if self.entry else []), *([f"write={self.write}"] if self.write else [])]
        # Longer than the parent's own deadline: this one is for a child whose parent is gone.
        return program("mount_child.py", str(int(deadline_s) + 5), str(host_root(proc_root)), path, *asked)


Command = Callable[[str], Sequence[str]]


def look_of(look: Look, proc_root: Path, deadline_s: float) -> Command:
    """Give what makes the command line for a path."""
    return lambda path: look.command(proc_root, path, deadline_s)


class SharedMounts:
    """The shared mounts, by the configuration. `read` gives one observation."""

    def __init__(
        self,
        proc_root: Path,
        wanted: Sequence[WantedMount],
        children: Children,
        command: Command,
        now: Callable[[], datetime],
    ) -> None:
        self._proc_root = proc_root
        self._wanted = tuple(wanted)
        self._children = children
        self._command = command
        self._now = now

    def read(self) -> MountsRead:
        """Look at all of them. Raises OSError or ValueError where nobody can say what is mounted."""
        mounts = read_mountinfo(self._proc_root)
        paths = [
            one.path for one in self._wanted if one.path in mounts or _is_made_by_autofs(one.path, mounts)
        ]
        replies = self._children.ask({path: self._command(path) for path in paths})
        if any(_is_made_by_autofs(path, mounts) for path in paths):
            mounts = read_mountinfo(self._proc_root)  # the look itself made it mount what belongs there
        return MountsRead(
            seen_at=self._now(),
            mounts=tuple(_shared(one, mounts.get(one.path), replies.get(one.path)) for one in self._wanted),
        )


def _is_made_by_autofs(path: str, mounts: dict[str, Mount]) -> bool:
    """Tell a place that is mounted once somebody looks there: autofs lies on it, or on the directory above (a map)."""
    mount = mount_of(path, mounts)
    return mount is not None and mount.fstype == AUTOFS


def _shared(wanted: WantedMount, mount: Mount | None, reply: Reply | None) -> MountReading:
    bare = MountReading(path=wanted.path, may_be_read_only=wanted.may_be_read_only, mounted=False)
    if reply is None:
        return bare
    if (mount is None or mount.fstype == AUTOFS) and reply.hangs_ms is None:
        return bare  # nothing came to lie over it, so the mount itself failed
    return msgspec.structs.replace(_answered(bare, mount, reply), mounted=True)


class LocalFileSystems:
    """The local file systems that lie under these paths, each once."""

    def __init__(
        self,
        proc_root: Path,
        paths: Sequence[str],
        children: Children,
        command: Command,
    ) -> None:
        self._proc_root = proc_root
        self._paths = tuple(paths)
        self._children = children
        self._command = command

    def read(self) -> tuple[MountReading, ...]:
        """Look at all of them; a path that is not there is left out. Raises OSError or ValueError."""
        replies = self._children.ask({path: self._command(path) for path in self._paths})
        mounts = read_mountinfo(self._proc_root)
        seen: dict[str, MountReading] = {}
        for path in self._paths:
            bare = MountReading(path=path, shared=False)
            mount = mount_of(_real_path(replies[path]) or path, mounts)
            reading = _answered(bare, mount, replies[path])
            if reading.error != NOT_THERE:
                # What could not be looked at may lie on any file system, and stands for itself.
                told = not reading.error and reading.hangs_ms is None
                seen.setdefault(mount.path if mount is not None and told else path, reading)
        if not seen:
            raise ValueError(
                f"none of {', '.join(self._paths)} is there; name the local paths in storage.local"
            )
        return tuple(seen.values())


def _real_path(reply: Reply) -> str:
    words = reply.output.split(b" ", 7)
    return os.fsdecode(words[7]) if len(words) == 8 and words[0] == b"ok" else ""


def _answered(reading: MountReading, mount: Mount | None, reply: Reply) -> MountReading:
    """Put mountinfo and the child's answer together."""
    if mount is not None:
        reading = msgspec.structs.replace(
            reading,
            fstype=mount.fstype,
            source=mount.source,
            options=f"{mount.options} {mount.super_options}"[:512],
            read_only=mount.read_only,
        )
    if reply.error or reply.hangs_ms is not None:
        return msgspec.structs.replace(reading, error=reply.error, hangs_ms=reply.hangs_ms)
    match reply.output.decode(errors="surrogateescape").split(" ", 7):
        case ["ok", *numbers, _] if len(numbers) == 6 and all(word.isdecimal() for word in numbers):
            blocks, available, files, files_available, read_only, took_ms = map(int, numbers)
            return msgspec.structs.replace(
                reading,
                took_ms=took_ms,
                read_only=bool(read_only) or bool(reading.read_only),
                free_percent=_percent(available, blocks),
                free_inodes_percent=_percent(files_available, files),
            )
        case ["error", number, stage] if number.isdecimal():
            said = f"{stage}: {os.strerror(int(number))}"
            return msgspec.structs.replace(reading, error=said, errno=int(number))
    return msgspec.structs.replace(reading, error=f"the look said {reply.output[:64]!r}")


def _percent(available: int, whole: int) -> int | None:
    """Give the free share; a file system without a number (btrfs has no inodes) tells none."""
    return min(100, available * 100 // whole) if whole else None
