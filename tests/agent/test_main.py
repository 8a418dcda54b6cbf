"""The program as a process: exit codes, signals, and what it does not import."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.agent.machine import BOOT, XID_79, FolderMachine
from tests.fakes import wait_until

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_once_prints_json_and_exits_with_the_verdict(tmp_path: Path) -> None:
    """A fault: exit 1, nothing on stderr."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    done = run(machine.command("--once", "--output", "json"))
    assert (done.returncode, done.stderr) == (1, "")
    told = {c["type"]: c["reason"] for c in msgspec.json.decode(done.stdout)["conditions"]}
    assert told["GpuXidError"] == "Xid79FallenOffBus"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param("nope = 1", "kernel_log.nope = 1: unknown key", id="an unknown key"),
        pytest.param(
            "[publish]\nrefill = 'soon'", "publish.refill: 'soon' is no duration", id="a bad duration"
        ),
    ],
)
def test_a_mistake_in_the_configuration_is_one_line_and_exit_2(tmp_path: Path, more: str, said: str) -> None:
    """No traceback: who reads it is a person with a file open."""
    machine = FolderMachine(tmp_path)
    machine.configure(more)
    done = run(machine.command())
    assert done.returncode == 2
    assert done.stderr.startswith(f"nodemend-agent: {machine.config}: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_without_a_name_it_says_where_one_comes_from(tmp_path: Path) -> None:
    """Exit 2."""
    machine = FolderMachine(tmp_path)
    machine.config.write_text(machine.config.read_text().replace('node_name = "gpu-1"\n', ""))
    done = run(machine.command())
    assert done.returncode == 2
    assert "NODE_NAME" in done.stderr


def test_without_a_cluster_it_names_the_ways_to_one(tmp_path: Path) -> None:
    """Exit 3: the machine lacks something."""
    done = run(FolderMachine(tmp_path).command())
    assert done.returncode == 3
    assert "no way to an API server" in done.stderr


def test_validate_leaves_its_verdict(tmp_path: Path) -> None:
    """JSON on stdout and in the termination message; exit 1."""
    machine = FolderMachine(tmp_path)
    message = tmp_path / "termination"
    done = run(
        machine.command("validate", "--gpus", "3", "--json", "--termination-message-path", str(message))
    )
    assert done.returncode == 1
    assert msgspec.json.decode(done.stdout)["result"] == "Failed"
    assert msgspec.json.decode(message.read_bytes()) == msgspec.json.decode(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["validate", "--gpus", "-1"], "is not a number of GPUs", id="a negative number of GPUs"),
        pytest.param(
            ["validate", "--cleared-before", "2026-01-01T00:00:00"],
            "is no time",
            id="a time without its zone",
        ),
        pytest.param(["reboot"], "--boot-id", id="a reboot of any boot"),
        pytest.param(["--output", "xml"], "invalid choice", id="an output that there is not"),
    ],
)
def test_bad_use_is_exit_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    """And says what would be right."""
    done = run(FolderMachine(tmp_path).command(*arguments))
    assert done.returncode == 2
    assert said in done.stderr


def test_reboot_reads_the_configuration_before_and_after_its_name(tmp_path: Path) -> None:
    """Both refuse here, since the boot is another one."""
    machine = FolderMachine(tmp_path)
    before = run(machine.command("reboot", "--boot-id", "boot-0"))
    after = run(
        [sys.executable, "-m", "agent", "reboot", "--config", str(machine.config), "--boot-id", "boot-0"]
    )
    assert (before.returncode, after.returncode) == (1, 1)
    assert before.stderr == after.stderr
    assert BOOT in before.stderr


def closed_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def in_cluster(machine: FolderMachine) -> None:
    """Configure as a pod is: server, token, CA; nobody listens there."""
    (machine.root / "token").write_text("token")
    machine.configure(
        f'[kube]\nserver = "http://127.0.0.1:{closed_port()}"\n'
        f'token_file = "{machine.root}/token"\nca_file = "/dev/null"\n'
    )


def test_sigterm_saves_the_last_state_and_exits_0(tmp_path: Path) -> None:
    """With no API server at all it judges, remembers, and ends when told."""
    machine = FolderMachine(tmp_path, pipe=True)
    in_cluster(machine)
    process = subprocess.Popen(
        machine.command(), cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    try:
        state = machine.state / "state.json"
        machine.line(XID_79)
        deadline = time.monotonic() + 40
        while b"Xid79FallenOffBus" not in (state.read_bytes() if state.exists() else b""):
            assert time.monotonic() < deadline, "the fault was not remembered"
            time.sleep(0.05)
        machine.line("eth0: link is up")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert msgspec.json.decode(state.read_bytes())["cursor"]["sequence"] == 2
    assert '"event": "agent.stopped"' in stderr


def test_a_pause_is_no_request_to_end(tmp_path: Path) -> None:
    """Stopped and continued, as a debugger or a frozen container does, it goes on; then SIGTERM still ends it."""
    machine = FolderMachine(tmp_path, pipe=True)
    in_cluster(machine)
    machine.config.write_text(machine.config.read_text().replace('listen = ""', 'listen = "127.0.0.1:0"'))
    process = subprocess.Popen(machine.command(), cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        wait_until((machine.state / "listen").exists, 40)
        process.send_signal(signal.SIGSTOP)
        time.sleep(6)
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=6)  # its orderly end takes as long
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()


def test_in_a_cluster_the_kubernetes_client_is_never_imported(tmp_path: Path) -> None:
    """It would cost every node 16 MiB; neither are the libraries of other readers."""
    machine = FolderMachine(tmp_path)
    in_cluster(machine)
    program = """
import os, signal, sys, threading
from agent.__main__ import main
threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
status = main(sys.argv[1:])
print(status, sorted({"kubernetes", "psutil", "pynvml"} & set(sys.modules)))
"""
    done = run([sys.executable, "-c", program, "--config", str(machine.config)])
    assert done.stdout == "0 []\n", done.stderr
