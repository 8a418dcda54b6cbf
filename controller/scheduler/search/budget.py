"""How long an action may search in one cycle. Pure: time comes from the session, and a replay's stands still.

A search that ran out is no failure: what was found stays, the rest waits for the next cycle, `session.exhausted` says so.
"""

from controller.scheduler.session import Session


class Budget:
    """Steps and milliseconds of one action; a step is one scenario tried or one node looked at."""

    __slots__ = ("action", "deadline_ms", "session", "steps")

    def __init__(self, session: Session, action: str) -> None:
        self.session = session
        self.action = action
        self.steps = session.settings.search_steps
        self.deadline_ms = session.ms() + session.settings.search_ms

    def spend(self, steps: int = 1) -> bool:
        """Take steps; False from the moment on that there are none left, or no time."""
        self.steps -= steps
        if self.steps >= 0 and self.session.ms() <= self.deadline_ms:
            return True
        if self.action not in self.session.exhausted:
            self.session.exhausted.append(self.action)
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the search has to stop; asking costs nothing."""
        return self.action in self.session.exhausted
