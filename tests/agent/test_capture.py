"""A capture: taken of a machine, free of names, and judged to the same end on any other."""

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agent.capture import (
    Capture,
    CaptureUnusable,
    Found,
    Look,
    is_capture,
    read_capture,
    replay_capture,
    take,
    write,
)
from agent.config import parse
from agent.host.mountinfo import HOST_ROOT
from checks.check import MachineFacts, discover
from checks.observation import KernelRecord
from kube.clock import SYSTEM
from tests.agent.machine import XID_79, FolderMachine

CHECKS = discover()
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def taken(tmp_path: Path, *lines: str, looks: int = 1) -> Capture:
    machine = FolderMachine(tmp_path)
    for line in lines:
        machine.line(line)
    config = parse(machine.config.read_text(), str(machine.config), CHECKS, {"NODE_NAME": "gpu-17"})
    return take(config, CHECKS, SYSTEM, version="1", looks=looks, interval_s=0.0)


def brief(found: tuple[Found, ...]) -> list[tuple[str, str, str]]:
    return [(one.condition, one.status, one.reason) for one in found]


def test_what_was_found_is_found_again_after_writing_and_reading(tmp_path: Path) -> None:
    """By the same rules, without the machine."""
    capture = taken(tmp_path, "random: crng init done", XID_79)
    write(capture, tmp_path / "capture.json")
    again = read_capture(tmp_path / "capture.json")
    assert again == capture
    assert ("GpuXidError", "True", "Xid79FallenOffBus") in brief(again.found)
    assert brief(replay_capture(again, CHECKS)) == brief(again.found)
    assert capture.dropped == 1


def test_what_people_named_is_in_no_capture(tmp_path: Path) -> None:
    """Neither in the readings nor in what was found in them; what is judged is the same."""
    machine = FolderMachine(tmp_path)
    machine.configure(
        '[storage]\nmounts = ["/projects/acme"]\nlocal = ["/scratch-joe"]\n[checks.storage]\nhung_seconds = 0\n'
    )
    (tmp_path / "proc" / HOST_ROOT / "scratch-joe").mkdir(parents=True)
    (tmp_path / "proc" / HOST_ROOT / "projects/acme").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(
        "22 1 8:1 / / rw - ext4 /dev/mapper/acme-root rw\n"
        "23 22 0:42 / /projects/acme ro - nfs4 filer.acme.example:/acme ro,addr=fd00::7,username=joe\n"
    )
    machine.line("nfs: server filer.acme.example not responding, still trying")
    config = parse(machine.config.read_text(), "agent.toml", CHECKS, {})
    config = msgspec.structs.replace(config, node_name="gpu-17.acme.example")
    capture = take(config, CHECKS, SYSTEM, version="1", looks=1, interval_s=0.0)
    assert ("SharedStorageFault", "True", "MountReadOnly") in brief(capture.found)
    assert brief(replay_capture(capture, CHECKS)) == brief(capture.found)
    text = msgspec.json.encode(capture).decode()
    assert [word for word in ("acme", "joe", "filer", "fd00", "gpu-17") if word in text] == []


def test_several_looks_are_kept_in_their_order(tmp_path: Path) -> None:
    """What is judged over time is judged over them."""
    capture = taken(tmp_path, XID_79, looks=3)
    assert [look.now for look in capture.looks] == sorted(look.now for look in capture.looks)
    assert brief(replay_capture(capture, CHECKS)) == brief(capture.found)


def test_a_capture_is_told_from_a_log_by_its_beginning(tmp_path: Path) -> None:
    """`replay` takes both."""
    path = tmp_path / "capture.json"
    write(taken(tmp_path / "machine", XID_79), path)
    assert is_capture(path.read_bytes()[:256])
    assert not is_capture(XID_79.encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"{", "is no capture", id="cut off"),
        pytest.param(b"[]", "is no capture", id="something else"),
        pytest.param(b"\xff\xfe", "is no capture", id="not text"),
        pytest.param(
            b'{"format": 2, "taken": "2026-05-04T12:00:00Z", "machine": {"boot_id": ""}}',
            "has format 2",
            id="of another time",
        ),
        pytest.param(b"[" * 100_000, "is no capture", id="nested without end"),
    ],
)
def test_what_is_no_capture_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """With the file."""
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(CaptureUnusable, match=said) as raised:
        read_capture(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """In the words of the system."""
    with pytest.raises(CaptureUnusable, match="No such file"):
        read_capture(tmp_path / "nothing")


def test_nothing_is_left_where_a_write_fails(tmp_path: Path) -> None:
    """Whole or not at all."""
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "c.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(taken(tmp_path / "machine"), folder / "c.json")
    assert [path.name for path in folder.iterdir()] == ["c.json"]


def test_every_field_of_the_machine_survives() -> None:
    """A new fact of MachineFacts is kept by itself."""
    record = KernelRecord(
        boot_id="b", sequence=1, facility=0, level=4, monotonic_us=1, seen_at=NOON, text=XID_79
    )
    capture = Capture(
        taken=NOON, machine=MachineFacts(boot_id="b"), looks=(Look(now=NOON, observations=(record,)),)
    )
    assert not dataclasses.is_dataclass(capture)
    assert msgspec.json.decode(msgspec.json.encode(capture), type=Capture) == capture
