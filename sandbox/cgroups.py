"""The cgroups of a sandbox's nodes: made below this machine's root, removed with what still lives in them.

Each sandbox has one folder, named by its id, in every mounted hierarchy: one with cgroup v2, one a controller with v1.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox import processes

NEEDED = ("cpu", "cpuset", "memory", "pids")  # by kubelet; without one it says that its cgroup does not exist
_MOUNTS = Path("/sys/fs/cgroup")
_GONE_WITHIN_S = 10.0


def name(instance: str, node: str = "") -> str:
    """Name the cgroup of a sandbox, or of one node in it, as kubelet is told it."""
    return f"/nodemend-{instance}/{node}" if node else f"/nodemend-{instance}"


def why_not_usable(mounts: Path = _MOUNTS) -> str | None:
    """Say what keeps kubelet from having a cgroup of its own here, None where nothing does."""
    unified = mounts / "cgroup.procs"
    if not unified.exists():
        missing = [name for name in NEEDED if not (mounts / name).is_dir()]
        return f"{mounts} has no cgroup controller {', '.join(missing)}" if missing else None
    probe = f"/nodemend-probe-{os.getpid()}"
    try:
        make(probe, mounts)
        found = (mounts / probe.lstrip("/") / "cgroup.controllers").read_text().split()
    except OSError as error:
        return f"no cgroup can be made in {mounts}: {error.strerror}"
    finally:
        remove(probe, mounts)
    missing = [name for name in NEEDED if name not in found]
    return f"{mounts} hands down no cgroup controller {', '.join(missing)}" if missing else None


def make(cgroup: str, mounts: Path = _MOUNTS) -> None:
    """Make the cgroup in every hierarchy. With cgroup v2 all controllers are handed down to it, as far as they can be."""
    for hierarchy in _hierarchies(mounts):
        folder = hierarchy
        for name in cgroup.strip("/").split("/"):
            _hand_down(folder)
            folder /= name
            folder.mkdir(exist_ok=True)


def _hand_down(folder: Path) -> None:
    with suppress(OSError):  # there is no such file with v1
        for controller in (folder / "cgroup.controllers").read_text().split():
            with suppress(OSError):  # one that is in use otherwise
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(cgroup: str, mounts: Path = _MOUNTS) -> int:
    """End what lives in the cgroup or below, remove all of them, and return how many processes were ended.

    A cgroup that cannot be removed within some seconds stays: it is empty and costs nothing.
    """
    folders = [hierarchy / cgroup.lstrip("/") for hierarchy in _hierarchies(mounts)]
    found = [folder for folder in folders if folder.is_dir()]
    ended = sum(processes.end(pid, start) for pid, start in _members(found).items())
    deadline = time.monotonic() + _GONE_WITHIN_S
    while found and time.monotonic() < deadline:
        for folder in found:
            _remove_tree(folder)
        found = [folder for folder in found if folder.is_dir()]
        if found:
            time.sleep(0.05)  # the kernel lets go of a member some moments after its end
    return ended


def _hierarchies(mounts: Path) -> Iterator[Path]:
    if (mounts / "cgroup.procs").exists():
        yield mounts
        return
    with suppress(FileNotFoundError):
        for folder in sorted(mounts.iterdir()):
            if not folder.is_symlink() and (folder / "cgroup.procs").exists():
                yield folder


def _members(folders: list[Path]) -> dict[int, int]:
    found = {}
    for folder in folders:
        for listed in folder.rglob("cgroup.procs"):
            with suppress(OSError):  # removed meanwhile
                for word in listed.read_text().split():
                    if (started := processes.start_time(int(word))) is not None:
                        found[int(word)] = started
    return found


def _remove_tree(folder: Path) -> None:
    inner = [path for path in folder.rglob("*") if path.is_dir()]
    for path in [*sorted(inner, key=lambda path: len(path.parts), reverse=True), folder]:
        with suppress(OSError):
            path.rmdir()
