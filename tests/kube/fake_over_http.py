"""FakeApi behind a real socket, for programs of their own process."""

import threading
import time
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import msgspec

from kube.api import ApiError, PatchType
from tests.fakes import FakeApi
from tests.kube.http_server import Answer, Asked


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A request and when it had arrived whole, on the monotonic clock that all processes of a machine share."""

    at: float
    user_agent: str
    method: str
    path: str


class FakeOverHttp:
    """Answers for HttpServer; `seen` is what came, in order."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.seen: list[Seen] = []
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        with self._lock:
            self.seen.append(
                Seen(
                    at=time.monotonic(),
                    user_agent=asked.headers["user-agent"],
                    method=asked.method,
                    path=parts.path,
                )
            )
        try:
            return Answer(body=self._carry_out(asked, parts.path, dict(parse_qsl(parts.query))))
        except ApiError as error:
            status = {"kind": "Status", "code": error.code, "reason": error.reason, "message": str(error)}
            return Answer(status=error.code, body=status)

    def writes_of(self, user_agent: str, *, since: float = 0.0) -> list[Seen]:
        return [s for s in self.seen if s.user_agent == user_agent and s.method != "GET" and s.at >= since]

    def _carry_out(self, asked: Asked, path: str, query: dict[str, str]) -> bytes:
        query.pop("timeout", None)
        body = msgspec.json.decode(asked.body) if asked.body else {}
        actions: dict[str, Callable[[], bytes]] = {
            "GET": lambda: self.api.get(path, query),
            "POST": lambda: self.api.create(path, body, query),
            "PATCH": lambda: self.api.patch(path, body, PatchType(asked.headers["content-type"]), query),
            "PUT": lambda: self.api.replace(path, body),
            "DELETE": lambda: self.api.delete(path, body),
        }
        return actions[asked.method]()
