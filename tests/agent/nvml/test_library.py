"""Tests of agent.host.nvml_library: the driver root is another machine's root, and its links mean its own paths."""

from pathlib import Path

import pytest

from agent.host.nvml_library import FOLDERS, LibraryMissing, find_library, resolve


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"ELF")
    return path


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_library_is_found_where_distributions_put_it(tmp_path: Path, folder: str) -> None:
    """Each of the folders counts."""
    library = put(tmp_path / folder / "libnvidia-ml.so.1")
    assert find_library(str(tmp_path)) == str(library)


def test_the_hosts_own_driver_goes_before_a_container_of_gpu_operator(tmp_path: Path) -> None:
    """GPU Operator leaves its container's root under /run/nvidia/driver; a driver on the host is the one in use."""
    inside = put(tmp_path / "run/nvidia/driver/usr/lib64/libnvidia-ml.so.1")
    assert find_library(str(tmp_path)) == str(inside)
    host = put(tmp_path / "usr/lib64/libnvidia-ml.so.1")
    assert find_library(str(tmp_path)) == str(host)


def test_links_stay_within_the_root(tmp_path: Path) -> None:
    """An absolute link, a chain of them, `..` beyond the root and a linked folder all mean the machine's own paths."""
    real = put(tmp_path / "usr/lib/nvidia/libnvidia-ml.so.580.95.05")
    links = tmp_path / "usr/lib/x86_64-linux-gnu"
    alternatives = tmp_path / "etc/alternatives"
    alternatives.mkdir(parents=True)
    links.mkdir()
    (links / "libnvidia-ml.so.1").symlink_to("/etc/alternatives/nvml")
    (alternatives / "nvml").symlink_to("../../../../lib/nvidia/libnvidia-ml.so.580.95.05")
    (tmp_path / "lib").symlink_to("usr/lib")
    assert find_library(str(tmp_path)) == str(real)


def test_a_link_to_itself_has_no_end(tmp_path: Path) -> None:
    """It leads nowhere, and takes no time."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert resolve(str(tmp_path), "a") is None


def test_what_was_looked_at_is_named(tmp_path: Path) -> None:
    """Whoever set the wrong root reads which one it was and where it was looked."""
    with pytest.raises(LibraryMissing, match=r"libnvidia-ml\.so\.1 is not under .*usr/lib64.*driver_root"):
        find_library(str(tmp_path))
