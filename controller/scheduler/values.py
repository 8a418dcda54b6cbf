"""The base of all frozen values of a cycle. Pure."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all values of a cycle.

    `gc=False`: a frozen value refers only to what was there before it, so none is part of a circle, and Python's collector
    of circles need not walk through the hundred thousand values of a large cluster.
    """
