"""Tests of the NVML feed with its real children on the fake driver: what breaks, and that the agent goes on."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from agent.config import NvmlSection
from agent.nvml_feed import Box, NvmlFeed, one_round
from agent.nvml_keeper import Wish
from agent.nvml_process import ChildProcess
from agent.release import Wanted
from checks.observation import (
    NvmlEvent,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
    RecordsLost,
    SourceFailed,
    SourceRead,
)
from kube.clock import SYSTEM
from sandbox.fake_nvml import FakeDriver
from tests.agent.nvml.driver import QUICK, await_events, lay_out, listening, parts
from tests.fakes import FakeClock, wait_until

SLOW_TO_END = msgspec.structs.replace(QUICK, deadline_s=0.6)
PCI = [part.pci for part in parts(2)]


def quiet(read: NvmlRead) -> list[str]:
    return [gpu.quiet for gpu in read.gpus]


@pytest.mark.parametrize(
    ("call", "gpu"),
    [
        pytest.param("nvmlInitWithFlags", None, id="the initialisation"),
        pytest.param("nvmlSystemGetDriverVersion", None, id="the driver's version"),
        pytest.param("nvmlDeviceGetCount_v2", None, id="the count"),
        pytest.param("nvmlDeviceGetHandleByIndex_v2", 1, id="the handle of a GPU"),
        pytest.param("nvmlDeviceGetPciInfo_v3", 1, id="its address"),
        pytest.param("nvmlDeviceGetUUID", 1, id="its identity"),
        pytest.param("nvmlDeviceGetFieldValues", 1, id="its fields"),
        pytest.param("nvmlDeviceRegisterEvents", 1, id="the registration of its events"),
    ],
)
def test_a_call_that_hangs_is_told_and_left(tmp_path: Path, call: str, gpu: int | None) -> None:
    """Which call, to which GPU, and that the process is gone; then the other GPU answers a new one."""
    fake = lay_out(tmp_path)
    fake.hang(call, gpu, blocks_sigterm=gpu == 1)
    with listening(tmp_path, times=SLOW_TO_END) as held:
        hung = held.until(NvmlHung)
        assert (hung.call, hung.pci, hung.child_gone) == (call, PCI[1] if gpu else "", True)
        held.until(SourceFailed, lambda seen: call in seen.error)
        if gpu is not None:
            read = held.until(NvmlRead, lambda seen: bool(seen.gpus[1].quiet))
            assert not read.gpus[0].errors
            before = fake.calls_to(gpu)
            held.until(NvmlRead)
            assert fake.calls_to(gpu) == before


def test_a_wait_for_events_that_hangs_is_told(tmp_path: Path) -> None:
    """A thread of the child hangs while its rounds go on; that is a hung driver as well."""
    lay_out(tmp_path).hang("nvmlEventSetWait_v2")
    with listening(tmp_path, times=SLOW_TO_END) as held:
        assert held.until(NvmlHung).call == "nvmlEventSetWait_v2"


def test_a_lost_gpu_is_seen_at_once_and_then_left_alone(tmp_path: Path) -> None:
    """The wait for events meets it first; after the round that says so no call is made to it any more."""
    fake = lay_out(tmp_path)
    slow = msgspec.structs.replace(QUICK, period_s=30.0)
    with listening(tmp_path, times=slow) as held:
        held.until(NvmlRead)
        await_events(fake)
        fake.lose(1)
        lost = held.until(NvmlRead, lambda seen: bool(seen.gpus[1].errors))
        assert (lost.gpus[1].errors[0].name, lost.gpus[1].pci, lost.count) == ("GpuIsLost", PCI[1], 2)
        left = held.until(NvmlRead)
        assert quiet(left) == ["", "GpuIsLost"]
        assert left.gpus[1].uuid
        waits = fake.calls()["nvmlEventSetWait_v2", None]
        wait_until(lambda: fake.calls()["nvmlEventSetWait_v2", None] > waits)
        before = fake.calls_to(1)
        fake.event(0, data=31)
        assert held.until(NvmlEvent).pci == PCI[0]
        assert fake.calls_to(1) == before


def test_an_event_is_handed_over_and_silences_its_gpu(tmp_path: Path) -> None:
    """XID 119: the firmware does not answer, and NVML's next call would not come back."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        await_events(fake)
        fake.event(0, data=119)
        event = held.until(NvmlEvent)
        assert (event.kind, event.data, event.pci, event.boot_id) == (8, 119, PCI[0], "boot-1")
        assert event.uuid
        assert quiet(held.until(NvmlRead, lambda seen: bool(seen.gpus[0].quiet))) == ["XID 119", ""]


