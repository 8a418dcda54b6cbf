"""The base of all wire structs."""

import msgspec


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Frozen, camelCase on the wire; unknown fields are skipped."""
