"""Every reason of the condition GpuPcieDegraded, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

_RETRAIN = (
    "nodemend lets running work finish and then reboots the node, which trains the link anew; if it comes back, a person is "
    "paged: reseat the card, riser or cable that the addresses name, then replace it."
)
_LOOK = "`lspci -vvv -s ADDRESS | grep -e LnkCap -e LnkSta`, also for the bridge that the message names."

UNRESPONSIVE = fault(
    "PcieDeviceUnresponsive",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "A GPU or NVSwitch, or a bridge above it, does not answer on the PCI bus: its registers read all ones",
    "XID 79 and GpuLost usually stand beside it. nodemend takes the node out, drains it and reboots it. If the device is "
    "away again after that: power, riser, seat, then replacement.",
)
WIDTH_REDUCED = fault(
    "PcieWidthReduced",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A PCIe link runs with fewer lanes than both of its ends can",
    f"The message names the link: the device's own, or one between bridges above it, which all below share. "
    f"{_RETRAIN} {_LOOK}",
)
SPEED_REDUCED = fault(
    "PcieSpeedReduced",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A PCIe link runs at a lower speed than both of its ends can while the GPU is awake",
    f"{_RETRAIN} {_LOOK} Where firmware lowers the speed of links by load (AMD: PCIe Speed PMM Control), make it static, or "
    "set `sysfs_speed = false`.",
)
FATAL_ERRORS = fault(
    "PcieFatalErrors",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "Fatal PCIe errors were counted at a GPU, an NVSwitch or a bridge above it: the link was not reliable",
    f"The message names the errors as AER does, and where. Ends when a window passed calm. {_RETRAIN} {_LOOK}",
)
NON_FATAL_ERRORS = fault(
    "PcieNonFatalErrors",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "PCIe transactions were lost at a GPU, an NVSwitch or a bridge above it, on a link that goes on working",
    f"The message names the errors as AER does, and where. Ends when a window passed calm. {_LOOK} CmpltTO is a device that "
    "did not answer in time, MalfTLP and ECRC are data that were damaged.",
)
REPLAY_STORM = fault(
    "PcieReplayStorm",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A GPU's PCIe link repeats more packets than its specified error rate allows",
    f"The link is noisy, so transfers are slow. Ends when a window passed calm. {_LOOK} Reseat the card or its riser.",
)
SLOT_LIMITED = warning(
    "PcieSlotLimited",
    "A device can do more than the slot that it is in",
    "The slot, riser or firmware setting allows fewer lanes or a lower speed than the card. Nothing is broken if this is "
    "how the machine was bought; compare with another one of its kind.",
)
CORRECTABLE_STORM = warning(
    "PcieCorrectableStorm",
    "A PCIe link mends more errors than its specified error rate allows",
    f"Nothing is lost; the link is noisy. {_LOOK} Reseat the card or its riser when there is an occasion.",
)
UNREADABLE = warning(
    "PcieUnreadable",
    "PCIe links cannot be read, in sysfs or through NVML",
    "The message names the file or call. A pod needs the host's /sys (agent.toml, roots.sys); for NVML see GpuDriverFault.",
)

REASONS = (
    UNRESPONSIVE,
    WIDTH_REDUCED,
    SPEED_REDUCED,
    FATAL_ERRORS,
    NON_FATAL_ERRORS,
    REPLAY_STORM,
    SLOT_LIMITED,
    CORRECTABLE_STORM,
)
BUS_REASONS = tuple(reason for reason in REASONS if reason is not REPLAY_STORM)
NVML_REASONS = (WIDTH_REDUCED, SPEED_REDUCED, FATAL_ERRORS, NON_FATAL_ERRORS, REPLAY_STORM, SLOT_LIMITED)
