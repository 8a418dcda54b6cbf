"""Objects of any kind as the grouper's rules ask for them: by kind and name, read when they are first needed. Shell.

What an owner is called in a path (its plural, whether it has a namespace) the server's discovery tells. A kind that the
server does not serve, or that we may not read, is said once in the log; for the default rule the reference is enough.
"""

import re
from typing import Any, Final, NamedTuple

import structlog

from controller.scheduler.grouper.fields import Thing
from controller.scheduler.shell.path_reads import Answer, Key, PathReads
from kube import paths

log = structlog.get_logger(__name__)

OWNER_AGE_S: Final = 60.0
ABSENT_AGE_S: Final = 5.0
KINDS_AGE_S: Final = 600.0
NO_KINDS_AGE_S: Final = 30.0
REFUSED_AGE_S: Final = 60.0
REFUSED_LIMIT: Final = 1024
KINDS_LIMIT: Final = 256

_API_VERSION = re.compile(r"([a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+")


class Served(NamedTuple):
    """How the server calls a kind."""

    plural: str
    namespaced: bool


class NotReadable(Exception):
    """Nobody but an administrator can change it: the kind is not served, or it may not be read. Says which and why."""


class OwnerReads:
    """Asked and turned by one thread, as `PathReads` is. All raise `NotRead`."""

    def __init__(self, reads: PathReads) -> None:
        self._reads = reads
        self._kinds: dict[str, tuple[dict[str, Any], dict[str, Served]]] = {}
        self._refusals: dict[str, Answer] = {}
        self._said: dict[str, None] = {}

    def thing(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        uid: str = "",
        *,
        max_age_s: float = OWNER_AGE_S,
    ) -> Thing | None:
        """Give one object, or None where it is not there. `namespace` "" asks for one of the cluster's.

        Raises: NotReadable.
        """
        served = self._served(api_version).get(kind)
        if served is None:
            raise self._not_readable(api_version, kind, "the API server does not serve this kind")
        if served.namespaced != bool(namespace):
            return None
        collection = paths.collection(*_split(api_version), served.plural, namespace)
        answer = self._refusal(collection)
        if answer is None:
            answer = self._reads.ask(Key(paths.member(collection, name), uid), max_age_s, ABSENT_AGE_S)
        if answer.refused:
            self._refusals[collection] = answer
            _bound(self._refusals, REFUSED_LIMIT)
            raise self._not_readable(api_version, kind, answer.refused)
        if answer.raw is None:
            return None
        return Thing({"apiVersion": api_version, "kind": kind} | answer.raw)

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the server serves a kind in this version."""
        return kind in self._served(api_version)

    def version_with(self, group: str, kind: str) -> str:
        """Give the `apiVersion` under which a kind is served, the preferred one first; "" where it is not."""
        answer = self._reads.ask(Key(f"/apis/{group}"), KINDS_AGE_S, NO_KINDS_AGE_S)
        said = answer.raw or {}
        preferred = said.get("preferredVersion") or {}
        for version in (preferred, *(said.get("versions") or ())):
            name = version.get("groupVersion", "") if isinstance(version, dict) else ""
            if name and kind in self._served(name):
                return str(name)
        return ""

    def listed(self, group: str, kind: str) -> list[Thing]:
        """Give all objects of a kind that the cluster may have, in order of name; none where it is not served."""
        api_version = self.version_with(group, kind)
        if not api_version:
            return []
        served = self._served(api_version)[kind]
        answer = self._reads.ask(
            Key(paths.collection(*_split(api_version), served.plural)), OWNER_AGE_S, ABSENT_AGE_S
        )
        if answer.refused:
            self._not_readable(api_version, kind, answer.refused)
        return answer.things

    def _refusal(self, collection: str) -> Answer | None:
        """Whether one of these was refused lately: then the others are, and a thousand owners cost one request."""
        held = self._refusals.get(collection)
        return held if held is not None and self._reads.age_s(held) <= REFUSED_AGE_S else None

    def _not_readable(self, api_version: str, kind: str, why: str) -> NotReadable:
        name = f"{kind} of {api_version}"
        if name not in self._said:
            self._said[name] = None
            _bound(self._said, KINDS_LIMIT)
            log.warning("owner.not_readable", kind=kind, api_version=api_version, why=why)
        return NotReadable(f"{name} cannot be read: {why}")

    def _served(self, api_version: str) -> dict[str, Served]:
        if not _API_VERSION.fullmatch(api_version):
            return {}
        group, version = _split(api_version)
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        answer = self._reads.ask(Key(path), KINDS_AGE_S, NO_KINDS_AGE_S)
        if answer.raw is None:
            return {}
        held = self._kinds.get(api_version)
        if held is not None and held[0] is answer.raw:
            return held[1]
        kinds: dict[str, Served] = {}
        for one in answer.raw.get("resources") or ():
            if isinstance(one, dict) and "/" not in one.get("name", "/"):
                kinds[str(one.get("kind"))] = Served(str(one["name"]), bool(one.get("namespaced")))
        self._kinds[api_version] = (answer.raw, kinds)
        _bound(self._kinds, KINDS_LIMIT)
        return kinds


def _split(api_version: str) -> tuple[str, str]:
    group, slash, version = api_version.partition("/")
    return (group, version) if slash else ("", group)


def _bound(held: dict[str, Any], limit: int) -> None:
    while len(held) > limit:
        del held[next(iter(held))]
