"""When a write that was refused may be tried again, and what is worth a line in the log. Pure: every method takes `now`.

A refusal that is about rights holds its kind in that namespace, since a policy or a webhook of that namespace may be what
refuses; for a moment its kind everywhere, too, once several namespaces refuse it and none took it since: longer, and those
that stand first in line would keep the turn from those that take it. No answer, or a busy server, holds everything. What is
held is not kept: its turn comes anew from what is wanted by then. Times are monotonic seconds.
"""

from typing import Final

from controller.scheduler.shell.status_writes import Kind, Write
from kube.api import ApiError, Conflict, Forbidden, NotLeader, TooManyRequests, Unauthorized, Unavailable

SEVERAL: Final = 3
_KEYS: Final = 20_000
_PLACES: Final = 1000
_ALL: Final = "all"
_CONFLICT: Final = (0.5, 30.0)
_INVALID: Final = (10.0, 300.0)
_RIGHTS: Final = (10.0, 300.0)
_EVERYWHERE_S: Final = 10.0
_SERVER: Final = (0.5, 30.0)
_FOLLOWER_S: Final = 1.0


class WriteHolds:
    """Bounded: past its size the keys whose time comes first are forgotten, which costs an early try."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._refused: dict[str, None] = {}  # kinds, and kinds in a namespace, of which a refusal was told
        self._refusing: dict[Kind, set[str]] = {}  # namespaces, since the kind last worked

    def may(self, write: Write, now: float) -> bool:
        """Whether its time has come."""
        return not self._until or all(self._until.get(name, now) <= now for name in _names(write))

    def may_any(self, kind: Kind, now: float) -> bool:
        """Whether anything of this kind may be written."""
        return self._until.get(_ALL, now) <= now and self._until.get(kind.value, now) <= now

    def worked(self, write: Write) -> bool:
        """The server took it. Gives whether its kind was refused there until now."""
        for name in _names(write):
            self._until.pop(name, None)
            self._failures.pop(name, None)
        self._refusing.pop(write.kind, None)
        refused = [name for name in (write.kind.value, _place(write)) if name in self._refused]
        for name in refused:
            del self._refused[name]
        return bool(refused)

    def failed(self, write: Write, error: ApiError, now: float) -> bool:
        """It was not taken. Gives whether that is news: the first of its kind there since the last that worked."""
        name, pace = self._hold(write, error)
        self._pause(name, pace, error, now)
        if name == _place(write) and self._is_refused_by_several(write):
            name = write.kind.value
            self._pause(name, (_EVERYWHERE_S, _EVERYWHERE_S), error, now)
        if len(self._until) > _KEYS:
            self._forget()
        if isinstance(error, Conflict | NotLeader):
            return False  # nothing is wrong
        told = write.kind.value if name in (_ALL, write.kind.value) else _place(write)
        is_news = told not in self._refused
        self._refused[told] = None
        if len(self._refused) > _PLACES:
            del self._refused[next(iter(self._refused))]
        return is_news

    def _pause(self, name: str, pace: tuple[float, float], error: ApiError, now: float) -> None:
        first, longest = pace
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        wait = min(longest, first * 2.0 ** min(failures, 16))
        self._until[name] = now + max(wait, min(error.retry_after_s or 0.0, longest))

    def _hold(self, write: Write, error: ApiError) -> tuple[str, tuple[float, float]]:
        match error:
            case NotLeader():
                return _ALL, (_FOLLOWER_S, _FOLLOWER_S)
            case Unavailable() | TooManyRequests():
                return _ALL, _SERVER
            case Unauthorized():
                return write.kind.value, _RIGHTS
            case Forbidden():
                return (_place(write) if _namespace(write) else write.kind.value), _RIGHTS
            case Conflict():
                return _name(write), _CONFLICT
            case _:
                return _name(write), _INVALID

    def _is_refused_by_several(self, write: Write) -> bool:
        refusing = self._refusing.setdefault(write.kind, set())
        if len(refusing) < SEVERAL:
            refusing.add(_namespace(write))
        return len(refusing) >= SEVERAL

    def next_at(self, now: float) -> float | None:
        """When the next hold ends."""
        return min((until for until in self._until.values() if until > now), default=None)

    def prune(self, now: float) -> None:
        """Forget what ended long ago: its back-off starts anew."""
        gone = [name for name, until in self._until.items() if until < now - 600.0]
        for name in gone:
            del self._until[name]
            self._failures.pop(name, None)

    def _forget(self) -> None:
        for name in sorted(self._until, key=self._until.__getitem__)[: _KEYS // 10]:
            del self._until[name]
            self._failures.pop(name, None)


def _namespace(write: Write) -> str:
    return write.key.rpartition("/")[0]


def _place(write: Write) -> str:
    """Name a kind in a namespace; no object's key ends so."""
    return f"{write.kind}|{_namespace(write)}/"


def _name(write: Write) -> str:
    return f"{write.kind}|{write.key}"


def _names(write: Write) -> tuple[str, str, str, str]:
    """Name whatever may hold a write."""
    return _ALL, write.kind.value, _place(write), _name(write)
