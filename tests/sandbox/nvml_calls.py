"""How nvidia-ml-py makes each call that the fake library exports: run inside a program that has loaded the library."""

from collections.abc import Callable
from ctypes import byref
from typing import Any

import pynvml as n

Call = Callable[[Any], Any]


def _remote(struct: Callable[[], Any], function: Callable[..., Any], **first: int) -> Call:
    """Make a call whose struct the caller provides."""

    def call(device: Any) -> Any:
        given = struct()
        for name, value in first.items():
            setattr(given, name, value)
        function(device, byref(given))
        return given

    return call


def _events(_: Any) -> Any:
    n.nvmlEventSetFree(n.nvmlEventSetCreate())


def _waited(device: Any) -> Any:
    events = n.nvmlEventSetCreate()
    try:
        n.nvmlDeviceRegisterEvents(device, n.nvmlEventTypeXidCriticalError, events)
        return n.nvmlEventSetWait_v2(events, 0)
    finally:
        n.nvmlEventSetFree(events)


def _system_waited(_: Any) -> Any:
    events = n.nvmlSystemEventSetCreate(n.nvmlSystemEventSetCreateRequest_v1)
    try:
        n.nvmlSystemRegisterEvents(n.nvmlSystemRegisterEventRequest_v1, 3, events)
        room = (n.c_nvmlSystemEventData_v1_t * 4)()
        return n.nvmlSystemEventSetWait(n.nvmlSystemEventSetWaitRequest_v1, events, 0, room, 4)
    finally:
        n.nvmlSystemEventSetFree(n.nvmlSystemEventSetFreeRequest_v1, events)


def _limits_set(device: Any) -> Any:
    n.nvmlDeviceSetMemoryLimits_v1(device, n.c_nvmlSetMemoryLimits_v1_t(b"/", 0, 1 << 30))


def _limits_got(device: Any) -> Any:
    limits = n.c_nvmlGetMemoryLimits_v1_t(b"/", 0, 0, 0)
    n.nvmlDeviceGetMemoryLimits_v1(device, limits)
    return limits.hardLimit


def _again(_: Any) -> Any:
    n.nvmlInitWithFlags(0)
    n.nvmlShutdown()


def _uuid(device: Any) -> Any:
    return n.nvmlDeviceGetUUID(device).encode()


_pages, _page_pending = (
    n.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    n.nvmlDeviceGetRetiredPagesPendingStatus,
)

