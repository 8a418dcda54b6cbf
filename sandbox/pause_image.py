"""The pause image: the container that holds a pod's namespaces, ten lines of C and nothing else."""

import hashlib
import json
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from sandbox import long_command
from sandbox.build_cache import cache_folder
from sandbox.go_modules import MissingProgramError
from sandbox.long_command import Progress
from sandbox.node_files import PAUSE

_WITHIN_S = 120.0


def build(progress: Progress = print, env: Mapping[str, str] = os.environ) -> Path:
    """Return the docker-archive of the pause image, named `PAUSE` in it. Raises MissingProgramError without gcc."""
    source = Path(__file__).with_name("pause.c")
    archive = (
        cache_folder(env) / "images" / f"pause-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.tar"
    )
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
        _compile(command, Path(scratch), progress, env)
        pending = archive.with_name(f".{archive.name}.{os.getpid()}")
        _write_archive(pending, program)
        pending.rename(archive)
    return archive


def _compile(command: list[str], scratch: Path, progress: Progress, env: Mapping[str, str]) -> None:
    label = "building the pause image"
    log = scratch / "gcc.log"
    try:
        long_command.run(
            command, label=label, log=log, env=env, cwd=scratch, progress=progress, within_s=_WITHIN_S
        )
    except long_command.CommandFailed as error:
        raise MissingProgramError(str(error)) from error


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
