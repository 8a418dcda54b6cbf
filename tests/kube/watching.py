"""A Reflector in its thread, and a server that answers its lists and watches from scripts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from kube import paths
from kube.api import Api
from kube.clock import SYSTEM
from kube.session import Session, connect
from kube.store import Store
from kube.types import Node
from kube.watch import Reflector
from tests.fakes import FakeApi, wait_until
from tests.kube.http_server import Answer, Asked, HttpServer, serving

NODES = paths.nodes()


class Watching:
    """A Reflector in its thread, with the pauses it made; pauses do not wait."""

    def __init__(self, api: Api, **options: Any) -> None:
        self.store: Store[Node] = Store()
        self.pauses: list[float] = []
        self.stop = threading.Event()
        self.reflector = Reflector(
            api, NODES, Node, self.store, clock=SYSTEM, stop=self.stop, pause=self.pause, **options
        )
        self.thread = threading.Thread(target=self.reflector.run)
        self.thread.start()

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.stop.wait(0.001)

    def versions(self) -> dict[str, int]:
        return {key: int(obj.metadata.resource_version) for key, obj in self.store.snapshot().items()}

    def reaches(self, expected: dict[str, int]) -> bool:
        try:
            wait_until(lambda: self.store.synced and self.versions() == expected)
        except AssertionError:
            assert self.versions() == expected
        return True


@contextmanager
def watching(api: FakeApi | Session, **options: Any) -> Iterator[Watching]:
    running = Watching(api, **options)
    try:
        yield running
    finally:
        running.stop.set()
        api.close()
        running.thread.join(5)
        assert not running.thread.is_alive()


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def listing(version: int, *items: dict[str, Any], next_page: str = "") -> Answer:
    metadata = {"resourceVersion": str(version), "continue": next_page}
    return Answer(body={"kind": "NodeList", "metadata": metadata, "items": list(items)})


class Scripted:
    """A server that answers lists and watches from two scripts; an exhausted watch script leaves the watch open."""

    def __init__(self, server: HttpServer, lists: list[Answer], watches: list[Answer]) -> None:
        self.server = server
        self.lists = lists
        self.watches = watches
        self.hold = threading.Event()
        server.otherwise = self.answer

    def answer(self, asked: Asked) -> Answer:
        if "watch=true" in asked.path:
            return self.watches.pop(0) if self.watches else Answer(chunks=(b"\n",), hold=self.hold)
        return self.lists.pop(0)

    def queries(self, *, watch: bool) -> list[dict[str, str]]:
        parsed = [parse_qs(urlsplit(asked.path).query) for asked in self.server.asked]
        flat = [{name: values[0] for name, values in query.items()} for query in parsed]
        return [query for query in flat if ("watch" in query) == watch]


@contextmanager
def scripted(
    lists: list[Answer], watches: list[Answer], **options: Any
) -> Iterator[tuple[Watching, Scripted]]:
    with serving() as server:
        script = Scripted(server, lists, watches)
        session = connect(server=server.url, user_agent="t/0")
        with watching(session, **options) as running:
            try:
                yield running, script
            finally:
                script.hold.set()
