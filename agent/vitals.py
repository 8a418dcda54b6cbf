"""Whether the agent lives: the heartbeats of its threads, and the words for kubelet when one stands still.

A heartbeat is set at the end of a round, never at its beginning: a loop that fails each time is as dead as one that hangs.
A source that cannot be read is no reason to restart: that is a condition.
"""

from kube.clock import Clock

LOOP_STALE_S = 60.0
# A read from the API server may take three tries of ten seconds and their pauses.
WRITER_STALE_S = 180.0
READER_STALE_S = 120.0


class Vitals:
    """Heartbeats on the monotonic clock; any thread may set its own and ask for all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = self._writer = clock.monotonic()

    def loop_went_round(self) -> None:
        self._loop = self._clock.monotonic()

    def writer_went_round(self) -> None:
        self._writer = self._clock.monotonic()

    def loop_age_s(self) -> float:
        return self._clock.monotonic() - self._loop

    def writer_age_s(self) -> float:
        return self._clock.monotonic() - self._writer

    def why_not_alive(self) -> str | None:
        """Say why the judging loop counts as dead, or None while it goes round."""
        return _stale("the judging loop", self.loop_age_s(), LOOP_STALE_S)

    def why_not_healthy(self, reader_age_s: float) -> str | None:
        """Say which thread is stuck, or None."""
        return (
            self.why_not_alive()
            or _stale("the writer", self.writer_age_s(), WRITER_STALE_S)
            or _stale("the kernel log's reader", reader_age_s, READER_STALE_S)
        )


def _stale(who: str, age_s: float, most_s: float) -> str | None:
    return f"{who} last went round {age_s:.0f} s ago, {most_s:.0f} s is the most" if age_s > most_s else None
