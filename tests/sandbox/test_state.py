"""What a dead sandbox leaves is found by pid and start time, or by its random id; what lives is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox import state
from sandbox.go_modules import MissingProgramError
from sandbox.processes import start_time


def _ignore(_line: str) -> None:
    pass


def _sleeper(**extra: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sleep", "600"], env={**os.environ, **extra})


def _die(instance: state.Instance) -> None:
    """Let go of the owner's lock as the kernel does when the owner dies; the record stays."""
    os.close(instance._lock)


def test_a_living_instance_is_left_alone(tmp_path: Path) -> None:
    """An instance whose owner holds its lock is not removed by another start."""
    instance = state.claim(folder=tmp_path)

    removed = state.remove_dead(_ignore, folder=tmp_path)

    assert removed == []
    assert instance.state_dir.is_dir()
    instance.release()


def test_release_leaves_nothing(tmp_path: Path) -> None:
    """A clean end removes the record and the state in it."""
    instance = state.claim(folder=tmp_path)

    instance.release()

    assert [path.name for path in tmp_path.iterdir()] == ["registry.lock"]


def test_a_dead_instances_recorded_program_is_ended(tmp_path: Path) -> None:
    """A program with the recorded pid and start time is ended, and the record goes."""
    instance = state.claim(folder=tmp_path)
    sleeper = _sleeper()
    (instance.children / str(sleeper.pid)).write_text(f"{start_time(sleeper.pid)} sleep\n")
    _die(instance)

    removed = state.remove_dead(_ignore, folder=tmp_path)

    assert [instance.id] == removed
    assert sleeper.wait(10) == -9
    assert not instance.record.exists()


def test_a_dead_instances_unrecorded_descendant_is_ended(tmp_path: Path) -> None:
    """A process that nobody recorded is known by the id it inherited."""
    instance = state.claim(folder=tmp_path)
    sleeper = _sleeper(**{state.MARK: instance.id})
    _die(instance)

    state.remove_dead(_ignore, folder=tmp_path)

    assert sleeper.wait(10) == -9


@pytest.mark.parametrize(
    ("record", "boot"),
    [
        pytest.param("1 sleep\n", None, id="the pid belongs to another process now"),
        pytest.param(None, "another-boot pid:[1]", id="the pids are those of another boot or container"),
    ],
)
def test_a_process_that_is_not_ours_is_left_alone(
    tmp_path: Path, record: str | None, boot: str | None
) -> None:
    """A pid alone never ends a process."""
    instance = state.claim(folder=tmp_path)
    sleeper = _sleeper()
    (instance.children / str(sleeper.pid)).write_text(record or f"{start_time(sleeper.pid)} sleep\n")
    if boot:
        (instance.record / "boot").write_text(boot)
    _die(instance)

    removed = state.remove_dead(_ignore, folder=tmp_path)

    assert [instance.id] == removed
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait(10)


def test_a_killed_owner_lets_go_of_its_lock(tmp_path: Path) -> None:
    """After kill -9 of the owning process its instance counts as dead, without any pid being asked for."""
    code = (
        "import sys, time; from pathlib import Path; from sandbox import state\n"
        "print(state.claim(folder=Path(sys.argv[1])).id, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().decode().strip()
        alive = state.remove_dead(_ignore, folder=tmp_path)
        owner.kill()
        owner.wait(10)

    assert ([], [name]) == (alive, state.remove_dead(_ignore, folder=tmp_path))


def test_a_named_state_folder_is_kept(tmp_path: Path) -> None:
    """A folder the caller named stays at the end: its logs are what it was named for."""
    instance = state.claim(tmp_path / "mine", folder=tmp_path / "registry")
    (instance.state_dir / "log").write_text("seen")

    instance.release()

    assert (tmp_path / "mine" / "log").read_text() == "seen"


def test_a_used_state_folder_is_refused(tmp_path: Path) -> None:
    """Another cluster's data is never taken over."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "etcd").touch()

    with pytest.raises(FileExistsError, match="mine: not empty; name an empty or a new folder"):
        state.claim(tmp_path / "mine", folder=tmp_path / "registry")


def test_a_registry_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A home folder that is not ours to write in is said, with the variable that names another."""
    (tmp_path / "home").write_text("a file where a folder should be")

    with pytest.raises(MissingProgramError, match=r"home/records: .*; XDG_STATE_HOME names another"):
        state.claim(folder=tmp_path / "home" / "records")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/nodemend/sandboxes", id="the state folder"),
        pytest.param({"HOME": "/h"}, "/h/.local/state/nodemend/sandboxes", id="the home folder"),
    ],
)
def test_the_registry_is_the_users(env: dict[str, str], expected: str) -> None:
    """Records are kept where the XDG base directory specification puts state."""
    assert Path(expected) == state.registry(env)