# A call that needs another one first (a handle, an event set) makes that too.
TO_DRIVER: dict[str, Call] = {
    "nvmlInitWithFlags": _again,
    "nvmlShutdown": _again,
    "nvmlSystemGetDriverVersion": lambda _: n.nvmlSystemGetDriverVersion(),
    "nvmlSystemGetNVMLVersion": lambda _: n.nvmlSystemGetNVMLVersion(),
    "nvmlSystemGetCudaDriverVersion_v2": lambda _: n.nvmlSystemGetCudaDriverVersion_v2(),
    "nvmlSystemEventSetCreate": _system_waited,
    "nvmlSystemRegisterEvents": _system_waited,
    "nvmlSystemEventSetWait": _system_waited,
    "nvmlSystemEventSetFree": _system_waited,
    "nvmlDeviceGetCount_v2": lambda _: n.nvmlDeviceGetCount(),
    "nvmlEventSetCreate": _events,
    "nvmlEventSetFree": _events,
    "nvmlEventSetWait_v2": _waited,
}
TO_GPU: dict[str, Call] = {
    "nvmlDeviceGetHandleByIndex_v2": lambda d: n.nvmlDeviceGetHandleByIndex(n.nvmlDeviceGetIndex(d)),
    "nvmlDeviceGetHandleByUUID": lambda d: n.nvmlDeviceGetHandleByUUID(_uuid(d)),
    "nvmlDeviceGetHandleByPciBusId_v2": lambda d: n.nvmlDeviceGetHandleByPciBusId(
        n.nvmlDeviceGetPciInfo(d).busId.encode()
    ),
    "nvmlDeviceGetName": n.nvmlDeviceGetName,
    "nvmlDeviceGetUUID": n.nvmlDeviceGetUUID,
    "nvmlDeviceGetSerial": n.nvmlDeviceGetSerial,
    "nvmlDeviceGetBoardPartNumber": n.nvmlDeviceGetBoardPartNumber,
    "nvmlDeviceGetMinorNumber": n.nvmlDeviceGetMinorNumber,
    "nvmlDeviceGetIndex": n.nvmlDeviceGetIndex,
    "nvmlDeviceGetArchitecture": n.nvmlDeviceGetArchitecture,
    "nvmlDeviceGetBrand": n.nvmlDeviceGetBrand,
    "nvmlDeviceGetBusType": n.nvmlDeviceGetBusType,
    "nvmlDeviceGetPciInfo_v3": n.nvmlDeviceGetPciInfo_v3,
    "nvmlDeviceGetPciInfoExt": _remote(
        n.nvmlPciInfoExt_v1_t, n.nvmlDeviceGetPciInfoExt, version=n.nvmlPciInfoExt_v1
    ),
    "nvmlDeviceGetVbiosVersion": n.nvmlDeviceGetVbiosVersion,
    "nvmlDeviceGetPlatformInfo": _remote(n.c_nvmlPlatformInfo_v2_t, n.nvmlDeviceGetPlatformInfo),
    "nvmlDeviceGetRemappedRows": n.nvmlDeviceGetRemappedRows,
    "nvmlDeviceGetRemappedRows_v2": _remote(n.c_nvmlRemappedRowsInfo_v2_t, n.nvmlDeviceGetRemappedRows_v2),
    "nvmlDeviceGetRowRemapperHistogram": n.nvmlDeviceGetRowRemapperHistogram,
    "nvmlDeviceGetBankRemapperStatus_v1": _remote(
        n.c_nvmlEccBankRemapperStatus_v1_t, n.nvmlDeviceGetBankRemapperStatus_v1
    ),
    "nvmlDeviceGetRetiredPages": lambda d: n.nvmlDeviceGetRetiredPages(d, _pages),
    "nvmlDeviceGetRetiredPages_v2": lambda d: n.nvmlDeviceGetRetiredPages_v2(d, _pages),
    "nvmlDeviceGetRetiredPagesPendingStatus": _page_pending,
    "nvmlDeviceGetTotalEccErrors": lambda d: n.nvmlDeviceGetTotalEccErrors(d, 1, 0),
    "nvmlDeviceGetMemoryErrorCounter": lambda d: n.nvmlDeviceGetMemoryErrorCounter(d, 1, 0, 2),
    "nvmlDeviceGetEccMode": n.nvmlDeviceGetEccMode,
    "nvmlDeviceGetSramEccErrorStatus": _remote(
        n.c_nvmlEccSramErrorStatus_v1_t, n.nvmlDeviceGetSramEccErrorStatus
    ),
    "nvmlDeviceGetRepairStatus": n.nvmlDeviceGetRepairStatus,
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": n.nvmlDeviceGetUnrepairableMemoryFlag_v1,
    "nvmlDeviceGetMemoryInfo": n.nvmlDeviceGetMemoryInfo,
    "nvmlDeviceGetMemoryInfo_v2": lambda d: n.nvmlDeviceGetMemoryInfo(d, n.nvmlMemory_v2),
    "nvmlDeviceGetNvLinkState": lambda d: n.nvmlDeviceGetNvLinkState(d, 3),
    "nvmlDeviceGetNvLinkVersion": lambda d: n.nvmlDeviceGetNvLinkVersion(d, 3),
    "nvmlDeviceGetNvLinkCapability": lambda d: n.nvmlDeviceGetNvLinkCapability(d, 35, 0),
    "nvmlDeviceGetNvLinkErrorCounter": lambda d: n.nvmlDeviceGetNvLinkErrorCounter(d, 3, 0),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": lambda d: n.nvmlDeviceGetNvLinkRemotePciInfo(d, 3),
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda d: n.nvmlDeviceGetNvLinkRemoteDeviceType(d, 3),
    "nvmlDeviceGetGpuFabricInfoV": _remote(
        n.c_nvmlGpuFabricInfo_v3_t, n.nvmlDeviceGetGpuFabricInfoV, version=n.nvmlGpuFabricInfo_v3
    ),
    "nvmlDeviceGetFieldValues": lambda d: n.nvmlDeviceGetFieldValues(d, [230, 91, (165, 3)]),
    "nvmlDeviceGetCurrPcieLinkGeneration": n.nvmlDeviceGetCurrPcieLinkGeneration,
    "nvmlDeviceGetMaxPcieLinkGeneration": n.nvmlDeviceGetMaxPcieLinkGeneration,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": n.nvmlDeviceGetGpuMaxPcieLinkGeneration,
    "nvmlDeviceGetCurrPcieLinkWidth": n.nvmlDeviceGetCurrPcieLinkWidth,
    "nvmlDeviceGetMaxPcieLinkWidth": n.nvmlDeviceGetMaxPcieLinkWidth,
    "nvmlDeviceGetPcieReplayCounter": n.nvmlDeviceGetPcieReplayCounter,
    "nvmlDeviceGetPcieSpeed": n.nvmlDeviceGetPcieSpeed,
    "nvmlDeviceGetPcieLinkMaxSpeed": n.nvmlDeviceGetPcieLinkMaxSpeed,
    "nvmlDeviceGetCurrentClocksEventReasons": n.nvmlDeviceGetCurrentClocksEventReasons,
    "nvmlDeviceGetSupportedClocksEventReasons": n.nvmlDeviceGetSupportedClocksEventReasons,
    "nvmlDeviceGetTemperature": lambda d: n.nvmlDeviceGetTemperature(d, 0),
    "nvmlDeviceGetTemperatureV": lambda d: n.nvmlDeviceGetTemperatureV(d, 0),
    "nvmlDeviceGetTemperatureThreshold": lambda d: n.nvmlDeviceGetTemperatureThreshold(d, 1),
    "nvmlDeviceGetMarginTemperature": n.nvmlDeviceGetMarginTemperature,
    "nvmlDeviceGetPerformanceState": n.nvmlDeviceGetPerformanceState,
    "nvmlDeviceGetPersistenceMode": n.nvmlDeviceGetPersistenceMode,
    "nvmlDeviceGetPowerUsage": n.nvmlDeviceGetPowerUsage,
    "nvmlDeviceGetEnforcedPowerLimit": n.nvmlDeviceGetEnforcedPowerLimit,
    "nvmlDeviceGetUtilizationRates": n.nvmlDeviceGetUtilizationRates,
    "nvmlDeviceGetClockInfo": lambda d: n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_SM),
    "nvmlDeviceGetMaxClockInfo": lambda d: n.nvmlDeviceGetMaxClockInfo(d, n.NVML_CLOCK_SM),
    "nvmlDeviceGetApplicationsClock": lambda d: n.nvmlDeviceGetApplicationsClock(d, n.NVML_CLOCK_SM),
    "nvmlDeviceGetMigMode": n.nvmlDeviceGetMigMode,
    "nvmlDeviceGetMaxMigDeviceCount": n.nvmlDeviceGetMaxMigDeviceCount,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda d: n.nvmlDeviceGetMigDeviceHandleByIndex(d, 0),
    "nvmlDeviceIsMigDeviceHandle": n.nvmlDeviceIsMigDeviceHandle,
    "nvmlDeviceGetGpuInstanceId": n.nvmlDeviceGetGpuInstanceId,
    "nvmlDeviceGetComputeInstanceId": n.nvmlDeviceGetComputeInstanceId,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
    "nvmlDeviceGetAttributes_v2": n.nvmlDeviceGetAttributes_v2,
    "nvmlDeviceGetComputeRunningProcesses_v3": n.nvmlDeviceGetComputeRunningProcesses_v3,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": n.nvmlDeviceGetGraphicsRunningProcesses_v3,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": n.nvmlDeviceGetMPSComputeRunningProcesses_v3,
    "nvmlDeviceGetProcessUtilization": lambda d: n.nvmlDeviceGetProcessUtilization(d, 0),
    "nvmlDeviceRegisterEvents": _waited,
    "nvmlDeviceGetSupportedEventTypes": n.nvmlDeviceGetSupportedEventTypes,
    "nvmlDeviceSetMemoryLimits_v1": _limits_set,
    "nvmlDeviceGetMemoryLimits_v1": _limits_got,
}


def code_of(call: Call, device: Any) -> int:
    """Make the call and give the code that came: 0 for Success."""
    try:
        call(device)
    except n.NVMLError as error:
        return int(error.value)
    return 0


def codes(device: Any) -> dict[str, int]:
    """Make every call once."""
    return {name: code_of(call, device) for name, call in (TO_DRIVER | TO_GPU).items()}
