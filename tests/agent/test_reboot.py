"""`reboot --boot-id`: it ends the boot that it was sent to end, and no other."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.config import Config, RebootSection, RootsSection
from agent.reboot import COMMAND_TIMEOUT_S, Ran, reboot, run_command

BOOT = "boot-1"


class Commands:
    """Records what would have been run."""

    def __init__(self, answer: Ran) -> None:
        self.answer = answer
        self.ran: list[tuple[tuple[str, ...], int]] = []

    def run(self, command: Sequence[str], timeout_s: int) -> Ran:
        self.ran.append((tuple(command), timeout_s))
        return self.answer


def config_of(folder: Path, *, boot_id: str | None = BOOT) -> Config:
    path = folder / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    if boot_id is not None:
        path.write_text(boot_id + "\n")
    roots = RootsSection(proc=folder / "proc")
    return Config(roots=roots, reboot=RebootSection(command=("end-it", "now")))


@pytest.mark.parametrize(
    ("present", "asked", "exit_code", "said"),
    [
        pytest.param(
            "boot-2", BOOT, 1, "this is boot boot-2, boot boot-1 is over", id="the boot is over already"
        ),
        pytest.param(None, BOOT, 3, "the present boot id is unreadable", id="the boot id cannot be read"),
        pytest.param("", BOOT, 3, "holds '', not a boot id", id="the boot id is empty"),
        pytest.param(BOOT, "", 2, "--boot-id is empty", id="no boot id was given"),
    ],
)
def test_it_refuses(tmp_path: Path, present: str | None, asked: str, exit_code: int, said: str) -> None:
    """Then nothing is run."""
    commands = Commands(Ran(status=0, said=""))
    outcome = reboot(config_of(tmp_path, boot_id=present), asked, commands.run)
    assert (outcome.exit_code, commands.ran) == (exit_code, [])
    assert said in outcome.message


@pytest.mark.parametrize(
    ("ran", "exit_code", "said"),
    [
        pytest.param(Ran(status=0, said=""), 0, "reboot asked for", id="the command succeeds"),
        pytest.param(Ran(status=1, said="no bus"), 1, "failed with 1: no bus", id="the command fails"),
        pytest.param(Ran(status=-1, said="timed out"), 1, "timed out", id="the command hangs"),
        pytest.param(
            Ran(status=-1, said="?", missing=True), 3, "end-it is not there", id="there is no such command"
        ),
    ],
)
def test_it_runs_the_configured_command_once(tmp_path: Path, ran: Ran, exit_code: int, said: str) -> None:
    """What the command said is passed on."""
    commands = Commands(ran)
    outcome = reboot(config_of(tmp_path), BOOT, commands.run)
    assert commands.ran == [(("end-it", "now"), COMMAND_TIMEOUT_S)]
    assert outcome.exit_code == exit_code
    assert said in outcome.message


def test_the_default_goes_through_the_hosts_own_init() -> None:
    """So that units stop in order; only the mount namespace is entered."""
    assert Config().reboot.command == ("nsenter", "--target", "1", "--mount", "--", "systemctl", "reboot")


def test_a_real_command_is_run_without_a_shell() -> None:
    """Its words arrive as they are."""
    ran = run_command(
        [sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(4)", "$HOME; true"], 20
    )
    assert ran == Ran(status=4, said="$HOME; true")


def test_a_command_that_is_not_there_is_told_from_one_that_fails() -> None:
    """The first is the machine's lack."""
    assert run_command(["/no/such/program"], 5).missing


def test_a_command_that_hangs_is_ended() -> None:
    """Its time is bounded."""
    ran = run_command([sys.executable, "-c", "import time; time.sleep(60)"], 1)
    assert (ran.status, ran.missing) == (-1, False)
    assert "timed out" in ran.said
