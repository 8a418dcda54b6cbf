"""Who holds a GPU open, from the open files in procfs: the driver itself only counts them (`In use by another client`)."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

_NAME = 64


class Client(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One process with the GPU open; `name` is its own word for itself, and may be anything."""

    pid: int
    name: str

    def shown(self) -> str:
        return f"{self.name} (pid {self.pid})"


def clients_of(proc_root: Path, minor: int) -> tuple[Client, ...]:
    """Give the processes that have /dev/nvidia<minor> open. What ends meanwhile, or is not ours to look into, is left out:
    a reset is refused by the driver all the same while anybody holds the GPU."""
    device = f"/dev/nvidia{minor}"
    return tuple(sorted(_clients(proc_root, device)))


def _clients(proc_root: Path, device: str) -> Iterator[Client]:
    own = str(os.getpid())
    for process in _entries(proc_root):
        if process.name.isdecimal() and process.name != own and _has_open(process, device):
            yield Client(pid=int(process.name), name=_comm(process))


def _has_open(process: Path, device: str) -> bool:
    for file in _entries(process / "fd"):
        try:
            # A process of a container has it under its own root; the end of the path is the same everywhere.
            if str(file.readlink()).endswith(device):
                return True
        except OSError:
            continue
    return False


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _comm(process: Path) -> str:
    try:
        text = (process / "comm").read_text(errors="replace").strip()
    except OSError:
        text = ""
    return "".join(c for c in text if c.isprintable())[:_NAME] or "a process"
