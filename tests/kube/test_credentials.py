"""Which way to a server is taken, and what is said when a way is broken."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kube.credentials import CannotConnect, Endpoint, explicit, in_cluster
from kube.kubeconfig import default_path, from_kubeconfig
from kube.session import Session, connect
from tests.fakes import FakeClock
from tests.kube.authority import Authority
from tests.kube.http_server import HttpServer, refused, serving

CLOCK = FakeClock().clock


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return written(path, json.dumps(content))


@pytest.mark.parametrize(
    ("server", "token", "ca", "why"),
    [
        pytest.param(
            "10.0.0.1:6443", "token", "ca", "it is no address, give https://HOST:PORT", id="no scheme"
        ),
        pytest.param(
            "http://10.0.0.1",
            "token",
            "ca",
            "must not travel unencrypted",
            id="plain http to another machine",
        ),
        pytest.param("https://h:1", None, "ca", "kube.token_file is missing", id="no token file named"),
        pytest.param("https://h:1", "token", None, "kube.ca_file is missing", id="no authority named"),
        pytest.param(
            "https://h:1", "token", "absent", "absent is no file", id="an authority file that is not there"
        ),
        pytest.param("https://h:1", "empty", "ca", "missing, unreadable or empty", id="an empty token file"),
        pytest.param(
            "https://h:1", "absent", "ca", "missing, unreadable or empty", id="a token file that is not there"
        ),
    ],
)
def test_what_is_wrong_with_a_named_server_is_said(
    tmp_path: Path, server: str, token: str | None, ca: str | None, why: str
) -> None:
    """The message names the setting and what would be right."""
    written(tmp_path / "token", "t")
    written(tmp_path / "ca", "c")
    written(tmp_path / "empty", "")
    with pytest.raises(CannotConnect, match=why):
        explicit(server, tmp_path / token if token else None, tmp_path / ca if ca else None, CLOCK)


def test_a_pod_finds_its_service_account(tmp_path: Path) -> None:
    """Address from the environment, IPv6 in brackets, token and authority from the mounted folder."""
    written(tmp_path / "token", "t\n")
    written(tmp_path / "ca.crt", "c")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = in_cluster(environ, tmp_path, CLOCK)
    assert found is not None
    assert (found[0], found[1].header()) == (
        Endpoint(server="https://[fd00::1]:443", ca_file=str(tmp_path / "ca.crt")),
        "Bearer t",
    )


@pytest.mark.parametrize(
    ("files", "why"),
    [
        pytest.param(
            ("token",), r"ca\.crt: missing, although KUBERNETES_SERVICE_HOST", id="without its authority"
        ),
        pytest.param(
            ("ca.crt",), "token: the token file is missing", id="with automountServiceAccountToken off"
        ),
    ],
)
def test_a_pod_without_a_token_is_told_so(tmp_path: Path, files: tuple[str, ...], why: str) -> None:
    """It does not fall through to somebody's kubeconfig."""
    for name in files:
        written(tmp_path / name, "x")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(CannotConnect, match=why):
        in_cluster(environ, tmp_path, CLOCK)


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    """Without the environment of a pod the folder is not looked at."""
    assert in_cluster({}, tmp_path, CLOCK) is None


def test_the_default_kubeconfig_is_kubectls(tmp_path: Path) -> None:
    """KUBECONFIG first, then ~/.kube/config, then nothing."""
    nothing = default_path({}, tmp_path)
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config", "{}")
    assert [nothing, default_path({}, tmp_path), default_path({"KUBECONFIG": "a:b"}, tmp_path)] == [
        None,
        str(tmp_path / ".kube" / "config"),
        "a:b",
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("{}", id="an empty object"),
        pytest.param("", id="an empty file"),
        pytest.param("just words", id="no mapping"),
        pytest.param("a: [", id="no YAML"),
        pytest.param(
            '{"current-context": "x", "contexts": [], "clusters": []}', id="a context that is not there"
        ),
    ],
)
def test_a_broken_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    """One error of ours with the file's path, whatever the library raised."""
    path = written(tmp_path / "config", content)
    with pytest.raises(CannotConnect, match=str(path)):
        from_kubeconfig(path)


