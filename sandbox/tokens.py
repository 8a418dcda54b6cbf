"""ServiceAccount tokens of the sandbox: asked for through TokenRequest, kept fresh in files as a kubelet keeps them.

nodemend's programs run in the sandbox under these, so that their real RBAC and the admission policy for agents are what is
exercised. A token bound to a pod carries the pod's node as a claim, as a DaemonSet's does.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from kube import paths
from kube.api import Api, ApiError
from kube.clock import Clock

_RETRY_S = 5.0


class PodRef(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that a token is bound to; the token dies with it."""

    name: str
    uid: str

    def reference(self) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}


class NodeRef(msgspec.Struct, frozen=True, kw_only=True):
    """The Node that a token is bound to, whichever bears the name; the token dies with it (Kubernetes 1.31 and newer)."""

    name: str

    def reference(self) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "Node", "name": self.name}


class _Status(msgspec.Struct, frozen=True):
    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _Status


class _File(msgspec.Struct, kw_only=True):
    path: Path
    namespace: str
    service_account: str
    pod: PodRef | None
    seconds: int
    due: float  # monotonic


def request(
    api: Api,
    namespace: str,
    service_account: str,
    *,
    bound: PodRef | NodeRef | None = None,
    seconds: int = 3600,
) -> str:
    """Ask for a token that lives `seconds` (at least 600, the API server's limit). Raises ApiError."""
    spec: dict[str, object] = {"expirationSeconds": seconds}
    if bound is not None:
        spec["boundObjectRef"] = bound.reference()
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = paths.token_request(namespace, service_account)
    return msgspec.json.decode(api.create(path, body), type=_TokenRequest).status.token


class NodeToken:
    """A kube.credentials.TokenSource: a ServiceAccount's token that is bound to a Node, asked for when it is first needed.

    It is renewed after four fifths of its life, and at once where the server refuses it: it died with its Node object, and
    another Node of that name may be there. `at_once` bounds how many ask at the same time. `header` and `renew` raise
    ApiError: NotFound where there is no such Node.
    """

    def __init__(
        self,
        api: Callable[[], Api],
        namespace: str,
        service_account: str,
        node: NodeRef,
        *,
        clock: Clock,
        at_once: threading.Semaphore,
        seconds: int = 3600,
    ) -> None:
        self._ask: Callable[[], str] = lambda: request(
            api(), namespace, service_account, bound=node, seconds=seconds
        )
        self._clock = clock
        self._at_once = at_once
        self._seconds = seconds
        self._lock = threading.Lock()
        self._token = ""
        self._due = float("-inf")

    def header(self) -> str:
        with self._lock:
            if not self._token or self._clock.monotonic() >= self._due:
                self._renew()
            return f"Bearer {self._token}"

    def renew(self, refused: str) -> bool:
        with self._lock:
            if refused == f"Bearer {self._token}":  # else another thread has asked for the new one already
                self._token = ""
                self._renew()
            return refused != f"Bearer {self._token}"

    def _renew(self) -> None:
        try:
            with self._at_once:
                self._token = self._ask()
        except ApiError:
            if not self._token:
                raise
            # The one that is held still works for a fifth of its life.
            self._due = self._clock.monotonic() + _RETRY_S
        else:
            self._due = self._clock.monotonic() + self._seconds * 0.8


class TokenFiles:
    """Token files and the one thread that renews each after four fifths of its life."""

    def __init__(self, folder: Path, api: Callable[[], Api]) -> None:
        self._folder = folder
        self._api = api
        self._files: dict[Path, _File] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def path(
        self, namespace: str, service_account: str, *, pod: PodRef | None = None, seconds: int = 3600
    ) -> Path:
        """Return the file that holds such a token from now on; the same file for the same arguments. Raises ApiError."""
        name = f"{service_account}.{pod.name}.{pod.uid}" if pod else service_account
        file = _File(
            path=self._folder / namespace / name,
            namespace=namespace,
            service_account=service_account,
            pod=pod,
            seconds=seconds,
            due=0.0,
        )
        with self._lock:
            if file.path in self._files:
                return file.path
        self._renew(file)
        with self._lock:
            self._files.setdefault(file.path, file)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_fresh, name="sandbox-tokens", daemon=True)
                self._thread.start()
        self._wake.set()
        return file.path

    def close(self) -> None:
        """Stop renewing; returns when the thread has ended."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _keep_fresh(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            with self._lock:
                files = list(self._files.values())
            for file in files:
                if self._closed.is_set() or file.due > time.monotonic():
                    continue
                try:
                    self._renew(file)
                except ApiError:
                    # The API server may be down on purpose, or the pod gone: the old token stays until it expires.
                    file.due = time.monotonic() + _RETRY_S
            next_due = min((file.due for file in files), default=time.monotonic() + 60)
            self._wake.wait(max(0.2, next_due - time.monotonic()))

    def _renew(self, file: _File) -> None:
        token = request(
            self._api(), file.namespace, file.service_account, bound=file.pod, seconds=file.seconds
        )
        file.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        pending = file.path.with_name(f".{file.path.name}")
        pending.touch(mode=0o600)
        pending.write_text(token)
        pending.rename(file.path)  # a reader sees the old token or the new one, never a part
        file.due = time.monotonic() + file.seconds * 0.8
