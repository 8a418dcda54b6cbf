"""How much counters have grown within a window of watched time. Pure; for checks that judge rates.

Only growth is kept, in a few buckets a counter, so a counter that stands still costs its last value alone. A value below
the last one is a counter that began anew (driver reload, reset): all that it shows was counted since. The clock is
watched time (`checks.polled`), which stands still while nobody looks: a rate is never watered down by an agent that was
away, and no clock that is set makes one.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

BUCKETS = 16
MAX_SERIES = 4096
MAX_COUNT = 2**63


class Series(msgspec.Struct, frozen=True, array_like=True):
    """One counter: its last value, and (watched ms at which the bucket began, growth in it), oldest first."""

    last: int
    since_ms: int
    grown: tuple[tuple[int, int], ...] = ()


class Rates:
    """Mutable only inside one judgement. `window_ms` is the longest window that is asked for."""

    def __init__(self, held: Mapping[str, Series], clock_ms: int, window_ms: int) -> None:
        self._held = dict(held)
        self._clock_ms = clock_ms
        self._window_ms = window_ms
        self._bucket_ms = max(1, window_ms // BUCKETS)

    def count(self, key: str, value: int, *, most: int = MAX_COUNT) -> int:
        """Take a counter's value now and give its growth since the last; 0 at first sight. Values beyond `most` are cut.

        A key that finds no room among MAX_SERIES counters is not kept, and grows by nothing.
        """
        value = max(0, min(value, most))
        series = self._held.get(key)
        if series is None:
            if len(self._held) < MAX_SERIES:
                self._held[key] = Series(last=value, since_ms=self._clock_ms)
            return 0
        growth = value - series.last if value >= series.last else value
        grown = [one for one in series.grown if one[0] > self._clock_ms - self._window_ms - self._bucket_ms]
        if growth:
            if grown and self._clock_ms - grown[-1][0] < self._bucket_ms:
                grown[-1] = (grown[-1][0], grown[-1][1] + growth)
            else:
                grown.append((self._clock_ms, growth))
        self._held[key] = Series(last=value, since_ms=series.since_ms, grown=tuple(grown))
        return growth

    def take(self, key: str, value: int) -> None:
        """Take a counter's value without counting what it grew by; what it grew by before still counts."""
        series = self._held.get(key)
        if series is None:
            self.count(key, value)
        else:
            self._held[key] = Series(last=max(0, value), since_ms=series.since_ms, grown=series.grown)

    def grown(self, key: str, window_ms: int) -> int:
        """Give the growth within the last `window_ms` of watched time, 0 for what was never counted."""
        series = self._held.get(key)
        if series is None:
            return 0
        return sum(growth for at_ms, growth in series.grown if at_ms > self._clock_ms - window_ms)

    def watched_ms(self, key: str) -> int:
        """Give for how long this counter has been watched."""
        series = self._held.get(key)
        return 0 if series is None else self._clock_ms - series.since_ms

    def last(self, key: str) -> int | None:
        """Give the last value, None for what was never counted."""
        series = self._held.get(key)
        return None if series is None else series.last

    def forget(self, key: str) -> None:
        """Let a counter begin anew: what it shows next is a first sight."""
        self._held.pop(key, None)

    def forget_all(self, belongs: Callable[[str], bool]) -> None:
        """Let these counters begin anew, as after a repair that may have counted, too (links that train anew)."""
        self._held = {key: series for key, series in self._held.items() if not belongs(key)}

    def calm(self, belongs: Callable[[str], bool]) -> None:
        """Let what these counters grew by so far be over, as after a repair; their last values are kept."""
        for key, series in self._held.items():
            if series.grown and belongs(key):
                self._held[key] = Series(last=series.last, since_ms=series.since_ms)

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all others: what is not on this machine any more."""
        wanted = set(keys)
        self._held = {key: series for key, series in self._held.items() if key in wanted}

    def memory(self) -> dict[str, Series]:
        """Give what is to be kept."""
        return self._held
