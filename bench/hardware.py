"""What the figures were measured on, and what the processes spent: without that a figure means nothing. Shell."""

import os
from pathlib import Path

import msgspec

_TICKS = os.sysconf("SC_CLK_TCK")


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """`load_1m` is the machine's load average of the last minute: what else ran is in it."""

    cores: int
    memory_mib: int
    model: str
    load_1m: float

    def words(self) -> str:
        """Say it in one line."""
        return (
            f"{self.cores} cores ({self.model}), {self.memory_mib / 1024:.0f} GiB memory, "
            f"load average {self.load_1m:.2f} at the start"
        )


def look() -> Hardware:
    """Look at this machine: the cores that this process may use."""
    return Hardware(
        cores=len(os.sched_getaffinity(0)),
        memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        model=model_of(Path("/proc/cpuinfo").read_text(errors="replace")),
        load_1m=os.getloadavg()[0],
    )


def model_of(cpuinfo: str) -> str:
    """Read the processor's name from /proc/cpuinfo (proc(5)); some architectures have none."""
    for line in cpuinfo.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == "model name":
            return value.strip()
    return "unnamed processor"


def spent_s(pid: int) -> float:
    """Give the processor seconds that a process has spent, its ended threads included; 0 where it is gone."""
    try:
        return spent_of(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def spent_of(stat: str, *, ended_children: bool = False) -> float:
    """Read utime and stime, fields 14 and 15 of /proc/PID/stat (proc(5)); the name before them may hold anything.

    With `ended_children` also fields 16 and 17: what the children spent that have ended and were waited for.
    """
    fields = stat.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11 : 15 if ended_children else 13]) / _TICKS
