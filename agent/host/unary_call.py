"""One unary gRPC call over a Unix socket: HTTP/2 by `h2`, gRPC's own framing here (github.com/grpc, PROTOCOL-HTTP2).

Each call has a connection of its own, so that a server that was restarted is simply met again. `h2` is imported at the first
call: a node that calls nobody does not pay for it. Everything that can go wrong is a `CallFailed` that names the cause.

Why not grpcio, measured within the agent (CPython 3.11, x86-64; List of 60 pods and GetAllocatableResources of 8 GPUs, 40
calls):

    none                  PSS 22 MiB  RSS 31 MiB
    h2, this module       PSS 24 MiB  RSS 33 MiB   2.3 ms of CPU a round (0.008 % of a core)
    grpcio 1.85           PSS 37 MiB  RSS 47 MiB   1.8-3.8 ms of CPU a round (0.006-0.013 %), up to six threads
    protobuf 7.36 alone   PSS 30 MiB  RSS 40 MiB   (what would decode the messages; see pod_resources_wire)

All processes of an agent together are to stay within 64 MiB. grpcio judges this module in its tests instead.
"""

import socket
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kube.clock import SYSTEM, Clock

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.events import Event

_CHUNK = 64 * 1024
_PREFIX = 5  # one byte "compressed", four bytes length
# https://grpc.io/docs/guides/status-codes/: here the server was first to see that our deadline had passed.
_DEADLINE_EXCEEDED = "4"
_FRAMING = 1024 * 1024  # what a server may send beside the message itself: frames, pings, headers


class Cause(StrEnum):
    """Why a call gave no answer."""

    ABSENT = "absent"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    SLOW = "slow"
    BROKEN_OFF = "broken-off"
    GARBAGE = "garbage"
    TOO_LARGE = "too-large"
    REJECTED = "rejected"


class CallFailed(Exception):
    """A call gave no answer; the text names the socket and what would be right."""

    def __init__(self, cause: Cause, why: str) -> None:
        super().__init__(why)
        self.cause = cause


def unary_call(path: Path, method: str, *, within_s: float, most_bytes: int, clock: Clock = SYSTEM) -> bytes:
    """Call `method` (`/package.Service/Method`) with an empty message; give the answer's bytes.

    `within_s` bounds the whole call in seconds, `most_bytes` the answer. Raises CallFailed.
    """
    deadline = clock.monotonic() + within_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(within_s)
            connection.connect(str(path))
            return _ask(connection, method, deadline, most_bytes, clock)
    except CallFailed as failed:
        raise CallFailed(failed.cause, f"{path}: {failed}") from failed.__cause__
    except FileNotFoundError as error:
        why = "there is no such socket; kubelet has not made it, or its folder is not mounted here"
        raise CallFailed(Cause.ABSENT, f"{path}: {why}") from error
    except ConnectionRefusedError as error:
        raise CallFailed(Cause.REFUSED, f"{path}: nobody listens; kubelet is not running") from error
    except PermissionError as error:
        raise CallFailed(Cause.FORBIDDEN, f"{path}: permission denied; only root may ask") from error
    except (TimeoutError, BlockingIOError) as error:  # the latter where more wait to connect than it takes
        why = f"{method} was not answered within {within_s:g} s"
        raise CallFailed(Cause.SLOW, f"{path}: {why}") from error
    except OSError as error:
        raise CallFailed(Cause.BROKEN_OFF, f"{path}: {error.strerror or error}") from error


def _ask(connection: socket.socket, method: str, deadline: float, most_bytes: int, clock: Clock) -> bytes:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import ProtocolError

    http = H2Connection(config=H2Configuration(client_side=True, header_encoding=None))
    http.initiate_connection()
    stream = http.get_next_available_stream_id()
    http.send_headers(stream, _headers(method, deadline - clock.monotonic()))
    http.send_data(stream, bytes(_PREFIX), end_stream=True)  # an empty message
    connection.sendall(http.data_to_send())
    answer = _Answer(method, most_bytes)
    received = 0
    try:
        while not answer.ended:
            connection.settimeout(_left(deadline, clock))
            chunk = connection.recv(_CHUNK)
            received += len(chunk)
            if not chunk and received and not answer.begun:
                raise CallFailed(Cause.GARBAGE, "it does not speak gRPC (no frame of HTTP/2 came)")
            if not chunk:
                raise CallFailed(Cause.BROKEN_OFF, f"the connection ended before {method} was answered")
            if received > most_bytes + _FRAMING:
                raise _too_large(method, most_bytes)
            answer.take(http, http.receive_data(chunk))
            if reply := http.data_to_send():
                connection.settimeout(_left(deadline, clock))
                connection.sendall(reply)
    except ProtocolError as error:
        raise CallFailed(Cause.GARBAGE, f"it does not speak gRPC ({type(error).__name__})") from error
    return answer.message()


