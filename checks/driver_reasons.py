"""Every reason of the condition GpuDriverFault, and which return code of NVML leads to which."""

from collections.abc import Mapping
from types import MappingProxyType

from checks.finding import Action, Effect, Reason, Urgency
from checks.nvml_error import OnGpu, Whole
from checks.reason_rows import fault, warning

_FRESH = "Judged in a process that was started after the trouble began, and only after the grace period."


DRIVER_NOT_LOADED = fault(
    "DriverNotLoaded",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "GPUs are on the PCI bus and the driver's kernel module is not loaded",
    f"No pod can use a GPU here, and none that did is left. {_FRESH} nodemend drains and reboots. Look at `lsmod`, at the "
    "kernel log for why the module did not load (a kernel without a matching module, secure boot, nouveau), and at the "
    "driver pod of GPU Operator.",
)
LIBRARY_NOT_FOUND = fault(
    "LibraryNotFound",
    Effect.NODE_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "The driver's user space (libnvidia-ml.so.1) is not under the driver root",
    f"Either the driver is not installed, or the agent looks in the wrong place: compare `[nvml] driver_root` in agent.toml "
    f"with the machine (the host's own root, or /run/nvidia/driver for a driver pod). {_FRESH} A reboot installs nothing, "
    "so a person decides. Where all nodes say so at once, it is the configuration.",
)
LIBRARY_MISMATCH = fault(
    "LibraryMismatch",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "The driver's user space and its kernel module are of different versions",
    "The driver was upgraded on disk and the old module is still loaded: what runs goes on, and nothing new can start. "
    f"{_FRESH} nodemend takes no new work, lets running work end and reboots, which loads the new module.",
)
PROBE_HUNG = fault(
    "ProbeHung",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "A call to the driver does not come back",
    "The message names the call and the GPU. The process that asked hangs in the kernel for longer than `hung_seconds`, or "
    "a second one hung as well, or the GPU is left alone since. nvidia-smi will hang too: do not start it in a loop. "
    "nodemend drains and reboots; a machine that hangs in its shutdown needs its power cycled.",
)
NVML_UNUSABLE = fault(
    "NvmlUnusable",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "The driver is loaded and NVML cannot be used",
    f"The message names the call and NVML's error. {_FRESH} The device plugin asks the same library, so nothing new can "
    "start; nothing says that running work is harmed, so it may end first. nodemend then reboots. Collect "
    "nvidia-bug-report.sh before that if it comes back.",
)
RESET_REQUIRED = fault(
    "GpuResetRequired",
    Effect.PART_OUT,
    Urgency.NOW,
    Action.RESET_GPU,
    "The driver says that a GPU must be reset before it can be used",
    "Nothing runs on that GPU until it is reset, so there is nothing to wait for. nodemend fences it, drains what holds it "
    "and resets it; where a reset is not possible it reboots.",
)
NO_POWER = fault(
    "GpuPowerMissing",
    Effect.PART_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "The driver says that a GPU's power cables are not attached as they should be",
    "No software step helps. Have the auxiliary power of the card looked at.",
)
GPU_CALLS_FAIL = fault(
    "GpuCallsFail",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "NVML works, and a GPU answers calls with errors that name no cause",
    "The message names the call and the error, which lasted for longer than `gpu_errors_seconds`. What runs goes on, new "
    "work goes elsewhere, and nothing is repaired on a guess. Read the kernel log; try a reset when the GPU is idle.",
)
INFOROM_DAMAGED = warning(
    "GpuInforomDamaged",
    "The driver says that a GPU's infoROM is damaged",
    "The GPU works; its own record of its errors does not. Have it flashed or replaced by the vendor at a quiet time.",
)
GPU_CALLS_REFUSED = warning(
    "GpuCallsRefused",
    "A GPU's call is refused for a reason that says nothing of its health",
    "The message names the call and the error (out of memory, not ready, in use, not initialised), which lasted. If it "
    "stays, report it with the agent's log.",
)

WHOLE_REASONS: Mapping[Whole, Reason] = MappingProxyType(
    {
        Whole.NOT_LOADED: DRIVER_NOT_LOADED,
        Whole.NO_LIBRARY: LIBRARY_NOT_FOUND,
        Whole.MISMATCH: LIBRARY_MISMATCH,
        Whole.UNUSABLE: NVML_UNUSABLE,
    }
)
"""The reason of each meaning for NVML as a whole; a meaning that is not here is no fault of the machine."""

GPU_REASONS: Mapping[OnGpu, Reason] = MappingProxyType(
    {
        OnGpu.RESET_REQUIRED: RESET_REQUIRED,
        OnGpu.NO_POWER: NO_POWER,
        OnGpu.INFOROM: INFOROM_DAMAGED,
        OnGpu.SUSPECT: GPU_CALLS_FAIL,
        OnGpu.REFUSED: GPU_CALLS_REFUSED,
    }
)
"""The reason of each meaning for one GPU. A lost GPU is GpuMissing's; what is not shown is not evaluated."""

REASONS = (
    *(DRIVER_NOT_LOADED, PROBE_HUNG, LIBRARY_MISMATCH, NVML_UNUSABLE, LIBRARY_NOT_FOUND),
    *(RESET_REQUIRED, NO_POWER, GPU_CALLS_FAIL, INFOROM_DAMAGED, GPU_CALLS_REFUSED),
)

DRIVER_UPGRADE = warning(
    "DriverUpgrade",
    "The driver was released, so that somebody can work on it: an upgrade, or a repair of ours",
    "The message names who asked. The agent holds no handle and asks nothing until it is over. Look at the label "
    "nvidia.com/gpu-driver-upgrade-state and at the driver pod where it does not end.",
)
DRIVER_STARTING = warning(
    "DriverStarting",
    "NVML cannot be used, and the grace period is not over",
    "Normal while a machine boots or a driver pod installs the driver. It turns into a fault after `grace_seconds`, and "
    "ends once NVML has answered for `settle_seconds`.",
)
PROBE_OVERDUE = warning(
    "ProbeOverdue",
    "A call to the driver has not come back, or a GPU's calls fail, and it is not yet sure that this lasts",
    "The message names the call. It turns into a fault when it lasts, or passes.",
)
NOT_PERMITTED = warning(
    "NvmlNotPermitted",
    "The agent is not allowed to ask NVML",
    "The message names the call. The agent's pod must be privileged and see the devices of the driver root. It says nothing "
    "about the GPUs.",
)
CALL_REFUSED = warning(
    "NvmlCallRefused",
    "NVML refuses the agent's way of asking",
    "The message names the call. The driver is too old for this agent, or this is a defect of the agent: report it with "
    "both versions. It says nothing about the GPUs.",
)
NVML_SILENT = warning(
    "NvmlSilent",
    "No word of NVML came for a while",
    "Passes within a minute of the agent's start. Where it stays, look at the agent's own log.",
)
UNKNOWN_REASONS = (
    *(DRIVER_UPGRADE, DRIVER_STARTING, PROBE_OVERDUE, NOT_PERMITTED, CALL_REFUSED, NVML_SILENT),
)
UNKNOWN_OF_WHOLE: Mapping[Whole, Reason] = MappingProxyType(
    {Whole.NOT_PERMITTED: NOT_PERMITTED, Whole.REFUSED: CALL_REFUSED}
)
