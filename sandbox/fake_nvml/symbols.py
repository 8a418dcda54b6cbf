"""The calls that the fake library exports, in the order of its counters: read from the list that its C code is made of."""

import re
from pathlib import Path

SOURCES = Path(__file__).with_name("c")
CALLS: tuple[str, ...] = tuple(
    re.findall(r"^CALL\((\w+)\)$", (SOURCES / "calls.def").read_text(), re.MULTILINE)
)
PROGRAM_CALLS = ("nvidia-smi", "nvidia-smi-reset")
"""What the stand-in for nvidia-smi obeys: each run of it, and a reset."""
MOST_GPUS = 16
EVERY_CALL = "*"
"""In place of a call: each that the library exports, but nvmlErrorString."""


def checked(call: str) -> str:
    """Return `call`. Raises ValueError where nothing answers to it."""
    if call != EVERY_CALL and call not in CALLS and call not in PROGRAM_CALLS:
        raise ValueError(f"{call!r} is no call of the fake NVML: a C name such as nvmlDeviceGetName is one")
    return call
