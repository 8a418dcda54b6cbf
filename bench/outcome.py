"""How a benchmark ends: with figures, or with the reason why there are none."""

from collections.abc import Callable

Say = Callable[[str], None]


class NotMeasured(Exception):
    """The benchmark ran and has nothing to show: a sample was lost, or something did not come about in time."""
