"""The one door to nvidia-ml-py: the calls that the NVML child makes, each announced before it is made.

What the binding has for traps ends here. An NVMLError has no hash and cannot be compared with None, so it becomes a
`Refused` with plain values. A function that the driver does not have may come as a class of its own, which is
FunctionNotFound too; text that is not UTF-8 raises UnicodeDecodeError, which is an Unknown answer. Field values are read
into an array of our own with one entry more than asked for, its status preset to an error: NVML was seen to touch the
entry past the last one, and the binding allocates exactly as many as are asked for.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

NOT_FOUND = 6
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
UNKNOWN = 999
MOST_MIG_DEVICES = 64  # seven today
# Do not fail where there is no GPU: then zero are counted, which is a finding and not a failure of NVML.
INIT_NO_GPUS = 1

Beat = Callable[[str, int, str], None]
"""Told before each call: the C function, the GPU's index (-1: none) and its PCI address as far as it is known."""


class Refused(Exception):
    """A call that gave no value: the C function, nvmlReturn_t, and that code's name (nvidia-ml-py's class suffix)."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call = call
        self.code = code
        self.name = name


class Event:
    """One event: `handle` is the device's pointer value, which tells handles apart; `device` is the handle itself."""

    def __init__(self, device: Any, kind: int, data: int) -> None:
        self.device = device
        self.handle = pointer(device)
        self.kind = kind
        self.data = data


def load(path: str) -> None:
    """Let the binding use this very library. Raises Refused where it cannot be loaded."""
    try:
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError as error:
        raise Refused("nvmlInitWithFlags", LIBRARY_NOT_FOUND, "LibraryNotFound") from error


def pointer(handle: Any) -> int:
    """Give a handle's value; two handles are of one device exactly if these are equal."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def pci_address(info: Any) -> str:
    """Write nvmlPciInfo_t as `dddd:bb:dd`."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}"


