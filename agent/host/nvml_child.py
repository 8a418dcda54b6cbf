"""The NVML child: the one process that holds NVML's handles, started by the agent and ended with it.

A call of NVML can block in the kernel for ever, crash the process, or keep an old library mapped after a driver upgrade:
so it is made here and nowhere else. The agent writes one order a line to standard input; this writes one message a line
to standard output, and before each call which call to which GPU it is, so that the agent knows what hangs. It ends on
SIGTERM between two calls, at the end of its input, with the death of the agent even while a call hangs, and once another
library lies where its own came from: what is mapped would go on answering while nothing new can start. It never shuts
NVML down, because another thread may be inside a call: the end of the process drops every handle.

Memory counts on every node, so nothing is imported that NVML does not need.
"""

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from agent.host import nvml_binding
from agent.host.nvml_binding import Binding
from agent.host.nvml_codes import LIB_RM_VERSION_MISMATCH, LIBRARY_NOT_FOUND, Refused, error_of
from agent.host.nvml_events import EventWatch
from agent.host.nvml_library import LibraryMissing, find_library, identity
from agent.host.nvml_round import Rounds

PR_SET_PDEATHSIG = 1
# How long a call may still take after the agent is gone.
ORPHAN_S = 2.0
ORDER_LIMIT = 256 * 1024
ENCODER = json.JSONEncoder(separators=(",", ":"))


class Voice:
    """Writes messages to the agent, from any thread, a whole line at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def say(self, message: dict[str, Any]) -> None:
        """Write one message; where nobody reads any more, end."""
        self._write(ENCODER.encode(message))

    def beat(self, thread: str, call: str, index: int, pci: str) -> None:
        """Say which call is about to be made. No text in it needs escaping, and hundreds are said in a round."""
        self._write(f'{{"k":"call","t":"{thread}","call":"{call}","index":{index},"pci":"{pci}"}}')

    def _write(self, text: str) -> None:
        line = text.encode() + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._fd, line) :]
            except OSError:
                os._exit(1)


def serve(root: str, voice: Voice) -> int:
    """Answer orders until the input ends; give the exit status, 1 where NVML cannot be used."""
    binding = Binding(lambda call, index, pci: voice.beat("round", call, index, pci))
    events = EventWatch(Binding(lambda call, index, pci: voice.beat("events", call, index, pci)), voice.say)
    rounds = Rounds(binding)
    loaded: tuple[str, int, int] | None = None
    listening = False
    for line in _orders(sys.stdin.fileno()):
        order = json.loads(line)
        try:
            library = find_library(root)
            found = identity(library)
            if loaded is None:
                nvml_binding.load(library)
                loaded = found
        except (LibraryMissing, Refused) as error:
            voice.say(_no_library(order, error))
            return 1
        if found != loaded:
            voice.say(_out_of_date(order, library))
            return 1
        message = rounds.run(order)
        voice.say(message)
        if message["k"] == "failed":
            return 1
        events.follow(rounds.watched if order["event_wait_ms"] else [], order["event_wait_ms"])
        if not listening:
            threading.Thread(target=_guarded, args=(voice, events.run), name="events", daemon=True).start()
            listening = True
    return 0


def _guarded(voice: Voice, work: Callable[[], Any]) -> Any:
    """Do the work of a thread; a defect in it is told to the agent and ends the child."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - the outermost edge of each thread of the child
        voice.say({"k": "broke", "error": f"{type(error).__name__}: {error}"[:1024]})
        os._exit(1)


def _no_library(order: dict[str, Any], error: Exception) -> dict[str, Any]:
    refused = Refused("nvmlInitWithFlags", LIBRARY_NOT_FOUND, "LibraryNotFound")
    detail = str(error.__cause__ or error)
    return {"k": "failed", "n": order["round"], "error": error_of(refused), "detail": detail[:1024]}


def _out_of_date(order: dict[str, Any], library: str) -> dict[str, Any]:
    """Say that another library lies on the disk now: ours answers from memory, and whoever starts now gets that one."""
    refused = Refused("nvmlInitWithFlags", LIB_RM_VERSION_MISMATCH, "LibRmVersionMismatch")
    detail = f"{library} was replaced since it was loaded"
    return {"k": "failed", "n": order["round"], "error": error_of(refused), "detail": detail[:1024]}


def _orders(fd: int) -> Iterator[bytes]:
    """Give what the agent writes, line by line, until it closes the pipe."""
    held = b""
    while data := os.read(fd, 65536):
        held += data
        *lines, held = held.split(b"\n")
        yield from lines
        if len(held) > ORDER_LIMIT:
            return


def _end_with(parent: int) -> None:
    """Do not outlive the agent: neither between two calls nor in one that hangs, nor where it died before we looked."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    # The agent blocks its own stop signals, and a mask is inherited.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    threading.Thread(target=_watch_input, args=(sys.stdin.fileno(),), name="orphan", daemon=True).start()


def _watch_input(fd: int) -> None:
    """Wait until nobody can write to our input any more, give the call that is under way a little time, and end."""
    poll = select.poll()
    poll.register(fd, 0)  # hang-ups and errors are always reported
    while not poll.poll():
        pass
    time.sleep(ORPHAN_S)
    os._exit(0)


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    speaker = Voice(sys.stdout.fileno())
    os._exit(_guarded(speaker, lambda: serve(sys.argv[1], speaker)))
