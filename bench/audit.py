"""Counting what a program really asked of the API server, from the server's own audit record. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec


class Kind(msgspec.Struct, frozen=True, order=True):
    """One kind of request: `create remediations`, `patch remediations/status`."""

    verb: str
    resource: str

    def words(self) -> str:
        return f"{self.verb} {self.resource}"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: requests that were carried out, and those that the server refused, by kind."""

    done: Mapping[Kind, int]
    refused: Mapping[Kind, int]

    @property
    def total(self) -> int:
        return sum(self.done.values())

    def beside(self, kind: Kind, count: int) -> "Asked":
        """Add what was counted elsewhere."""
        return Asked(done={**self.done, kind: count} if count else self.done, refused=self.refused)

    def without(self, other: "Asked") -> "Asked":
        """Take away what was sent already, as far as it is there."""
        left = {kind: max(0, count - other.done.get(kind, 0)) for kind, count in self.done.items()}
        return Asked(done=left, refused={})

    def words(self) -> str:
        """Say it in one line, the most frequent first."""
        said = [
            f"{count} {kind.words()}" for kind, count in sorted(self.done.items(), key=lambda one: -one[1])
        ]
        said += [f"{count} refused {kind.words()}" for kind, count in sorted(self.refused.items())]
        return ", ".join(said) or "nothing"


def asked(events: Iterable[Mapping[str, Any]], user: str, since: datetime, until: datetime) -> Asked:
    """Count the writes of `user` that came in at or after `since` and were answered by `until`.

    `events` are audit.k8s.io/v1 Events. Raises KeyError or ValueError for one that is none.
    """
    done: Counter[Kind] = Counter()
    refused: Counter[Kind] = Counter()
    for event in events:
        if event["user"]["username"] != user or event.get("stage") != "ResponseComplete":
            continue
        if not (
            since <= _time(event["requestReceivedTimestamp"]) and _time(event["stageTimestamp"]) <= until
        ):
            continue
        about = event.get("objectRef", {})
        resource = about.get("resource", "")
        if subresource := about.get("subresource"):
            resource = f"{resource}/{subresource}"
        kind = Kind(event["verb"], resource)
        code = event.get("responseStatus", {}).get("code", 0)
        (done if 200 <= code < 300 else refused)[kind] += 1
    return Asked(done=dict(done), refused=dict(refused))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
