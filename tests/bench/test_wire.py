"""The bare connection's reading and writing of HTTP/1.1."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.wire import WireBroken, answer, head, request, unchunked


def pieces(*parts: bytes) -> Callable[[], bytes]:
    """Give the parts one by one, then nothing, as a socket does."""
    rest: Iterator[bytes] = iter(parts)
    return lambda: next(rest, b"")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
            (200, b"{}"),
            id="an answer that comes at once",
        ),
        pytest.param(
            [b"HTTP/1.1 409 Conf", b"lict\r\ncontent-length: 4\r\n\r", b"\n{", b"} ", b"\n"],
            (409, b"{} \n"),
            id="an answer in pieces, cut anywhere",
        ),
        pytest.param(
            [
                b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                b"2\r\nde\r\n0\r\n\r\n",
            ],
            (201, b"abcde"),
            id="an answer in chunks",
        ),
        pytest.param(
            [b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"],
            (204, b""),
            id="an answer without a body",
        ),
    ],
)
def test_answer(parts: list[bytes], expected: tuple[int, bytes]) -> None:
    """Status and whole body."""
    assert expected == answer(pieces(*parts))


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        pytest.param([], "closed", id="nothing came"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"], "closed", id="the body ends too early"
        ),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{}"], "without length", id="no length and no chunks"
        ),
    ],
)
def test_a_broken_answer_is_said(parts: list[bytes], word: str) -> None:
    """Half an answer is none."""
    with pytest.raises(WireBroken, match=word):
        answer(pieces(*parts))


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.integers(1, 30))
def test_chunks_are_put_together_wherever_they_are_cut(parts: list[bytes], size: int) -> None:
    """Whatever the chunks hold, also what looks like an end of chunks."""
    raw = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    cut = [raw[at : at + size] for at in range(0, len(raw), size)]
    got = answer(pieces(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *cut))
    assert got == (200, b"".join(parts))


def test_unchunked_waits_for_the_end() -> None:
    """What has not come to its end is not given out."""
    assert unchunked(b"3\r\nabc\r\n") is None
    assert unchunked(b"8\r\nab0\r\n\r\n") is None


def test_a_chunk_without_size_is_said() -> None:
    """Nothing is guessed."""
    with pytest.raises(WireBroken, match="without size"):
        unchunked(b"zz\r\nabc\r\n0\r\n\r\n")


def test_request() -> None:
    """One whole request, its length last."""
    begun = head("https://127.0.0.1:6443", "token", "PATCH", "/api/v1/nodes/a?x=y", "application/json")
    assert request(begun, b"{}") == (
        b"PATCH /api/v1/nodes/a?x=y HTTP/1.1\r\nHost: 127.0.0.1:6443\r\nUser-Agent: nodemend-bench\r\n"
        b"Accept: application/json\r\nAuthorization: Bearer token\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
