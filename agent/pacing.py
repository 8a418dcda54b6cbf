"""How fast the agent may write, and how long it waits after a failure. Times are monotonic seconds, given by the caller."""

from random import Random


class TokenBucket:
    """At most `burst` writes at once and one per `refill_s` seconds in the long run.

    The one number kept is when the bucket would be full again: a write moves it `refill_s` further.
    """

    def __init__(self, burst: int, refill_s: float) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._full_at = float("-inf")

    def wait_s(self, now: float, *, reserve: int = 0) -> float:
        """Give the seconds until a write is allowed that leaves `reserve` tokens for more important ones; 0 is now."""
        usable = max(1, self._burst - reserve)
        return max(0.0, self._full_at - (usable - 1) * self._refill_s - now)

    def take(self, now: float) -> None:
        self._full_at = max(self._full_at, now) + self._refill_s

    def give_back(self) -> None:
        """Take nothing after all: the request never reached the server."""
        self._full_at -= self._refill_s


class Backoff:
    """Waits that double from `first_s` to `most_s`, each shortened by up to half so that a fleet does not march in step."""

    def __init__(self, first_s: float, most_s: float, random: Random) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._random = random
        self._failures = 0

    @property
    def failures(self) -> int:
        """How often in a row it failed."""
        return self._failures

    def failed(self) -> float:
        """Count one more failure and give the seconds to wait."""
        wait_s = min(self._most_s, self._first_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return wait_s * self._random.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        self._failures = 0


def stretched(seconds: float, random: Random) -> float:
    """Lengthen an interval by up to a fifth: never shorter, so that a bound on the rate stays one."""
    return seconds * random.uniform(1.0, 1.2)
