"""Counters of which most stand at zero for ever, such as error counters of links: growth at the price of those that count.

`checks.rates` keeps every counter that it was shown; eight GPUs with 18 links and a dozen counters would be two
thousand of them. Here a counter that stands at zero costs one bit: that it was told. So one that is first seen above zero
has grown, where its zero was told before, and only begins to be watched, where it was not (a read that failed proves no
zero).
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence

from checks.rates import MAX_COUNT, Rates

MAX_GROUPS = 1024


class Growth:
    """Mutable only inside one judgement. A group is a part and a kind of counter; `bit` numbers the counter in it."""

    def __init__(self, rates: Rates, told: Mapping[str, int]) -> None:
        self._rates = rates
        self._told = dict(told)
        self._counting = {key.partition(" ")[0] for key in rates.memory()}

    def is_calm(self, about: str) -> bool:
        """Tell what has no counter that ever counted; `about` is the first word of its keys."""
        return about not in self._counting

    def is_at_zero(self, group: str, bit: int, key: str) -> bool:
        """Tell a counter that was told before and has never counted: another zero changes nothing."""
        return bool(self._told.get(group, 0) >> bit & 1) and self._rates.last(key) is None

    def told_of_all(self, groups: Sequence[str]) -> int:
        """Give the bits that were told before in each of these groups, where none of their counters ever counted."""
        if not groups or not self.is_calm(groups[0].partition(" ")[0]):
            return 0
        return functools.reduce(operator.and_, (self._told.get(group, 0) for group in groups))

    def count(self, group: str, bit: int, key: str, value: int) -> None:
        """Take a counter's value now; `key` names it in `rates`."""
        before = self._told.get(group, 0)
        self._take(key, value, was_told=bool(before >> bit & 1))
        self._tell(group, before | 1 << bit)

    def count_all(self, group: str, values: Mapping[str, int]) -> None:
        """Take all counters of a group whose counters are always told together: one bit is enough for all of them."""
        was_told = group in self._told
        for key, value in values.items():
            self._take(key, value, was_told=was_told)
        self._tell(group, 1)

    def all_at_zero(self, group: str) -> None:
        """Take a group whose counters are told together, stand at zero and never counted."""
        self._tell(group, 1)

    def forget(self, belongs: Callable[[str], bool]) -> None:
        """Let counters begin anew, as after a repair: what they show next is a first sight."""
        self._rates.forget_all(belongs)
        self._told = {group: bits for group, bits in self._told.items() if not belongs(group)}

    def _take(self, key: str, value: int, *, was_told: bool) -> None:
        value = max(0, min(value, MAX_COUNT))
        known = self._rates.last(key) is not None
        if value and not known and was_told:
            self._rates.count(key, 0)
        if value or known:
            self._rates.count(key, value)
            self._counting.add(key.partition(" ")[0])

    def _tell(self, group: str, bits: int) -> None:
        if group in self._told or len(self._told) < MAX_GROUPS:
            self._told[group] = bits

    def memory(self) -> dict[str, int]:
        """Give what is to be kept beside the rates."""
        return self._told
