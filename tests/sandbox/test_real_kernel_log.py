"""sandbox.real_kernel_log: who keeps this machine's kernel log from drills, and that one drill at a time may have it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.real_kernel_log import KernelLogRefused, RealKernelLog, why_not_here
from sandbox.state import MARK


def _process(proc: Path, name: str, *environment: str) -> None:
    folder = proc / "42"
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "environ").write_bytes(b"\0".join(word.encode() for word in environment))


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        pytest.param(lambda _: None, None, id="nobody is there: it is for drills"),
        pytest.param(
            lambda proc: (proc / "driver/nvidia").mkdir(parents=True),
            "an NVIDIA driver runs on this machine",
            id="an NVIDIA driver runs here",
        ),
        pytest.param(
            lambda proc: _process(proc, "kubelet", "PATH=/bin"),
            "a kubelet that is no sandbox's runs on this machine (pid 42)",
            id="a node of somebody's cluster",
        ),
        pytest.param(
            lambda proc: _process(proc, "kubelet", "PATH=/bin", f"{MARK}=abc"),
            None,
            id="a sandbox's own kubelet, which reads no kernel log",
        ),
        pytest.param(lambda proc: _process(proc, "bash", "PATH=/bin"), None, id="another program"),
    ],
)
def test_the_kernel_log_is_for_drills_only_where_nobody_believes_them(
    prepare: Callable[[Path], None], why: str | None, tmp_path: Path
) -> None:
    """On a machine with GPUs, or in a cluster, others act on what stands there."""
    proc, device = tmp_path / "proc", tmp_path / "kmsg"
    proc.mkdir()
    device.touch()
    prepare(proc)

    said = why_not_here(device=device, proc=proc)

    assert said == why or (said is not None and why is not None and said.startswith(why))


def test_a_machine_without_a_kernel_log_is_named(tmp_path: Path) -> None:
    """As in many containers."""
    assert (
        why_not_here(device=tmp_path / "kmsg", proc=tmp_path)
        == f"{tmp_path / 'kmsg'}: No such file or directory"
    )


@pytest.fixture
def log() -> RealKernelLog:
    """This machine's own, where it may be had."""
    try:
        return RealKernelLog()
    except KernelLogRefused as error:
        pytest.skip(str(error))


def test_what_is_written_arrives_and_one_drill_at_a_time_writes(log: RealKernelLog) -> None:
    """A record that was dropped by the rate limit is written again; the number is that of the record itself."""
    try:
        first = log.write(f"nodemend: a test writes, process {os.getpid()}")
        second = log.write(f"nodemend: a test has written, process {os.getpid()}")
        assert first < second <= log.newest()
        with pytest.raises(KernelLogRefused, match="another sandbox"):
            RealKernelLog()
    finally:
        log.close()
