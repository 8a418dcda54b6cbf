"""Reads of owners: what one tenant's object looks like holds up nobody else's, and what is kept is bounded."""

import json
from collections.abc import Mapping

import pytest

from controller.scheduler.shell.path_reads import CACHE_BYTES, READERS, Key, NotRead, PathReads
from tests.fakes import FakeApi, FakeClock
from tests.scheduler_shell.grouping_scene import Inline


class Bodies(FakeApi):
    """Answers every path with the same bytes, or with this error."""

    def __init__(self, body: bytes, error: Exception | None = None) -> None:
        super().__init__()
        self.body, self.error = body, error

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        del path, query
        if self.error is not None:
            raise self.error
        return self.body


def asked(reads: PathReads, *paths: str) -> list[str]:
    """Ask for these, let the reads run, and give why each is not there yet; "" where it is."""
    for path in paths:
        with pytest.raises(NotRead):
            reads.ask(Key(path), 60.0, 5.0)
    while reads.next_due() is not None and reads.next_due() <= 0.0:  # type: ignore[operator]
        reads.start()
        reads.collect()
    return [why_not(reads, path) for path in paths]


def why_not(reads: PathReads, path: str) -> str:
    """Say why a path is not there, "" where it is."""
    try:
        reads.ask(Key(path), 60.0, 5.0)
    except NotRead as error:
        return error.why or "not asked yet"
    return ""


@pytest.mark.parametrize(
    ("api", "why"),
    [
        pytest.param(
            Bodies(b'{"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"),
            "the answer cannot be read",
            id="nested deeper than can be read",
        ),
        pytest.param(Bodies(b"<html>"), "the answer cannot be read", id="no JSON"),
        pytest.param(Bodies(b"", ZeroDivisionError("odd")), "a defect of the scheduler", id="a defect"),
    ],
)
def test_what_cannot_be_read_takes_no_reader_away(api: Bodies, why: str) -> None:
    """It comes again after a pause, and others are read meanwhile."""
    reads = PathReads(api, FakeClock().clock, Inline(), lambda: None)
    bad = [f"/apis/x/v1/widgets/{index}" for index in range(READERS + 1)]
    assert all(why in said for said in asked(reads, *bad))
    api.body, api.error = b"{}", None
    assert asked(reads, "/apis/x/v1/widgets/good") == [""]


def test_huge_owners_are_kept_up_to_a_bound_and_the_newest_always() -> None:
    """A thousand workflows of a megabyte each would be the end of the scheduler."""
    body = json.dumps({"status": "x" * (CACHE_BYTES // 8)}).encode()
    reads = PathReads(Bodies(body), FakeClock().clock, Inline(), lambda: None)
    paths = [f"/apis/x/v1/widgets/{index}" for index in range(20)]
    kept = [said == "" for said in asked(reads, *paths)]
    assert kept == [False] * 13 + [True] * 7
    huge = PathReads(
        Bodies(b'"' + b"x" * (CACHE_BYTES + 1) + b'"'), FakeClock().clock, Inline(), lambda: None
    )
    assert asked(huge, "/apis/x/v1/widgets/0") == [""]
