"""Every reason of the condition GpuThrottled, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Reason, Urgency
from checks.reason_rows import fault, warning


def _slowed(name: str, summary: str, runbook: str) -> Reason:
    return fault(name, Effect.PREFER_NOT, Urgency.PERSON, Action.CONTACT_SUPPORT, summary, runbook)


HW_THERMAL = _slowed(
    "HwThermalSlowdown",
    "The GPU's hardware halves its clocks, or worse, because it is too hot",
    "Look at fans, pumps, blocked air or coolant, the inlet temperature and the neighbours: one GPU alone points at its "
    "heat sink or cold plate, all of a node at its fans, many nodes at the room (`nvidia-smi -q -d TEMPERATURE`).",
)
POWER_BRAKE = _slowed(
    "PowerBrake",
    "The machine tells the GPU to halve its clocks, or worse, because its power supply is at its limit (power brake)",
    "The signal comes from outside of the GPU: look at the power supplies, their redundancy and the BMC's log, and at the "
    "limit of the rack. One GPU alone points at its board or its power cable.",
)
HW_SLOWDOWN = _slowed(
    "HwSlowdown",
    "The GPU's hardware halves its clocks, or worse, and names neither heat nor power brake as the cause",
    "Older drivers and boards name no cause. Look at temperature and power as for HwThermalSlowdown and PowerBrake.",
)
SW_THERMAL = _slowed(
    "SwThermalSlowdown",
    "The driver lowers the GPU's clocks most of the time, to keep its core or its memory below the highest temperature",
    "Nothing is in danger, and the GPU is slower than its neighbours: a job over many GPUs waits for it. Look at the "
    "cooling as for HwThermalSlowdown; `nvidia-smi -q -d TEMPERATURE` tells whether the memory is the hotter one.",
)
PINNED = warning(
    "PinnedClocks",
    "The GPU works far below its highest clock, and no limit of heat or power explains it: somebody set its clocks",
    "`nvidia-smi -q -d CLOCK` shows application clocks; `nvidia-smi -rgc` and `nvidia-smi -rac` take locked and application "
    "clocks back. Where that is wanted, lower `pinned_percent`.",
)
HOT = warning(
    "TemperatureNearLimit",
    "The GPU is within a few degrees of the temperature at which it slows itself down",
    "Look at its cooling before it does: see HwThermalSlowdown.",
)
UNREADABLE = warning(
    "ThrottleUnreadable",
    "Why and for how long the GPU was slowed down should be readable and is not",
    "The message names the GPU, NVML's call and its answer. Where NVML as a whole is silent, GpuDriverFault says why.",
)
REASONS = (HW_THERMAL, POWER_BRAKE, HW_SLOWDOWN, SW_THERMAL, PINNED, HOT)
