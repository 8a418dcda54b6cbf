"""Where the API server is and who we are to it: from a service account's folder, or from named files.

Projected tokens rotate about once an hour and the old one stays valid for a while, so a token is read again once it is a
minute old in memory, and at once when the server says 401. kubeconfig has its own module, the only one that imports
`kubernetes`.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from kube.clock import Clock

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_MAX_AGE_S = 60.0
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class CannotConnect(Exception):
    """There is no usable way to an API server; the message names what was looked for and what is missing."""


class TokenSource(Protocol):
    """Gives the value of the Authorization header."""

    def header(self) -> str:
        """Give the header's present value, empty where the connection itself carries the identity."""
        ...

    def renew(self, refused: str) -> bool:
        """Read the credentials again at once; give whether the header now differs from the one that was refused."""
        ...


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the server. `ca_file` empty means the system's authorities; certificate and key are ours, if any."""

    server: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = ""


class NoToken:
    """For client certificates, and for servers that ask nothing."""

    def header(self) -> str:
        return ""

    def renew(self, refused: str) -> bool:  # noqa: ARG002 - the Protocol's name; there is nothing to read again
        return False


class FileToken:
    """A bearer token in a file that somebody else keeps fresh. Raises CannotConnect where it never could be read.

    A file that turns unreadable or empty later does not take away the token that still works.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token = self._read()
        if not self._token:
            raise CannotConnect(
                f"{path}: the token file is missing, unreadable or empty; it must hold a bearer token"
            )
        self._read_at = clock.monotonic()

    def header(self) -> str:
        with self._lock:
            if self._clock.monotonic() - self._read_at > TOKEN_MAX_AGE_S:
                self._read_again()
            return f"Bearer {self._token}"

    def renew(self, refused: str) -> bool:
        with self._lock:
            if refused == f"Bearer {self._token}":  # else another thread has read the new one already
                self._read_again()
            return refused != f"Bearer {self._token}"

    def _read_again(self) -> None:
        self._token = self._read() or self._token
        self._read_at = self._clock.monotonic()

    def _read(self) -> str:
        try:
            return self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""


def explicit(
    server: str, token_file: Path | None, ca_file: Path | None, clock: Clock
) -> tuple[Endpoint, TokenSource]:
    """Use a server named by configuration. Raises CannotConnect naming the missing file."""
    if why := _why_not_usable(server, token_file, ca_file):
        raise CannotConnect(f"kube.server {server!r}: {why}")
    token = FileToken(token_file, clock) if token_file is not None else NoToken()
    return Endpoint(server=server.rstrip("/"), ca_file=str(ca_file) if ca_file is not None else ""), token


def _why_not_usable(server: str, token_file: Path | None, ca_file: Path | None) -> str | None:
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it is no address, give https://HOST:PORT"
    if parts.scheme == "http":
        if parts.hostname not in _LOOPBACK:
            return "a token must not travel unencrypted, give https://HOST:PORT (plain http only to this machine)"
        return None
    if token_file is None:
        return "kube.token_file is missing, give the path of a file that holds a bearer token"
    if ca_file is None:
        return "kube.ca_file is missing, give the path of the authority that signed the server's certificate"
    if not ca_file.is_file():
        return f"kube.ca_file {ca_file} is no file"
    return None


def in_cluster(environ: Mapping[str, str], folder: Path, clock: Clock) -> tuple[Endpoint, TokenSource] | None:
    """Use the pod's service account; None where this is no pod. Raises CannotConnect where it is one without a token."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    ca_file = folder / "ca.crt"
    if not ca_file.is_file():
        raise CannotConnect(f"{ca_file}: missing, although KUBERNETES_SERVICE_HOST says that this is a pod")
    address = f"[{host}]" if ":" in host else host
    return Endpoint(server=f"https://{address}:{port}", ca_file=str(ca_file)), FileToken(
        folder / "token", clock
    )


def choose(
    kubeconfig: Path | None,
    context: str,
    server: str | None,
    token_file: Path | None,
    ca_file: Path | None,
    clock: Clock,
    environ: Mapping[str, str],
    service_account: Path,
) -> tuple[Endpoint, TokenSource]:
    """Take the first way that is there: a named server, a named kubeconfig, the pod's service account, kubectl's default.

    Raises CannotConnect, naming all four where there is none.
    """
    from kube import kubeconfig as files  # not at the top: it builds on this module

    if server:
        return explicit(server, token_file, ca_file, clock)
    if kubeconfig:
        return files.from_kubeconfig(kubeconfig, context)
    # Whoever names a context means a kubeconfig, also from within a pod.
    if not context and (found := in_cluster(environ, service_account, clock)):
        return found
    if default := files.default_path(environ, Path(environ.get("HOME") or "~").expanduser()):
        return files.from_default(default, context)
    raise CannotConnect(
        "no way to an API server: no server with token_file and ca_file is named, no kubeconfig is named, "
        f"this is no pod (no KUBERNETES_SERVICE_HOST, {service_account}), "
        "and neither KUBECONFIG nor ~/.kube/config is there"
    )
