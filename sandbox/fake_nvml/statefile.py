"""The state as text: what `c/state.h` describes, read and written by the driver's methods under the writers' lock."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATE = "nvml.state"
LIVE = "nvml.live"
"""Beside the state: the writers' lock, the clients' lock and the counters. May be writable where the rest is not."""
MOST_EVENTS = 256


class State:
    """One reading of the state, to be changed and written back. A rule, field, event or limit is its whole line."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.gpus: dict[int, dict[str, str]] = {}
        self.rules: list[str] = []
        self.fields: list[str] = []
        self.events: list[str] = []
        self.limits: list[str] = []

    def text(self) -> str:
        """Give it as the library reads it."""
        lines = [f"set {key} {value}" for key, value in self.settings.items()]
        for number, values in self.gpus.items():
            lines += [f"gpu {number} {name} {value}" for name, value in values.items()]
        lines += [*self.rules, *self.fields, *self.events[-MOST_EVENTS:], *self.limits, "end"]
        for line in lines:
            if "\n" in line:
                raise ValueError(f"a value of the fake NVML's state must be one line: {line!r}")
        return "\n".join(lines) + "\n"


def parse(text: str) -> State:
    """Read the state's text. Raises ValueError, naming the line."""
    state = State()
    kinds = {
        "rule": state.rules, "field": state.fields, "event": state.events, "system": state.events,
        "limit": state.limits,
    }  # fmt: skip
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "end":
            return state
        if kind == "set":
            key, _, value = rest.partition(" ")
            state.settings[key] = value
        elif kind == "gpu":
            number, name, value = rest.split(" ", 2)
            state.gpus.setdefault(int(number), {})[name] = value
        elif kind in kinds:
            kinds[kind].append(line)
        else:
            raise ValueError(f"the fake NVML's state has the line {line!r}, which is none of its kinds")
    raise ValueError("the fake NVML's state has no end")


def write(path: Path, state: State) -> None:
    """Write whole or not at all: the library may read at any instant."""
    pending = path.with_name(f".{path.name}.{os.getpid()}")
    pending.write_text(state.text())
    pending.rename(path)


@contextmanager
def changed(path: Path) -> Iterator[State]:
    """Read the state, let it be changed, write it; nobody else writes meanwhile, neither driver nor nvidia-smi."""
    with (path.with_name(LIVE) / "lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = parse(path.read_text())
        yield state
        write(path, state)
