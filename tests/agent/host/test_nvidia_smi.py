"""agent.host.nvidia_smi: the driver's own program, from where the driver lies, each call with an end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.host.gpu_clients import Client, clients_of
from agent.host.nvidia_smi import Answer, NvidiaSmi, NvidiaSmiMissing
from agent.reset_gpu import Result, reset_gpus
from sandbox.machine import Machine
from sandbox.platforms import Platform
from tests.agent.test_reset_gpu import config_of
from tests.fakes import FakeClock, wait_until


def put(root: Path, script: str) -> Path:
    """Put a stand-in for nvidia-smi into a driver root."""
    program = root / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        pytest.param('echo "$@"', 0, "-L --x", id="it answers"),
        pytest.param("echo one; echo; echo '  two  ' >&2; exit 15", 15, "one two", id="both outputs"),
        pytest.param("printf 'a\\033[31mb'", 0, "a [31mb", id="what cannot be printed"),
        pytest.param("exit 9", 9, "", id="without a word"),
    ],
)
def test_what_it_said_and_how_it_ended(tmp_path: Path, script: str, status: int, said: str) -> None:
    put(tmp_path, script)
    answer = NvidiaSmi(tmp_path).run("-L", "--x", timeout_s=10)
    assert (answer.status, answer.said) == (status, said)


def test_one_that_hangs_is_ended(tmp_path: Path) -> None:
    """In the time it was given and not much more."""
    put(tmp_path, "echo working; exec sleep 60")
    began = time.monotonic()
    answer = NvidiaSmi(tmp_path).run(timeout_s=0.3)
    assert (answer.status, answer.said) == (-1, "it did not end within 0.3 s working")
    assert time.monotonic() - began < 5


def test_a_program_that_cannot_be_started_is_an_answer(tmp_path: Path) -> None:
    put(tmp_path, "").write_text("no program at all")
    answer = NvidiaSmi(tmp_path).run(timeout_s=5)
    assert answer.status == -1
    assert "Exec format error" in answer.said


def test_the_library_beside_it_is_used(tmp_path: Path) -> None:
    """Not one of the image: another version would not speak with the kernel module."""
    put(tmp_path, 'echo "$LD_LIBRARY_PATH"')
    said = NvidiaSmi(tmp_path).run(timeout_s=10).said
    assert f"{tmp_path}/usr/lib/x86_64-linux-gnu" in said.split(":")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root")
def test_a_root_with_devices_is_a_root_of_its_own(tmp_path: Path) -> None:
    """There the persistence daemon's socket lies where nvidia-smi looks for it."""
    put(tmp_path, "")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    answer = NvidiaSmi(tmp_path).run(timeout_s=5)
    assert answer.status != 0  # there is no shell in it
    assert "chroot" in answer.said


def test_without_it_every_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(NvidiaSmiMissing, match="nor under run/nvidia/driver in it"):
        NvidiaSmi(tmp_path)


def test_an_answer_is_a_value() -> None:
    assert Answer(status=0, said="") == Answer(status=0, said="", lines=())


def test_who_has_a_gpu_open(tmp_path: Path) -> None:
    """By the open files; what is not a process, or cannot be looked into, is nobody."""
    for pid, target in (
        ("7", "/dev/nvidia1"),
        ("8", "/dev/nvidia11"),
        ("9", "/dev/nvidiactl"),
        ("x", "/dev/nvidia1"),
    ):
        folder = tmp_path / pid / "fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(target)
    (tmp_path / "12").write_text("")
    assert clients_of(tmp_path, 1) == (Client(pid=7, name="a process"),)
    assert clients_of(tmp_path / "nothing", 1) == ()


