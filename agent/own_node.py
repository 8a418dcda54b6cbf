"""Which Node object is ours, and what it shows: read at start, again every half minute, and whenever a write was refused.

Beside these reads a watch (agent.own_watch) brings each change as it comes; they stand on their own, since a watch can be
deaf. What is learned is handed over as a value, since the judging loop lives in another thread.
"""

import threading
from collections.abc import Callable
from random import Random

import msgspec
import structlog

from agent.pacing import Backoff, stretched
from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.clock import Clock
from kube.nodehealth import NodeHealth, NodeHealthSpec
from kube.types import Node

LOOK_S = 30.0

# resourceVersion 0: any state that the server has in memory will do, no quorum read of etcd.
_FROM_CACHE = {"resourceVersion": "0"}


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """A Node object that was not known before, or must be met again, and its NodeHealth where there is one."""

    node: Node
    health: NodeHealth | None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The same Node object, read again."""

    node: Node


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """There is no Node object of our name."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """NodeHealth.spec as it stands now."""

    spec: NodeHealthSpec


News = Met | Seen | Gone | Asked


class Mailbox:
    """Carries news from the threads that talk to the API server to the judging loop. `wake` is called after each."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._news: list[News] = []

    def put(self, news: News) -> None:
        with self._lock:
            self._news.append(news)
        self._wake()

    def take(self) -> list[News]:
        """Take all that is there, oldest first."""
        with self._lock:
            taken, self._news = self._news, []
        return taken


class OwnNode:
    """Reads one Node by name. `tell` is called with what was learned."""

    def __init__(
        self, api: Api, name: str, clock: Clock, random: Random, tell: Callable[[News], None]
    ) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._random = random
        self._tell = tell
        self._log = structlog.get_logger().bind(node=name)
        self._backoff = Backoff(0.5, 15.0, random)
        self._uid = ""
        self._look_at = float("-inf")
        self._doubted = threading.Event()

    def doubt(self) -> None:
        """Meet the Node anew at the next step: a write said that it is not the one we know. Any thread may call this.

        A step that is under way does not swallow it: what that one reads may be older than the doubt.
        """
        self._doubted.set()

    def hurry(self) -> bool:
        """Try again now what failed: the server is known to answer. Give whether anything had. Any thread may call this."""
        failed = self._backoff.failures > 0
        if failed:
            self._look_at = float("-inf")
        return failed

    def step(self) -> float:
        """Read what is due; give the seconds until the next read."""
        now = self._clock.monotonic()
        if self._doubted.is_set():
            self._doubted.clear()
            self._uid = ""
        elif now < self._look_at:
            return self._look_at - now
        try:
            again = self._look()
        except (ApiError, msgspec.MsgspecError) as error:
            again = self._backoff.failed()
            self._say(error)
        else:
            if self._backoff.failures:
                self._log.info("node.found", uid=self._uid, attempts=self._backoff.failures + 1)
            self._backoff.succeeded()
        self._look_at = self._clock.monotonic() + again
        return 0.0 if self._doubted.is_set() else again

    def _look(self) -> float:
        if self._uid:
            node = self._read(_FROM_CACHE)
            if node.metadata.uid == self._uid:
                self._tell(Seen(node=node))
                return stretched(LOOK_S, self._random)
            self._log.warning("node.replaced", uid=node.metadata.uid, before=self._uid)
        node = self._read(None)
        met = Met(node=node, health=self._read_health())
        self._uid = node.metadata.uid
        self._tell(met)
        return stretched(LOOK_S, self._random)

    def _read(self, query: dict[str, str] | None) -> Node:
        try:
            return msgspec.json.decode(self._api.get(paths.node(self._name), query), type=Node)
        except NotFound:
            self._uid = ""
            self._tell(Gone())
            raise

    def _read_health(self) -> NodeHealth | None:
        """Read NodeHealth; None where there is none, which a cluster without our CRD says in the same way."""
        try:
            raw = self._api.get(paths.node_health(self._name))
        except NotFound:
            return None
        try:
            return msgspec.json.decode(raw, type=NodeHealth)
        except msgspec.MsgspecError as error:
            # Another version's object: nothing of it can be trusted, and it will be overwritten.
            self._log.warning("health.discarded", error=str(error))
            return None

    def _say(self, error: Exception) -> None:
        if self._backoff.failures == 1:
            self._log.warning("node.unreadable", error=str(error), kind=type(error).__name__)
