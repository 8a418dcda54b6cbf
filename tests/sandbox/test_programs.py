"""Where the programs come from: KUBEBUILDER_ASSETS, the cache, the PATH, a build; never of another minor version."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sandbox import programs
from sandbox.programs import MissingProgramError

SAYS = {
    "etcd": "etcd Version: {}\nGit SHA: Not provided\nGo Version: go1.26.8",
    "kwok": "kwok version v{} go1.26.8 (linux/amd64)",
    "kubectl": "Client Version: v{}\nKustomize Version: v5.8.1",
}
VERSIONS = {"etcd": "3.6.5", "kwok": "0.7.0"}
GO = """#!/bin/sh
case "$1" in
version) echo "go version go1.26.8 linux/amd64" ;;
mod) echo "{{\\"GoMod\\": \\"{go_mod}\\"}}" ;;
build) while [ "$1" != -o ]; do shift; done; echo built > "$2"; echo "$2" >> {log} ;;
esac
"""


def _executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def _program(folder: Path, name: str, version: str = "") -> Path:
    version = version or VERSIONS.get(name, "1.37.0")
    text = SAYS.get(name, "Kubernetes v{}").format(version)
    return _executable(folder / name, f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")


def _machine(tmp_path: Path, **extra: str) -> dict[str, str]:
    """Return the environment of a machine with a Go that builds in no time, and with an empty cache."""
    go_mod = tmp_path / "upstream.mod"
    go_mod.write_text("replace k8s.io/api => ./staging/src/k8s.io/api\n")
    _executable(tmp_path / "go" / "go", GO.format(go_mod=go_mod, log=tmp_path / "built"))
    path = f"{tmp_path / 'go'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": path, **extra}


def _ignore(_line: str) -> None:
    pass


def test_a_whole_set_of_assets_is_used_as_it_is(tmp_path: Path) -> None:
    """A user with the programs never builds, whatever the patch version is."""
    expected = {name: _program(tmp_path / "assets", name) for name in programs.ALL}

    found = programs.find_or_build(progress=_ignore, env={"KUBEBUILDER_ASSETS": str(tmp_path / "assets")})

    assert found == expected


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        pytest.param("kube-scheduler", None, "kube-scheduler does not exist", id="a program that is missing"),
        pytest.param(
            "kube-apiserver",
            "1.36.3",
            "kube-apiserver is v1.36.3, wanted is 1.37 (NODEMEND_KUBERNETES_VERSION would choose it)",
            id="a program of another minor version",
        ),
        pytest.param(
            "etcd", "3.5.21", "etcd is v3.5.21, wanted is 3.6", id="an etcd of another minor version"
        ),
    ],
)
def test_what_the_assets_lack_is_built(tmp_path: Path, name: str, version: str | None, said: str) -> None:
    """The rest of the set is still used, and it is said why this one is not."""
    assets = tmp_path / "assets"
    for other in programs.ALL:
        if other != name:
            _program(assets, other)
    if version:
        _program(assets, name, version)
    lines: list[str] = []

    found = programs.find_or_build(
        progress=lines.append, env=_machine(tmp_path, KUBEBUILDER_ASSETS=str(assets))
    )

    assert [other for other, path in found.items() if path.parent != assets] == [name]
    assert found[name].read_text() == "built\n"
    assert lines[0] == f"KUBEBUILDER_ASSETS: {assets}/{said}"


def test_kubelet_is_built_only_when_asked_for(tmp_path: Path) -> None:
    """It takes minutes, and most uses run no real node; it comes from the same sources as the other programs."""
    assets = tmp_path / "assets"
    for name in programs.ALL:
        _program(assets, name)
    env = _machine(tmp_path, KUBEBUILDER_ASSETS=str(assets))

    assert programs.KUBELET not in programs.find_or_build(progress=_ignore, env=env)
    found = programs.find_or_build([programs.KUBELET], progress=_ignore, env=env)

    kept = tmp_path / "cache/nodemend/kubernetes" / programs.KUBERNETES / "bin/kubelet"
    assert found == {programs.KUBELET: kept}


def test_a_build_is_kept(tmp_path: Path) -> None:
    """The second start finds everything in the cache, by version, and needs no Go."""
    env = _machine(tmp_path)

    first = programs.find_or_build(progress=_ignore, env=env)
    second = programs.find_or_build(progress=_ignore, env={**env, "PATH": ""})

    assert second == first
    assert first["kubectl"] == tmp_path / "cache/nodemend/kubernetes/v1.37.2/bin/kubectl"
    assert first["kwok"] == tmp_path / "cache/nodemend/kwok/v0.7.0/bin/kwok"


@pytest.mark.parametrize(
    ("version", "used"),
    [
        pytest.param("1.37.9", True, id="of the wanted minor version it is used"),
        pytest.param("1.32.4-dispatcher", False, id="of another minor version it is not"),
    ],
)
def test_kubectl_on_the_path(tmp_path: Path, version: str, used: bool) -> None:
    """Only kubectl is taken from the PATH."""
    on_path = _program(tmp_path / "go", "kubectl", version)

    found = programs.find_or_build(["kubectl"], progress=_ignore, env=_machine(tmp_path))

    assert (found["kubectl"] == on_path) == used


def test_two_builders_build_once(tmp_path: Path) -> None:
    """The second waits for the first and uses what it built."""
    env = _machine(tmp_path)
    lock = tmp_path / "cache" / "nodemend" / "build.lock"
    lock.parent.mkdir(parents=True)
    found: list[dict[str, Path]] = []
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiting = threading.Thread(
            target=lambda: found.append(programs.find_or_build(["etcd"], progress=_ignore, env=env))
        )
        waiting.start()
        time.sleep(0.5)
        _program(tmp_path / "cache/nodemend/etcd/v3.6.16/bin", "etcd")
    waiting.join(10)

    assert [list(each) for each in found] == [["etcd"]]
    assert not (tmp_path / "built").exists()


@pytest.mark.parametrize("version", ["1.37.2", "v1.37", "latest", "v1.37.2; rm -rf /"])
def test_a_malformed_version_is_refused(version: str) -> None:
    """The variable, its value and what would be right are named."""
    with pytest.raises(ValueError, match=r"NODEMEND_KUBERNETES_VERSION=.*: write it as in v1\.37\.2"):
        programs.wanted_modules({"NODEMEND_KUBERNETES_VERSION": version})


def test_another_version_can_be_chosen() -> None:
    """An old version's test builds that version of the four programs, and the same etcd and KWOK."""
    chosen = {
        module.name: module.version
        for module in programs.wanted_modules({"NODEMEND_KUBERNETES_VERSION": "v1.34.4"})
    }

    assert chosen == {"etcd": "v3.6.16", "kubernetes": "v1.34.4", "kwok": "v0.7.0"}


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The error says which folder and which variable names another."""
    (tmp_path / "cache").write_text("a file where a folder should be")

    with pytest.raises(MissingProgramError, match=r"cache/nodemend: .*; XDG_CACHE_HOME names another"):
        programs.find_or_build(["etcd"], progress=_ignore, env=_machine(tmp_path))


@pytest.mark.parametrize(
    ("extra", "status", "words"),
    [
        pytest.param({}, 0, "kube-apiserver ", id="everything is there"),
        pytest.param({"NODEMEND_KUBERNETES_VERSION": "new"}, 2, "write it as in", id="a malformed version"),
        pytest.param(
            {"XDG_CACHE_HOME": "/proc/none"}, 3, "XDG_CACHE_HOME names another", id="something is lacking"
        ),
    ],
)
def test_the_command_s_exit_status(tmp_path: Path, extra: dict[str, str], status: int, words: str) -> None:
    """`python -m sandbox.programs` ends with 0, 2 or 3 and says what there is to say."""
    done = subprocess.run(
        [sys.executable, "-m", "sandbox.programs"],
        env={**_machine(tmp_path), **extra},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, words in done.stdout + done.stderr) == (status, True)
    assert "Traceback" not in done.stderr