class Binding:
    """The calls, for one thread. `about` names the GPU that the next calls are to: index and PCI address."""

    def __init__(self, beat: Beat) -> None:
        self._beat = beat
        self.about: tuple[int, str] = (-1, "")

    def rest(self) -> None:
        """Say that this thread is in no call and will be in none for a while."""
        self._beat("", -1, "")

    def init(self) -> None:
        self._call("nvmlInitWithFlags", pynvml.nvmlInitWithFlags, INIT_NO_GPUS)

    def driver_version(self) -> str:
        return _text(self._call("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion))

    def library_version(self) -> str:
        return _text(self._call("nvmlSystemGetNVMLVersion", pynvml.nvmlSystemGetNVMLVersion))

    def count(self) -> int:
        return int(self._call("nvmlDeviceGetCount_v2", pynvml.nvmlDeviceGetCount))

    def by_index(self, index: int) -> Any:
        return self._call("nvmlDeviceGetHandleByIndex_v2", pynvml.nvmlDeviceGetHandleByIndex, index)

    def by_pci(self, pci: str) -> Any:
        function = pynvml.nvmlDeviceGetHandleByPciBusId
        return self._call("nvmlDeviceGetHandleByPciBusId_v2", function, f"{pci}.0")

    def index(self, handle: Any) -> int:
        return int(self._call("nvmlDeviceGetIndex", pynvml.nvmlDeviceGetIndex, handle))

    def pci(self, handle: Any) -> str:
        return pci_address(self._call("nvmlDeviceGetPciInfo_v3", pynvml.nvmlDeviceGetPciInfo_v3, handle))

    def uuid(self, handle: Any) -> str:
        return _text(self._call("nvmlDeviceGetUUID", pynvml.nvmlDeviceGetUUID, handle))

    def serial(self, handle: Any) -> str:
        return _text(self._call("nvmlDeviceGetSerial", pynvml.nvmlDeviceGetSerial, handle))

    def name(self, handle: Any) -> str:
        return _text(self._call("nvmlDeviceGetName", pynvml.nvmlDeviceGetName, handle))

    def minor(self, handle: Any) -> int:
        return int(self._call("nvmlDeviceGetMinorNumber", pynvml.nvmlDeviceGetMinorNumber, handle))

    def mig(self, handle: Any) -> bool:
        """Tell whether MIG is on now; what is pending until a reset does not count."""
        return bool(self._call("nvmlDeviceGetMigMode", pynvml.nvmlDeviceGetMigMode, handle)[0])

    def mig_devices(self, handle: Any) -> list[str]:
        """Give the UUIDs of the MIG devices that this GPU is parted into."""
        function = pynvml.nvmlDeviceGetMaxMigDeviceCount
        most = int(self._call("nvmlDeviceGetMaxMigDeviceCount", function, handle))
        return [
            uuid for place in range(min(most, MOST_MIG_DEVICES)) if (uuid := self._mig_device(handle, place))
        ]

    def _mig_device(self, handle: Any, place: int) -> str:
        function = pynvml.nvmlDeviceGetMigDeviceHandleByIndex
        try:
            device = self._call("nvmlDeviceGetMigDeviceHandleByIndex", function, handle, place)
        except Refused as refused:
            if refused.code == NOT_FOUND:
                return ""  # places are not filled from the first one on
            raise
        return self.uuid(device)

    def field(self, handle: Any, field: int) -> int:
        """Read one field that holds a whole number."""
        (entry,) = self._call("nvmlDeviceGetFieldValues", _field_values, handle, [field])
        member = _MEMBERS.get(int(entry.valueType))
        if entry.nvmlReturn or member is None:
            raise refusal("nvmlDeviceGetFieldValues", entry.nvmlReturn or UNKNOWN)
        return int(getattr(entry.value, member))

    def supported_events(self, handle: Any) -> int:
        function = pynvml.nvmlDeviceGetSupportedEventTypes
        return int(self._call("nvmlDeviceGetSupportedEventTypes", function, handle))

    def event_set(self) -> Any:
        return self._call("nvmlEventSetCreate", pynvml.nvmlEventSetCreate)

    def register(self, handle: Any, kinds: int, event_set: Any) -> None:
        self._call("nvmlDeviceRegisterEvents", pynvml.nvmlDeviceRegisterEvents, handle, kinds, event_set)

    def wait(self, event_set: Any, milliseconds: int) -> Event:
        found = self._call("nvmlEventSetWait_v2", pynvml.nvmlEventSetWait_v2, event_set, milliseconds)
        return Event(found.device, int(found.eventType), int(found.eventData))

    def free(self, event_set: Any) -> None:
        self._call("nvmlEventSetFree", pynvml.nvmlEventSetFree, event_set)

    def _call(self, call: str, function: Callable[..., Any], *arguments: Any) -> Any:
        self._beat(call, *self.about)
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise refusal(call, error.value) from None
        except pynvml.NVMLLibraryMismatchError:
            raise Refused(call, FUNCTION_NOT_FOUND, "FunctionNotFound") from None
        except UnicodeDecodeError:
            raise Refused(call, UNKNOWN, "Unknown") from None


def refusal(call: str, code: int) -> Refused:
    """Make the refusal of a code; one that the binding does not know has no class of its own."""
    name = type(pynvml.NVMLError(code)).__name__
    return Refused(call, int(code), name.removeprefix("NVMLError_") if "_" in name else f"Code{int(code)}")


def _text(value: Any) -> str:
    """Make text safe to hand on: one line, bounded; some functions of the binding give bytes."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(c if c.isprintable() else "?" for c in text[:96])


# nvmlValueType_t, by which member of the union a field is read. Doubles are none of ours.
_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def _field_values(handle: Any, ids: Sequence[int]) -> list[Any]:
    """Read fields as nvmlDeviceGetFieldValues does, into an array that is one entry longer than what is asked for."""
    values = (pynvml.c_nvmlFieldValue_t * (len(ids) + 1))()
    for entry, field in zip(values, [*ids, 0], strict=True):
        entry.fieldId = field
        entry.nvmlReturn = UNKNOWN
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")
    if code := function(handle, ctypes.c_int(len(ids)), ctypes.byref(values)):
        raise pynvml.NVMLError(code)
    return list(values[: len(ids)])
