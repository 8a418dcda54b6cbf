"""Every reason of the condition GpuNvLinkDegraded, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

_RESET = (
    "nodemend lets running work finish and then resets the GPU (on machines with NVSwitches all of them, by a reboot); if "
    "it comes back, a person is paged."
)
_LOOK = "`nvidia-smi nvlink -s -i GPU`, `nvidia-smi nvlink -e -i GPU`; XID 74, 136, 144-150 and SXIDs in the kernel log."

LINK_DOWN = fault(
    "NvLinkDown",
    Effect.NO_MULTI_GPU,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "NVLinks of a GPU that should be active are not: work on several GPUs is slow or fails",
    f"The message names the links, or the node where no GPU has one, which is Fabric Manager: `systemctl status "
    f"nvidia-fabricmanager` and its log. {_RESET} {_LOOK} A link that stays down: baseboard, tray or cable.",
)
COUNT_BELOW = fault(
    "NvLinkCountBelowExpected",
    Effect.NO_MULTI_GPU,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "A GPU has fewer NVLinks than it should have",
    f"The message names both numbers and who says what is expected. {_RESET} `nvidia-smi nvlink -s -i GPU`; a driver option "
    "(NVreg_NvLinkDisable) takes them all away.",
)
SPEED_REDUCED = fault(
    "NvLinkSpeedReduced",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "NVLinks run below the rate that they should have",
    f"The message names the links and both rates. {_RESET} {_LOOK}",
)
LINK_ERRORS = fault(
    "NvLinkErrors",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "NVLinks count errors that are more than noise",
    f"The message names links and counters, the evidence the numbers. Ends when a window passed calm. {_RESET} {_LOOK} The "
    "same link again: baseboard, tray, cable or cartridge; look at the GPU on its other end, too.",
)
FABRIC_NOT_READY = fault(
    "FabricNotReady",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "GPUs are not registered with the fabric, so CUDA does not start (error 802) or GPUs cannot reach each other",
    "Stands when registration has taken longer than a boot allows. nodemend takes the node out, drains it and reboots it. "
    "`systemctl status nvidia-fabricmanager`, its log /var/log/fabricmanager.log, and whether its version is the driver's: "
    "another one does not start.",
)
FABRIC_FAILED = fault(
    "FabricFailed",
    Effect.PART_OUT,
    Urgency.NOW,
    Action.RESET_GPU,
    "The fabric refused the registration of a GPU",
    "The message holds the code (nvmlReturn_t). nodemend takes the GPU out and resets it, which registers it anew. Then "
    "Fabric Manager's log; on NVL72 the state of the rack's NMX controller.",
)
FABRIC_UNHEALTHY = fault(
    "FabricUnhealthy",
    Effect.NO_MULTI_GPU,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "The fabric says that a GPU's routes or its configuration are wrong",
    f"The message says which field of the health mask is bad. {_RESET} A wrong GUID, chassis or location: a person compares "
    "the tray with its rack.",
)
FABRIC_LIMITED = fault(
    "FabricLimited",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A GPU works in its fabric with less than its full bandwidth",
    "Links or switches between it and its peers are lost. The switch side knows which: Fabric Manager's log or the NMX "
    "controller. Plan the tray's or switch's repair; collectives over this GPU are slow until then.",
)
FABRIC_UNMANAGED = warning(
    "FabricUnmanaged",
    "The fabric's manager is disconnected from a GPU or gave it no partition",
    "What runs goes on with the routes that stand, but nothing would be repaired now. Look at the fabric's manager.",
)
ERRORS_FEW = warning(
    "NvLinkErrorsFew",
    "NVLinks count errors, fewer than what has been seen to matter",
    f"Nothing has to be done for one GPU. One link again and again is the first to look at when work is slow. {_LOOK}",
)
UNREADABLE = warning(
    "NvLinkUnreadable",
    "The NVLinks or the fabric state of a GPU cannot be read",
    "The message says which call failed and how, or that NVML is not there (see GpuDriverFault). Passes with its cause.",
)

LINK_REASONS = (LINK_DOWN, COUNT_BELOW, SPEED_REDUCED, LINK_ERRORS, ERRORS_FEW)
FABRIC_REASONS = (FABRIC_NOT_READY, FABRIC_FAILED, FABRIC_UNHEALTHY, FABRIC_LIMITED, FABRIC_UNMANAGED)
REASONS = (*LINK_REASONS, *FABRIC_REASONS)
