"""What every kubelet's node is made of: built once, then imported into the containerd of each node."""

import shutil
from pathlib import Path
from typing import Protocol

import msgspec

from sandbox import image, image_build, pause_image, programs
from sandbox.go_modules import MissingProgramError
from sandbox.kubelet_needs import why_not_here
from sandbox.long_command import Progress

_IMPORT_WITHIN_S = 120.0


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """kubelet, and the docker-archives of the images that a node runs."""

    kubelet: Path
    product: Path
    device_plugin: Path
    pause: Path


class Run(Protocol):
    """Runs a program in a node's namespaces, as `KubeletNode.run` does."""

    def __call__(self, *argv: str, timeout_s: float = ...) -> str: ...


def find_or_build(progress: Progress = print) -> Parts:
    """Build what is missing. Raises MissingProgramError naming all that this machine lacks."""
    if why := why_not_here():
        raise MissingProgramError(f"no real kubelet on this machine: {why}")
    found = programs.find_or_build([programs.KUBELET], progress)
    built = image.build_all(progress)
    return Parts(
        kubelet=found[programs.KUBELET],
        product=built.product,
        device_plugin=built.device_plugin,
        pause=pause_image.build(progress),
    )


def import_images(run: Run, var: Path, parts: Parts) -> None:
    """Give a node's containerd the images, under the names that manifests and sandbox use; `var` is the node's /var."""
    archive = var / "image.tar"
    for source in (parts.pause, parts.product, parts.device_plugin):
        shutil.copy2(source, archive)
        _ctr(run, "images", "import", "--no-unpack", "/var/image.tar")
    archive.unlink()
    for tag in image.tags():
        _ctr(run, "images", "tag", image_build.PRODUCT, tag)


def _ctr(run: Run, *arguments: str) -> None:
    run("ctr", "--namespace", "k8s.io", *arguments, timeout_s=_IMPORT_WITHIN_S)
