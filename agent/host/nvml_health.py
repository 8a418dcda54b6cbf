"""What one GPU says of its health in one round, group by group, as checks.gpu_health has it. Plain values for JSON.

Whatever is a field is read in one call with all the others; what only a function tells is asked after that. Some things are
both, and drivers differ in which they have: the field comes first, because it costs nothing, then the function. NVLinks are
not asked while MIG is on, because they then read as down.
"""

from collections.abc import Callable, Mapping
from typing import Any

from agent.host.nvml_asked import RECOVERY_ACTION, Asked, Lost
from agent.host.nvml_links import LINK_COUNT, links

C2C_LINKS, MEMORY_TEMPERATURE, ECC_ENABLED, RETIRED_PENDING = 170, 82, 1, 31
ECC_TOTALS = {
    "volatile_corrected": (3, 0, 0),
    "volatile_uncorrected": (4, 1, 0),
    "aggregate_corrected": (5, 0, 1),
    "aggregate_uncorrected": (6, 1, 1),
}
"""Field, and what nvmlDeviceGetTotalEccErrors takes instead: type and counter."""
RETIRED = {"single_bit": (29, 0), "double_bit": (30, 1)}
"""Field, and the cause that nvmlDeviceGetRetiredPages takes instead."""
REPLAY = 94
PCIE_COUNTERS = {
    "replay_rollover": 95, "l0_to_recovery": 169, "correctable": 173, "nak_received": 174, "receiver": 175,
    "bad_tlp": 176, "nak_sent": 177, "bad_dllp": 178, "non_fatal": 179, "fatal": 180, "unsupported_request": 181,
    "lcrc": 182, "lane": 183,
}  # fmt: skip
THROTTLED_NS = {
    "sw_thermal": 269, "hw_thermal": 270, "power_brake": 271, "power_cap": 74, "thermal": 75, "sync_boost": 76,
    "board_limit": 77, "low_utilization": 78, "reliability": 79, "app_clocks": 80, "base_clocks": 81,
}  # fmt: skip
PLAIN = (
    RECOVERY_ACTION, LINK_COUNT, C2C_LINKS, MEMORY_TEMPERATURE, ECC_ENABLED, RETIRED_PENDING, REPLAY,
    *(field for field, _, _ in ECC_TOTALS.values()), *(field for field, _ in RETIRED.values()),
    *PCIE_COUNTERS.values(), *THROTTLED_NS.values(),
)  # fmt: skip
_CLOCK_SM, _SLOWDOWN = 1, 1


def health_of(gpu: Asked, *, with_links: bool) -> dict[str, Any]:
    """Ask for every group. `with_links`: NVLinks are told as they are. Raises Refused for what concerns the whole driver."""
    said: dict[str, Any] = {}
    readers = {group: read for group, read in GROUPS.items() if with_links or group != "nvlinks"}
    try:
        said["architecture"] = gpu.get_fixed("", "nvmlDeviceGetArchitecture")
        for group, read in readers.items():
            if (value := read(gpu)) is not None:
                said[group] = value
    except Lost as lost:
        for group in readers.keys() - said.keys():
            gpu.errors.setdefault(group, lost.error)
    absent = [group for group in readers if group not in said and group not in gpu.errors]
    return said | {"errors": gpu.errors, "absent": absent}


def remapped(gpu: Asked) -> dict[str, Any] | None:
    rows = gpu.get("remapped", "nvmlDeviceGetRemappedRows", read=gpu.nvml.remapped_rows)
    if rows is None:
        return None
    said = {
        "correctable": rows[0],
        "uncorrectable": rows[1],
        "pending": bool(rows[2]),
        "failure": bool(rows[3]),
    }
    banks = gpu.get("remapped", "nvmlDeviceGetRowRemapperHistogram", read=gpu.nvml.histogram)
    if banks is not None:
        names = ("banks_max", "banks_high", "banks_partial", "banks_low", "banks_none")
        said |= dict(zip(names, banks, strict=True))
    return said


def retired(gpu: Asked) -> dict[str, Any] | None:
    """All of it or nothing: pages without their pending state, or the other way round, would look like none."""
    said: dict[str, Any] = {}
    for name, (field, cause) in RETIRED.items():
        said[name] = gpu.field("retired", field)
        if said[name] is None and "retired" not in gpu.errors:
            read = gpu.nvml.retired_pages
            said[name] = gpu.get("retired", "nvmlDeviceGetRetiredPages", cause, read=read)
    pending = gpu.field("retired", RETIRED_PENDING)
    if pending is None and "retired" not in gpu.errors:
        pending = gpu.get("retired", "nvmlDeviceGetRetiredPagesPendingStatus")
    if pending is None or None in said.values():
        return None
    return said | {"pending": bool(pending)}


