"""Tests of agent.nvml_keeper and agent.nvml_watch: rounds, deadlines, endings, back-off, all on a clock that is moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nvml_keeper import AGAIN_S, MOST_LEFT, Wish
from agent.nvml_watch import Action, Ask, Kill, Start, Terminate, Timing
from agent.nvml_wire import Broke, EventsSaid
from checks.observation import NvmlFailed, NvmlHung, NvmlRead, SourceFailed, SourceRead
from tests.agent.nvml.play import GPUS, LOST, MISMATCH, NOT_LOADED, Play, answer, gpu

TIMING = Timing()


def kinds(actions: list[Action]) -> list[type[Action]]:
    return [type(action) for action in actions]


def test_a_child_is_started_asked_and_asked_again() -> None:
    """One child, one round a period from the beginning of the last, its answer handed over with the source."""
    play = Play()
    assert kinds(play.step()) == [Start, Ask]
    play.now += 2
    play.say(answer())
    assert [read.child for read in play.heard(NvmlRead)] == [1]
    assert play.heard(NvmlRead)[0].gpus[2].uuid == "GPU-2"
    assert len(play.heard(SourceRead)) == 1
    assert play.wait(27) == []
    assert kinds(play.wait(2)) == [Ask]


@pytest.mark.parametrize(
    ("call", "index", "named", "deadline_s"),
    [
        pytest.param("nvmlDeviceGetUUID", 1, "0000:02:00", 15.0, id="a call to a GPU"),
        pytest.param("nvmlSystemGetDriverVersion", -1, "", 15.0, id="a call to no GPU"),
        pytest.param("nvmlDeviceGetHandleByIndex_v2", 9, "", 15.0, id="a call to a GPU that nobody knows"),
    ],
)
def test_a_call_that_does_not_come_back_is_hung(call: str, index: int, named: str, deadline_s: float) -> None:
    """SIGTERM at its deadline, SIGKILL five seconds later, and told once the process is gone: which call, to which GPU."""
    play = Play()
    play.step()
    play.call(call, index)
    began = play.at
    assert play.wait(deadline_s) == []
    assert kinds(play.wait(1.1)) == [Terminate]
    assert play.heard(NvmlHung) == []
    assert kinds(play.wait(5.1)) == [Kill]
    play.end("SIGKILL")
    (hung,) = play.heard(NvmlHung)
    assert (hung.call, hung.pci, hung.since, hung.child_gone) == (call, named, began, True)
    assert [failed.tries for failed in play.heard(SourceFailed)] == [1]


def test_what_lasts_within_its_deadline_is_no_hang() -> None:
    """Each call has its own time: ten slow ones in a row are a slow round."""
    play = Play()
    play.step()
    for number in range(10):
        play.call("nvmlDeviceGetName", number % 3)
        assert play.wait(14) == []
    play.say(answer())
    assert play.heard(NvmlHung) == []


def test_bringing_up_all_gpus_may_take_longer_than_a_call() -> None:
    """Without a persistence daemon nvmlInit boots the firmware of every GPU, one after the other."""
    play = Play()
    play.step()
    play.call("nvmlInitWithFlags")
    assert play.wait(59) == []
    assert kinds(play.wait(3)) == [Terminate]


def test_a_round_without_end_is_hung() -> None:
    """Calls that follow one another for ever are given up as well."""
    play = Play()
    play.step()
    done: list[Action] = []
    for _ in range(70):
        play.call("nvmlDeviceGetName", 0)
        done += play.wait(10)
    assert Terminate in kinds(done)


def test_waiting_for_events_is_no_hang() -> None:
    """A wait has its own time beyond the deadline, and a thread that rests is in no call; one that does neither is hung."""
    play = Play().begun()
    play.call("nvmlEventSetWait_v2", thread="events")
    assert kinds(play.wait(24)) == []
    play.call("", thread="events")
    assert kinds(play.wait(7)) == [Ask]
    play.say(answer())
    assert kinds(play.wait(20)) == []
    play.call("nvmlEventSetFree", thread="events")
    assert Terminate in kinds(play.wait(26))


def test_a_child_that_never_begins_is_hung() -> None:
    """A new process has a minute for its first call; then that is what hangs."""
    play = Play()
    play.step()
    assert play.wait(59) == []
    assert kinds(play.wait(3)) == [Terminate]


def test_a_machine_that_slept_makes_no_hang() -> None:
    """Time in which nobody looked counts for no deadline, nor for an ending."""
    play = Play()
    play.step()
    play.call("nvmlDeviceGetUUID", 1)
    play.wait(10)
    play.now += 3600
    assert play.step() == []
    assert play.wait(3) == []
    assert kinds(play.wait(4)) == [Terminate]
    play.now += 3600
    assert play.step() == []
    assert kinds(play.wait(6)) == [Kill]


def test_the_gpu_that_hung_is_left_alone_and_the_others_go_on() -> None:
    """After a back-off the next child asks the other GPUs alone, by their address."""
    play = Play().begun()
    play.wait(30)
    play.call("nvmlDeviceGetSerial", 1)
    play.wait(17)
    play.end("SIGTERM")
    assert kinds(play.wait(10)) == [Start, Ask]
    order = play.orders[-1]
    assert order.quiet == ("0000:02:00",)
    assert order.known == ((0, "0000:01:00"), (1, "0000:02:00"), (2, "0000:03:00"))
    play.say(answer(gpu(0), gpu(2)))
    read = play.heard(NvmlRead)[-1]
    assert [bool(one.quiet) for one in read.gpus] == [False, True, False]
    assert (read.gpus[1].uuid, read.gpus[1].quiet) == ("GPU-1", "nvmlDeviceGetSerial has not come back")


def test_a_hang_that_named_no_gpu_makes_the_next_child_name_it() -> None:
    """Asked by index, a GPU that nobody knew yet cannot be told; by address it can."""
    play = Play()
    play.step()
    play.call("nvmlDeviceGetHandleByIndex_v2", 7)
    play.wait(17)
    play.end("SIGTERM")
    play.wait(10)
    assert play.orders[-1].by_pci
    play.call("nvmlDeviceGetHandleByPciBusId_v2", 2, "0000:03:00")
    play.wait(17)
    play.end("SIGTERM")
    assert list(play.keeper.quiet) == ["0000:03:00"]


def test_a_child_that_cannot_be_killed_is_left_and_counted() -> None:
    """It is told at once that it is still there, and once more when it is gone; the next child does not wait for it."""
    play = Play()
    play.step()
    play.call("nvmlDeviceGetUUID", 1)
    play.wait(16 + 5 + 6)
    assert [hung.child_gone for hung in play.heard(NvmlHung)] == [False]
    assert play.keeper.left == 1
    assert Start in kinds(play.wait(12))
    play.end("SIGKILL", child=1)
    assert [hung.child_gone for hung in play.heard(NvmlHung)] == [False, True]
    assert play.keeper.left == 0


def test_beyond_a_few_that_cannot_be_killed_no_child_is_started() -> None:
    """They would pile up; what stands is said again, and once one of them goes it is tried again."""
    play = Play()
    play.step()
    for _ in range(MOST_LEFT):
        play.call("nvmlSystemGetDriverVersion")
        play.wait(16 + 5 + 6)
        assert play.keeper.left > 0
        while play.keeper.left < MOST_LEFT and Start not in kinds(play.step()):
            play.wait(1)
    assert Start not in kinds(play.wait(1200))
    assert len(play.heard(NvmlHung)) >= MOST_LEFT + 1200 // AGAIN_S - 1
    play.end("SIGKILL", child=1)
    assert Start in kinds(play.wait(601))


def test_a_driver_that_is_not_loaded_is_asked_for_again_and_again() -> None:
    """Each time by a fresh child, after pauses that grow to a minute; the first failure stays the beginning."""
    play = Play()
    play.step()
    play.fail(NOT_LOADED)
    since, waits = play.at, list[float]()
    for _ in range(10):
        began = play.now
        play.wait(61)
        assert play.child > len(waits) + 1
        waits.append(play.now - began)
        play.fail(NOT_LOADED)
    failed = play.heard(NvmlFailed)
    assert [one.fresh for one in failed] == [False] + [True] * 10
    assert {one.since for one in failed} == {since}
    assert [one.tries for one in play.heard(SourceFailed)] == list(range(1, 12))
    assert play.heard(SourceFailed)[0].error == "nvmlInitWithFlags: DriverNotLoaded (9)"


def test_an_out_of_date_library_gets_a_fresh_child_at_once() -> None:
    """Only our own mapping may be old; what a fresh child says of it too is believed, and backs off."""
    play = Play().begun()
    play.wait(30)
    play.fail(MISMATCH)
    assert kinds(play.step()) == [Start, Ask]
    play.now += 0.1
    play.fail(MISMATCH)
    assert [one.fresh for one in play.heard(NvmlFailed)] == [False, True]
    assert play.step() == []


def test_a_good_round_ends_the_row_of_failures() -> None:
    """The next failure begins anew."""
    play = Play()
    play.step()
    play.fail(NOT_LOADED)
    play.wait(2)
    play.say(answer())
    play.wait(31)
    play.fail(NOT_LOADED)
    first, second = play.heard(NvmlFailed)
    assert second.since > first.since
    assert not second.fresh


@pytest.mark.parametrize(
    ("tell", "said"),
    [
        pytest.param(lambda p: p.end("SIGSEGV"), "ended by itself during nvmlDeviceGetName", id="it crashed"),
        pytest.param(lambda p: p.keeper.garbled(1, "wrote x", p.now, p.at), "wrote x", id="it wrote garbage"),
        pytest.param(
            lambda p: p.say(Broke(error="TypeError: x")), "broke: TypeError: x", id="a defect in it"
        ),
    ],
)
def test_a_child_that_is_not_to_be_believed_is_replaced(tell: "object", said: str) -> None:
    """A failure of the source, with the call that it was in where it crashed, then a new child after a pause."""
    assert callable(tell)
    play = Play()
    play.step()
    play.call("nvmlDeviceGetName", 0)
    tell(play)
    play.told += play.keeper.take()
    (failed,) = play.heard(SourceFailed)
    assert said in failed.error
    if play.step():
        play.say(answer())  # what it still says does not count
        play.end("SIGTERM")
    assert play.heard(NvmlRead) == []
    assert Start in kinds(play.wait(2))


def test_a_child_that_ends_after_each_first_round_is_no_hot_loop() -> None:
    """One good round proves little: the pauses grow until a child has lasted."""
    play, pauses = Play(), list[float]()
    play.step()
    for _ in range(8):
        play.say(answer())
        play.end("SIGSEGV")
        began = play.now
        while Start not in kinds(play.wait(0.5)):
            pass
        pauses.append(play.now - began)
    assert pauses[0] < 3
    assert pauses[-1] > 20


@pytest.mark.parametrize("lasts", [True, False])
def test_a_gpu_that_only_the_bus_shows_is_looked_for_by_one_fresh_child(lasts: bool) -> None:
    """NVML counts once, when it is initialised: a GPU that the driver took up later needs another process."""
    play = Play()
    play.step()
    seven = answer(gpu(0), gpu(1), count=2)
    play.say(seven)
    assert kinds(play.wait(31)) == [Ask]
    play.say(seven)
    assert kinds(play.step()) == [Terminate]
    play.end("SIGTERM")
    assert kinds(play.step()) == [Start, Ask]
    assert play.heard(SourceFailed) == []
    for _ in range(3):
        play.say(seven if lasts else answer())
        assert kinds(play.wait(31)) == [Ask]


def test_an_answer_that_nobody_asked_for_is_garbage() -> None:
    """Then nothing of that child can be trusted."""
    play = Play().begun()
    play.say(answer())
    assert len(play.heard(NvmlRead)) == 1
    assert kinds(play.step()) == [Terminate]


def test_a_process_that_cannot_be_started_is_tried_again() -> None:
    """Out of processes or memory: a failed source with the cause, then another try."""
    play = Play()
    play.step()
    play.end("it could not be started (Resource temporarily unavailable)")
    assert "Resource temporarily unavailable" in play.heard(SourceFailed)[0].error
    assert Start in kinds(play.wait(2))


def test_a_lost_gpu_is_left_alone_from_the_next_round_on() -> None:
    """The round that met it is handed over as it was; the next one comes at once, so that no event set holds it."""
    play = Play().begun()
    play.wait(30)
    play.say(answer(gpu(0), gpu(1, LOST, pci=False), gpu(2)))
    lost = play.heard(NvmlRead)[-1].gpus[1]
    assert (lost.pci, lost.errors, lost.quiet) == ("0000:02:00", (LOST,), "")
    assert kinds(play.step()) == [Ask]
    assert play.orders[-1].quiet == ("0000:02:00",)


def test_trouble_with_events_brings_the_next_round_at_once() -> None:
    """The wait for events meets a lost GPU, or a driver that went away, long before the next round would."""
    play = Play().begun()
    play.say(EventsSaid(error=LOST))
    assert kinds(play.step()) == [Ask]
    play.say(answer(), EventsSaid(error=None))
    assert play.step() == []


@given(
    st.lists(
        st.sampled_from(["wait", "nap", "answer", "call", "lost", "fail", "end", "garbage", "clear"]),
        max_size=40,
    )
)
def test_whatever_happens_there_is_at_most_one_child_that_is_not_given_up(story: list[str]) -> None:
    """Never two at work, never an order to one that is ending, and always a next step within ten seconds."""
    play = Play(timing=TIMING)
    play.step()
    for event in story:
        match event:
            case "wait":
                play.wait(31)
            case "nap":
                play.now += 1000
            case "answer":
                play.say(answer())
            case "call":
                play.call("nvmlDeviceGetUUID", 1)
            case "lost":
                play.say(answer(gpu(0, LOST)))
            case "fail":
                play.fail(NOT_LOADED)
            case "end":
                play.end("SIGSEGV")
            case _:
                play.keeper.garbled(play.child, "x", play.now, play.at)
        play.step()
        assert 0 < play.wait_s <= 10
    ended: set[int] = set()
    for action in play.done:
        if isinstance(action, Terminate | Kill):
            ended.add(action.child)
        elif isinstance(action, Ask):
            assert action.child not in ended


def test_lost_records_of_the_kernel_log_let_nvml_be_asked_at_once() -> None:
    """What they said may be seen there; while more and more are lost it is asked every five seconds and no oftener."""
    play = Play().begun()
    play.wait(10)
    play.want(Wish(gpus=GPUS, lost=7))
    assert kinds(play.step()) == [Ask]
    play.say(answer())
    asked = 0
    for second in range(20):
        play.want(Wish(gpus=GPUS, lost=8 + second))
        for action in play.wait(1):
            if isinstance(action, Ask):
                asked += 1
                play.say(answer())
    assert asked == 4
    # And then no oftener than ever: a period after the last round began.
    assert kinds(play.wait(29)) in ([], [Ask])


def test_records_that_are_lost_during_a_round_are_followed_by_another() -> None:
    """The one under way may have asked before."""
    play = Play().begun()
    play.wait(30.5)
    play.want(Wish(gpus=GPUS, lost=1))
    play.step()
    play.say(answer())
    assert kinds(play.wait(0.2)) == [Ask]
    play.say(answer())
    assert play.wait(20) == []
