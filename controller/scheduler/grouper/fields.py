"""Objects as their users wrote them, read with care: whatever is odd in one becomes one error that names it. Pure.

Grouping reads kinds that we neither own nor validate, so nothing about their shape is taken for granted. Null counts as
absent, as the API server has it.
"""

import re
from collections.abc import Iterator
from typing import Any

INT32_MAX = 2**31 - 1
_WHOLE = re.compile(r"[+-]?[0-9]{1,12}")


class GrouperError(Exception):
    """A pod cannot be grouped. Says which object's field holds what, and what would be right.

    `missing`: an object that may still come is not there yet, so that it is worth another try.
    """

    def __init__(self, where: str, field: str, value: object, right: str, *, missing: bool = False) -> None:
        self.where, self.field, self.value, self.right, self.missing = where, field, value, right, missing
        super().__init__(f"{where}: {field} is {shown(value)}, but must be {right}")


def shown(value: object) -> str:
    """Show a value of a user's object in one short line."""
    if value is None:
        return "not set"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class Reader:
    """Reads the fields of one object, or of a part of it, by dotted paths. `where` and `prefix` are for the errors."""

    __slots__ = ("prefix", "raw", "where")

    def __init__(self, where: str, raw: dict[str, Any], prefix: str = "") -> None:
        self.where = where
        self.raw = raw
        self.prefix = prefix

    def wrong(self, path: str, value: object, right: str) -> GrouperError:
        """Make the error for one field."""
        return GrouperError(self.where, self.prefix + path, value, right)

    def value(self, path: str) -> Any:
        """Return what stands there, or None. Raises `GrouperError` where a part of the path is no object."""
        found: Any = self.raw
        keys = path.split(".")
        for at, key in enumerate(keys):
            if found is None:
                return None
            if not isinstance(found, dict):
                raise self.wrong(".".join(keys[:at]), found, "an object")
            found = found.get(key)
        return found

    def text(self, path: str) -> str | None:
        """Return a string, or None where there is none."""
        found = self.value(path)
        if found is None or isinstance(found, str):
            return found
        raise self.wrong(path, found, "a string")

    def needed_text(self, path: str) -> str:
        """Return a string that must be there and not be empty."""
        found = self.text(path)
        if not found:
            raise self.wrong(path, found, "a string that is not empty")
        return found

    def whole(self, path: str, least: int = 0) -> int | None:
        """Return a whole number of at least `least`, or None where there is none."""
        found = self.value(path)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= INT32_MAX:
            raise self.wrong(path, found, f"a whole number of at least {least}")
        return found

    def needed_whole(self, path: str, least: int = 0) -> int:
        """Return a whole number that must be there."""
        found = self.whole(path, least)
        if found is None:
            raise self.wrong(path, found, f"a whole number of at least {least}")
        return found

    def flag(self, path: str) -> bool:
        """Return a boolean, False where there is none."""
        found = self.value(path)
        if found is None or isinstance(found, bool):
            return bool(found)
        raise self.wrong(path, found, "true or false")

    def mapping(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None where there is none."""
        found = self.value(path)
        if found is None or isinstance(found, dict):
            return found
        raise self.wrong(path, found, "an object")

    def items(self, path: str) -> list[Any] | None:
        """Return a list, or None where there is none."""
        found = self.value(path)
        if found is None or isinstance(found, list):
            return found
        raise self.wrong(path, found, "a list")

    def part(self, path: str) -> "Reader":
        """Return a reader of the object there, an empty one where there is none."""
        return Reader(self.where, self.mapping(path) or {}, f"{self.prefix}{path}.")

    def parts(self, path: str) -> Iterator["Reader"]:
        """Yield a reader for each object of a list."""
        for index, item in enumerate(self.items(path) or []):
            if not isinstance(item, dict):
                raise self.wrong(f"{path}[{index}]", item, "an object")
            yield Reader(self.where, item, f"{self.prefix}{path}[{index}].")

    def texts(self, path: str) -> list[str]:
        """Return a list of strings, empty where there is none."""
        found = self.items(path) or []
        for index, item in enumerate(found):
            if not isinstance(item, str):
                raise self.wrong(f"{path}[{index}]", item, "a string")
        return found

    def annotation(self, metadata: str, key: str) -> str:
        """Return an annotation of a template, "" where there is none. Keys hold dots, so they are no part of the path."""
        found = (self.mapping(f"{metadata}.annotations") or {}).get(key)
        if found is None or isinstance(found, str):
            return found or ""
        raise self.wrong(f"{metadata}.annotations[{key}]", found, "a string")


class Thing:
    """A Kubernetes object of any kind: its identity, its labels and annotations, and `read` for the rest."""

    __slots__ = (
        "annotations",
        "api_version",
        "group",
        "kind",
        "labels",
        "name",
        "namespace",
        "raw",
        "read",
        "uid",
        "version",
    )

    def __init__(self, raw: Any) -> None:
        self.raw: dict[str, Any] = raw if isinstance(raw, dict) else {}
        self.api_version = _string(self.raw.get("apiVersion"))
        before, slash, after = self.api_version.partition("/")
        self.group, self.version = (before, after) if slash else ("", before)
        self.kind = _string(self.raw.get("kind"))
        metadata = self.raw.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        self.name = _string(metadata.get("name"))
        self.namespace = _string(metadata.get("namespace"))
        self.uid = _string(metadata.get("uid"))
        self.labels = _strings(metadata.get("labels"))
        self.annotations = _strings(metadata.get("annotations"))
        self.read = Reader(str(self), self.raw)

    def __str__(self) -> str:
        return f"{self.kind or 'object'} {self.namespace}/{self.name}"

    def with_marks(self, labels: dict[str, str], annotations: dict[str, str]) -> "Thing":
        """Return the same object with these labels and annotations added where it has none of that key."""
        marked = Thing(self.raw)
        marked.labels = labels | self.labels
        marked.annotations = annotations | self.annotations
        return marked

    def whole_mark(self, marks: dict[str, str], key: str, least: int) -> int | None:
        """Return the whole number in a label or annotation, or None where there is none."""
        return None if key not in marks else whole_text(str(self), key, marks[key], least)


def whole_text(where: str, field: str, text: str, least: int) -> int:
    """Return the whole number that a text holds. Raises `GrouperError`."""
    if _WHOLE.fullmatch(text) and least <= int(text) <= INT32_MAX:
        return int(text)
    raise GrouperError(where, field, text, f"a whole number of at least {least}")


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(key, str) and isinstance(text, str)}
