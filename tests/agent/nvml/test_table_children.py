"""What can become of the NVML child itself, and what must be said of the machine then: real children, real checks."""

import os
import signal
from pathlib import Path
from random import Random

import pytest

from agent.config import NvmlSection
from agent.nvml_feed import NvmlFeed, wish_of
from agent.nvml_process import ChildProcess
from agent.nvml_worker import Process
from checks.observation import NvmlReleased
from kube.nodehealth import NodeHealthSpec, Release
from tests.agent.nvml.by_hand import BOOT, SOUND, by_hand
from tests.agent.nvml.nursery import Nursery

LONG_S, SETTLES_S = 700, 60


def test_a_release_drops_the_handles_and_a_fresh_child_takes_them_up(
    tmp_path: Path, nursery: Nursery
) -> None:
    """An incident asks: nobody holds the driver when it is told so, and no call is made until it is over."""
    with by_hand(tmp_path, nursery) as hand:
        hand.read()
        asks = Release(by="inc-1-reset", since=hand.time.now())
        hand.judging.ask(NodeHealthSpec(release=asks))
        hand.judge()
        assert isinstance(hand.next(), NvmlReleased)
        assert hand.fake.clients() == ()
        released = hand.worker.keeper.released
        assert released is not None
        assert released.by == "inc-1-reset"
        before = hand.fake.calls()
        hand.live(LONG_S)
        assert hand.fake.calls() == before
        assert hand.shown["GpuDriverFault"] == "Unknown DriverUpgrade"
        hand.judging.ask(NodeHealthSpec())
        hand.judge()
        assert hand.read().child == 2
        hand.wait(SETTLES_S)
        assert hand.shown == SOUND


def test_a_child_that_is_killed_costs_nothing_but_a_round(tmp_path: Path, nursery: Nursery) -> None:
    """The out-of-memory killer takes one after the other: each is replaced, and nothing is said of the driver."""
    with by_hand(tmp_path, nursery) as hand:
        hand.read()
        for count in range(5):
            os.kill(hand.worker.child.pid, signal.SIGKILL)
            hand.live(60)
            assert hand.shown == SOUND
            assert hand.worker.keeper.started == count + 2
        assert hand.judging.sources["nvml"].readable


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("print('NVRM: oops', flush=True); time.sleep(60)", id="it writes words"),
        pytest.param("os.write(1, b'x' * 3_000_000); time.sleep(60)", id="it writes a line without end"),
        pytest.param('print(\'{"k":"round","n":1}\', flush=True); time.sleep(60)', id="it leaves fields out"),
        pytest.param("os.close(1); time.sleep(60)", id="it closes its output and goes on"),
        pytest.param("os.kill(os.getpid(), 11)", id="it crashes"),
        pytest.param("sys.exit(7)", id="it ends"),
    ],
)
def test_a_child_that_is_out_of_its_mind(tmp_path: Path, nursery: Nursery, program: str) -> None:
    """No fault of the machine however long it lasts: nothing is known, with the cause, until a sane one answers."""
    with by_hand(tmp_path, nursery) as hand:
        odd = ("-c", f"import os, sys, time; {program}")
        hand.worker.launch = lambda root: ChildProcess(root, odd)
        for _ in range(4):
            hand.until_failed()
        hand.wait(120)
        assert hand.shown["GpuDriverFault"] == "Unknown NvmlSilent"
        assert not hand.findings
        hand.worker.launch = nursery.start
        hand.read()
        hand.wait(SETTLES_S)
        assert hand.shown == SOUND


def test_no_process_can_be_started(tmp_path: Path, nursery: Nursery) -> None:
    """The machine is out of processes: said as what it is, and asked again less and less often."""

    def refuse(_: Path) -> Process:
        tries.append(1)
        raise OSError("Resource temporarily unavailable")

    tries: list[int] = []
    with by_hand(tmp_path, nursery) as hand:
        hand.worker.launch = refuse
        hand.live(LONG_S)
        assert hand.shown["GpuDriverFault"] == "Unknown NvmlSilent"
        assert "Resource temporarily unavailable" in hand.judging.sources["nvml"].error
        assert 10 < len(tries) < 40


def test_a_machine_without_gpus_has_no_child_and_no_condition(tmp_path: Path, nursery: Nursery) -> None:
    """The bus shows none, so there is nothing that NVML could be asked about, driver or not."""
    with by_hand(tmp_path, nursery, 0) as hand:
        wish = wish_of(hand.judging)
        feed = NvmlFeed(NvmlSection(driver_root=tmp_path), hand.time.clock, Random(1), lambda: None)
        feed.follow(BOOT, wish, may_begin=True)
        hand.wait(LONG_S)
        assert not feed.begun
        assert hand.shown == {}
        assert not hand.not_shown()
