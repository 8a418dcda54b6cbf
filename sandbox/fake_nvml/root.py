"""A fake driver's root on disk, and what can be seen of it: who uses it, what they asked, what was reset."""

import array
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from sandbox.fake_nvml import statefile
from sandbox.fake_nvml.building import Built, build_all
from sandbox.fake_nvml.profiles import attributes
from sandbox.fake_nvml.statefile import LIVE, STATE, State, parse
from sandbox.fake_nvml.symbols import CALLS, MOST_GPUS
from sandbox.machine import DRIVER, Gpu

LIBRARY_FOLDER = Path("usr") / "lib" / "x86_64-linux-gnu"
LIBRARY = LIBRARY_FOLDER / "libnvidia-ml.so.1"
NVIDIA_SMI = Path("usr") / "bin" / "nvidia-smi"
GpuName = int | str
"""A GPU: its number among those that the driver was made with, or its UUID. Not NVML's index, which moves."""


class DriverRoot:
    """What a driver root holds: the library, nvidia-smi, the state that both read, and what both leave behind."""

    def __init__(
        self, root: Path, gpus: Sequence[Gpu] = (), *, version: str = DRIVER, built: Built | None = None
    ) -> None:
        """Lay out `root` anew with `gpus`, all well. Raises MissingProgramError where gcc is missing."""
        if len(gpus) > MOST_GPUS:
            raise ValueError(f"{len(gpus)} GPUs; the fake NVML has room for {MOST_GPUS}")
        self.root = root
        built = built or build_all(lambda _: None)
        live = root / LIBRARY_FOLDER / LIVE
        for folder in (live, root / NVIDIA_SMI.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("lock", "held"):
            (live / name).touch()
        _put(live / "calls", bytes(8 * len(CALLS) * (MOST_GPUS + 1)))
        state = State()
        state.settings = {"driver": version, "nvml": f"13.{version}", "cuda": "13000"}
        state.settings |= {"loaded": "1", "epoch": "0", "last_event": "0", "fabric_version": "3"}
        state.gpus = {number: attributes(gpu, number) for number, gpu in enumerate(gpus)}
        statefile.write(self.state_file, state)
        _put(self.library, built.library.read_bytes())
        _put(self.nvidia_smi, built.nvidia_smi.read_bytes(), mode=0o755)

    @classmethod
    def attach(cls, root: Path) -> Self:
        """Act on a root that another one laid out. Raises FileNotFoundError where there is none."""
        driver = cls.__new__(cls)
        driver.root = root
        driver.state()
        return driver

    @property
    def library(self) -> Path:
        return self.root / LIBRARY

    @property
    def nvidia_smi(self) -> Path:
        return self.root / NVIDIA_SMI

    @property
    def state_file(self) -> Path:
        return self.root / LIBRARY_FOLDER / STATE

    def state(self) -> State:
        """Read the state as it stands."""
        return parse(self.state_file.read_text())

    def calls(self) -> dict[tuple[str, int | None], int]:
        """Count the calls since the driver was laid out, by symbol and GPU (None: to no GPU); none that are zero."""
        numbers = array.array("Q", (self.state_file.with_name(LIVE) / "calls").read_bytes())
        columns: list[int | None] = [*range(MOST_GPUS), None]
        keys = [(call, gpu) for call in CALLS for gpu in columns]
        return {key: number for key, number in zip(keys, numbers, strict=True) if number}

    def calls_to(self, gpu: GpuName) -> int:
        """Count all calls to one GPU, those that looked for it included."""
        number = gpu_number(self.state(), gpu)
        return sum(count for (_, other), count in self.calls().items() if other == number)

    def clients(self) -> tuple[int, ...]:
        """Give the pids of the processes that are initialised, as this process sees them: the kernel tells, not they."""
        about = (self.state_file.with_name(LIVE) / "held").stat()
        rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        pids = {
            int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].split(":")[2] == str(about.st_ino)
        }
        return tuple(sorted(pids))

    def wait_for_clients(self, count: int, within_s: float = 10.0) -> None:
        """Wait until `count` processes are initialised. Raises TimeoutError, naming those that are."""
        deadline = time.monotonic() + within_s
        while len(self.clients()) != count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"clients of the fake NVML are {self.clients()}, should be {count}")
            time.sleep(0.02)

    def resets(self, gpu: GpuName | None = None) -> int:
        """Count the resets that nvidia-smi reported as done, of one GPU or of all."""
        state = self.state()
        numbers = state.gpus if gpu is None else (gpu_number(state, gpu),)
        return sum(int(state.gpus[number]["resets"]) for number in numbers)

    def memory_limits(self, gpu: GpuName) -> dict[str, tuple[int, int, int]]:
        """Give soft limit, hard limit and current use in bytes for each cgroup path that has limits on this GPU."""
        state = self.state()
        rows = (line.split(" ", 5) for line in state.limits)
        number = str(gpu_number(state, gpu))
        return {row[5]: (int(row[2]), int(row[3]), int(row[4])) for row in rows if row[1] == number}


def _put(target: Path, content: bytes, mode: int = 0o644) -> None:
    """Write to a new inode: a process may have the old one mapped."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    pending = Path(name)
    pending.chmod(mode)
    pending.rename(target)


def gpu_number(state: State, gpu: GpuName) -> int:
    for number, values in state.gpus.items():
        if gpu in (number, values["uuid"]):
            return number
    known = ", ".join(f"{number} {values['uuid']}" for number, values in state.gpus.items())
    raise ValueError(f"the fake driver has no GPU {gpu!r}; it has {known or 'none'}")
