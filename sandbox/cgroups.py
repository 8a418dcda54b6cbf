"""The cgroups of a sandbox's nodes: made below this machine's root, removed with what still lives in them.

Each sandbox has one folder, named by its id, in every mounted hierarchy: one with cgroup v2, one a controller with v1.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sandbox import processes

_MOUNTS = Path("/sys/fs/cgroup")
_GONE_WITHIN_S = 10.0


def name(instance: str, node: str = "") -> str:
    """Name the cgroup of a sandbox, or of one node in it, as kubelet is told it."""
    return f"/nodemend-{instance}/{node}" if node else f"/nodemend-{instance}"


def make(cgroup: str, mounts: Path = _MOUNTS) -> None:
    """Make the cgroup in every hierarchy."""
    for hierarchy in _hierarchies(mounts):
        (hierarchy / cgroup.lstrip("/")).mkdir(parents=True, exist_ok=True)


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