def _headers(method: str, within_s: float) -> list[tuple[bytes, bytes]]:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", method.encode()),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"nodemend-agent"),
        (b"grpc-timeout", f"{max(1, int(within_s * 1000))}m".encode()),
    ]


def _too_large(what: str, most_bytes: int) -> CallFailed:
    return CallFailed(Cause.TOO_LARGE, f"more than {most_bytes} bytes came for {what}, which is the most")


def _left(deadline: float, clock: Clock) -> float:
    """Give the seconds left; raises TimeoutError where none are, since a timeout of 0 would mean not to wait at all."""
    left_s = deadline - clock.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Answer:
    """What came back on the one stream so far."""

    def __init__(self, method: str, most_bytes: int) -> None:
        self.begun = self.ended = False
        self._method = method
        self._most_bytes = most_bytes
        self._body = bytearray()
        self._headers: dict[bytes, bytes] = {}

    def take(self, http: "H2Connection", events: "Iterable[Event]") -> None:
        """Take what one chunk held. Raises CallFailed as soon as no good answer can come any more."""
        from h2.events import (
            ConnectionTerminated,
            DataReceived,
            ResponseReceived,
            StreamEnded,
            StreamReset,
            TrailersReceived,
        )

        for event in events:
            self.begun = True
            match event:
                case ResponseReceived(headers=headers) | TrailersReceived(headers=headers):
                    self._headers.update((bytes(name), bytes(value)) for name, value in headers)
                case DataReceived():
                    self._grow(event.data)
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    self.ended = True
                case StreamReset(error_code=code):
                    raise CallFailed(Cause.BROKEN_OFF, f"the call was reset (HTTP/2 error {code:d})")
                case ConnectionTerminated(error_code=code) if code:
                    raise CallFailed(Cause.BROKEN_OFF, f"the connection was ended (HTTP/2 error {code:d})")
                case _:
                    pass  # settings, pings, windows; a GOAWAY without error lets the call come to its end

    def _grow(self, data: bytes) -> None:
        self._body += data
        announced = int.from_bytes(self._body[1:_PREFIX], "big") if len(self._body) >= _PREFIX else 0
        if max(announced, len(self._body) - _PREFIX) > self._most_bytes:
            raise _too_large(self._method, self._most_bytes)

    def message(self) -> bytes:
        """Give the message of an answer that ended well. Raises CallFailed for any other."""
        status, code = self._header(b":status"), self._header(b"grpc-status")
        if status != "200":
            raise CallFailed(Cause.GARBAGE, f"it does not speak gRPC (HTTP status {status})")
        if code != "0":
            said = unquote(self._header(b"grpc-message"))[:300]
            if not code:
                raise CallFailed(Cause.BROKEN_OFF, "the answer ended without a gRPC status")
            cause = Cause.SLOW if code == _DEADLINE_EXCEEDED else Cause.REJECTED
            raise CallFailed(cause, f"gRPC status {code}: {said or 'no reason given'}")
        body = bytes(self._body)
        if len(body) < _PREFIX or body[0] or len(body) - _PREFIX != int.from_bytes(body[1:_PREFIX], "big"):
            raise CallFailed(
                Cause.GARBAGE, f"{len(body)} bytes came that are no single uncompressed gRPC message"
            )
        return body[_PREFIX:]

    def _header(self, name: bytes) -> str:
        value = self._headers.get(name, b"").decode("ascii", errors="replace")
        return "".join(character for character in value if character.isprintable())[:1024]
