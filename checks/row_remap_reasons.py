"""Every reason of the condition GpuRowRemapFault, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

PENDING = fault(
    "RowRemapPending",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "A row of the GPU's memory was remapped, and the remap takes effect with the next reset of the GPU",
    "Nothing is lost meanwhile: the driver keeps programs off the faulty page. nodemend keeps new work off where it can and "
    "resets the GPU once it is idle. By hand: end what runs on it, `nvidia-smi --gpu-reset -i INDEX`, or reboot; afterwards "
    "`nvidia-smi -q -d ROW_REMAPPER` says Pending: No.",
)
FAILED = fault(
    "RowRemapFailed",
    Effect.PART_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A row of the GPU's memory could not be remapped: the faulty row stays in use, and whatever lands on it dies",
    "No reset and no reboot ends this. Run NVIDIA's field diagnostic and return the board: the failure flag is NVIDIA's own "
    "criterion. The finding ends once the GPU at this address says that no remap failed (a replaced board).",
)
EXHAUSTED = fault(
    "SpareRowsExhausted",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "Spare rows are used up, in one bank of the GPU's memory or in all of it: the next faulty row there cannot be remapped",
    "The GPU works until its next uncorrectable error there, which then sets the failure flag (RowRemapFailed). Run the "
    "field diagnostic at a quiet time and have the board replaced; work that must not fail belongs elsewhere.",
)
RETIRED_PENDING = fault(
    "RetiredPagesPending",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "A page of the GPU's memory is to be retired, which takes effect when the driver takes up the GPU anew (before Ampere)",
    "Until then programs may be given the faulty page. nodemend resets the GPU once it is idle. By hand: end what runs on "
    "it, then reset it, load the driver anew or reboot; `nvidia-smi -q -d PAGE_RETIREMENT` then says Pending: No.",
)
RETIRED_LIMIT = fault(
    "RetiredPagesLimit",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "So many pages of the GPU's memory were retired that the next faulty one may not be (before Ampere)",
    "The driver retires 64 pages at most; many retired by double-bit errors mean memory that goes on failing. Run the "
    "field diagnostic and have the board replaced. Thresholds: `retired_pages`, `retired_double_bit`.",
)
SPARE_LOW = warning(
    "SpareRowsLow",
    "Many rows of the GPU's memory were remapped, or a bank has few spare rows left",
    "Nothing has to be done now. A GPU whose number goes on growing will end as SpareRowsExhausted: plan its replacement. "
    "`nvidia-smi -q -d ROW_REMAPPER` shows the banks.",
)
UNREADABLE = warning(
    "RowRemapUnreadable",
    "Row remaps or retired pages should be readable and are not",
    "The message names the GPU, NVML's call and its answer. Where NVML as a whole is silent, GpuDriverFault says why.",
)
REASONS = (FAILED, EXHAUSTED, PENDING, RETIRED_PENDING, RETIRED_LIMIT, SPARE_LOW)
