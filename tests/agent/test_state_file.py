"""The state file: whole or not at all, bounded, and never in the way."""

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics import Metrics
from agent.state_file import LIMIT_BYTES, SETTLE_S, SavedCursor, Saver, State, StateFile, StateUnusable
from tests.fakes import FakeClock

STATE = State(
    boot_id="boot-1",
    node_uid="uid-1",
    cursor=SavedCursor(boot_id="boot-1", sequence=7),
    memories={"gate": {"was_read": True}},
    seen=("gate",),
    saved_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """Also into a folder that was not there."""
    file = StateFile(tmp_path / "deep" / "state")
    assert file.load() is None
    file.save(STATE)
    assert file.load() == STATE
    assert [path.name for path in (tmp_path / "deep" / "state").iterdir()] == ["state.json"]


def test_a_save_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    """The old file stands until the new one is complete; nothing is left beside it."""
    file = StateFile(tmp_path)
    file.save(STATE)
    (tmp_path / "state.new").mkdir()  # nothing can be written beside it now
    with pytest.raises(StateUnusable, match=r"state\.json"):
        file.save(msgspec.structs.replace(STATE, boot_id="boot-2"))
    assert file.load() == STATE


# Lets the kernel refuse every rename for want of room, as a copy-on-write file system does, and saves a second time.
NO_ROOM_TO_RENAME = """
import ctypes, struct, sys
from pathlib import Path
import msgspec
from agent.state_file import State, StateFile, StateUnusable
file = StateFile(Path(sys.argv[1]))
state = msgspec.json.decode(sys.argv[2], type=State)
file.save(state)
refuse = 0x00050000 | 28  # SECCOMP_RET_ERRNO, ENOSPC
renames = (82, 264, 316) if sys.argv[3] == "x86_64" else (38, 276)
code = [(0x20, 0, 0, 0)]  # load the number of the system call (seccomp(2), struct seccomp_data)
for left, number in zip(range(len(renames) - 1, -1, -1), renames):
    code.append((0x15, left + 1, 0, number))
code += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, refuse)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
class Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, ctypes.byref(Program(len(code), ctypes.addressof(packed))), 0, 0) != 0:
    sys.exit(77)
try:
    file.save(msgspec.structs.replace(state, boot_id="boot-2"))
except StateUnusable as error:
    print(error)
"""


def test_a_rename_that_finds_no_room_leaves_the_last_state(tmp_path: Path) -> None:
    """The kernel says ENOSPC only now: the old file stands, nothing is left beside it, the cause is named."""
    arguments = [str(tmp_path), msgspec.json.encode(STATE).decode(), platform.machine()]
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM_TO_RENAME, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    if done.returncode == 77:
        pytest.skip("this kernel takes no seccomp filter")
    assert "No space left on device" in done.stdout, done.stderr
    assert StateFile(tmp_path).load() == STATE
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_state_beyond_the_bound_is_not_written(tmp_path: Path) -> None:
    """A disk that others share is not filled by us."""
    big = msgspec.structs.replace(STATE, memories={"gate": "x" * LIMIT_BYTES})
    with pytest.raises(StateUnusable, match="is the most"):
        StateFile(tmp_path).save(big)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    """The cause is said."""
    file = StateFile(tmp_path)
    file.save(STATE)
    file.path.chmod(0)
    with pytest.raises(StateUnusable, match="Permission denied"):
        file.load()


@given(st.binary(max_size=200))
def test_no_bytes_make_loading_raise_anything_else(raw: bytes) -> None:
    """Garbage is unusable, and that is all."""
    with tempfile.TemporaryDirectory() as folder:
        file = StateFile(Path(folder))
        file.path.write_bytes(raw)
        with contextlib.suppress(StateUnusable):
            assert isinstance(file.load(), State)


class Saving:
    """A Saver whose wakings are counted."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.file = StateFile(folder)
        self.wakings = 0
        self.saver = Saver(self.file, self.clock.clock, Metrics("1"), self._wake)

    def _wake(self) -> None:
        self.wakings += 1


def test_a_change_of_no_importance_is_saved_within_seconds_and_once(tmp_path: Path) -> None:
    """A thousand of them wake the writer once."""
    saving = Saving(tmp_path)
    for sequence in range(1000):
        cursor = SavedCursor(boot_id="boot-1", sequence=sequence)
        saving.saver.offer(msgspec.structs.replace(STATE, cursor=cursor), urgent=False)
    assert (saving.wakings, saving.saver.step()) == (1, SETTLE_S)
    saving.clock.advance(SETTLE_S)
    assert saving.saver.step() == float("inf")
    loaded = saving.file.load()
    assert loaded is not None
    assert loaded.cursor == SavedCursor(boot_id="boot-1", sequence=999)


def test_a_changed_finding_is_saved_at_once(tmp_path: Path) -> None:
    """A kill -9 right after it forgets nothing."""
    saving = Saving(tmp_path)
    saving.saver.offer(STATE, urgent=False)
    saving.saver.offer(STATE, urgent=True)
    assert saving.wakings == 2
    saving.saver.step()
    assert saving.file.load() == STATE


def test_nothing_offered_is_nothing_saved(tmp_path: Path) -> None:
    """No empty file appears."""
    saving = Saving(tmp_path)
    saving.saver.flush()
    assert saving.saver.step() == float("inf")
    assert list(tmp_path.iterdir()) == []
