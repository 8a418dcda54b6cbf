"""`--once`: what it says of a machine, and the exit status that goes with it."""

from pathlib import Path

import msgspec
import pytest

from agent import once
from agent.config import Config, parse
from checks.check import discover
from kube.clock import SYSTEM
from tests.agent.machine import XID_13, XID_79, FolderMachine

CHECKS = discover()


def config_of(machine: FolderMachine) -> Config:
    return parse(machine.config.read_text(), str(machine.config), CHECKS, {})


def test_a_sound_machine_is_looked_at_and_found_sound(tmp_path: Path) -> None:
    """Exit 0, and nothing is written."""
    machine = FolderMachine(tmp_path)
    machine.line("eth0: link is up")
    seen = once.look(config_of(machine), CHECKS, SYSTEM)
    assert seen.exit_code == 0
    assert seen.report["verdict"] == "no fault"
    assert {c["type"]: c["status"] for c in seen.report["conditions"]}["GpuXidError"] == "False"
    assert not machine.state.exists()


def test_a_fault_is_named_with_its_part_and_its_line(tmp_path: Path) -> None:
    """Exit 1; the table names it, JSON holds the raw line."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    machine.line(XID_13)
    seen = once.look(config_of(machine), CHECKS, SYSTEM)
    assert seen.exit_code == 1
    printed = msgspec.json.decode(once.as_json(seen))
    assert printed["verdict"] == "fault"
    assert [f["severity"] for f in printed["findings"]] == ["Fault", "Warning"]
    assert printed["findings"][0]["evidence"] == [XID_79]
    table = once.as_table(seen)
    row = next(line for line in table.splitlines() if line.startswith("GpuXidError "))
    assert row.split()[1:3] == ["True", "Xid79FallenOffBus"]
    assert "GPU 0 at 0000:01:00" in table
    assert "verdict   fault" in table


def test_a_named_pipe_is_read_until_it_rests(tmp_path: Path) -> None:
    """What lies in it is judged, although a pipe has no end."""
    machine = FolderMachine(tmp_path, pipe=True)
    machine.line(XID_79)
    assert once.look(config_of(machine), CHECKS, SYSTEM).exit_code == 1


def test_a_machine_without_gpu_has_nothing_of_this_class(tmp_path: Path) -> None:
    """That is no fault and nothing unknown."""
    machine = FolderMachine(tmp_path, gpus=0)
    machine.line("eth0: link is up")
    seen = once.look(config_of(machine), CHECKS, SYSTEM)
    assert seen.exit_code == 0
    told = {c["message"] for c in seen.report["conditions"] if not c["type"].endswith("StorageFault")}
    assert told == {"nothing of this class on this machine"}


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        pytest.param("kmsg", "kernel-log: ", id="no kernel log"),
        pytest.param("proc/sys/kernel/random/boot_id", "boot id: ", id="no boot id"),
        pytest.param("sys", "inventory: cannot tell which GPUs this machine holds: ", id="no sysfs"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_cause(tmp_path: Path, missing: str, said: str) -> None:
    """Exit 3: nobody can say that there is no fault."""
    machine = FolderMachine(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    seen = once.look(config_of(machine), CHECKS, SYSTEM)
    assert seen.exit_code == 3
    (cause,) = [cause for cause in seen.report["unreadable"] if cause.startswith(said)]
    assert str(tmp_path / missing) in cause
    table = once.as_table(seen)
    assert f"could not read {cause}" in table
    assert ("gpus      (unreadable)" in table) == (missing == "sys")


def test_a_fault_outweighs_what_could_not_be_read(tmp_path: Path) -> None:
    """A standing fault is exit 1 even where the rest of the machine is dark."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    (tmp_path / "sys").rename(tmp_path / "elsewhere")
    assert once.look(config_of(machine), CHECKS, SYSTEM).exit_code == 1


def test_a_line_that_did_not_come_from_the_kernel_does_not_count(tmp_path: Path) -> None:
    """Facility 1 is userspace: anybody may write that."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79, priority=12)
    assert once.look(config_of(machine), CHECKS, SYSTEM).exit_code == 0
