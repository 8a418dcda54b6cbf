"""A named context of a kubeconfig is the one that is used, or the one that is named as missing."""

from pathlib import Path

import pytest

from kube.credentials import CannotConnect
from kube.session import connect

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: near
clusters:
  - {name: near, cluster: {server: "https://near.example:6443"}}
  - {name: far, cluster: {server: "https://far.example:6443"}}
users:
  - {name: me, user: {token: t0ken}}
contexts:
  - {name: near, context: {cluster: near, user: me}}
  - {name: far, context: {cluster: far, user: me}}
  - {name: nobody, context: {cluster: far, user: missing}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig with three contexts."""
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


@pytest.mark.parametrize(
    ("context", "server"),
    [
        pytest.param("", "https://near.example:6443", id="none named: the current one"),
        pytest.param("far", "https://far.example:6443", id="another one named"),
    ],
)
def test_context(kubeconfig: Path, context: str, server: str) -> None:
    """The server is that of the context, given by file or by KUBECONFIG."""
    assert connect(user_agent="t", kubeconfig=kubeconfig, context=context).server == server
    environ = {"KUBECONFIG": str(kubeconfig)}
    assert connect(user_agent="t", context=context, environ=environ).server == server


def test_a_context_means_a_kubeconfig_even_in_a_pod(kubeconfig: Path, tmp_path: Path) -> None:
    """Whoever names a context does not mean the pod's own service account."""
    environ = {
        "KUBECONFIG": str(kubeconfig),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    session = connect(
        user_agent="t", context="far", environ=environ, service_account=tmp_path / "no-such-folder"
    )
    assert session.server == "https://far.example:6443"


@pytest.mark.parametrize(
    "context",
    [pytest.param("elsewhere", id="no such context"), pytest.param("nobody", id="a context without a user")],
)
def test_a_context_that_is_not_usable_is_named(kubeconfig: Path, context: str) -> None:
    """One error that names the file and the context."""
    with pytest.raises(CannotConnect, match=context) as error:
        connect(user_agent="t", kubeconfig=kubeconfig, context=context)
    assert str(kubeconfig) in str(error.value)
