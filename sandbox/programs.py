"""Finds the Kubernetes programs a sandbox needs, or builds them once: `python -m sandbox.programs [kubelet]` does so ahead.

Order: the folder that KUBEBUILDER_ASSETS names, then our cache, then (kubectl only) the PATH, then a build into the cache,
`$XDG_CACHE_HOME/nodemend/MODULE/VERSION/bin`. A program found outside the cache counts only with the wanted minor version,
since versions must not be mixed beyond Kubernetes' skew policy. NODEMEND_KUBERNETES_VERSION chooses another version.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.build_cache import build_lock, cache_folder
from sandbox.go_modules import GoModule, MissingProgramError, build, find_go
from sandbox.long_command import Progress

__all__ = ["ALL", "KUBELET", "MissingProgramError", "find_or_build", "wanted_modules"]

KUBERNETES = "v1.37.2"  # the newest that builds; serves DeviceTaintRule as resource.k8s.io/v1
ETCD = "v3.6.16"
KWOK = "v0.7.0"
ALL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
KUBELET = "kubelet"  # only when asked for: most machines and uses need no real node (`sandbox.kubelet_node`)
_VERSION = re.compile(r"v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?")


def wanted_modules(env: Mapping[str, str]) -> tuple[GoModule, ...]:
    """Return the modules at the versions wanted. Raises ValueError for a malformed NODEMEND_KUBERNETES_VERSION."""
    version = env.get("NODEMEND_KUBERNETES_VERSION") or KUBERNETES
    if not _VERSION.fullmatch(version):
        raise ValueError(f"NODEMEND_KUBERNETES_VERSION={version}: write it as in {KUBERNETES}")
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", KUBELET)
    return (
        GoModule(
            name="etcd",
            path="go.etcd.io/etcd/server/v3",
            version=ETCD,
            packages={"etcd": "go.etcd.io/etcd/server/v3"},
        ),
        GoModule(
            name="kubernetes",
            path="k8s.io/kubernetes",
            version=version,
            packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        ),
        GoModule(
            name="kwok", path="sigs.k8s.io/kwok", version=KWOK, packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}
        ),
    )


def find_or_build(
    names: Iterable[str] = ALL, progress: Progress = print, env: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Return where each program is, after building what is missing.

    `progress` is told in words what happens, at least every 15 s while it builds, always from the calling thread.
    Raises MissingProgramError naming what this machine lacks, and KeyError for a name that is neither in `ALL` nor
    `KUBELET`.
    """
    modules = {name: module for module in wanted_modules(env) for name in module.packages}
    wanted = {name: modules[name] for name in names}
    found = {name: path for name, module in wanted.items() if (path := _find(name, module, progress, env))}
    missing = [name for name in wanted if name not in found]
    if missing:
        go = find_go(env)
        progress(
            f"to build with {go}: {', '.join(missing)} (once; about 15 min on two cores when nothing is cached)"
        )
        with build_lock(cache_folder(env), progress, name="build.lock", what="the programs"):
            for position, name in enumerate(missing, 1):
                target = _cached(name, wanted[name], env)
                if not target.exists():  # else another process built it while we waited
                    numbered = _numbered(progress, position, len(missing))
                    modules_folder = cache_folder(env) / "go"
                    build(
                        wanted[name], name, target, go=go, modules=modules_folder, env=env, progress=numbered
                    )
                found[name] = target
    return {name: found[name] for name in wanted}


def minor_version(program: Path) -> tuple[str, str]:
    """Ask `program` for its version: the minor (`1.37`) and the whole (`v1.37.2`); empty where it does not say."""
    arguments = ["version", "--client"] if program.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run(
            [str(program), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    match = re.search(r"[vV]ersion:? v?(\d+\.\d+)(\S*)|^Kubernetes v(\d+\.\d+)(\S*)", answer.stdout)
    if match is None:
        return "", ""
    minor, rest = (match[1], match[2]) if match[1] else (match[3], match[4])
    return minor, f"v{minor}{rest}"


def _find(name: str, module: GoModule, progress: Progress, env: Mapping[str, str]) -> Path | None:
    assets = env.get("KUBEBUILDER_ASSETS")
    if assets:
        program = Path(assets).absolute() / name
        refusal = _why_not_usable(program, module)
        if refusal is None:
            return program
        progress(f"KUBEBUILDER_ASSETS: {refusal}")
    cached = _cached(name, module, env)
    if cached.exists():
        return cached
    if name == "kubectl":
        on_path = shutil.which(name, path=env.get("PATH", ""))
        if on_path and _why_not_usable(Path(on_path), module) is None:
            return Path(on_path)
    return None


def _why_not_usable(program: Path, module: GoModule) -> str | None:
    if not program.exists():
        return f"{program} does not exist"
    wanted = ".".join(module.version.removeprefix("v").split(".")[:2])
    minor, whole = minor_version(program)
    if not minor:
        return f"{program} does not tell its version"
    if minor == wanted:
        return None
    way_out = " (NODEMEND_KUBERNETES_VERSION would choose it)" if module.name == "kubernetes" else ""
    return f"{program} is {whole}, wanted is {wanted}{way_out}"


def _cached(name: str, module: GoModule, env: Mapping[str, str]) -> Path:
    return cache_folder(env) / module.name / module.version / "bin" / name


def _numbered(progress: Progress, position: int, total: int) -> Progress:
    return lambda line: progress(f"[{position}/{total}] {line}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build all programs ahead of time and print where they are; 3 where this machine lacks something.

    `kubelet` among the arguments builds that one too.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given not in ([], [KUBELET]):
        sys.stderr.write(f"{' '.join(given)}: no argument, or {KUBELET}\n")
        return 2
    began = time.monotonic()

    def show(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {line}\n")
        sys.stderr.flush()

    try:
        programs = find_or_build((*ALL, *given), progress=show)
    except MissingProgramError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for name, path in programs.items():
        sys.stdout.write(f"{name:24} {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
