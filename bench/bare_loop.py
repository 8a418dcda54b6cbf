"""The bare loop, in a process of its own: many threads, each with one connection, sending what was written beforehand.

`python -m bench.bare_loop PLAN RESULT`. It decides nothing and decodes nothing; the one thing that it reads from an answer
is the version that the next patch of the same object has to name.
"""

import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import Protocol

import msgspec

from bench.bare_plan import VERSION_HERE, Bare, Done, Send
from bench.wire import Wire, head, request

_KEY = b'"resourceVersion":"'


def main() -> int:
    """Run the plan; see the module's docstring."""
    plan, result = Path(sys.argv[1]), Path(sys.argv[2])
    result.write_bytes(msgspec.json.encode(run(msgspec.json.decode(plan.read_bytes(), type=Bare))))
    return 0


def run(plan: Bare) -> Done:
    """Send everything. Raises OSError, WireBroken."""
    ready = deque([prepared(plan, sequence) for sequence in plan.sequences])
    wires = [Wire(plan.server, Path(plan.ca_file)) for _ in range(plan.connections)]
    answered: Counter[int] = Counter()
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work(wire: Wire) -> None:
        mine: Counter[int] = Counter()
        try:
            while True:
                try:
                    sequence = ready.popleft()
                except IndexError:
                    break
                mine.update(play(wire, sequence))
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            errors.append(error)
        with lock:
            answered.update(mine)

    threads = [threading.Thread(target=work, args=(wire,)) for wire in wires]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = time.monotonic()
    if errors:
        raise errors[0]
    return Done(
        began=began,
        ended=ended,
        answered=answered.total(),
        refused={str(status): count for status, count in answered.items() if not 200 <= status < 300},
    )


def prepared(plan: Bare, sequence: tuple[Send, ...]) -> list[tuple[bytes, bytes, bool]]:
    """Write the heads beforehand, and what needs no version whole."""
    return [
        (
            head(plan.server, plan.token, send.method, send.path, send.content_type),
            send.body,
            send.keep_version,
        )
        for send in sequence
    ]


class Asking(Protocol):
    """What is needed of a Wire."""

    def ask(self, request: bytes) -> tuple[int, bytes]: ...


def play(wire: Asking, sequence: list[tuple[bytes, bytes, bool]]) -> list[int]:
    """Send one sequence; give the statuses."""
    statuses = []
    version = b""
    for begun, body, keep in sequence:
        if VERSION_HERE in body:
            body = body.replace(VERSION_HERE, version, 1)
        status, answer = wire.ask(request(begun, body))
        statuses.append(status)
        if keep and 200 <= status < 300:
            version = version_in(answer)
    return statuses


def version_in(answer: bytes) -> bytes:
    """Cut the member `"resourceVersion":"N"` out of an object's metadata, where it comes first. Empty where it is not."""
    at = answer.find(_KEY)
    end = answer.find(b'"', at + len(_KEY))
    return answer[at : end + 1] if at >= 0 and end >= 0 else b""


if __name__ == "__main__":
    sys.exit(main())
