"""Which of a child's lines are read: an announcement that was overtaken in the same breath is none that can hang."""

import pytest

from agent.nvml_worker import without_overtaken

CALL = b'{"k":"call","t":"round","call":"nvmlDeviceGetName","index":%d,"pci":""}'
EVENTS = b'{"k":"call","t":"events","call":"nvmlEventSetWait_v2","index":-1,"pci":""}'
ROUND = b'{"k":"round","n":1}'
GARBAGE = b'{"k":"call","t":"rou'


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        pytest.param([CALL % 1, CALL % 2, CALL % 3], [CALL % 3], id="of calls in a row the last"),
        pytest.param([CALL % 1, ROUND], [ROUND], id="none before the answer of its round"),
        pytest.param([CALL % 1, EVENTS, CALL % 2], [CALL % 1, EVENTS, CALL % 2], id="other threads are read"),
        pytest.param([ROUND, CALL % 1], [ROUND, CALL % 1], id="a call that was begun after it"),
        pytest.param([CALL % 1, GARBAGE], [CALL % 1, GARBAGE], id="garbage, and what was before it"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_what_is_read(lines: list[bytes], read: list[bytes]) -> None:
    """Hundreds of calls are announced in a round."""
    assert list(without_overtaken(lines)) == read
