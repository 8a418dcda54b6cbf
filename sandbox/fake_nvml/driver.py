"""The hand that changes the fake driver's state. Programs that use the library see each change at their next call."""

import uuid
from collections.abc import Sequence

from sandbox.fake_nvml.profiles import INSTANCES, NOT_SUPPORTED, Instance, Value, written
from sandbox.fake_nvml.root import DriverRoot, GpuName, gpu_number
from sandbox.fake_nvml.statefile import State, changed
from sandbox.fake_nvml.symbols import checked

FUNCTION_NOT_FOUND = 13
XID = 8  # the bit of an XID among NVML's events
NOT_ATTRIBUTABLE = 0xFFFFFFFF


class FakeDriver(DriverRoot):
    """A driver root on disk, and what its GPUs answer. Several of these, in several processes, may act on one root."""

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
            number = None if gpu is None else gpu_number(state, gpu)
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
            state.gpus[gpu_number(state, gpu)] |= {"reset_required": "1", "recovery_action": str(action)}

    def set(self, gpu: GpuName, name: str, value: Value) -> None:
        """Set an attribute of `profiles.attributes`, or one of the others that the C sources name.

        None makes it NotSupported; the text `!CODE` makes the calls that read it give that code. Raises ValueError for a
        name that is not one word.
        """
        if not name or name.split() != [name]:
            raise ValueError(f"{name!r} is no name of an attribute: it must be one word")
        with changed(self.state_file) as state:
            state.gpus[gpu_number(state, gpu)][name] = written(value)

    def field(
        self,
        gpu: GpuName,
        field: int,
        value: float,
        *,
        scope: int | None = None,
        kind: str = "uint",
        code: int = 0,
    ) -> None:
        """Let a field value be `value` of the C type `kind` (uint, ulonglong, double, ...), or its own return `code`."""
        with changed(self.state_file) as state:
            number = gpu_number(state, gpu)
            prefix = f"field {number} {field} {'*' if scope is None else scope} "
            state.fields = [line for line in state.fields if not line.startswith(prefix)]
            state.fields.append(f"{prefix}{'code' if code else kind} {code or value}")

    def mig(self, gpu: GpuName, on: bool, instances: Sequence[Instance] = INSTANCES) -> None:
        """Switch MIG on, with `instances`, or off. Raises ValueError for a GPU that has no MIG."""
        with changed(self.state_file) as state:
            number = gpu_number(state, gpu)
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
                state.gpus[gpu_number(state, gpu)].pop(f"process.{kind}.{pid}", None)

    def use_memory(self, gpu: GpuName, cgroup: str, used: int) -> None:
        """Let the processes of a cgroup that has limits use `used` bytes. Raises ValueError for one that has none."""
        with changed(self.state_file) as state:
            prefix = f"limit {gpu_number(state, gpu)} "
            for place, line in enumerate(state.limits):
                words = line.split(" ", 5)
                if line.startswith(prefix) and words[5] == cgroup:
                    state.limits[place] = " ".join((*words[:4], str(used), cgroup))
                    return
            raise ValueError(f"{cgroup} has no memory limits on GPU {gpu}")

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
            rest = f"{gpu_number(state, gpu)} {kind} {data} {gpu_instance} {compute_instance}"
            state.events.append(f"event {_next_event(state)} {rest}")

    def system_event(self, gpu: GpuName, kind: int) -> None:
        """Let the kernel driver be unbound from the GPU (1) or bound to it (2)."""
        with changed(self.state_file) as state:
            state.events.append(f"system {_next_event(state)} {gpu_number(state, gpu)} {kind}")

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
                _begin_anew(values)

    def _rule(self, call: str, gpu: GpuName | None, what: str, until_reset: bool) -> None:
        with changed(self.state_file) as state:
            number = "*" if gpu is None else gpu_number(state, gpu)
            prefix = f"rule {checked(call)} {number} {what.split()[0]} "
            state.rules = [rule for rule in state.rules if not rule.startswith(prefix)]
            state.rules.append(f"rule {call} {number} {what} {'reset' if until_reset else 'heal'}")


def _matches(rule: str, call: str | None, number: int | None) -> bool:
    words = rule.split()
    return call in (None, words[1]) and (number is None or words[2] == str(number))


def _next_event(state: State) -> int:
    number = int(state.settings["last_event"]) + 1
    state.settings["last_event"] = str(number)
    return number


def _begin_anew(values: dict[str, str]) -> None:
    """Do to a GPU what a boot does, which is what a reset does (`c/smi_reset.c`) and more."""
    values |= {"lost": "0", "reset_required": "0", "recovery_action": "0", "persistence": "1"}
    for name, volatile in (("remapped_rows", (2,)), ("sram", (3, 4, 5))):
        numbers = values[name].split()
        values[name] = " ".join("0" if place in volatile else number for place, number in enumerate(numbers))
    if values["retired_pending"] != NOT_SUPPORTED:
        values["retired_pending"] = "0"
    for name in [name for name in values if name.startswith("nvlink_errors.")]:
        values[name] = " ".join("0" if number.isdigit() else number for number in values[name].split())
    for name in [
        name for name in values if name.startswith(("process.", "utilization.", "ecc.0.0", "ecc.1.0"))
    ]:
        del values[name]
