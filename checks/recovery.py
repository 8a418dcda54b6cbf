"""What the driver itself wants done to a GPU, in one set of words: from XID 154 and from NVML's field 230.

`GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`. Drivers agree on the numbers and not on the
texts (610 writes PF FLR and OS Reboot), and print numbers that they do not explain: number and text have to fit together,
else the action is UNKNOWN, which decides nothing. Sources: driver 595 GPU_RECOVERY_ACTION and nvml.h; driver 610 logs.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

CODE = 154


class Recovery(StrEnum):
    """What the driver wants done to a GPU. NONE is its word that the GPU has recovered."""

    NONE = "NONE"
    RESET_GPU = "RESET_GPU"
    RESTART_BM = "RESTART_BM"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    UNKNOWN = "UNKNOWN"


# Numbers 0 to 4 mean the same in every driver that prints them, whatever text stands beside them.
_PRINTED: Mapping[int, Recovery] = MappingProxyType(
    dict(
        enumerate(
            (
                Recovery.NONE,
                Recovery.RESET_GPU,
                Recovery.RESTART_BM,
                Recovery.DRAIN_P2P,
                Recovery.DRAIN_AND_RESET,
            )
        )
    )
)
# nvml.h: 5 is to recover the IMEX domain, which is not done to a GPU; 6 a bus reset, 7 a system reboot.
_POLLED: Mapping[int, Recovery] = MappingProxyType(
    {**_PRINTED, 5: Recovery.UNKNOWN, 6: Recovery.RESET_GPU, 7: Recovery.RESTART_BM}
)
_TEXTS: Mapping[str, Recovery] = MappingProxyType(
    {
        "none": Recovery.NONE,
        "gpu reset required": Recovery.RESET_GPU,
        "gpu reset": Recovery.RESET_GPU,
        "reset": Recovery.RESET_GPU,
        "pf flr": Recovery.RESET_GPU,
        "bus reset": Recovery.RESET_GPU,
        "node reboot required": Recovery.RESTART_BM,
        "node reboot": Recovery.RESTART_BM,
        "os reboot": Recovery.RESTART_BM,
        "system reboot": Recovery.RESTART_BM,
        "reboot": Recovery.RESTART_BM,
        "drain p2p": Recovery.DRAIN_P2P,
        "drain and reset": Recovery.DRAIN_AND_RESET,
        "drain p2p + reset": Recovery.DRAIN_AND_RESET,
        "recover imex domain": Recovery.UNKNOWN,
        "unknown": Recovery.UNKNOWN,
    }
)
_CHANGED = re.compile(
    r"recovery action changed\b.*\bto\s+(?:0x(?P<number>[0-9a-f]{1,8})\b)?\s*(?:\((?P<text>[^()]{0,64})(?P<whole>\)?))?",
    re.IGNORECASE | re.DOTALL,
)


def of_number(number: int) -> Recovery:
    """Read the value of NVML's field 230 (GET_GPU_RECOVERY_ACTION)."""
    return _POLLED.get(number, Recovery.UNKNOWN)


def of_text(text: str) -> Recovery:
    """Read the new action from the text of an XID 154; UNKNOWN where the line is cut off or contradicts itself."""
    found = _CHANGED.search(text)
    if found is None:
        return Recovery.UNKNOWN
    told = " ".join((found["text"] or "").lower().split())
    by_text = _TEXTS.get(told) if found["whole"] else None
    if found["number"] is None:
        return by_text or Recovery.UNKNOWN
    number = int(found["number"], 16)
    by_number = _PRINTED.get(number)
    if by_number is None:
        return by_text if by_text is not None and by_text == _POLLED.get(number) else Recovery.UNKNOWN
    return by_number if by_text in {None, by_number} else Recovery.UNKNOWN
