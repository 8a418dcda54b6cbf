"""Credentials from a kubeconfig, with its plug-ins; the only module that imports `kubernetes`, and only when called.

The library costs 16 MiB and half a second, which an agent in a cluster never pays. It merges the files that KUBECONFIG
lists, runs exec plug-ins and refreshes what they gave; requests are not made by it.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube.credentials import CannotConnect, Endpoint, TokenSource


class KubeconfigToken:
    """The token of a kubeconfig's user; an expired one is refreshed by the library, a refused one is loaded anew."""

    def __init__(self, path: str, context: str, configuration: Any) -> None:
        self._path = path
        self._context = context
        self._lock = threading.Lock()
        self._configuration = configuration

    def header(self) -> str:
        with self._lock:
            return str(self._configuration.get_api_key_with_prefix("BearerToken") or "")

    def renew(self, refused: str) -> bool:
        if self.header() == refused:
            fresh = _load(self._path, self._context)
            with self._lock:
                self._configuration = fresh
        return self.header() != refused


def from_kubeconfig(path: Path, context: str = "") -> tuple[Endpoint, TokenSource]:
    """Use one context of that kubeconfig, its current one where none is named.

    Raises CannotConnect naming the file and what is wrong in it.
    """
    if not path.is_file():
        raise CannotConnect(f"{path}: no such kubeconfig")
    return _credentials(str(path), context)


def default_path(environ: Mapping[str, str], home: Path) -> str | None:
    """Where kubectl would look: KUBECONFIG (several, separated by colons), else ~/.kube/config; None without either."""
    if named := environ.get("KUBECONFIG"):
        return named
    path = home / ".kube" / "config"
    return str(path) if path.is_file() else None


def from_default(path: str, context: str = "") -> tuple[Endpoint, TokenSource]:
    """Use what `default_path` gave. Raises CannotConnect."""
    return _credentials(path, context)


def _credentials(path: str, context: str) -> tuple[Endpoint, TokenSource]:
    configuration = _load(path, context)
    endpoint = Endpoint(
        server=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert or "",
        cert_file=configuration.cert_file or "",
        key_file=configuration.key_file or "",
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name or "",
        proxy=configuration.proxy or "",
    )
    token = KubeconfigToken(path, context, configuration)
    if not token.header() and not endpoint.cert_file:
        whose = f"context {context}" if context else "the current context"
        raise CannotConnect(
            f"{path}: the user of {whose} has no token and no client certificate, or its plug-in failed"
        )
    return endpoint, token


def _load(path: str, context: str) -> Any:
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import load_kube_config
    from yaml import YAMLError  # comes with kubernetes; no stubs

    configuration = Configuration()
    try:
        load_kube_config(
            config_file=path,
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # The library lets whatever the malformed file provoked escape: TypeError for a scalar, KeyError for a field.
        raise CannotConnect(f"{path}: not a usable kubeconfig: {error}") from error
    return configuration