def test_a_driver_upgrade_while_running_gets_a_fresh_child(tmp_path: Path) -> None:
    """The old library is mapped still: the child says so, and the next one reads the new version at once."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        first = held.until(NvmlRead)
        fake.mismatch("590.44.01")
        failed = held.until(NvmlFailed)
        assert (failed.error.name, failed.fresh) == ("LibRmVersionMismatch", False)
        second = held.until(NvmlRead)
        assert (second.driver, second.child) == ("590.44.01", first.child + 1)


def test_a_driver_that_is_upgraded_on_disk_alone_is_found(tmp_path: Path) -> None:
    """The running process is as well as before: it takes a fresh one to see that nothing new can start."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        held.until(NvmlRead)
        fake.answer("nvmlInitWithFlags", 18)
        newer = fake.library.with_suffix(".new")
        newer.write_bytes(fake.library.read_bytes())
        newer.replace(fake.library)
        assert not held.until(NvmlFailed).fresh
        assert held.until(NvmlFailed, lambda seen: seen.fresh).error.name == "LibRmVersionMismatch"


def test_a_driver_that_is_unloaded_and_comes_back(tmp_path: Path) -> None:
    """It is asked again until it is there."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        held.until(NvmlRead)
        fake.unload()
        assert held.until(NvmlFailed).error.name == "DriverNotLoaded"
        assert held.until(NvmlFailed).fresh
        fake.load()
        held.until(NvmlRead)
        held.until(SourceRead)


def test_a_root_without_a_driver_says_where_it_looked(tmp_path: Path) -> None:
    """The source names the root that is wrong."""
    with listening(tmp_path) as held:
        failed = held.until(SourceFailed)
        assert "LibraryNotFound (12)" in failed.error
        assert str(tmp_path) in failed.error
        assert held.until(NvmlFailed).error.code == 12


def test_a_child_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """By whatever: the failure names the signal."""
    lay_out(tmp_path)
    with listening(tmp_path) as held:
        held.until(NvmlRead)
        os.kill(only_child(), signal.SIGKILL)
        assert "SIGKILL" in held.until(SourceFailed).error
        assert held.until(NvmlRead).child == 2


@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param("print('NVRM: oops', flush=True); time.sleep(60)", "what is no message", id="words"),
        pytest.param(
            "os.write(1, b'x' * 3_000_000); time.sleep(60)", "more than 2097152 bytes", id="no line end"
        ),
        pytest.param("os.close(1); time.sleep(60)", "closed its output", id="it goes on without a voice"),
        pytest.param("os.kill(os.getpid(), 11)", "ended by itself", id="a crash before any word"),
        pytest.param("sys.exit(7)", "exit status 7", id="an end before any word"),
    ],
)
def test_garbage_from_the_child_is_an_error_and_no_crash(tmp_path: Path, program: str, said: str) -> None:
    """It is told, that child is ended, and a real one takes its place."""
    lay_out(tmp_path)
    odd = ("-c", f"import os, sys, time; {program}")
    started: list[ChildProcess] = []

    def start(root: Path) -> ChildProcess:
        started.append(ChildProcess(root, odd) if not started else ChildProcess(root))
        return started[-1]

    with listening(tmp_path, start=start) as held:
        assert said in held.until(SourceFailed).error
        held.until(NvmlRead)
    assert all(child.how_ended() for child in started)


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """The machine is out of processes for a moment."""
    lay_out(tmp_path)
    tries: list[Path] = []

    def start(root: Path) -> ChildProcess:
        tries.append(root)
        if len(tries) == 1:
            raise OSError("Resource temporarily unavailable")
        return ChildProcess(root)

    with listening(tmp_path, start=start) as held:
        assert "could not be started" in held.until(SourceFailed).error
        held.until(NvmlRead)


def test_a_release_drops_every_handle_and_ends_with_a_fresh_child(tmp_path: Path) -> None:
    """The driver has no client when it is told, and what was asked for is named."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        held.until(NvmlRead)
        assert len(fake.clients()) == 1
        held.want(Wish(gpus=parts(), release=Wanted(why="asked by inc-1", by="inc-1")))
        assert held.until(NvmlReleased).why == "asked by inc-1"
        assert fake.clients() == ()
        assert held.feed.released is not None
        assert held.feed.released.by == "inc-1"
        held.want(Wish(gpus=parts()))
        assert held.until(NvmlRead).child == 2
        wait_until(lambda: held.feed.released is None)


