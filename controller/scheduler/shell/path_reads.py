"""Reads of single paths of the API server, each at most once while its answer lasts, and never in the asker's way. Shell.

Whoever asks gets an answer that is fresh enough, or `NotRead` at once: then the read is under way, or waits its time after a
failure, and the asker comes again when `collect` names the key. One thread does all but the GETs.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from controller.scheduler.grouper.fields import Thing
from kube.api import Api, ApiError, Forbidden, NotFound
from kube.clock import Clock

log = structlog.get_logger(__name__)

CACHE_LIMIT: Final = 4096
CACHE_BYTES: Final = 64 << 20
"""As they came; decoded they take several times as much. A workflow alone may be more than a megabyte."""
READERS: Final = 4
FIRST_PAUSE_S: Final = 0.5
LAST_PAUSE_S: Final = 30.0


class Key(NamedTuple):
    """What is read. `uid`: of which object of that name the asker wants to know, so that its successor is read anew."""

    path: str
    uid: str = ""


class Answer:
    """What the server said: `raw`, or why there is none. `at`: when it was asked (monotonic); `size`: in bytes."""

    __slots__ = ("at", "raw", "refused", "size", "things")

    def __init__(self, raw: dict[str, Any] | None, refused: str, at: float, size: int = 0) -> None:
        self.raw = raw
        self.refused = refused
        self.at = at
        self.size = size
        listed = [] if raw is None else raw.get("items")
        self.things: list[Thing] = [Thing(one) for one in listed] if isinstance(listed, list) else []


class NotRead(Exception):
    """There is no answer yet. `why`: what the last try failed of, "" where none did."""

    def __init__(self, key: Key, why: str) -> None:
        self.key, self.why = key, why
        super().__init__(why or f"{key.path} is being read")


class _Failure(NamedTuple):
    tries: int
    not_before: float
    why: str


class PathReads:
    """`hands` run the GETs; `ring` is called, in one of theirs, when an answer is in."""

    def __init__(self, api: Api, clock: Clock, hands: Executor, ring: Callable[[], None]) -> None:
        self._api = api
        self._clock = clock
        self._hands = hands
        self._ring = ring
        self._answers: dict[Key, Answer] = {}
        self._bytes = 0
        self._failures: dict[Key, _Failure] = {}
        self._wanted: dict[Key, float] = {}
        self._flying: set[Key] = set()
        self._done: SimpleQueue[tuple[Key, Answer | ApiError]] = SimpleQueue()

    def ask(self, key: Key, max_age_s: float, absent_age_s: float) -> Answer:
        """Give an answer that is at most so old; `absent_age_s`: one that says there is no such thing. Raises `NotRead`."""
        found = self._answers.get(key)
        if found is not None:
            limit = max_age_s if found.raw is not None or found.refused else min(max_age_s, absent_age_s)
            if self.age_s(found) <= limit:
                return found
        failure = self._failures.get(key)
        if key not in self._flying:
            self._wanted.setdefault(key, 0.0 if failure is None else failure.not_before)
        raise NotRead(key, "" if failure is None else failure.why)

    def age_s(self, answer: Answer) -> float:
        """Say how long ago an answer was asked for."""
        return self._clock.monotonic() - answer.at

    def collect(self) -> list[Key]:
        """Take what came in, and name the keys about which something is new."""
        news = []
        while True:
            try:
                key, said = self._done.get_nowait()
            except Empty:
                break
            self._flying.discard(key)
            self._take(key, said)
            news.append(key)
            if isinstance(said, Answer) and said.refused:
                news += self._drop_beside(key)
        return news

    def start(self) -> None:
        """Start what is wanted and due."""
        now = self._clock.monotonic()
        for key in [key for key, due in self._wanted.items() if due <= now][: READERS - len(self._flying)]:
            del self._wanted[key]
            self._flying.add(key)
            self._hands.submit(self._read, key)

    def next_due(self) -> float | None:
        """Say when there is something to start, on the monotonic clock."""
        free = len(self._flying) < READERS
        return min(self._wanted.values()) if free and self._wanted else None

    def _drop_beside(self, key: Key) -> list[Key]:
        """Give up what was wanted of the same collection: what is refused for one is refused for all."""
        collection = key.path.rpartition("/")[0] + "/"
        beside = [other for other in self._wanted if other.path.startswith(collection)]
        for other in beside:
            del self._wanted[other]
        return beside

    def _take(self, key: Key, said: Answer | ApiError) -> None:
        if isinstance(said, Answer):
            self._failures.pop(key, None)
            self._keep(key, said)
            return
        count = self._failures[key].tries + 1 if key in self._failures else 1
        pause = max(min(FIRST_PAUSE_S * 2.0 ** (count - 1), LAST_PAUSE_S), said.retry_after_s or 0.0)
        self._failures.pop(key, None)
        self._failures[key] = _Failure(count, self._clock.monotonic() + pause, str(said))
        while len(self._failures) > CACHE_LIMIT:
            del self._failures[next(iter(self._failures))]

    def _keep(self, key: Key, answer: Answer) -> None:
        """Keep an answer, and let the oldest go where there is too much; never this one, for which somebody waits."""
        held = self._answers.pop(key, None)
        self._bytes += answer.size - (0 if held is None else held.size)
        self._answers[key] = answer
        while len(self._answers) > CACHE_LIMIT or (self._bytes > CACHE_BYTES and len(self._answers) > 1):
            self._bytes -= self._answers.pop(next(iter(self._answers))).size

    def _read(self, key: Key) -> None:
        at = self._clock.monotonic()
        try:
            body = self._api.get(key.path)
            raw = msgspec.json.decode(body)
            said: Answer | ApiError = Answer(raw if isinstance(raw, dict) else {}, "", at, len(body))
        except NotFound:
            said = Answer(None, "", at)
        except Forbidden as error:
            said = Answer(None, str(error) or "forbidden", at)
        except ApiError as error:
            said = error
        except (
            msgspec.DecodeError,
            RecursionError,
        ) as error:  # a tenant may nest an owner as deep as it likes
            said = ApiError(f"the answer cannot be read: {error}")
        except (
            Exception
        ) as error:  # the edge of this thread: a key that never came back would hold its reader for ever
            log.exception("read.failed", path=key.path)
            said = ApiError(f"a defect of the scheduler: {error!r}")
        self._done.put((key, said))
        self._ring()
