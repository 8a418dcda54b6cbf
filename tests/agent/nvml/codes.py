"""What each return code of NVML must come to, written down from NVIDIA's words for it (nvml.h, nvmlReturn_t).

Once for an answer of NVML as a whole (initialisation, versions, count), once for an answer about one GPU. Nothing here is
taken from the product, which has a table of its own: the two must agree.
"""

from enum import Enum

import msgspec


class Gpu(Enum):
    """What must be said of one GPU that gives such an answer."""

    NOTHING = "the hardware does not have it: no fault, and nothing open"
    OPEN = "nobody may or can show it here: not evaluated, and no fault"
    DRIVER = "it is about the driver, whichever GPU was asked: NVML as a whole cannot be used"
    LOST = "GpuLost"
    RESET = "GpuResetRequired"
    POWER = "GpuPowerMissing"
    INFOROM = "GpuInforomDamaged"
    FAILS = "GpuCallsFail"
    REFUSES = "GpuCallsRefused"


AT_ONCE = {Gpu.LOST, Gpu.RESET, Gpu.POWER, Gpu.INFOROM}
"""What names its cause needs no second look."""
LASTING = {Gpu.FAILS, Gpu.REFUSES}
"""What names none may pass, and counts once it has lasted."""

NOT_PERMITTED, CALL_REFUSED = "Unknown NvmlNotPermitted", "Unknown NvmlCallRefused"
UNUSABLE = "True NvmlUnusable"


class Row(msgspec.Struct, frozen=True):
    """One code: what it says, GpuDriverFault once NVML as a whole has said so for long, and what one GPU's answer means."""

    code: int
    says: str
    whole: str
    gpu: Gpu


ROWS = (
    Row(1, "nobody initialised NVML", CALL_REFUSED, Gpu.DRIVER),
    Row(2, "an argument is wrong, or a handle is stale", CALL_REFUSED, Gpu.FAILS),
    Row(3, "the hardware cannot do it", CALL_REFUSED, Gpu.NOTHING),
    Row(4, "the caller may not", NOT_PERMITTED, Gpu.OPEN),
    Row(6, "it is not found", UNUSABLE, Gpu.FAILS),
    Row(7, "the buffer is too small", CALL_REFUSED, Gpu.REFUSES),
    Row(8, "power cables are not attached", UNUSABLE, Gpu.POWER),
    Row(9, "the kernel module is not loaded", "True DriverNotLoaded", Gpu.DRIVER),
    Row(10, "the time is up", UNUSABLE, Gpu.FAILS),
    Row(11, "interrupts do not arrive", UNUSABLE, Gpu.FAILS),
    Row(12, "the library is not there", "True LibraryNotFound", Gpu.REFUSES),
    Row(13, "the library lacks the function", CALL_REFUSED, Gpu.NOTHING),
    Row(14, "the infoROM is damaged", UNUSABLE, Gpu.INFOROM),
    Row(15, "the GPU fell off the bus", UNUSABLE, Gpu.LOST),
    Row(16, "the GPU must be reset", UNUSABLE, Gpu.RESET),
    Row(17, "the operating system blocks it", NOT_PERMITTED, Gpu.OPEN),
    Row(18, "library and module do not match", "True LibraryMismatch", Gpu.DRIVER),
    Row(19, "somebody else uses it", UNUSABLE, Gpu.REFUSES),
    Row(20, "memory is short", UNUSABLE, Gpu.REFUSES),
    Row(21, "there is no data", UNUSABLE, Gpu.REFUSES),
    Row(23, "resources are short", UNUSABLE, Gpu.REFUSES),
    Row(25, "the version of the argument is not known", CALL_REFUSED, Gpu.OPEN),
    Row(26, "the function is gone", CALL_REFUSED, Gpu.OPEN),
    Row(27, "it is not ready yet", UNUSABLE, Gpu.REFUSES),
    Row(28, "no such GPU is found", UNUSABLE, Gpu.FAILS),
    Row(29, "the state does not allow it", UNUSABLE, Gpu.REFUSES),
    Row(30, "that reset is not supported", CALL_REFUSED, Gpu.OPEN),
    Row(777, "a code that nobody knows", UNUSABLE, Gpu.FAILS),
    Row(999, "something failed inside", UNUSABLE, Gpu.FAILS),
)

OF_NVML = (
    "nvmlInitWithFlags",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
)
OF_A_GPU = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues",
)
ASKED_ONCE = ("nvmlDeviceGetMemoryInfo_v2",)
"""Asked of a GPU until it answered, which test_child tries."""
OF_MIG = ("nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex")
BY_ADDRESS = ("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetIndex")
"""Asked only where a GPU is left alone, or once a call hung without saying on which."""
OF_HEALTH = (
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRowRemapperHistogram",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetRepairStatus",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetBusType",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetUtilizationRates",
)
"""Asked of an H100 in its first round for its health, beside field values; test_health_refusals says for which group."""
INSTEAD_OF_FIELDS = (
    "nvmlDeviceGetEccMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetTemperature",
)
"""Asked where a GPU or driver does not tell by the newer way."""
OF_EVENTS_OF_A_GPU = ("nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents")
OF_EVENTS = ("nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlEventSetFree")
ALL = (
    *OF_NVML,
    *OF_A_GPU,
    *ASKED_ONCE,
    *OF_HEALTH,
    *INSTEAD_OF_FIELDS,
    *OF_MIG,
    *BY_ADDRESS,
    *OF_EVENTS_OF_A_GPU,
    *OF_EVENTS,
)
"""Every call that the child makes; nvmlShutdown is none of them."""
