"""What the sandbox runs for a pod, and what it refuses: no cluster is needed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.nodes import SimulatedNode, xid_line
from sandbox.platforms import platform
from sandbox.played_pod import Container, EnvVar
from sandbox.pod_player import (
    AGENT_COMMAND,
    REBOOT_COMMAND,
    RESET_COMMAND,
    VALIDATE_COMMAND,
    command_line,
    why_not_run,
)
from sandbox.simulated_reboot import NODE_DIR, main, take_request

PYTHON = (sys.executable, "-c")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[SimulatedNode]:
    """A simulated node without a cluster."""
    node = SimulatedNode("gpu-1", platform("HGX H100 8-GPU"), tmp_path / "gpu-1")
    yield node
    node.close()


@pytest.mark.parametrize(
    ("argv", "refused"),
    [
        pytest.param([*REBOOT_COMMAND, "--boot-id", "b"], False, id="the simulated reboot runs"),
        pytest.param([*VALIDATE_COMMAND, "--gpus", "8"], False, id="the product's own validation runs"),
        pytest.param([*RESET_COMMAND, "--uuid", "u", "--boot-id", "b"], False, id="a reset by its own driver runs"),
        pytest.param([*RESET_COMMAND, "--uuid", "u", "--driver", "/"], True, id="a reset by another driver does not"),
        pytest.param([*RESET_COMMAND, "--config", "x"], True, id="nor by another configuration"),
        pytest.param([*AGENT_COMMAND, "reboot", "--boot-id", "b"], True, id="the product's own reboot does not"),
        pytest.param([*AGENT_COMMAND, "--config", "validate", "reboot"], True, id="nor under a disguise"),
        pytest.param(["nodemend-agent", "reboot"], True, id="nor by its installed name"),
        pytest.param(["nsenter", "--target", "1", "--", "systemctl", "reboot"], True, id="nothing enters PID 1"),
        pytest.param([*PYTHON, "pass"], True, id="no other program runs unless a test names it"),
        pytest.param([], True, id="no command at all is refused"),
    ],
)  # fmt: skip
def test_only_harmless_commands_ever_run(argv: list[str], refused: bool) -> None:
    """A repair of the sandbox cannot hurt the machine below it, whatever the controller was told."""
    assert (why_not_run(argv) is not None) is refused


def test_a_test_may_name_further_programs() -> None:
    """By their first words, compared one by one."""
    assert why_not_run([*PYTHON, "pass"], [PYTHON]) is None
    assert why_not_run(["pythonX", "-c"], [PYTHON]) == (
        "the sandbox does not run 'pythonX -c' on the machine below it"
    )


def test_a_command_finds_its_machine(alone: SimulatedNode, tmp_path: Path) -> None:
    """Variables are replaced as Kubernetes does; the termination message lands in the pod's own folder."""
    container = Container(
        name="c",
        command=("prog", "$(NODEMEND_SANDBOX_NODE_DIR)/proc", "$(OWN)", "$(UNKNOWN)", "$$"),
        args=("--message", "/dev/termination-log"),
        env=(EnvVar(name="OWN", value="v"), EnvVar(name="FROM_FIELD")),
    )
    argv, env = command_line(container, alone, tmp_path / "pod")

    log = str(tmp_path / "pod" / "termination-log")
    assert argv == ["prog", f"{alone.root}/proc", "v", "$(UNKNOWN)", "$$", "--message", log]
    assert (env["NODE_NAME"], env["OWN"], env.get("FROM_FIELD")) == ("gpu-1", "v", None)


@pytest.mark.parametrize(
    ("command", "runs", "why_not"),
    [
        pytest.param(
            ["nodemend-agent", "validate", "--gpus", "8"],
            [*AGENT_COMMAND, "validate", "--config", "CONFIG", "--gpus", "8"],
            None,
            id="the agent by its installed name judges the simulated machine",
        ),
        pytest.param(
            ["python3", "-m", "sandbox.simulated_reboot", "--boot-id", "b"],
            [*REBOOT_COMMAND, "--boot-id", "b"],
            None,
            id="the image's Python is this machine's",
        ),
        pytest.param(
            ["nodemend-agent", "reboot", "--boot-id", "b"],
            [*AGENT_COMMAND, "reboot", "--config", "CONFIG", "--boot-id", "b"],
            "does not run",
            id="a reboot of this machine is refused under any name",
        ),
    ],
)
def test_programs_of_the_image_are_this_machine_s(
    alone: SimulatedNode, tmp_path: Path, command: list[str], runs: list[str], why_not: str | None
) -> None:
    """So the controller can be told the same commands for a simulated node and for a real one beside it."""
    argv, _ = command_line(Container(name="c", command=tuple(command)), alone, tmp_path)

    assert argv == [str(tmp_path / "agent.toml") if word == "CONFIG" else word for word in runs]
    assert (why_not_run(argv) is None) is (why_not is None)


@pytest.mark.parametrize(
    ("boot_id", "status", "asked"),
    [
        pytest.param(None, 0, True, id="the boot it was told to end still runs: it asks"),
        pytest.param("another", 1, False, id="that boot has ended already: it refuses"),
    ],
)
def test_the_reboot_ends_only_the_boot_it_was_told(
    alone: SimulatedNode, boot_id: str | None, status: int, asked: bool
) -> None:
    """A command that comes late cannot end a second boot; what it asks for is taken once."""
    before = alone.boot_id

    assert main(["--boot-id", boot_id or before], {NODE_DIR: str(alone.root)}) == status
    assert take_request(alone.root) == (before if asked else None)
    assert take_request(alone.root) is None
    assert alone.boot_id == before


def test_the_reboot_needs_a_simulated_machine(tmp_path: Path) -> None:
    """Started anywhere else it does nothing and says why."""
    assert main(["--boot-id", "b"], {}) == 3
    assert main(["--boot-id", "b"], {NODE_DIR: str(tmp_path)}) == 3


def test_an_xid_line_names_the_gpu_without_its_function(alone: SimulatedNode) -> None:
    """As the driver writes it (kernel log of a real node)."""
    line = alone.write_xid(79, "GPU has fallen off the bus.", gpu=3)

    assert line == (
        "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    assert xid_line("0000:3b:00", 31, "x", pid="7", name="python").startswith(
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python, x"
    )
    assert alone.lines_written == 3
