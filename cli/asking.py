"""How a command speaks while it works, and asks before it does. Without a terminal nothing waits for an answer."""

import sys
from collections.abc import Iterable

from cli.failure import Exit, Failure
from cli.text import printable, say, warn


def on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmed(question: str = "Go on?") -> bool:
    """Ask; anything but a yes is a no, and so is no answer at all."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


class Console:
    """Tells each step as it is done: on standard output, or on standard error where that holds one JSON document."""

    def __init__(self, *, json: bool, yes: bool) -> None:
        self._json = json
        self._yes = yes

    def tell(self, line: str) -> None:
        if self._json:
            warn(line)
        else:
            say([printable(line)])
            sys.stdout.flush()  # whoever pipes it wants to see the step now

    def may_go_on(self, lines: Iterable[str]) -> bool:
        """Say what will be done and ask. Raises Failure where nobody can be asked and `--yes` was not given."""
        for line in lines:
            self.tell(line)
        if self._yes:
            return True
        if self._json or not on_terminal():
            raise Failure(
                "nobody can be asked here: give --yes (and --dry-run to see it first)", Exit.BAD_USE
            )
        return confirmed()
