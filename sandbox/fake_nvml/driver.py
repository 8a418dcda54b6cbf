"""The hand that changes the fake driver's state. Programs that use the library see each change at their next call."""

import array
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from sandbox.fake_nvml import statefile
from sandbox.fake_nvml.building import Built, build_all
from sandbox.fake_nvml.profiles import INSTANCES, NOT_SUPPORTED, Instance, Value, attributes, written
from sandbox.fake_nvml.statefile import LIVE, STATE, State, changed, parse
from sandbox.fake_nvml.symbols import CALLS, MOST_GPUS, checked
from sandbox.machine import DRIVER, Gpu

LIBRARY_FOLDER = Path("usr") / "lib" / "x86_64-linux-gnu"
LIBRARY = LIBRARY_FOLDER / "libnvidia-ml.so.1"
NVIDIA_SMI = Path("usr") / "bin" / "nvidia-smi"
GPU_IS_LOST, RESET_REQUIRED, FUNCTION_NOT_FOUND = 15, 16, 13
XID = 8  # the bit of an XID among NVML's events
NOT_ATTRIBUTABLE = 0xFFFFFFFF
GpuName = int | str
"""A GPU: its number among those that the driver was made with, or its UUID. Not NVML's index, which moves."""


class FakeDriver:
    """A driver root on disk, and what its GPUs answer. Several of these, in several processes, may act on one root."""

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
        (live / "calls").write_bytes(bytes(8 * len(CALLS) * (MOST_GPUS + 1)))
        state = State()
        state.settings = {"driver": version, "nvml": f"13.{version}", "cuda": "13000"}
        state.settings |= {"loaded": "1", "epoch": "0", "last_event": "0", "fabric_version": "3"}
        state.gpus = {number: attributes(gpu, number) for number, gpu in enumerate(gpus)}
        statefile.write(self.state_file, state)
        _install(built.library, self.library)
        _install(built.nvidia_smi, self.nvidia_smi)

    @classmethod
    def attach(cls, root: Path) -> "FakeDriver":
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

    # What calls give back

    def answer(self, call: str, code: int, gpu: GpuName | None = None, *, until_reset: bool = False) -> None:
        """Let `call` (`*`: each) of `gpu` (None: of any) give `code`; 0 lets it through where another rule would not.

        `until_reset`: a reset of that GPU ends it.
        """
        self._rule(call, gpu, f"answer {int(code)}", until_reset)

    def hang(
        self,
        call: str,
        gpu: GpuName | None = None,
        *,
        blocks_sigterm: bool = False,
        until_reset: bool = False,
    ) -> None:
        """Let `call` not come back until it is healed; `blocks_sigterm`: the process ignores SIGTERM meanwhile."""
        self._rule(call, gpu, f"hang {int(blocks_sigterm)}", until_reset)

    def omit(self, symbol: str) -> None:
        """Let `symbol` be unknown, as an older driver does not know it."""
        self.answer(symbol, FUNCTION_NOT_FOUND)

    def heal(self, call: str | None = None, gpu: GpuName | None = None) -> None:
        """End what `answer`, `hang` and `omit` began for `call` and `gpu`, None standing for all.

        Without a call also what `lose` and `unload` began.
        """
        with changed(self.state_file) as state:
            number = None if gpu is None else _number(state, gpu)
            state.rules = [rule for rule in state.rules if not _matches(rule, call, number)]
            if call is None:
                for other in state.gpus if number is None else (number,):
                    state.gpus[other] |= {"lost": "0", "reset_required": "0"}
                if number is None:
                    state.settings["loaded"] = "1"

    # What becomes of a GPU

    def lose(self, gpu: GpuName) -> None:
        """Let the GPU fall off the bus: GpuIsLost from every call of it, and from each wait for its events."""
        self.set(gpu, "lost", 1)

    def remove(self, gpu: GpuName) -> None:
        """Take the GPU away, as one that was not found at boot: it is not counted, the others' indices move up."""
        self.set(gpu, "present", 0)

    def put_back(self, gpu: GpuName) -> None:
        """Undo `remove`."""
        self.set(gpu, "present", 1)

    def require_reset(self, gpu: GpuName, *, action: int = 1) -> None:
        """Let the GPU ask for a reset: ResetRequired from most of its calls, `action` in field 230."""
        with changed(self.state_file) as state:
            state.gpus[_number(state, gpu)] |= {"reset_required": "1", "recovery_action": str(action)}

    def set(self, gpu: GpuName, name: str, value: Value) -> None:
        """Set an attribute of `profiles.attributes`, or one of the others that the C sources name.

        None makes it NotSupported; the text `!CODE` makes the calls that read it give that code. Raises ValueError for a
        name that is not one word.
        """
        if not name or name.split() != [name]:
            raise ValueError(f"{name!r} is no name of an attribute: it must be one word")
        with changed(self.state_file) as state:
            state.gpus[_number(state, gpu)][name] = written(value)

    def field(
        self,
        gpu: GpuName,
        field: int,
        value: int,
        *,
        scope: int | None = None,
        kind: str = "uint",
        code: int = 0,
    ) -> None:
        """Let a field value be `value` of the C type `kind` (uint, ulonglong, double, ...), or its own return `code`."""
        with changed(self.state_file) as state:
            number = _number(state, gpu)
            prefix = f"field {number} {field} {'*' if scope is None else scope} "
            state.fields = [line for line in state.fields if not line.startswith(prefix)]
            state.fields.append(f"{prefix}{'code' if code else kind} {code or value}")

    def mig(self, gpu: GpuName, on: bool, instances: Sequence[Instance] = INSTANCES) -> None:
        """Switch MIG on, with `instances`, or off. Raises ValueError for a GPU that has no MIG."""
        with changed(self.state_file) as state:
            number = _number(state, gpu)
            values = state.gpus[number]
            if values["mig_most"] == NOT_SUPPORTED:
                raise ValueError(f"{values['name']} has no MIG")
            for name in [name for name in values if name.startswith("mig.")]:
                del values[name]
            values["mig_mode"] = written((int(on), int(on)))
            for one in instances if on else ():
                values[f"mig.{one.slot}"] = " ".join(map(str, (
                    one.uuid or f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, values['uuid'] + str(one.slot))}",
                    one.gpu_instance, one.compute_instance, one.gpu_slices, one.compute_slices,
                    one.multiprocessors, one.memory,
                )))  # fmt: skip

    def process(
        self,
        gpu: GpuName,
        pid: int,
        *,
        memory: int = 1 << 30,
        kind: str = "c",
        gpu_instance: int = NOT_ATTRIBUTABLE,
        compute_instance: int = NOT_ATTRIBUTABLE,
    ) -> None:
        """Let process `pid` be on the GPU: `kind` c compute, g graphics, m MPS; `memory` in bytes."""
        self.set(gpu, f"process.{kind}.{pid}", (memory, gpu_instance, compute_instance))

    def end_process(self, gpu: GpuName, pid: int) -> None:
        """Undo `process`, whatever its kind."""
        with changed(self.state_file) as state:
            for kind in "cgm":
                state.gpus[_number(state, gpu)].pop(f"process.{kind}.{pid}", None)

    # What happens

    def event(
        self,
        gpu: GpuName,
        kind: int = XID,
        data: int = 0,
        *,
        gpu_instance: int = NOT_ATTRIBUTABLE,
        compute_instance: int = NOT_ATTRIBUTABLE,
    ) -> None:
        """Let an event of bit `kind` happen now, for those that wait for it; `data` is the XID of an XID."""
        with changed(self.state_file) as state:
            rest = f"{_number(state, gpu)} {kind} {data} {gpu_instance} {compute_instance}"
            state.events.append(f"event {_next_event(state)} {rest}")

    def system_event(self, gpu: GpuName, kind: int) -> None:
        """Let the kernel driver be unbound from the GPU (1) or bound to it (2)."""
        with changed(self.state_file) as state:
            state.events.append(f"system {_next_event(state)} {_number(state, gpu)} {kind}")

    # The driver as a whole

    def driver(self, version: str) -> None:
        """Report another driver version."""
        self.setting("driver", version)

    def setting(self, key: str, value: int | str) -> None:
        """Set one of the state's settings, such as `fabric_version` 2 or `touch_past_end` 1."""
        with changed(self.state_file) as state:
            state.settings[key] = str(value)

    def unload(self) -> None:
        """Take the kernel modules out: DriverNotLoaded from every call."""
        self.setting("loaded", 0)

    def load(self) -> None:
        """Undo `unload`."""
        self.setting("loaded", 1)

    def mismatch(self, version: str | None = None) -> None:
        """Replace the driver under those that use it: LibRmVersionMismatch in every process that has the library loaded."""
        with changed(self.state_file) as state:
            state.settings["epoch"] = str(int(state.settings["epoch"]) + 1)
            if version is not None:
                state.settings |= {"driver": version, "nvml": f"13.{version}"}

    def boot(self) -> None:
        """Begin anew as after a reboot: nothing lost, nothing pending, no events; what was removed stays away."""
        with changed(self.state_file) as state:
            state.events.clear()
            state.rules = [rule for rule in state.rules if not rule.endswith(" reset")]
            state.settings["loaded"] = "1"
            for values in state.gpus.values():
                values |= {"lost": "0", "reset_required": "0", "recovery_action": "0"}
                rows = values["remapped_rows"].split()
                if len(rows) == 4:
                    values["remapped_rows"] = written([int(row) for row in (*rows[:2], "0", rows[3])])
                for name in [name for name in values if name.startswith(("process.", "ecc.0.0", "ecc.1.0"))]:
                    del values[name]

    # What was seen

    def calls(self) -> dict[tuple[str, int | None], int]:
        """Count the calls since the driver was laid out, by symbol and GPU (None: to no GPU); none that are zero."""
        numbers = array.array("Q", (self.state_file.with_name(LIVE) / "calls").read_bytes())
        columns: list[int | None] = [*range(MOST_GPUS), None]
        keys = [(call, gpu) for call in CALLS for gpu in columns]
        return {key: number for key, number in zip(keys, numbers, strict=True) if number}

    def calls_to(self, gpu: GpuName) -> int:
        """Count all calls to one GPU, those that looked for it included."""
        number = _number(self.state(), gpu)
        return sum(count for (_, other), count in self.calls().items() if other == number)

    def clients(self) -> tuple[int, ...]:
        """Give the pids of the processes that are initialised, as this process sees them: the kernel tells, not they."""
        about = (self.state_file.with_name(LIVE) / "held").stat()
        held = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
        return tuple(
            sorted({int(row[4]) for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == held})
        )

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
        numbers = state.gpus if gpu is None else (_number(state, gpu),)
        return sum(int(state.gpus[number]["resets"]) for number in numbers)

    def memory_limits(self, gpu: GpuName) -> dict[str, tuple[int, int, int]]:
        """Give soft limit, hard limit and current use in bytes for each cgroup path that has limits on this GPU."""
        state = self.state()
        rows = (line.split(" ", 5) for line in state.limits)
        number = str(_number(state, gpu))
        return {row[5]: (int(row[2]), int(row[3]), int(row[4])) for row in rows if row[1] == number}

    def _rule(self, call: str, gpu: GpuName | None, what: str, until_reset: bool) -> None:
        with changed(self.state_file) as state:
            number = "*" if gpu is None else _number(state, gpu)
            prefix = f"rule {checked(call)} {number} {what.split()[0]} "
            state.rules = [rule for rule in state.rules if not rule.startswith(prefix)]
            state.rules.append(f"rule {call} {number} {what} {'reset' if until_reset else 'heal'}")


def _install(source: Path, target: Path) -> None:
    """Copy to a new inode: a process may have the old one mapped."""
    pending = target.with_name(f".{target.name}")
    shutil.copy(source, pending)
    pending.rename(target)


def _number(state: State, gpu: GpuName) -> int:
    for number, values in state.gpus.items():
        if gpu in (number, values["uuid"]):
            return number
    known = ", ".join(f"{number} {values['uuid']}" for number, values in state.gpus.items())
    raise ValueError(f"the fake driver has no GPU {gpu!r}; it has {known or 'none'}")


def _matches(rule: str, call: str | None, number: int | None) -> bool:
    words = rule.split()
    return call in (None, words[1]) and (number is None or words[2] == str(number))


def _next_event(state: State) -> int:
    number = int(state.settings["last_event"]) + 1
    state.settings["last_event"] = str(number)
    return number
