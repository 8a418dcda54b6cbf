"""Builds the images that a kubelet's node runs: the product's own by its Containerfile, and the pause image of its pods.

`python -m sandbox.image` does so ahead. No registry is asked: the base is made of Debian packages
(`sandbox.image_base`), wheels come from the package index, the build itself needs no network. Everything is kept in
the user's cache by a hash of what went into it; after a change of nodemend's sources only nodemend's wheel is built
and installed anew. The result is a docker-archive, which containerd and every other tool imports.
"""

import hashlib
import json
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from sandbox import long_command
from sandbox.build_cache import build_lock, cache_folder
from sandbox.go_modules import MissingProgramError
from sandbox.image_base import Base, find_or_make_base
from sandbox.long_command import Progress
from sandbox.node_files import PAUSE

REPOSITORY = Path(__file__).parents[1]
IMAGE = "docker.io/library/nodemend:sandbox"
PIP = "pip==26.0"  # runs from its own wheel while the image is built, and is not in the image
PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "gcc": "gcc libc6-dev"}
_KEPT = 3  # archives of earlier sources
_LAYERS_KEPT = 60  # in buildah's own storage; beyond that it is thrown away and filled anew, in a minute
_WITHIN_S = 900.0


def tags() -> tuple[str, ...]:
    """Give the image's other names: as the manifests call it."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    return (f"docker.io/library/nodemend:{version}",)


def why_not_build() -> str | None:
    """Say what this machine lacks to build images, with the apt line; None where it can."""
    if os.geteuid() != 0:
        return "building an image without a registry needs root"
    if missing := [packages for program, packages in PROGRAMS.items() if not shutil.which(program)]:
        return f"no {', '.join(missing)} here (apt-get install {' '.join(missing)})"
    if not (REPOSITORY / "Containerfile").is_file():
        return f"{REPOSITORY}: no Containerfile there; run from a clone of the repository"
    return None if shutil.which("uv") else "no uv here (pip install uv)"


def build(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Path:
    """Return the docker-archive of the product's image, named `IMAGE` in it. Raises MissingProgramError."""
    if why := why_not_build():
        raise MissingProgramError(f"nodemend's image cannot be built: {why}")
    images = cache_folder(env) / "images"
    with (
        build_lock(images, progress, name="images.lock", what="images"),
        tempfile.TemporaryDirectory() as scratch,
    ):
        return _Build(images, Path(scratch), progress, env).product()


def pause(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Path:
    """Return the docker-archive of the pause image, named `PAUSE` in it. Raises MissingProgramError without gcc."""
    source = Path(__file__).with_name("pause.c")
    archive = cache_folder(env) / "images" / f"pause-{_hash(source.read_bytes())}.tar"
    if archive.exists():
        return archive
    if not shutil.which("gcc"):
        raise MissingProgramError(
            "the pause image cannot be built: no gcc here (apt-get install gcc libc6-dev)"
        )
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch, "pause")
        command = ["gcc", "-static", "-Os", "-s", "-o", str(program), str(source)]
        _run(command, "building the pause image", Path(scratch), progress, env)
        pending = archive.with_name(f".{archive.name}.{os.getpid()}")
        _write_archive(pending, program)
        pending.rename(archive)
    return archive


