"""Builds the images that a kubelet's node runs: the product's own by its Containerfile, and the pause image of its pods.

`python -m sandbox.image` does so ahead. No registry is asked: the base is made of Debian packages
(`sandbox.image_base`), wheels come from the package index, the build itself needs no network. Everything is kept in
the user's cache by a hash of what went into it; after a change of nodemend's sources only nodemend's wheel is built
and installed anew. The result is a docker-archive, which containerd and every other tool imports.
"""

import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

from sandbox import pause_image
from sandbox.build_cache import build_lock, cache_folder
from sandbox.go_modules import MissingProgramError
from sandbox.image_build import REPOSITORY, Build, Built
from sandbox.long_command import Progress

PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "gcc": "gcc libc6-dev"}


def tags() -> tuple[str, ...]:
    """Give the other names of `PRODUCT`: as the manifests call it."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    return (f"docker.io/library/nodemend:{version}",)


def why_not_build() -> str | None:
    """Say what this machine lacks to build images, with the apt line; None where it can."""
    if os.geteuid() != 0:
        return "building an image without a registry needs root"
    reasons = []
    if missing := [packages for program, packages in PROGRAMS.items() if not shutil.which(program)]:
        reasons.append(f"{', '.join(missing)} missing (apt-get install {' '.join(missing)})")
    if not (REPOSITORY / "Containerfile").is_file():
        reasons.append(f"{REPOSITORY} is no clone of the repository: it holds no Containerfile")
    if not shutil.which("uv"):
        reasons.append("uv is missing (pip install uv)")
    return "; ".join(reasons) or None


def build_all(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Built:
    """Return all images that a node runs but the pause image. Raises MissingProgramError."""
    if why := why_not_build():
        raise MissingProgramError(f"nodemend's image cannot be built: {why}")
    images = cache_folder(env) / "images"
    with (
        build_lock(images, progress, name="images.lock", what="images"),
        tempfile.TemporaryDirectory(prefix="nodemend-image-") as scratch,
    ):
        return Build(images, Path(scratch), progress, env).all()


def build(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Path:
    """Return the docker-archive of the product's image, named `PRODUCT` in it. Raises MissingProgramError."""
    return build_all(progress, env).product


def main() -> int:
    """Build the images ahead of time and print where they are; 3 where this machine lacks something."""
    began = time.monotonic()

    def show(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.0f} s  {line}\n")
        sys.stderr.flush()

    try:
        built = build_all(show)
        for archive in (built.product, built.device_plugin, pause_image.build(show)):
            sys.stdout.write(f"{archive}\n")
    except MissingProgramError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
