"""The one door to nvidia-ml-py: the calls that the NVML child makes, each announced before it is made.

What the binding has for traps ends here. An NVMLError has no hash and cannot be compared with None, so it becomes a
`Refused` with plain values. A function that the driver does not have may come as a class of its own, which is
FunctionNotFound too; text that is not UTF-8 raises UnicodeDecodeError, which is an Unknown answer. Field values are read
into a buffer of our own (agent.host.nvml_fields).
"""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from agent.host.nvml_codes import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    LIBRARY_NOT_FOUND,
    NOT_FOUND,
    UNKNOWN,
    Refused,
)
from agent.host.nvml_fields import Answers, Query

MOST_MIG_DEVICES = 64  # seven today
# nvml.h, NVML_VALUE_NOT_AVAILABLE
NOT_AVAILABLE, NOT_AVAILABLE_WIDE = (1 << 32) - 1, (1 << 64) - 1
# Do not fail where there is no GPU: then zero are counted, which is a finding and not a failure of NVML.
INIT_NO_GPUS = 1

Beat = Callable[[str, int, str], None]
"""Told before each call: the C function, the GPU's index (-1: none) and its PCI address as far as it is known."""


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

    def usable_memory(self, handle: Any) -> int:
        """Give the MiB that programs may use: the card's memory less what the driver keeps for itself."""
        call, function = "nvmlDeviceGetMemoryInfo_v2", pynvml.nvmlDeviceGetMemoryInfo
        said = self._call(call, function, handle, pynvml.nvmlMemory_v2)
        return (int(said.total) - int(said.reserved)) >> 20

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

    # Health

    def fields(self, handle: Any, query: Query) -> Answers:
        """Read all fields of a query; each has a code of its own."""
        query.prepare()
        call = "nvmlDeviceGetFieldValues"
        self._read(call, handle, ctypes.c_int(len(query.keys)), ctypes.byref(query.buffer))
        return query.answers()

    def uint(self, call: str, handle: Any, *arguments: int) -> int | None:
        """Make one of the many calls that give an unsigned int; None where that is NVML's word for "not available"."""
        value = ctypes.c_uint()
        self._read(call, handle, *arguments, ctypes.byref(value))
        return None if value.value == NOT_AVAILABLE else value.value

    def ulonglong(self, call: str, handle: Any, *arguments: int) -> int | None:
        value = ctypes.c_ulonglong()
        self._read(call, handle, *arguments, ctypes.byref(value))
        return None if value.value == NOT_AVAILABLE_WIDE else value.value

    def counter(self, call: str, handle: Any, counter: int, link: int) -> int | None:
        """Give an error counter of a link."""
        return self.ulonglong(call, handle, link, counter)

    def struct(self, call: str, handle: Any, struct: Any) -> Any:
        """Let a call fill a struct, and give that."""
        self._read(call, handle, ctypes.byref(struct))
        return struct

    def remapped_rows(self, call: str, handle: Any) -> tuple[int, ...] | None:
        """Give correctable, uncorrectable, pending, failure."""
        rows = [ctypes.c_uint() for _ in range(4)]
        self._read(call, handle, *map(ctypes.byref, rows))
        return _available(*(row.value for row in rows))

    def histogram(self, call: str, handle: Any) -> tuple[int, ...] | None:
        """Give the number of banks with all, most, some, few and no spare rows left."""
        banks = self.struct(call, handle, pynvml.c_nvmlRowRemapperHistogramValues())
        return _available(banks.max, banks.high, banks.partial, banks.low, banks.none)

    def retired_pages(self, call: str, handle: Any, cause: int) -> int:
        """Count pages retired for a cause: 0 several single-bit errors, 1 a double-bit error."""
        return len(self._call(call, pynvml.nvmlDeviceGetRetiredPages, handle, cause))

    def ecc_mode(self, call: str, handle: Any) -> int:
        return int(self._call(call, pynvml.nvmlDeviceGetEccMode, handle)[0])

    def sram(self, call: str, handle: Any) -> tuple[int | None, int | None, int | None]:
        """Give uncorrected errors of SRAM since the driver was loaded and for ever, and whether they are past the limit."""
        status = self.struct(call, handle, pynvml.c_nvmlEccSramErrorStatus_v1_t())
        volatile = _sum(status.volatileUncParity, status.volatileUncSecDed)
        ever = _sum(status.aggregateUncParity, status.aggregateUncSecDed)
        return volatile, ever, _flag(status.bThresholdExceeded)

    def repair(self, call: str, handle: Any) -> tuple[int | None, int | None]:
        """Tell whether a repair of a memory channel, and of a TPC, is pending."""
        status = self.struct(call, handle, pynvml.c_nvmlRepairStatus_t())
        return _flag(status.bChannelRepairPending), _flag(status.bTpcRepairPending)

    def unrepairable(self, call: str, handle: Any) -> int | None:
        return _flag(self.struct(call, handle, pynvml.c_nvmlUnrepairableMemory_v1_t()).unrepairableMemory)

    def fabric(self, call: str, handle: Any) -> tuple[int, int, int, int, int | None]:
        """Give state, status, clique, health mask and summary, which the older struct does not have."""
        try:
            said = self.struct(call, handle, pynvml.c_nvmlGpuFabricInfo_v3_t())
        except Refused as refused:
            if refused.code != ARGUMENT_VERSION_MISMATCH:
                raise
            said = self.struct(call, handle, pynvml.c_nvmlGpuFabricInfo_v2_t())
        return said.state, said.status, said.cliqueId, said.healthMask, getattr(said, "healthSummary", None)

    def temperature(self, call: str, handle: Any) -> int:
        """Give the temperature of the GPU itself (sensor 0)."""
        struct = pynvml.c_nvmlTemperature_v1_t()
        struct.version, struct.sensorType = pynvml.nvmlTemperature_v1, pynvml.NVML_TEMPERATURE_GPU
        return int(self.struct(call, handle, struct).temperature)

    def margin(self, call: str, handle: Any) -> int:
        struct = pynvml.c_nvmlMarginTemperature_v1_t()
        struct.version = pynvml.nvmlMarginTemperature_v1
        return int(self.struct(call, handle, struct).marginTemperature)

    def utilisation(self, call: str, handle: Any) -> int:
        return int(self.struct(call, handle, pynvml.c_nvmlUtilization_t()).gpu)

    # Events

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

    def _read(self, call: str, *arguments: Any) -> None:
        """Call the C function itself: as the binding's own functions do, without an exception for every refusal."""
        self._beat(call, *self.about)
        try:
            code = pynvml._nvmlGetFunctionPointer(call)(*arguments)
        except pynvml.NVMLError as error:
            raise refusal(call, error.value) from None
        if code:
            raise refusal(call, code)

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


def _available(*values: int) -> tuple[int, ...] | None:
    """Give values that are told together, None where one of them is NVML's word for "not available"."""
    return None if NOT_AVAILABLE in values else values


def _flag(value: int) -> int | None:
    return None if value == NOT_AVAILABLE else int(value)


def _sum(*counts: int) -> int | None:
    return None if NOT_AVAILABLE_WIDE in counts else sum(counts)
