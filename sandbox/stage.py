"""How the demo speaks: lines on a terminal or in a file, coloured only on a terminal, never waiting without one."""

import os
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from sandbox.story import Reached

_BOLD, _GREEN, _RED, _DIM, _PLAIN = "\033[1m", "\033[32m", "\033[31m", "\033[2m", "\033[0m"
_LOOK_LIMIT_S = 3600


class Stage:
    """Writes to one stream."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = (
            out.isatty() and os.environ.get("TERM", "") != "dumb" and "NO_COLOR" not in os.environ
        )
        self._began = time.monotonic()

    def heading(self, words: str) -> None:
        self._line("")
        self._line(self._colour(_BOLD, words))

    def say(self, words: str) -> None:
        self._line(f"  {words}")

    def record(self, line: str) -> None:
        """Show the raw line that was written."""
        self._line(self._colour(_DIM, f"  kernel: {line}"))

    def milestone(self, reached: Reached) -> None:
        """Show one milestone with its latency since the kernel line."""
        self._line(
            f"  +{reached.after_s:8.3f} s  {self._colour(_GREEN, f'{reached.title:22}')} {reached.words}"
        )

    def typed(self, command: str, lines: Sequence[str]) -> None:
        """Show a command as a person types it, and what it prints."""
        self._line(self._colour(_DIM, f"  $ {command}"))
        for line in lines:
            self._line(f"    {line}".rstrip())

    def timeline(self, story: Sequence[Reached]) -> None:
        """Show the milestones again with the time each took after the one before."""
        self.say("")
        self.say(f"{'milestone':22} {'at (UTC)':14} {'since line':>11} {'since last':>11}")
        last = 0.0
        for reached in story:
            at = reached.at.strftime("%H:%M:%S.%f")[:-3]
            self.say(f"{reached.title:22} {at:14} {reached.after_s:9.3f} s {reached.after_s - last:9.3f} s")
            last = reached.after_s

    def outcome(self, good: bool, words: str) -> None:
        mark = self._colour(_GREEN, "held  ") if good else self._colour(_RED, "FAILED")
        self._line(f"  {mark} {words}")

    def fail(self, words: str) -> None:
        self._line(f"  {self._colour(_RED, 'FAILED')} {words}")

    def verdict(self, *, closed: bool, untouched: bool, limits: bool, shared: bool) -> None:
        """Show the whole demo's result."""
        held = closed and untouched and limits and shared
        self._line("")
        parts = (
            f"loop closed: {_yes(closed)}, application XID untouched: {_yes(untouched)},"
            f" limits held: {_yes(limits)}, GPUs shared: {_yes(shared)}"
        )
        self._line(self._colour(_GREEN if held else _RED, f"{'closed' if held else 'NOT closed'} ({parts})"))

    def lines_to_look(self, kubeconfig: Path, node: str, *more: str) -> None:
        """Show what to type for a look of one's own; `more` are further commands."""
        self.heading("Look yourself (nodemend-demo --keep leaves the cluster up until Enter)")
        self.say(f"export KUBECONFIG={kubeconfig}")
        for command in (
            "kubectl get nodes",
            "kubectl get nodehealth,remediations,remediationpolicies",
            f"kubectl describe node {node}",
            f"kubectl nodemend explain {node}",
            "kubectl nodemend status",
            *more,
        ):
            self.say(command)

    def wait_for_enter(self) -> None:
        """Wait for Enter, an hour at most; without a terminal on stdin there is no waiting."""
        if not sys.stdin.isatty():
            self.say("(no terminal: not waiting)")
            return
        self.say("press Enter to end the cluster")
        select.select([sys.stdin], [], [], _LOOK_LIMIT_S)

    def _line(self, words: str) -> None:
        self._out.write(words + "\n")
        self._out.flush()

    def _colour(self, colour: str, words: str) -> str:
        return f"{colour}{words}{_PLAIN}" if self._terminal else words


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"
