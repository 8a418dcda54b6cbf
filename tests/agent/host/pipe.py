"""A writer into a named pipe, and what a reader made of it, counted."""

import os
from pathlib import Path

from checks.observation import KernelRecord, Observation, RecordsLost, SourceFailed

BOOT = "boot-1"


class Writer:
    """Writes into a pipe and stays open, as the sandbox's kernel does."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def put(self, data: bytes) -> None:
        assert os.write(self._fd, data) == len(data)

    def records(self, *sequences: int, priority: int = 4) -> None:
        self.put(b"".join(b"%d,%d,1,-;line %d\n" % (priority, number, number) for number in sequences))

    def close(self) -> None:
        os.close(self._fd)


def sequences(observations: list[Observation]) -> list[int]:
    return [o.sequence for o in observations if isinstance(o, KernelRecord)]


def lost(observations: list[Observation]) -> int:
    return sum(o.count for o in observations if isinstance(o, RecordsLost))


def failed(observations: list[Observation]) -> list[int]:
    return [o.tries for o in observations if isinstance(o, SourceFailed)]