def ecc(gpu: Asked) -> dict[str, Any] | None:
    said: dict[str, Any] = {}
    enabled = gpu.field("ecc", ECC_ENABLED)
    if enabled is None and "ecc" not in gpu.errors:
        enabled = gpu.get("ecc", "nvmlDeviceGetEccMode", read=gpu.nvml.ecc_mode)
    for name, (field, kind, counter) in ECC_TOTALS.items():
        said[name] = gpu.field("ecc", field)
        if said[name] is None and enabled and "ecc" not in gpu.errors:
            read = gpu.nvml.ulonglong
            said[name] = gpu.get("ecc", "nvmlDeviceGetTotalEccErrors", kind, counter, read=read)
    sram = gpu.get("ecc", "nvmlDeviceGetSramEccErrorStatus", read=gpu.nvml.sram) or (None, None, None)
    said["sram_volatile_uncorrected"], said["sram_aggregate_uncorrected"], exceeded = sram
    repair = gpu.get("ecc", "nvmlDeviceGetRepairStatus", read=gpu.nvml.repair) or (None, None)
    flags = {
        "enabled": enabled,
        "sram_threshold": exceeded,
        "channel_repair": repair[0],
        "tpc_repair": repair[1],
        "unrepairable": gpu.get("ecc", "nvmlDeviceGetUnrepairableMemoryFlag_v1", read=gpu.nvml.unrepairable),
    }
    said |= {name: None if flag is None else bool(flag) for name, flag in flags.items()}
    return told(said)


def fabric(gpu: Asked) -> dict[str, Any] | None:
    info = gpu.get("fabric", "nvmlDeviceGetGpuFabricInfoV", read=gpu.nvml.fabric)
    if info is None:
        return None
    return dict(zip(("state", "status", "clique", "mask", "summary"), info, strict=True))


def pcie(gpu: Asked) -> dict[str, Any] | None:
    """The generation stands between two readings of the performance state, because it drops while the GPU is idle."""
    said = {
        "pstate_before": gpu.get("pcie", "nvmlDeviceGetPerformanceState"),
        "generation": gpu.get("pcie", "nvmlDeviceGetCurrPcieLinkGeneration"),
        "pstate_after": gpu.get("pcie", "nvmlDeviceGetPerformanceState"),
        "width": gpu.get("pcie", "nvmlDeviceGetCurrPcieLinkWidth"),
        "max_generation": gpu.get_fixed("pcie", "nvmlDeviceGetMaxPcieLinkGeneration"),
        "max_width": gpu.get_fixed("pcie", "nvmlDeviceGetMaxPcieLinkWidth"),
        "device_max_generation": gpu.get_fixed("pcie", "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        "bus_type": gpu.get_fixed("pcie", "nvmlDeviceGetBusType"),
        "c2c_links": gpu.field("pcie", C2C_LINKS),
    }
    counters = {name: gpu.field("pcie", field) for name, field in PCIE_COUNTERS.items()}
    counters["replay"] = gpu.field("pcie", REPLAY)
    if counters["replay"] is None and "pcie" not in gpu.errors:
        counters["replay"] = gpu.get("pcie", "nvmlDeviceGetPcieReplayCounter")
    return told(said, counters=told(counters))


def clocks(gpu: Asked) -> dict[str, Any] | None:
    temperature = gpu.get("clocks", "nvmlDeviceGetTemperatureV", read=gpu.nvml.temperature)
    if temperature is None and "clocks" not in gpu.errors:
        temperature = gpu.get("clocks", "nvmlDeviceGetTemperature", 0)  # older drivers
    persistence = gpu.get("clocks", "nvmlDeviceGetPersistenceMode")
    reasons = "nvmlDeviceGetCurrentClocksEventReasons"
    said = {
        "temperature_c": temperature,
        "reasons": gpu.get("clocks", reasons, read=gpu.nvml.ulonglong),
        "pstate": gpu.get("clocks", "nvmlDeviceGetPerformanceState"),
        "margin_c": gpu.get("clocks", "nvmlDeviceGetMarginTemperature", read=gpu.nvml.margin),
        "slowdown_c": gpu.get_fixed("clocks", "nvmlDeviceGetTemperatureThreshold", _SLOWDOWN),
        "memory_temperature_c": gpu.field("clocks", MEMORY_TEMPERATURE),
        "sm_mhz": gpu.get("clocks", "nvmlDeviceGetClockInfo", _CLOCK_SM),
        "sm_max_mhz": gpu.get_fixed("clocks", "nvmlDeviceGetMaxClockInfo", _CLOCK_SM),
        "sm_app_mhz": gpu.get("clocks", "nvmlDeviceGetApplicationsClock", _CLOCK_SM),
        "utilisation_percent": gpu.get("clocks", "nvmlDeviceGetUtilizationRates", read=gpu.nvml.utilisation),
        "persistence": None if persistence is None else bool(persistence),
    }
    throttled = {name: gpu.field("clocks", field) for name, field in THROTTLED_NS.items()}
    return told(said, throttled_ns=told(throttled))


def told(values: dict[str, Any], **counters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Leave out what was not told; None where nothing was."""
    told = {name: value for name, value in (values | counters).items() if value is not None}
    return told or None


GROUPS: Mapping[str, Callable[[Asked], dict[str, Any] | None]] = {
    "remapped": remapped,
    "retired": retired,
    "ecc": ecc,
    "nvlinks": links,
    "fabric": fabric,
    "pcie": pcie,
    "clocks": clocks,
}