def test_a_machine_without_gpus_gets_no_child(tmp_path: Path) -> None:
    """And neither does one where NVML is switched off; who asks for a release there is answered at once."""
    lay_out(tmp_path)
    asked = Wanted(why="asked by inc-1", by="inc-1")
    off = NvmlSection(enabled=False, driver_root=tmp_path)
    for section, gpus in ((NvmlSection(driver_root=tmp_path), ()), (off, parts())):
        feed = NvmlFeed(section, FakeClock().clock, Random(1), lambda: None)
        feed.follow("boot-1", Wish(gpus=gpus, release=asked), may_begin=True)
        assert not feed.begun
        assert feed.released is not None
        assert feed.released.by == "inc-1"
        feed.follow("boot-1", Wish(gpus=gpus), may_begin=True)
        assert feed.released is None
    assert children() == []


def test_a_new_boot_begins_anew(tmp_path: Path) -> None:
    """What was silenced in the last one is asked again."""
    fake = lay_out(tmp_path)
    with listening(tmp_path) as held:
        await_events(fake)
        fake.event(0, data=79)
        held.until(NvmlRead, lambda seen: bool(seen.gpus[0].quiet))
        held.feed.follow("boot-2", Wish(gpus=parts()), may_begin=True)
        assert quiet(held.until(NvmlRead)) == ["", ""]
        assert len(children()) == 1


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        pytest.param(lambda _: None, NvmlRead, id="all is well"),
        pytest.param(lambda fake: fake.unload(), NvmlFailed, id="the driver is not loaded"),
        pytest.param(lambda fake: fake.hang("nvmlDeviceGetName", 0), NvmlHung, id="a call hangs"),
    ],
)
def test_one_round_has_an_end(
    tmp_path: Path, prepare: Callable[[FakeDriver], None], told: type[Observation]
) -> None:
    """For a look without an agent: one verdict, and no process stays behind."""
    prepare(lay_out(tmp_path))
    section = NvmlSection(driver_root=tmp_path)
    seen = one_round(section, SYSTEM, "boot-1", Wish(gpus=parts()), SLOW_TO_END)
    assert any(isinstance(one, told) for one in seen)
    assert children() == []


def test_a_box_that_nobody_empties_loses_the_oldest_and_says_so() -> None:
    """Memory is bounded, whatever NVML tells."""
    box, clock = Box(limit=3), FakeClock().clock
    for tries in range(5):
        box.put(SourceFailed(source="nvml", error="x", tries=tries, seen_at=clock.now()))
    *kept, lost = box.take(clock)
    assert [one.tries for one in kept if isinstance(one, SourceFailed)] == [2, 3, 4]
    assert isinstance(lost, RecordsLost)
    assert lost.count == 2
    assert box.take(clock) == []


AGENT = """
import sys, time
from pathlib import Path
from random import Random
from agent.config import NvmlSection
from agent.nvml_feed import NvmlFeed
from agent.nvml_keeper import Wish
from checks.finding import Part, PartKind
from checks.observation import NvmlRead
from kube.clock import SYSTEM
feed = NvmlFeed(NvmlSection(driver_root=Path(sys.argv[1])), SYSTEM, Random(1), lambda: None)
feed.follow("b", Wish(gpus=(Part(kind=PartKind.GPU, pci="0000:01:00", index=0),)), may_begin=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "hangs", [pytest.param(False, id="idle"), pytest.param(True, id="while a call hangs")]
)
def test_an_agent_that_is_killed_takes_its_child_along(tmp_path: Path, hangs: bool) -> None:
    """SIGKILL leaves it no time for anything: the child notices by itself, even from within a call."""
    fake = lay_out(tmp_path)
    if hangs:
        fake.hang("nvmlDeviceGetUUID", blocks_sigterm=True)
    agent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(AGENT), str(tmp_path)])
    try:
        wait_until(lambda: len(fake.clients()) == 1, 20)
        (child,) = fake.clients()
        if hangs:
            wait_until(lambda: bool(fake.calls().get(("nvmlDeviceGetUUID", 0))), 20)
        assert child != agent.pid
    finally:
        agent.kill()
        agent.wait()
    wait_until(lambda: not Path(f"/proc/{child}").exists(), 10)
    assert fake.clients() == ()


def children() -> list[int]:
    """Give the NVML children of this process that are there."""
    return [pid for pid in _of_threads() if b"nvml_child" in _read_if_there(Path(f"/proc/{pid}/cmdline"))]


def _of_threads() -> list[int]:
    """Give the children of every thread, lowest first: a child belongs to the thread that started it."""
    lists = [_read_if_there(task / "children") for task in Path("/proc/self/task").iterdir()]
    return sorted({int(pid) for found in lists for pid in found.split()})


def _read_if_there(path: Path) -> bytes:
    """Threads and processes end while they are listed."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def only_child() -> int:
    (pid,) = children()
    return pid
