"""What a kubelet's node is made of, as far as it can be held against tables without root: addresses, files, cgroups."""

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from sandbox import cgroups, node_files
from sandbox.image_base import Base
from sandbox.image_build import detach_below
from sandbox.kernel_log import KernelLog
from sandbox.node_files import Network
from sandbox.opened import Opened


def test_networks_are_apart_and_for_nobody_else() -> None:
    """Each node has its own /24 of the benchmarking range: two addresses of the cable, the upper half for its pods."""
    networks = [Network(number=number) for number in range(node_files.NETWORKS)]

    assert (networks[0].host, networks[0].node, networks[0].pods) == (
        "198.18.0.1",
        "198.18.0.2",
        "198.18.0.128/25",
    )
    assert networks[-1].pods == "198.19.255.128/25"
    assert len({network.host for network in networks}) == len(networks)
    assert all(len(network.interface) <= 15 for network in networks)  # IFNAMSIZ


def test_the_files_of_a_node_say_what_differs_from_a_plain_one(tmp_path: Path) -> None:
    """kubelet and containerd read usual paths; the hook of every container can be run."""
    node_files.write(
        tmp_path,
        "gpu-1",
        Network(number=3),
        cgroup="/nodemend-x/gpu-1",
        provider_id="sandbox://it",
        taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        snapshotter="overlayfs",
    )
    node_files.write_spec(tmp_path, {"ociVersion": "1.0.2"})

    kubelet = json.loads((tmp_path / "etc/kubernetes/kubelet.json").read_text())
    spec = json.loads((tmp_path / "etc/containerd/spec.json").read_text())
    (hook,) = spec["hooks"]["createContainer"]
    assert (kubelet["cgroupRoot"], kubelet["registerWithTaints"][0]["key"]) == (
        "/nodemend-x/gpu-1",
        "nvidia.com/gpu",
    )
    assert os.access(tmp_path / hook["path"].lstrip("/"), os.X_OK)
    assert "198.18.3.2 gpu-1" in (tmp_path / "etc/hosts").read_text()
    assert json.loads((tmp_path / "etc/cni/net.d/10-sandbox.conflist").read_text())["plugins"][0]["isGateway"]


@pytest.mark.parametrize("hierarchies", [(".",), ("cpu", "memory")], ids=["cgroup v2", "cgroup v1"])
def test_cgroups_are_removed_with_what_is_below_them(tmp_path: Path, hierarchies: tuple[str, ...]) -> None:
    """In every hierarchy, and nothing beside them."""
    for name in hierarchies:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "cgroup.procs").touch()
    mine, other = cgroups.name("a", "gpu-1"), cgroups.name("b")
    for cgroup in (mine, f"{mine}/kubepods/pod1", other):
        cgroups.make(cgroup, tmp_path)

    assert cgroups.remove(cgroups.name("a"), tmp_path) == 0

    left = {path.name for path in tmp_path.rglob("nodemend-*")}
    assert left == {"nodemend-b"}


def test_each_reader_of_a_shared_kernel_log_has_all_of_it(tmp_path: Path) -> None:
    """As with /dev/kmsg: who opens it later sees what was written before, and nobody takes a record from another."""
    log = KernelLog(tmp_path / "kmsg")
    log.write("first")
    readers = []
    try:
        for _ in range(3):
            readers.append(os.open(tmp_path / "kmsg", os.O_RDONLY | os.O_NONBLOCK))
            log.hand_over()
        log.write("second")

        for reader in readers:
            said = os.read(reader, 4096)
            assert (b"first" in said, b"second" in said) == (True, True)
    finally:
        for reader in readers:
            os.close(reader)
        log.close()


def test_only_so_many_readers_are_kept(tmp_path: Path) -> None:
    """The oldest sees its end, so an agent that starts again and again uses up no files."""
    log = KernelLog(tmp_path / "kmsg")
    first = os.open(tmp_path / "kmsg", os.O_RDONLY)
    try:
        for _ in range(17):
            log.hand_over()

        assert os.read(first, 10) == b""
    finally:
        os.close(first)
        log.close()


def test_opening_is_noticed_once_and_on_whatever_is_there_now(tmp_path: Path) -> None:
    """Looking at a file or replacing it is no opening of it."""
    path = tmp_path / "file"
    path.touch()
    opened = Opened(path)
    try:
        assert not opened.wait(0)
        path.stat()
        assert not opened.wait(0)
        path.read_text()
        assert opened.wait(1)
        assert not opened.wait(0)

        (tmp_path / "new").touch()
        (tmp_path / "new").rename(path)
        assert not opened.wait(0)
        threading.Timer(0.05, path.read_text).start()
        assert opened.wait(5)
    finally:
        opened.close()


def test_wheels_are_asked_for_by_the_base_s_python() -> None:
    """Not by the one that runs the build."""
    base = Base(name="x", archive=Path("base.tar"), python="3.13", storage_driver="vfs")

    tags = base.wheel_tags()

    assert {"--python-version=3.13", "--abi=cp313", "--abi=abi3", "--platform=any"} <= set(tags)
    assert base.image == "localhost/nodemend-base:x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_what_a_killed_build_left_mounted_is_detached(tmp_path: Path) -> None:
    """Mounts in mounts too; the folder can be removed then."""
    storage = tmp_path / "the storage"
    for folder in (storage / "overlay", storage / "overlay" / "merged"):
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)

    detach_below(storage)

    shutil.rmtree(storage)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