def test_an_absent_kubeconfig_is_named(tmp_path: Path) -> None:
    """A path that somebody gave must exist."""
    with pytest.raises(CannotConnect, match="no such kubeconfig"):
        connect(kubeconfig=tmp_path / "absent", user_agent="t/0")


def test_a_user_without_credentials_is_refused(tmp_path: Path) -> None:
    """Also where an exec plug-in failed, which the library only logs."""
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "false",
            "interactiveMode": "Never",
        }
    }
    for user in ({}, plugin):
        path = kubeconfig(
            tmp_path / "config", "https://127.0.0.1:1", user, **{"insecure-skip-tls-verify": True}
        )
        with pytest.raises(CannotConnect, match="no token and no client certificate, or its plug-in failed"):
            from_kubeconfig(path)


def test_a_kubeconfigs_token_file_is_read_again_when_refused(tmp_path: Path) -> None:
    """A kubeconfig with a tokenFile behaves as a mounted token does."""
    token = written(tmp_path / "token", "first")
    authority = Authority(tmp_path, "ours")
    with serving(authority.server_context()) as server:
        path = kubeconfig(
            tmp_path / "config",
            server.url,
            {"tokenFile": str(token)},
            **{"certificate-authority": str(authority.ca_file)},
        )
        session = connect(kubeconfig=path, user_agent="t/0", clock=CLOCK)
        session.get("/version")
        token.write_text("second")
        server.answers.append(refused(401, "Unauthorized"))
        session.get("/version")
        session.close()
    got = [asked.headers["authorization"] for asked in server.asked]
    assert got == ["Bearer first", "Bearer first", "Bearer second"]


def test_an_exec_plugin_is_asked_again_when_its_token_is_refused(tmp_path: Path) -> None:
    """Cloud plug-ins hand out short-lived tokens."""
    counter = tmp_path / "count"
    code = (
        "import json, pathlib, sys;"
        f"p = pathlib.Path({str(counter)!r}); n = p.read_text() + 'x' if p.exists() else 'x'; p.write_text(n);"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': 'token-' + n}}))"
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", code],
            "interactiveMode": "Never",
        }
    }
    with serving() as server:
        session = _session(tmp_path, server, user)
        server.answers.append(refused(401, "Unauthorized"))
        session.get("/version")
        session.close()
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer token-x", "Bearer token-xx"]


def _session(tmp_path: Path, server: HttpServer, user: dict[str, Any]) -> Session:
    return connect(
        kubeconfig=kubeconfig(tmp_path / "config", server.url, user), user_agent="t/0", clock=CLOCK
    )


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    """An authority file that cannot be loaded is an error at the start, with its path."""
    token, ca = written(tmp_path / "token", "t"), written(tmp_path / "ca.crt", "no certificate")
    with pytest.raises(CannotConnect, match=r"ca\.crt: not a usable certificate authority file"):
        connect(server="https://127.0.0.1:1", token_file=token, ca_file=ca, user_agent="t/0")


def test_a_session_in_a_cluster_never_imports_the_kubernetes_client(tmp_path: Path) -> None:
    """It would cost every node 16 MiB; urllib3 is all that is needed."""
    authority = Authority(tmp_path, "ours")
    written(tmp_path / "token", "t")
    code = (
        "import sys, pathlib; from kube.session import connect\n"
        f"connect(user_agent='t/0', environ={{'KUBERNETES_SERVICE_HOST': '127.0.0.1', 'KUBERNETES_SERVICE_PORT': '1'}},"
        f" service_account=pathlib.Path({str(tmp_path)!r}))\n"
        "print([name for name in ('kubernetes', 'yaml', 'requests') if name in sys.modules])"
    )
    authority.ca_file.rename(tmp_path / "ca.crt")
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
