"""Return codes of NVML that the child tells apart (nvmlReturn_t, nvml.h), and how a refusal is written for the agent."""

from typing import Any

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_POWER, DRIVER_NOT_LOADED = (
    1,
    2,
    3,
    6,
    8,
    9,
)
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, CORRUPTED_INFOROM, GPU_IS_LOST, RESET_REQUIRED = 12, 13, 14, 15, 16
LIB_RM_VERSION_MISMATCH, VGPU_ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED, GPU_NOT_FOUND = (
    18,
    22,
    25,
    26,
    28,
)
UNKNOWN = 999
# From any call, these are about the driver and not about the GPU that was asked.
OF_THE_DRIVER = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
# From any call to a GPU, these are about the GPU as a whole and not about what was asked.
OF_THE_GPU = frozenset({INSUFFICIENT_POWER, CORRUPTED_INFOROM, GPU_IS_LOST, RESET_REQUIRED})
# What the hardware, or an older driver, does not have at all: no error, and not asked of this GPU again for a while.
ABSENT = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})
# Of a reading of health also: a struct that an older driver does not know, a function that a newer one has no more.
NOT_SHOWN = ABSENT | {VGPU_ECC_NOT_SUPPORTED, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
# InUse, Memory, NoData, InsufficientResources, NotReady, Unknown: may pass at once.
PASSING = frozenset({19, 20, 21, 23, 27, UNKNOWN})


class Refused(Exception):
    """A call that gave no value: the C function, nvmlReturn_t, and that code's name (nvidia-ml-py's class suffix)."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.call = call
        self.code = code
        self.name = name


def error_of(refused: Refused) -> dict[str, Any]:
    """Write a refusal for JSON."""
    return {"call": refused.call, "code": refused.code, "name": refused.name}
