"""The base of all frozen values of a cycle. Pure."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all values of a cycle."""