class _Build:
    """One build of the product's image; its steps are methods in the order in which they run."""

    def __init__(self, images: Path, scratch: Path, progress: Progress, env: Mapping[str, str]) -> None:
        self._images = images
        self._scratch = scratch
        self._progress = progress
        self._env = env

    def product(self) -> Path:
        source = self._scratch / "source"
        table = _copy_source(source)
        base = find_or_make_base(self._images, self._progress, self._env)
        archive = self._images / f"nodemend-{_hash_tree(source, base.name)}.tar"
        if archive.exists():
            os.utime(archive)
            return archive
        began = time.monotonic()
        context = self._scratch / "context"
        (context / "wheels").mkdir(parents=True)
        shutil.copy2(source / "Containerfile", context)
        shutil.copytree(self._dependencies(source, table, base), context / "wheels/dependencies")
        self._uv("build", "--quiet", "--wheel", "--out-dir", str(context / "wheels/nodemend"), str(source))
        pending = archive.with_name(f".{archive.name}.{os.getpid()}")
        try:
            self._bud(context, base, pending)
            pending.rename(archive)
        finally:
            pending.unlink(missing_ok=True)
        _forget_old(self._images)
        self._progress(f"built nodemend's image in {long_command.clock(time.monotonic() - began)}: {archive}")
        return archive

    def _dependencies(self, source: Path, table: Mapping[str, Any], base: Base) -> Path:
        """Return the folder of the wheels that nodemend needs in a cluster, and of pip's own; fetched once."""
        wanted = [
            table["project"]["dependencies"],
            table["tool"]["uv"]["constraint-dependencies"],
            PIP,
            base.python,
        ]
        folder = self._images / f"wheels-{_hash(json.dumps(wanted).encode())}"
        if folder.exists():
            return folder
        pending = self._scratch / "wheels"
        pending.mkdir()
        requirements = pending / "requirements.txt"
        plain = ("--no-hashes", "--no-annotate", "--no-header", "--quiet")
        only = ("--no-default-groups", "--no-emit-project", "--prune", "kubernetes")
        self._uv("export", *only, *plain, "--project", str(source), "-o", str(requirements))
        pip = ("run", "--no-project", "--quiet", "--with", PIP, "python", "-m", "pip", "--quiet")
        self._uv(
            *pip,
            "download",
            "--no-deps",
            *base.wheel_tags(),
            "-r",
            str(requirements),
            PIP,
            "-d",
            str(pending),
        )
        shutil.move(pending, folder)
        return folder

    def _bud(self, context: Path, base: Base, archive: Path) -> None:
        storage = self._images / f"storage-{base.storage_driver}"
        if len(list(storage.glob("*-images/*"))) > _LAYERS_KEPT:
            shutil.rmtree(storage)
        # Its storage is its own: the user's images and containers are never seen or touched.
        buildah = ["buildah", "--storage-driver", base.storage_driver, "--root", str(storage)]
        buildah += ["--runroot", str(self._scratch / "run")]
        self._base(buildah, base)
        isolation = ["--isolation", "chroot", "--pull-never", "--layers"]
        argument = ["--build-arg", f"BASE={base.image}"]
        label = "building nodemend's image"
        bud = [*buildah, "bud", "--quiet", *isolation, *argument, "-t", IMAGE, str(context)]
        _run(bud, label, self._scratch, self._progress, self._env)
        push = [*buildah, "push", "--quiet", IMAGE, f"docker-archive:{archive}:{IMAGE}"]
        _run(push, f"{label}: writing {archive.name}", self._scratch, self._progress, self._env)

    def _base(self, buildah: list[str], base: Base) -> None:
        """Bring the base into buildah's storage, once."""

        def run(*arguments: str) -> str:
            label = f"storing the base image {base.image}"
            return _run([*buildah, *arguments], label, self._scratch, self._progress, self._env).strip()

        if base.image not in run("images", "--format", "{{.Name}}:{{.Tag}}").splitlines():
            container = run("from", "scratch")
            run("add", "--quiet", container, str(base.archive), "/")
            run("commit", "--quiet", "--rm", container, base.image)

    def _uv(self, *arguments: str) -> None:
        # A folder of its own, so that no project around it counts; nor does the one that runs us.
        env = {key: value for key, value in self._env.items() if key not in ("VIRTUAL_ENV", "UV_PROJECT")}
        label = f"nodemend's wheels: uv {arguments[0]}"
        _run(["uv", *arguments], label, self._scratch, self._progress, env)


def _run(argv: list[str], label: str, scratch: Path, progress: Progress, env: Mapping[str, str]) -> str:
    try:
        return long_command.run(
            argv,
            label=label,
            log=scratch / "command.log",
            env=env,
            cwd=scratch,
            progress=progress,
            within_s=_WITHIN_S,
        )
    except long_command.CommandFailed as error:
        raise MissingProgramError(str(error)) from error


def _copy_source(target: Path) -> dict[str, Any]:
    """Copy what the wheel is made of, so that what is hashed is what is built; return the copy's pyproject.toml."""
    target.mkdir()
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    files = ["Containerfile", "pyproject.toml", "README.md", "LICENSE", "uv.lock"]
    for name in files:
        if (REPOSITORY / name).exists():
            shutil.copy2(REPOSITORY / name, target)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for package in table["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(REPOSITORY / package, target / package, ignore=ignore)
    return table


def _hash_tree(folder: Path, *more: str) -> str:
    whole = hashlib.sha256(json.dumps(more).encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder)).encode()
        whole.update(b"%d %b %b" % (len(name), name, hashlib.sha256(path.read_bytes()).digest()))
    return whole.hexdigest()[:16]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _forget_old(images: Path) -> None:
    archives = sorted(images.glob("nodemend-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-_KEPT]:
        archive.unlink(missing_ok=True)


def _write_archive(path: Path, program: Path) -> None:
    """Write a docker-archive of one layer that holds one program, its entry point."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(program.name)
        entry.mode, entry.size = 0o755, program.stat().st_size
        tar.addfile(entry, BytesIO(program.read_bytes()))
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [f"docker.io/{PAUSE}"], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for name, data in (
            ("layer.tar", layer.getvalue()),
            ("config.json", json.dumps(config).encode()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))


def main() -> int:
    """Build the images ahead of time and print where they are; 3 where this machine lacks something."""
    began = time.monotonic()

    def show(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {line}\n")
        sys.stderr.flush()

    try:
        for archive in (build(show), pause(show)):
            sys.stdout.write(f"{archive}\n")
    except MissingProgramError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