ANSWERS = """
case "$*" in
  *persistence_mode*) echo "$(cat {root}/uuid), Enabled, {mig}" ;;
  *gpu_recovery_action*) echo "Field is not a valid field to query."; exit 2 ;;
  *--query-gpu=uuid*) cat {root}/uuid ;;
  *-pm*) echo "$@" >> {root}/log ;;
  *--gpu-reset*) {reset} ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    platform = Platform(name="t", gpus=1, gpu_model="NVIDIA H200", ib_ports=0, ib_rate_gbps=None, source="t")
    machine = Machine(tmp_path / "machine", "gpu-1", platform)
    machine.close()
    return machine


def told(root: Path, machine: Machine, *, mig: str = "Disabled", reset: str = "true") -> None:
    put(root, ANSWERS.format(root=root, mig=mig, reset=reset))
    (root / "uuid").write_text(f"{machine.gpus[0].uuid}\n")


@pytest.mark.parametrize(
    ("mig", "instances", "result"),
    [
        pytest.param("[N/A]", [], Result.RESET, id="a GPU without MIG"),
        pytest.param(
            "[GPU requires reset]", [], Result.RESET, id="it cannot say, and the kernel lists no instance"
        ),
        pytest.param("[GPU requires reset]", ["gi7"], Result.REFUSED, id="it cannot say, and there is one"),
        pytest.param("Disabled", [], Result.RESET, id="off"),
        pytest.param("Enabled", [], Result.REFUSED, id="on, without an instance"),
    ],
)
def test_a_gpu_that_waits_for_its_reset_may_not_know_its_mig_mode(
    tmp_path: Path, machine: Machine, mig: str, instances: list[str], result: Result
) -> None:
    """What a reset would end are instances, and those stand in procfs too. A driver without newer fields is no fault."""
    told(tmp_path, machine, mig=mig)
    for name in instances:
        (machine.proc / f"driver/nvidia/capabilities/gpu0/mig/{name}").mkdir(parents=True)
    uuid, clock = machine.gpus[0].uuid, FakeClock().clock
    config = config_of(machine, tmp_path)
    assert reset_gpus(config, [uuid], machine.boot_id, clock, timeout_s=60).result is result


@pytest.mark.parametrize("reset", ["exit 1", "exec sleep 60"], ids=["it fails", "it hangs"])
def test_persistence_mode_is_put_back_whatever_comes_of_it(
    tmp_path: Path, machine: Machine, reset: str
) -> None:
    told(tmp_path, machine, reset=reset)
    uuid, clock = machine.gpus[0].uuid, FakeClock().clock
    report = reset_gpus(config_of(machine, tmp_path), [uuid], machine.boot_id, clock, timeout_s=1)
    assert report.result is Result.FAILED
    assert (tmp_path / "log").read_text().splitlines() == [f"-pm 0 -i {uuid}", f"-pm 1 -i {uuid}"]


def test_persistence_mode_that_cannot_be_put_back_is_said(tmp_path: Path, machine: Machine) -> None:
    """It takes nothing from a reset that worked."""
    told(tmp_path, machine)
    program = tmp_path / "usr/bin/nvidia-smi"
    program.write_text(program.read_text().replace("*-pm*)", '*"-pm 1"*) echo no; exit 4 ;;\n  *-pm*)'))
    uuid, clock = machine.gpus[0].uuid, FakeClock().clock
    report = reset_gpus(config_of(machine, tmp_path), [uuid], machine.boot_id, clock, timeout_s=60)
    assert report.result is Result.RESET
    assert report.checks[0].message == f"persistence mode of {uuid} could not be switched on again: no"


def test_persistence_mode_is_put_back_when_the_pod_is_ended(tmp_path: Path, machine: Machine) -> None:
    """SIGTERM in the middle of the reset, as kubelet sends it at the Job's deadline."""
    told(tmp_path, machine, reset=f"touch {tmp_path}/resetting; exec sleep 60")
    config = tmp_path / "agent.toml"
    config.write_text(
        f'[roots]\nproc = "{machine.proc}"\nsys = "{machine.sys}"\n[nvml]\ndriver_root = "{tmp_path}"\n'
    )
    uuid = machine.gpus[0].uuid
    argv = [sys.executable, "-m", "agent", "--config", str(config), "reset-gpu"]
    with subprocess.Popen([*argv, "--uuid", uuid, "--boot-id", machine.boot_id]) as process:
        wait_until((tmp_path / "resetting").exists, 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
    assert (tmp_path / "log").read_text().splitlines()[-1] == f"-pm 1 -i {uuid}"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["--uuid", "0", "--boot-id", "x"], 2, "is no UUID of a GPU", id="an index"),
        pytest.param(["--boot-id", "x"], 2, "--uuid", id="no GPU"),
        pytest.param(
            ["--uuid", "u", "--boot-id", "x", "--timeout-s", "0"], 2, "no number of seconds", id="no time"
        ),
    ],
)
def test_bad_use_is_said(arguments: list[str], status: int, said: str) -> None:
    argv = [sys.executable, "-m", "agent", "reset-gpu", *arguments]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, said in ended.stderr) == (status, True)


def test_the_report_is_left_and_printed(tmp_path: Path, machine: Machine) -> None:
    """As the Job's termination message, where the controller reads it."""
    told(tmp_path, machine)
    config = tmp_path / "agent.toml"
    config.write_text(f'[roots]\nproc = "{machine.proc}"\nsys = "{machine.sys}"\n')
    argv = [
        sys.executable,
        "-m",
        "agent",
        "reset-gpu",
        "--config",
        str(config),
        "--driver-root",
        str(tmp_path),
    ]
    argv += ["--uuid", machine.gpus[0].uuid, "--boot-id", machine.boot_id]
    argv += ["--termination-message-path", str(tmp_path / "message")]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, f"Reset: boot {machine.boot_id}")
    assert machine.gpus[0].uuid in (tmp_path / "message").read_text()
