"""`validate`: only a machine that proves itself passes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from agent.config import Config, parse
from agent.state_file import SavedCursor, State, StateFile
from agent.validate import (
    EXIT_CODES,
    MESSAGE_LIMIT_BYTES,
    Result,
    Row,
    Verdict,
    as_json,
    as_text,
    termination_message,
    validate,
)
from checks.check import discover
from checks.xid import XidMemory
from kube.clock import SYSTEM
from tests.agent.machine import BOOT, XID_13, XID_79, FolderMachine
from tests.agent.nvml.driver import lay_out
from tests.fakes import FakeClock

CHECKS = discover()


def config_of(machine: FolderMachine) -> Config:
    return parse(machine.config.read_text(), str(machine.config), CHECKS, {})


def proof(machine: FolderMachine, gpus: int | None = 2, cleared_before: datetime | None = None) -> Verdict:
    return validate(config_of(machine), CHECKS, SYSTEM, gpus=gpus, cleared_before=cleared_before)


@pytest.mark.parametrize(
    ("lines", "gpus", "wanted"),
    [
        pytest.param([], 2, Result.PASSED, id="all GPUs and no fault"),
        pytest.param([XID_13], 2, Result.PASSED, id="an application error is no fault"),
        pytest.param([], None, Result.PASSED, id="no number demanded"),
        pytest.param([], 3, Result.FAILED, id="a GPU is missing"),
        pytest.param([], 1, Result.PASSED, id="a GPU more than is demanded"),
        pytest.param([XID_79], 2, Result.FAILED, id="a fault since the boot"),
    ],
)
def test_a_machine_passes_only_whole(
    tmp_path: Path, lines: list[str], gpus: int | None, wanted: Result
) -> None:
    """None may be missing and no fault may stand."""
    machine = FolderMachine(tmp_path)
    for line in lines:
        machine.line(line)
    verdict = proof(machine, gpus)
    assert verdict.result is wanted
    assert verdict.boot_id == BOOT


@pytest.mark.parametrize(
    ("gpus", "wanted"),
    [
        pytest.param(1, Result.PASSED, id="so it was said"),
        pytest.param(2, Result.FAILED, id="nobody said so"),
    ],
)
def test_a_gpu_that_the_driver_is_told_to_leave_alone(tmp_path: Path, gpus: int, wanted: Result) -> None:
    """The bus shows two and NVML counts one: whole where one is what there should be."""
    machine = FolderMachine(tmp_path)
    fake = lay_out(tmp_path / "driver", 1)
    device = tmp_path / "sys/bus/pci/devices"
    (device / "0000:01:00.0").rename(device / fake.state().gpus[0]["pci"].lower()[-12:])
    machine.configure(f'[nvml]\nenabled = true\ndriver_root = "{tmp_path}/driver"\n')
    assert proof(machine, gpus).result is wanted


@pytest.mark.parametrize(
    "missing",
    [
        pytest.param("kmsg", id="no kernel log"),
        pytest.param("proc/sys/kernel/random/boot_id", id="no boot id"),
        pytest.param("sys", id="no sysfs"),
    ],
)
def test_a_machine_that_cannot_be_looked_at_does_not_pass(tmp_path: Path, missing: str) -> None:
    """Unknown is neither passed nor failed, and does not give the node back."""
    machine = FolderMachine(tmp_path)
    (tmp_path / missing).rename(tmp_path / "elsewhere")
    verdict = proof(machine)
    assert verdict.result is Result.UNKNOWN
    assert EXIT_CODES[verdict.result] == 3


def saved(**fields: object) -> State:
    state = State(
        boot_id=BOOT,
        cursor=SavedCursor(boot_id=BOOT, sequence=1),
        memories={"xid": XidMemory(boot_id=BOOT, last_sequence=1, was_read=True)},
        saved_at=datetime.now(UTC),
    )
    return msgspec.structs.replace(state, **fields)


def test_what_the_agent_remembers_of_this_boot_counts(tmp_path: Path) -> None:
    """It knows that the fault of the first line was cleared; only what came after it is judged anew."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    StateFile(machine.state).save(saved())
    assert proof(machine).result is Result.PASSED
    machine.line(XID_79)
    assert proof(machine).result is Result.FAILED


def test_what_the_agent_remembers_is_no_sight_of_now(tmp_path: Path) -> None:
    """It could read the log then; now it is gone, and one try is all there is."""
    machine = FolderMachine(tmp_path)
    StateFile(machine.state).save(saved())
    machine.kmsg.unlink()
    assert proof(machine).result is Result.UNKNOWN


def test_a_log_without_end_is_not_passed(tmp_path: Path) -> None:
    """Ten seconds are given; what comes after them was not judged."""
    machine = FolderMachine(tmp_path)
    record = "".join(f"4,{number},1,-;eth0: link is up\n" for number in range(200_000))
    machine.kmsg.write_text(record)
    clock = FakeClock()

    def hurried() -> float:
        clock.advance(0.05)
        return clock.monotonic()

    hurry = msgspec.structs.replace(clock.clock, monotonic=hurried)
    verdict = validate(config_of(machine), CHECKS, hurry, gpus=2)
    assert verdict.result is Result.UNKNOWN
    (row,) = (row for row in verdict.rows if row.name == "GpuXidError")
    assert "its end was not reached within 10 s" in row.message


def test_what_the_agent_remembers_of_an_earlier_boot_does_not(tmp_path: Path) -> None:
    """Then the whole log is judged."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    StateFile(machine.state).save(saved(boot_id="boot-0"))
    assert proof(machine).result is Result.FAILED


def test_garbage_in_the_agents_memory_makes_it_only_stricter(tmp_path: Path) -> None:
    """The log is judged from its beginning."""
    machine = FolderMachine(tmp_path)
    machine.line(XID_79)
    machine.state.mkdir()
    (machine.state / "state.json").write_bytes(b"{")
    assert proof(machine).result is Result.FAILED


def test_a_look_leaves_no_trace(tmp_path: Path) -> None:
    """It never touches the agent's state."""
    machine = FolderMachine(tmp_path)
    proof(machine, cleared_before=datetime.now(UTC) - timedelta(days=1))
    assert not machine.state.exists()


def test_the_verdict_is_written_for_programs_and_people() -> None:
    """The same rows in both."""
    verdict = Verdict(
        result=Result.FAILED,
        node="gpu-1",
        boot_id=BOOT,
        rows=(Row(name="gpus", result=Result.FAILED, message="1 found, 2 demanded"),),
    )
    assert msgspec.json.decode(as_json(verdict)) == {
        "result": "Failed",
        "node": "gpu-1",
        "bootID": BOOT,
        "checks": [{"name": "gpus", "result": "Failed", "message": "1 found, 2 demanded"}],
    }
    assert "1 found, 2 demanded" in as_text(verdict)


def test_a_termination_message_fits_and_keeps_what_failed() -> None:
    """kubelet keeps 4096 bytes; the failed row comes first."""
    rows = [Row(name=f"Check{n}", result=Result.PASSED, message="ü" * 1024) for n in range(40)]
    rows.append(Row(name="Broken", result=Result.FAILED, message="this one"))
    verdict = Verdict(result=Result.FAILED, node="gpu-1", boot_id=BOOT, rows=tuple(rows))
    raw = termination_message(verdict)
    assert len(raw) <= MESSAGE_LIMIT_BYTES
    assert msgspec.json.decode(raw)["checks"][0]["name"] == "Broken"
