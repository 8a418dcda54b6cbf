"""Tests of agent.host.nvml_fields: the buffer that NVML fills, and what is taken from it, by its layout in memory."""

import ctypes
from typing import Any

import pynvml
import pytest

from agent.host.nvml_fields import Query

KEYS = ((91, 0), (165, 3), (220, 17))


def entries(query: Query) -> Any:
    """See the buffer as nvidia-ml-py's structs, with the one entry more than was asked for."""
    array = pynvml.c_nvmlFieldValue_t * (len(query.keys) + 1)
    return array.from_buffer(query.buffer)


def test_the_buffer_is_what_the_binding_would_make_and_one_entry_more() -> None:
    """Fields and scopes stand where NVML looks for them; each status begins as an error, so does the one past the last."""
    query = Query(KEYS)
    assert ctypes.sizeof(query.buffer) == (len(KEYS) + 1) * ctypes.sizeof(pynvml.c_nvmlFieldValue_t)
    seen = [(entry.fieldId, entry.scopeId, entry.nvmlReturn) for entry in entries(query)]
    assert seen == [(91, 0, 999), (165, 3, 999), (220, 17, 999), (0, 0, 999)]
    assert query.answers().refused == dict.fromkeys(KEYS, 999)


@pytest.mark.parametrize(
    ("kind", "member", "given", "taken"),
    [
        (1, "uiVal", 7, 7), (2, "ulVal", 1 << 40, 1 << 40), (3, "ullVal", (1 << 64) - 2, (1 << 64) - 2),
        (4, "sllVal", 5, 5), (5, "siVal", 6, 6), (6, "usVal", 65_534, 65_534),
        (1, "uiVal", -1, None), (2, "ulVal", -1, None), (3, "ullVal", -1, None), (4, "sllVal", -1, None),
        (4, "sllVal", -9, None), (5, "siVal", -1, None), (5, "siVal", -2, None), (6, "usVal", -1, None),
    ],
)  # fmt: skip
def test_a_value_is_read_by_its_type(kind: int, member: str, given: int, taken: int | None) -> None:
    """Whatever else stands in the union; all ones and what is below zero is no value, and no error either."""
    query = Query(KEYS)
    entry = entries(query)[1]
    entry.value.ullVal = 0xABCD_EF01_2345_6789
    setattr(entry.value, member, given)
    entry.valueType, entry.nvmlReturn = kind, 0
    answers = query.answers()
    assert answers.values == ({} if taken is None else {(165, 3): taken})
    assert (165, 3) not in answers.refused


@pytest.mark.parametrize("kind", [0, 7, 4_000_000_000])
def test_what_is_no_whole_number_is_refused(kind: int) -> None:
    """A double, and a type that nobody knows yet."""
    query = Query(KEYS)
    entry = entries(query)[0]
    entry.valueType, entry.nvmlReturn = kind, 0
    assert query.answers().refused[91, 0] == 999


def test_a_query_forgets_its_last_answers() -> None:
    """What the driver leaves untouched the next time is no answer."""
    query = Query(KEYS)
    for entry in entries(query):
        entry.valueType, entry.nvmlReturn, entry.value.uiVal = 1, 0, 3
    assert query.answers().values == dict.fromkeys(KEYS, 3)
    query.prepare()
    assert query.answers().values == {}
