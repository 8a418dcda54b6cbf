"""Tests of agent.nvml_keeper: what is released and what is left alone, when somebody asks and when that is over."""

from datetime import timedelta

import msgspec
import pytest

from agent.nvml_keeper import AGAIN_S, Wish
from agent.nvml_watch import Action, Ask, Start, Terminate
from agent.nvml_wire import EventSaid
from agent.release import Wanted
from checks.check import Clearing
from checks.observation import NvmlEvent, NvmlFailed, NvmlHung, NvmlRead, NvmlReleased
from tests.agent.nvml.play import BOOT, GPUS, LOST, NOT_LOADED, Play, answer, gpu

UPGRADE = Wanted(why="a driver upgrade is in progress")
REPAIR = Wanted(why="asked by inc-1", by="inc-1")
HERE = Wish(gpus=GPUS)


def wish(release: Wanted | None) -> Wish:
    return msgspec.structs.replace(HERE, release=release)


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def test_who_asks_gets_the_driver_free_and_is_told_so() -> None:
    """Nothing is told before the process is gone; afterwards it is told again now and then, and no child is started."""
    play = Play().begun()
    play.want(wish(REPAIR))
    assert kinds(play.step()) == [Terminate]
    assert play.keeper.released is None
    play.end("exit status 0")
    play.step()
    released = play.keeper.released
    assert released is not None
    assert (released.by, released.why, released.since) == ("inc-1", "asked by inc-1", play.at)
    assert play.wait(3 * AGAIN_S) == []
    assert len(play.heard(NvmlReleased)) == 4
    assert play.keeper.released == released


def test_a_release_that_is_over_gets_a_fresh_child_at_once() -> None:
    """Whatever back-off there was, and with a new row of failures: another driver may be loaded now."""
    play = Play()
    play.step()
    for _ in range(6):
        play.fail(NOT_LOADED)
        play.wait(60)
    play.fail(NOT_LOADED)
    play.want(wish(UPGRADE))
    play.step()
    assert play.keeper.released is not None
    play.wait(1000)
    play.want(HERE)
    assert play.keeper.released is None
    assert kinds(play.step()) == [Start, Ask]
    play.fail(NOT_LOADED)
    assert not play.heard(NvmlFailed)[-1].fresh


def test_a_child_that_cannot_be_killed_is_no_release() -> None:
    """It may still hold the driver: who asked must not be told that it is free."""
    play = Play()
    play.step()
    play.call("nvmlDeviceGetUUID", 0)
    play.wait(10)
    play.want(wish(REPAIR))
    play.wait(60)
    assert play.keeper.left == 1
    assert [(hung.call, hung.child_gone) for hung in play.heard(NvmlHung)] == [("nvmlDeviceGetUUID", False)]
    assert play.keeper.released is None
    assert play.wait_s > 0
    play.end("SIGKILL")
    play.step()
    assert play.keeper.released is not None


def test_another_who_asks_gets_an_answer_of_its_own() -> None:
    """The answer to an earlier attempt is never taken for one to this."""
    play = Play(wish=wish(UPGRADE))
    play.step()
    play.now += 5
    play.want(wish(REPAIR))
    play.step()
    assert [one.why for one in play.heard(NvmlReleased)] == [UPGRADE.why, REPAIR.why]
    assert play.keeper.released is not None
    assert (play.keeper.released.by, play.keeper.released.since) == ("inc-1", play.at)


@pytest.mark.parametrize(
    ("kind", "data", "silenced"),
    [
        pytest.param(8, 79, True, id="fallen off the bus"),
        pytest.param(8, 119, True, id="the GSP does not answer"),
        pytest.param(8, 120, True, id="the GSP failed"),
        pytest.param(8, 999, False, id="an XID that NVML does not know"),
        pytest.param(8, 31, False, id="an XID of a program"),
        pytest.param(0x8000, 79, False, id="another kind of event with the same number"),
    ],
)
def test_an_event_leaves_its_gpu_alone(kind: int, data: int, silenced: bool) -> None:
    """Three XIDs do, from the next call on; every event is handed over with this boot's id."""
    play = Play().begun()
    play.say(EventSaid(kind=kind, data=data, pci="0000:02:00", uuid="GPU-1"))
    assert [(e.kind, e.data, e.boot_id) for e in play.heard(NvmlEvent)] == [(kind, data, BOOT)]
    assert (kinds(play.step()) == [Ask]) == silenced
    assert ("0000:02:00" in play.keeper.quiet) == silenced


def test_an_event_of_a_gpu_that_cannot_be_told_leaves_none_alone() -> None:
    """It is handed over without an address."""
    play = Play().begun()
    play.say(EventSaid(kind=8, data=79))
    assert play.heard(NvmlEvent)[0].pci == ""
    assert play.keeper.quiet == {}


def test_a_finding_leaves_its_gpu_alone_for_as_long_as_it_stands() -> None:
    """The kernel log is the proof: its XID begins it at once, and its clearing ends it at once."""
    play = Play().begun()
    play.want(msgspec.structs.replace(HERE, sick={"0000:03:00": "XID 79"}))
    assert kinds(play.step()) == [Ask]
    assert play.orders[-1].quiet == ("0000:03:00",)
    play.say(answer(gpu(0), gpu(1)))
    assert play.heard(NvmlRead)[-1].gpus[2].quiet == "XID 79"
    play.want(HERE)
    assert kinds(play.step()) == [Ask]
    assert not play.orders[-1].quiet


def test_a_lost_gpu_is_asked_again_once_it_was_cleared() -> None:
    """By the repair of that part, and by nothing that is about another."""
    play = Play().begun()
    play.wait(30)
    play.say(answer(gpu(0), gpu(1, LOST), gpu(2)))
    play.step()
    play.say(answer(gpu(0), gpu(2)))
    later = play.at + timedelta(seconds=1)
    play.want(msgspec.structs.replace(HERE, clearings=(Clearing(uuid="GPU-0", before=later),)))
    assert play.step() == []
    play.want(msgspec.structs.replace(HERE, clearings=(Clearing(uuid="GPU-1", before=later),)))
    assert kinds(play.step()) == [Ask]
    assert not play.orders[-1].quiet


def test_a_clearing_counts_once() -> None:
    """What is lost after it stays alone, even where this machine's clock lags behind the one that cleared."""
    play = Play().begun()
    cleared = msgspec.structs.replace(HERE, cleared_before=play.at + timedelta(hours=1))
    play.want(cleared)
    play.wait(30)
    play.say(answer(gpu(0), gpu(1, LOST), gpu(2)))
    play.want(msgspec.structs.replace(cleared, sick={"0000:03:00": "XID 79"}))
    play.step()
    assert play.orders[-1].quiet == ("0000:02:00", "0000:03:00")


def test_a_gpu_that_never_answered_is_named_by_sysfs() -> None:
    """Quiet from the start, it has its address and place."""
    play = Play(wish=msgspec.structs.replace(HERE, sick={"0000:01:00": "XID 79"}))
    play.step()
    assert play.orders[0].quiet == ("0000:01:00",)
    play.say(answer(gpu(1), gpu(2)))
    first = play.heard(NvmlRead)[0].gpus[0]
    assert (first.index, first.pci, first.uuid, first.quiet) == (0, "0000:01:00", "", "XID 79")
