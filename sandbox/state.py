"""Where a sandbox keeps itself, and how a later start recognises and removes what a dead one left behind.

Each running instance has a record folder `$XDG_STATE_HOME/nodemend/sandboxes/ID`:

    owner.lock   held by flock(2) for as long as the owning process lives; the kernel lets go of it even at kill -9
    boot         boot id and pid namespace in which the pids below mean something
    children/    one file a program: its name is the pid, its content the start time
    state/       certificates, etcd's data, logs, tokens (unless the caller named another folder, which is then kept)

Beside it, only where it has a kubelet's nodes, its cgroup in this machine's hierarchies (`sandbox.cgroups`).

Invariant: a process is ended only when its pid and start time are those recorded, or when it carries the instance's random
id in its environment. Never by name.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox import cgroups, processes
from sandbox.go_modules import MissingProgramError

MARK = "NODEMEND_SANDBOX_ID"


def registry(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all instances' records: `$XDG_STATE_HOME` or `~/.local/state`, then `nodemend/sandboxes`."""
    home = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".local" / "state")
    return Path(home) / "nodemend" / "sandboxes"


class Instance:
    """One sandbox's claim: its id, its folders and the lock that says its owner lives."""

    def __init__(self, record: Path, state_dir: Path, lock: int) -> None:
        self.id = record.name
        self.record = record
        self.state_dir = state_dir
        self.children = record / "children"
        self._lock = lock

    def release(self) -> None:
        """Remove the record (and the state in it) and let go of the lock; call only after all children ended."""
        shutil.rmtree(self.record, ignore_errors=True)
        os.close(self._lock)


def claim(state_dir: Path | None = None, *, folder: Path | None = None) -> Instance:
    """Make a new instance below `folder` (default: the registry).

    Raises MissingProgramError where the records cannot be kept, and FileExistsError where `state_dir` holds something
    already: another cluster's data is never taken over.
    """
    if state_dir is not None and state_dir.exists() and any(state_dir.iterdir()):
        raise FileExistsError(f"state folder {state_dir}: not empty; name an empty or a new folder")
    with _registry_lock(folder or registry()) as home:
        record = home / secrets.token_hex(4)
        (record / "children").mkdir(parents=True, mode=0o700)
        (record / "boot").write_text(_boot())
        lock = _try_lock(record)
        if lock is None:
            raise FileExistsError(f"record {record}: held by another process; start again")
    state = (state_dir or record / "state").absolute()
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Instance(record, state, lock)


def remove_dead(progress: Callable[[str], None], *, folder: Path | None = None) -> list[str]:
    """End the programs and remove the folders of every instance whose owner is gone; return the ids."""
    removed = []
    with _registry_lock(folder or registry()) as home:
        for record in sorted(path for path in home.iterdir() if path.is_dir()):
            lock = _try_lock(record)
            if lock is None:
                continue  # its owner lives
            ended = end_children(record)
            shutil.rmtree(record, ignore_errors=True)
            os.close(lock)
            removed.append(record.name)
            progress(f"removed sandbox {record.name}, whose owner died ({ended} of its processes still ran)")
    return removed


def end_children(record: Path) -> int:
    """Kill what `record` names and what carries its id; return how many processes were ended."""
    boot = record / "boot"
    if not boot.exists() or boot.read_text() != _boot():
        return 0  # another boot or another pid namespace: those pids mean nothing here
    found = dict(_recorded(record / "children"))
    found |= processes.carrying(MARK, record.name)
    ended = sum(processes.end(pid, start) for pid, start in found.items())
    return ended + cgroups.remove(cgroups.name(record.name))


def _recorded(children: Path) -> Iterator[tuple[int, int]]:
    for path in sorted(children.glob("*")):
        start, _, _ = path.read_text().partition(" ")
        if path.name.isdigit() and start.isdigit():
            yield int(path.name), int(start)


def _boot() -> str:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot_id} {Path('/proc/self/ns/pid').readlink()}"


def _try_lock(record: Path) -> int | None:
    """Hold `record`'s owner lock, or return None where its owner lives. Not inherited by programs (close on exec)."""
    try:
        descriptor = os.open(record / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # its owner is just removing it
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _registry_lock(folder: Path) -> Iterator[Path]:
    """Serialise claims and removals, so that a record being made is never taken for a dead one."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "registry.lock").open("w")
    except OSError as error:
        raise MissingProgramError(
            f"state folder {folder}: {error.strerror}; XDG_STATE_HOME names another"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
