"""Children that look at what may hang: asked beside each other, ended when late, never doubled, never waited for."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.host.children import AT_ONCE, ChildProcess, Children, Reply, program

HANGS = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")
DEAF = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)",
)


def says(text: str, status: int = 0) -> tuple[str, ...]:
    code = f"import sys; sys.stdout.write({text!r}); sys.exit({status})"
    return (sys.executable, "-I", "-S", "-c", code)


class Undying:
    """A process in uninterruptible sleep: no signal ends it until the kernel lets it go."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self.gone = False
        self.signals: list[str] = []

    @property
    def fd(self) -> int:
        return self._read

    def status(self) -> int | None:
        return -9 if self.gone else None

    def terminate(self) -> None:
        self.signals.append("TERM")

    def kill(self) -> None:
        self.signals.append("KILL")

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        pytest.param(says("ok 1"), Reply(output=b"ok 1"), id="it answers"),
        pytest.param(says(""), Reply(), id="it says nothing"),
        pytest.param(says("half", 3), Reply(error="the look ended with status 3"), id="it breaks"),
        pytest.param(
            (sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"),
            Reply(error=f"the look ended with status {-signal.SIGSEGV}"),
            id="it crashes",
        ),
    ],
)
def test_what_a_child_says_and_how_it_ends(command: Sequence[str], reply: Reply) -> None:
    """A child that ends otherwise than well has said nothing."""
    assert Children(10).ask({"/data": command}) == {"/data": reply}


def test_one_that_cannot_be_started_is_said_for_itself() -> None:
    """The others are asked all the same."""
    replies = Children(10).ask({"a": ("no-such-program-here",), "b": says("ok")})
    assert replies["a"].error.startswith("the look could not be started: ")
    assert replies["b"].output == b"ok"


def test_output_is_bounded() -> None:
    """A program that never stops to talk takes no memory."""
    loud = (sys.executable, "-I", "-S", "-c", "print('x' * 1_000_000)")
    assert len(Children(10).ask({"a": loud})["a"].output) == 16 * 1024


@pytest.mark.parametrize(
    "command", [pytest.param(HANGS, id="hangs"), pytest.param(DEAF, id="deaf to SIGTERM")]
)
def test_a_late_child_is_ended_and_counts_as_hanging(command: Sequence[str]) -> None:
    """Others that answer are not held up by it beyond its deadline; the next look begins a new one."""
    children = Children(0.3, ends_within_s=0.2)
    for _ in range(2):
        began = time.monotonic()
        replies = children.ask({"bad": command, "good": says("ok")})
        assert time.monotonic() - began < 3
        assert replies["good"].output == b"ok"
        assert replies["bad"].hangs_ms is not None
    assert (replies["bad"].hangs_ms or 0) > 300, "it has hung since the first look"
    assert children.ask({"bad": says("ok")}) == {"bad": Reply(output=b"ok")}
    assert (children.ask({"bad": command})["bad"].hangs_ms or 0) < 2000, "a new hang begins anew"


def test_a_child_stopped_by_somebody_is_late_like_any_other() -> None:
    """SIGTERM waits at a stopped process; SIGKILL does not."""
    stopped = (sys.executable, "-I", "-S", "-c", "import os; os.kill(os.getpid(), 19)")
    assert Children(0.2, ends_within_s=0.2).ask({"a": stopped})["a"].hangs_ms is not None


def test_no_second_child_is_begun_while_the_first_cannot_be_ended() -> None:
    """It counts as hanging; once the kernel lets it go, a new look is made."""
    started: list[Undying] = []

    def start(_: Sequence[str]) -> Undying:
        started.append(Undying())
        return started[-1]

    children = Children(0.05, start, 0.05)
    hung = [children.ask({"/data": ()})["/data"].hangs_ms for _ in range(3)]
    assert len(started) == 1
    assert None not in hung
    assert hung == sorted(ms for ms in hung if ms is not None)
    assert started[0].signals[:2] == ["TERM", "KILL"]
    started[0].gone = True
    children.ask({"/data": ()})
    assert len(started) == 2
    started[1].gone = True
    children.ask({})


def test_only_a_few_are_there_at_once() -> None:
    """Memory of a node with many mounts stays as it is."""
    there, most = 0, 0

    class Counted(ChildProcess):
        def __init__(self, command: Sequence[str]) -> None:
            nonlocal there, most
            there += 1
            most = max(most, there)
            super().__init__(command)

        def close(self) -> None:
            nonlocal there
            there -= 1
            super().close()

    replies = Children(20, Counted).ask({f"/m{n}": says(f"ok {n}") for n in range(3 * AT_ONCE)})
    assert {key: reply.output for key, reply in replies.items()} == {
        f"/m{n}": f"ok {n}".encode() for n in range(3 * AT_ONCE)
    }
    assert (there, most) == (0, AT_ONCE)


def test_no_file_is_left_open() -> None:
    """Whatever came of the looks."""
    children = Children(0.2, ends_within_s=0.2)
    children.ask({"a": says("ok"), "b": HANGS})
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        children.ask({"a": says("ok"), "b": HANGS, "c": ("no-such-program-here",)})
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_program_of_ours_needs_no_package() -> None:
    """It starts in milliseconds and imports nothing but what it says."""
    command = program("mount_child.py", "5", "/", "/")
    assert command[1:3] == ("-I", "-S")
    assert Children(10).ask({"/": command})["/"].output.startswith(b"ok ")
