"""What each return code of NVML means (nvmlReturn_t, nvml.h), once for NVML as a whole and once for one GPU.

A code is no opinion: the same Timeout is the normal end of an event wait and trouble from any other call. Here stand the
calls that an agent makes to initialise NVML, to count the GPUs and to identify each. A code that is not in the table is
newer than it, and counts like Unknown (999): suspicious, asked again, then reported.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from checks.observation import NvmlError


class Whole(StrEnum):
    """What it means that NVML as a whole answered so."""

    NOT_LOADED = "the kernel module of the driver is not loaded"
    NO_LIBRARY = "the driver's user space is not there"
    MISMATCH = "library and kernel module are of different versions"
    UNUSABLE = "the driver is there and cannot be used"
    NOT_PERMITTED = "the agent is not allowed to ask"
    REFUSED = "the agent asked in a way that this driver does not know"


class OnGpu(StrEnum):
    """What it means that one GPU's call answered so."""

    LOST = "it fell off the bus or cannot be reached"
    RESET_REQUIRED = "it must be reset before it can be used"
    NO_POWER = "its power cables are not attached as they should be"
    INFOROM = "its persistent configuration memory is damaged"
    SUSPECT = "the driver cannot talk to it as it should"
    REFUSED = "the call was refused for a reason that says nothing of the GPU's health"
    NOT_SHOWN = "this driver, model or permission does not show it"


class Meaning(msgspec.Struct, frozen=True):
    """One row: the name that nvidia-ml-py gives the code, its meaning in both places, and one sentence for people."""

    name: str
    whole: Whole
    gpu: OnGpu
    says: str


MEANINGS: Mapping[int, Meaning] = MappingProxyType(
    {
        1: Meaning("Uninitialized", Whole.REFUSED, OnGpu.REFUSED, "NVML was not initialised, or torn down"),
        2: Meaning("InvalidArgument", Whole.REFUSED, OnGpu.SUSPECT, "a handle or argument is not valid"),
        3: Meaning("NotSupported", Whole.REFUSED, OnGpu.NOT_SHOWN, "the hardware does not have it"),
        4: Meaning("NoPermission", Whole.NOT_PERMITTED, OnGpu.NOT_SHOWN, "the agent lacks the permission"),
        5: Meaning("AlreadyInitialized", Whole.REFUSED, OnGpu.REFUSED, "NVML was initialised before"),
        6: Meaning("NotFound", Whole.UNUSABLE, OnGpu.SUSPECT, "the driver does not find what it counted"),
        7: Meaning("InsufficientSize", Whole.REFUSED, OnGpu.REFUSED, "the buffer was too small"),
        8: Meaning(
            "InsufficientPower", Whole.UNUSABLE, OnGpu.NO_POWER, "a GPU's power cables are not attached"
        ),
        9: Meaning("DriverNotLoaded", Whole.NOT_LOADED, OnGpu.SUSPECT, "the kernel module is not loaded"),
        10: Meaning("Timeout", Whole.UNUSABLE, OnGpu.SUSPECT, "the driver gave up waiting for the hardware"),
        11: Meaning("IrqIssue", Whole.UNUSABLE, OnGpu.SUSPECT, "a GPU's interrupts do not arrive"),
        12: Meaning("LibraryNotFound", Whole.NO_LIBRARY, OnGpu.REFUSED, "libnvidia-ml.so.1 cannot be loaded"),
        13: Meaning("FunctionNotFound", Whole.REFUSED, OnGpu.NOT_SHOWN, "the library lacks the function"),
        14: Meaning("CorruptedInforom", Whole.UNUSABLE, OnGpu.INFOROM, "a GPU's infoROM is damaged"),
        15: Meaning("GpuIsLost", Whole.UNUSABLE, OnGpu.LOST, "a GPU fell off the bus or cannot be reached"),
        16: Meaning("ResetRequired", Whole.UNUSABLE, OnGpu.RESET_REQUIRED, "a GPU must be reset before use"),
        17: Meaning(
            "OperatingSystem", Whole.NOT_PERMITTED, OnGpu.NOT_SHOWN, "the system or a cgroup blocks it"
        ),
        18: Meaning("LibRmVersionMismatch", Whole.MISMATCH, OnGpu.REFUSED, "library and module do not match"),
        19: Meaning("InUse", Whole.UNUSABLE, OnGpu.REFUSED, "somebody else holds the GPU"),
        20: Meaning("Memory", Whole.UNUSABLE, OnGpu.REFUSED, "there is not enough memory"),
        21: Meaning("NoData", Whole.UNUSABLE, OnGpu.REFUSED, "there is no data yet"),
        22: Meaning("VgpuEccNotSupported", Whole.REFUSED, OnGpu.NOT_SHOWN, "a virtual GPU has no ECC here"),
        23: Meaning("InsufficientResources", Whole.UNUSABLE, OnGpu.REFUSED, "the driver is out of resources"),
        24: Meaning("FreqNotSupported", Whole.REFUSED, OnGpu.NOT_SHOWN, "the clock is not supported"),
        25: Meaning(
            "ArgumentVersionMismatch", Whole.REFUSED, OnGpu.NOT_SHOWN, "the driver is too old for it"
        ),
        26: Meaning("Deprecated", Whole.REFUSED, OnGpu.NOT_SHOWN, "the driver no longer has the function"),
        27: Meaning("NotReady", Whole.UNUSABLE, OnGpu.REFUSED, "the driver is not ready yet"),
        28: Meaning("GpuNotFound", Whole.UNUSABLE, OnGpu.SUSPECT, "the driver finds no GPU"),
        29: Meaning("InvalidState", Whole.UNUSABLE, OnGpu.REFUSED, "the state does not admit the call"),
        30: Meaning("ResetTypeNotSupported", Whole.REFUSED, OnGpu.NOT_SHOWN, "the reset is not supported"),
        999: Meaning("Unknown", Whole.UNUSABLE, OnGpu.SUSPECT, "the driver failed inside"),
    }
)


def meaning(error: NvmlError) -> Meaning:
    """Give the meaning of an error; a code that is not known here counts like Unknown."""
    known = MEANINGS.get(error.code)
    if known is not None:
        return known
    unknown = MEANINGS[999]
    return Meaning(error.name, unknown.whole, unknown.gpu, "a code that this version does not know")


def told(error: NvmlError) -> str:
    """Write an error for people: `nvmlInitWithFlags: DriverNotLoaded (9)`."""
    return f"{error.call}: {error.name} ({error.code})"
