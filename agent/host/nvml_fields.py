"""Field values of NVML: many of one GPU in one call, in a buffer that is prepared once and taken apart by its layout.

The buffer has one entry more than is asked for, its status preset to an error: NVML was seen to touch the entry past the
last one on queries of NVLink (nvitop, libnvml.py), and nvidia-ml-py allocates exactly as many as are asked for.
"""

import ctypes
import struct
from collections.abc import Iterable

from agent.host.nvml_codes import UNKNOWN

Key = tuple[int, int]
"""Field id and scope, which is 0 for a field that has none."""
# nvmlFieldValue_t: fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, and the union that holds the value.
_ENTRY = struct.Struct("=IIqqIiQ")
_ANSWER = struct.Struct("=24xIiQ")  # its last three
# nvmlValueType_t: the bits that hold a value, and the greatest that is one. Doubles (0) are none of ours.
_UNSIGNED, _SIGNED = {1: 32, 2: 64, 3: 64, 6: 16}, {4: 64, 5: 32}
_KINDS = {kind: ((1 << bits) - 1, (1 << bits) - 2) for kind, bits in _UNSIGNED.items()}
_KINDS |= {kind: ((1 << bits) - 1, (1 << bits - 1) - 1) for kind, bits in _SIGNED.items()}


class Answers:
    """What one call gave: whole numbers by key, and the codes of those that gave none.

    A key is in neither where the value is "not available": all ones, or below zero.
    """

    def __init__(self) -> None:
        self.values: dict[Key, int] = {}
        self.refused: dict[Key, int] = {}


class Query:
    """What is asked in one call. Not to be used by two threads."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = tuple(keys)
        entries = (*self.keys, (0, 0))
        self._fresh = b"".join(_ENTRY.pack(field, scope, 0, 0, 0, UNKNOWN, 0) for field, scope in entries)
        self.buffer = ctypes.create_string_buffer(self._fresh, len(self._fresh))

    def prepare(self) -> None:
        """Forget the last answers."""
        ctypes.memmove(self.buffer, self._fresh, len(self._fresh))

    def answers(self) -> Answers:
        """Take the buffer apart. What is no whole number counts as the code Unknown: none that we ask for is a double."""
        answers = Answers()
        values, refused = answers.values, answers.refused
        for key, (kind, code, raw) in zip(self.keys, _ANSWER.iter_unpack(self.buffer), strict=False):
            if code or kind not in _KINDS:
                refused[key] = code or UNKNOWN
                continue
            bits, greatest = _KINDS[kind]
            value = raw & bits
            if value <= greatest:
                values[key] = value
        return answers
