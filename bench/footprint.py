"""What a program and its children take of memory and processor, from /proc (proc(5)). Shell, with a pure reader."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from bench.hardware import spent_of
from kube.clock import SYSTEM

_PROC = Path("/proc")


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Kilobytes of all processes together. `pss` divides each page among those who share it, `rss` counts it whole."""

    pss: int = 0
    rss: int = 0
    private: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(
            pss=self.pss + other.pss, rss=self.rss + other.rss, private=self.private + other.private
        )


def family(pid: int) -> list[int]:
    """Give a process and all its descendants that live now."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def memory(pids: Iterable[int]) -> Memory:
    """Add up what these processes have in memory now; one that has gone has nothing."""
    total = Memory()
    for pid in pids:
        try:
            total += memory_of((_PROC / str(pid) / "smaps_rollup").read_text())
        except OSError:
            continue
    return total


def memory_of(rollup: str) -> Memory:
    """Read /proc/PID/smaps_rollup."""
    kilobytes: dict[str, int] = {}
    for line in rollup.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and words and words[-1] == "kB":
            kilobytes[name] = int(words[0])
    return Memory(
        pss=kilobytes.get("Pss", 0),
        rss=kilobytes.get("Rss", 0),
        private=kilobytes.get("Private_Clean", 0) + kilobytes.get("Private_Dirty", 0),
    )


class Stopwatch:
    """Counts the processor seconds that a process and its descendants spend from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.since = SYSTEM.monotonic()
        self._before = self._spent()

    def percent(self) -> float:
        """Give the share of one core since the start, in percent."""
        return 100.0 * (self._spent() - self._before) / (SYSTEM.monotonic() - self.since)

    def _spent(self) -> float:
        """Add up the living, and what the dead among them had spent, which their parents keep."""
        total = 0.0
        for pid in family(self._pid):
            try:
                stat = (_PROC / str(pid) / "stat").read_text()
            except OSError:
                continue
            total += spent_of(stat, ended_children=True)
        return total
