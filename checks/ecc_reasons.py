"""Every reason of the condition GpuEccFault, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

UNCORRECTABLE = fault(
    "UncorrectableEcc",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "The GPU counted uncorrectable memory errors: data was lost, and a program that used it was or will be ended",
    "How far an error reached is told by the XID that comes with it (GpuXidError): 94 stayed with its victim, 48 and 95 did "
    "not and take the GPU out by themselves. So nodemend only keeps new work off where it can and resets the GPU once it is "
    "idle, which also puts a row remap into effect. If it comes back after a reset, run NVIDIA's field diagnostic. Errors "
    "that repeat end as SramThresholdExceeded, or in DRAM as a reason of GpuRowRemapFault.",
)
SRAM_THRESHOLD = fault(
    "SramThresholdExceeded",
    Effect.PART_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "The GPU's on-chip memory had more uncorrectable errors than NVIDIA allows for: a ground for its return",
    "No reset ends this: on-chip memory has no spare rows, and the board itself remembers the flag. Run NVIDIA's field "
    "diagnostic and return the board with `nvidia-smi -q -d ECC` (SRAM Threshold Exceeded: Yes) and nvidia-bug-report.sh.",
)
UNREPAIRABLE = fault(
    "UnrepairableMemory",
    Effect.PART_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "The GPU says that its memory has a fault which it cannot repair: a ground for its return",
    "No reset ends this. Run NVIDIA's field diagnostic and return the board (Hopper and newer tell this).",
)
CHANNEL_PENDING = fault(
    "ChannelRepairPending",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "A channel of the GPU's memory is to be replaced by a spare one, which takes effect with the next reset of the GPU",
    "nodemend resets the GPU once it is idle. By hand: end what runs on it, `nvidia-smi --gpu-reset -i INDEX`, or reboot. "
    "It comes with XID 160.",
)
TPC_PENDING = fault(
    "TpcRepairPending",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "A compute unit (TPC) of the GPU is to be replaced by a spare one, which takes effect with the next reset of the GPU",
    "nodemend resets the GPU once it is idle. By hand: end what runs on it, `nvidia-smi --gpu-reset -i INDEX`, or reboot. "
    "It comes with XID 156, which says whether the GPU may be used until then.",
)
UNWATCHED = warning(
    "UncorrectableEccUnwatched",
    "The GPU counted uncorrectable memory errors since its driver was loaded, and nobody watched when",
    "They came before the agent first looked, or were cleared by a person without a reset. Ends with a reset of the GPU; "
    "do that at a quiet time.",
)
CORRECTED_RATE = warning(
    "CorrectedEccRate",
    "The GPU corrects more memory errors than usual; no data is lost",
    "Watch this GPU: much correcting often comes before an uncorrectable error, and costs some bandwidth. Heat makes it "
    "worse. Thresholds: `corrected_limit` within `corrected_window_seconds`.",
)
DISABLED = warning(
    "EccDisabled",
    "Error correction is switched off on this GPU: errors of its memory go by unseen",
    "`nvidia-smi -e 1 -i INDEX` and a reset switch it on. Workstation boards come with it switched off; say "
    "`warn_disabled = false` where that is wanted.",
)
UNREADABLE = warning(
    "EccUnreadable",
    "Memory errors should be readable and are not",
    "The message names the GPU, NVML's call and its answer. Where NVML as a whole is silent, GpuDriverFault says why.",
)
REASONS = (
    SRAM_THRESHOLD,
    UNREPAIRABLE,
    UNCORRECTABLE,
    CHANNEL_PENDING,
    TPC_PENDING,
    UNWATCHED,
    CORRECTED_RATE,
    DISABLED,
)
