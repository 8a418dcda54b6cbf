"""What a driver and its GPUs can be like, and what must be said of the machine then: real children, real checks.

Each row: what happens to a machine of three GPUs that was well, what is said once that has lasted longer than every grace
period, and that all is well again once it is over.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from checks.observation import NvmlEvent, NvmlFailed
from kube.nodehealth import ClearedPart, Expected, NodeHealthSpec
from tests.agent.nvml.by_hand import EVENTS, SOUND, Hand, by_hand
from tests.agent.nvml.driver import H100
from tests.agent.nvml.nursery import Nursery
from tests.fakes import wait_until

LONG_S = 700  # longer than the grace period of ten minutes
SETTLES_S = 60
GPU_0, GPU_1, GPU_2 = (f"0000:{slot}:00" for slot in ("18", "2a", "3a"))
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
A100 = "NVIDIA A100-SXM4-80GB"
USABLE, PRESENT = "False DriverUsable", "False AllGpusPresent"
NOT_ASKED = "Unknown GpusNotAsked"


class Mood(msgspec.Struct):
    """`begin` and `end` are what happens; `driver`, `missing` the two conditions, and `reasons` what is found where."""

    begin: Callable[[Hand], None]
    driver: str
    missing: str
    reasons: dict[str, list[str]] = {}
    end: Callable[[Hand], None] = lambda hand: hand.fake.heal()
    says: str = ""
    """Words that a message must hold."""


def clear(hand: Hand) -> None:
    """A person says that all of it was dealt with."""
    hand.fake.heal()
    hand.judging.clear(hand.time.now())
    hand.judge()


def away(hand: Hand) -> None:
    hand.fake.library.rename(hand.fake.library.with_name("elsewhere"))


def back(hand: Hand) -> None:
    hand.fake.library.with_name("elsewhere").rename(hand.fake.library)


def remove(*gpus: int) -> Callable[[Hand], None]:
    def do(hand: Hand) -> None:
        for gpu in gpus:
            hand.fake.remove(gpu)
        os.kill(hand.worker.child.pid, signal.SIGKILL)  # a driver counts its GPUs when it is loaded

    return do


def put_back(hand: Hand) -> None:
    for gpu in range(3):
        hand.fake.put_back(gpu)
    clear(hand)


def pull(hand: Hand) -> None:
    """Let a GPU fall off the bus, so that sysfs does not show it either."""
    hand.fake.lose(1)
    hand.show(hand.parts[0], hand.parts[2])


def plug(hand: Hand) -> None:
    hand.show(*hand.parts)
    clear(hand)


def two_models(hand: Hand) -> None:
    hand.fake.set(1, "name", A100)


def mig(on: bool) -> Callable[[Hand], None]:
    def do(hand: Hand) -> None:
        hand.fake.mig(1, on)

    return do


def older(hand: Hand) -> None:
    """Let the driver be one that knows little."""
    for symbol in (
        *(
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetSerial",
            "nvmlDeviceGetMinorNumber",
        ),
        *("nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlDeviceGetSupportedEventTypes"),
    ):
        hand.fake.omit(symbol)


def expect(gpus: int) -> Callable[[Hand], None]:
    def do(hand: Hand) -> None:
        hand.judging.ask(NodeHealthSpec(expected=Expected(gpus=gpus, source="a test")))
        hand.judge()

    return do


def on_disk_only(hand: Hand) -> None:
    """Let the driver be upgraded on disk while the old module stays loaded."""
    hand.fake.mismatch("590.44.01")
    hand.fake.answer("nvmlInitWithFlags", 18)


MOODS = [
    pytest.param(Mood(lambda _: None, USABLE, PRESENT), id="nothing happens"),
    pytest.param(
        Mood(
            lambda hand: hand.fake.lose(1),
            USABLE,
            "True GpuLost",
            {GPU_1: ["GpuLost"]},
            clear,
            "NVML says that it is lost",
        ),
        id="a GPU falls off the bus and sysfs still shows it",
    ),
    pytest.param(
        Mood(
            pull,
            USABLE,
            "True GpuCountBelowExpected",
            {GPU_1: ["GpuLost"], "node": ["GpuCountBelowExpected"]},
            plug,
            f"gone since last time: {GPU_1}",
        ),
        id="a GPU falls off the bus and sysfs does not show it any more",
    ),
    pytest.param(
        Mood(remove(1), USABLE, "True GpuLost", {GPU_1: ["GpuLost"]}, put_back, "NVML does not count it"),
        id="the driver did not find a GPU that the bus shows",
    ),
    pytest.param(
        Mood(
            remove(0, 1, 2),
            USABLE,
            "True GpuLost",
            {GPU_0: ["GpuLost"], GPU_1: ["GpuLost"], GPU_2: ["GpuLost"]},
            put_back,
        ),
        id="the driver found no GPU at all",
    ),
    pytest.param(
        Mood(
            expect(4),
            USABLE,
            "True GpuCountBelowExpected",
            {"node": ["GpuCountBelowExpected"]},
            expect(3),
            "3 of 4 GPUs",
        ),
        id="a GPU was missing at boot already",
    ),
    pytest.param(
        Mood(
            lambda hand: hand.label(INSTANCE_TYPE, "p5.48xlarge"),
            USABLE,
            "True GpuCountBelowExpected",
            {"node": ["GpuCountBelowExpected"]},
            lambda hand: hand.label(INSTANCE_TYPE, "none-that-is-known"),
            "3 of 8 GPUs",
        ),
        id="the instance type holds more GPUs than there are",
    ),
    pytest.param(
        Mood(
            lambda hand: hand.fake.require_reset(1),
            "True GpuResetRequired",
            PRESENT,
            {GPU_1: ["GpuResetRequired"]},
        ),
        id="a GPU asks for a reset",
    ),
    pytest.param(
        Mood(
            away,
            "True LibraryNotFound",
            NOT_ASKED,
            {"node": ["LibraryNotFound"]},
            back,
            "LibraryNotFound (12)",
        ),
        id="the driver's user space is taken away",
    ),
    pytest.param(
        Mood(
            lambda hand: hand.fake.unload(), "True DriverNotLoaded", NOT_ASKED, {"node": ["DriverNotLoaded"]}
        ),
        id="the kernel module is unloaded",
    ),
    pytest.param(
        Mood(lambda hand: hand.fake.mismatch("590.44.01"), USABLE, PRESENT),
        id="the driver is upgraded while it is in use",
    ),
    pytest.param(
        Mood(on_disk_only, "True LibraryMismatch", NOT_ASKED, {"node": ["LibraryMismatch"]}),
        id="the driver is upgraded on disk alone",
    ),
    pytest.param(
        Mood(
            lambda hand: hand.label(UPGRADE_STATE, "pod-restart-required"),
            "Unknown DriverUpgrade",
            NOT_ASKED,
            end=lambda hand: hand.label(UPGRADE_STATE, "upgrade-done"),
            says="pod-restart-required",
        ),
        id="GPU Operator upgrades the driver",
    ),
    pytest.param(Mood(two_models, USABLE, PRESENT), id="the GPUs are of two models"),
    pytest.param(Mood(mig(True), USABLE, PRESENT, end=mig(False)), id="MIG is switched on, and off again"),
    pytest.param(Mood(older, USABLE, PRESENT), id="the driver is an old one"),
]


@pytest.mark.parametrize("mood", MOODS)
def test_the_right_thing_is_said(tmp_path: Path, nursery: Nursery, mood: Mood) -> None:
    """While it lasts, and when it is over."""
    with by_hand(tmp_path, nursery, 3) as hand:
        hand.read()
        hand.wait(SETTLES_S)
        assert hand.shown == SOUND
        mood.begin(hand)
        hand.live(LONG_S)
        assert hand.shown == {"GpuDriverFault": mood.driver, "GpuMissing": mood.missing}
        assert hand.reasons() == mood.reasons
        assert mood.says in hand.message("GpuDriverFault") + hand.message("GpuMissing")
        assert hand.worker.processes <= 1
        mood.end(hand)
        hand.live(2 * SETTLES_S + 60)
        assert hand.shown == SOUND
        assert not hand.findings
        assert not hand.not_shown()
        assert hand.fake.clients() == (hand.worker.child.pid,)


def test_a_lost_gpu_is_left_alone_and_the_wait_for_events_does_not_spin(
    tmp_path: Path, nursery: Nursery
) -> None:
    """Every wait then returns at once, for ever: the set is made anew without that GPU, whose calls end."""
    with by_hand(tmp_path, nursery, 3, timing=EVENTS) as hand:
        hand.read()
        hand.fake.lose(1)
        hand.live(60)
        assert hand.reasons() == {GPU_1: ["GpuLost"]}
        to_it, waits = hand.fake.calls_to(1), hand.fake.calls()["nvmlEventSetWait_v2", None]
        hand.live(300)
        assert hand.fake.calls_to(1) == to_it
        assert hand.fake.calls()["nvmlEventSetWait_v2", None] > waits
        hand.fake.event(0, data=31)
        wait_until(lambda: told_event(hand), 20)


def told_event(hand: Hand) -> bool:
    hand.live(1)
    return any(isinstance(seen, NvmlEvent) and seen.pci == GPU_0 for seen in hand.worker.told)


@pytest.mark.parametrize("number", [79, 119, 120])
def test_an_xid_that_sticks_ends_the_calls_to_its_gpu(tmp_path: Path, nursery: Nursery, number: int) -> None:
    """Told by NVML's events; a repair of that very GPU lets it be asked again."""
    with by_hand(tmp_path, nursery, 3, timing=EVENTS) as hand:
        hand.read()
        wait_until(lambda: ("nvmlEventSetWait_v2", None) in hand.fake.calls(), 20)
        hand.fake.event(1, data=number)
        hand.live(60)
        assert hand.read().gpus[1].quiet == f"XID {number}"
        before = hand.fake.calls_to(1)
        hand.live(300)
        assert hand.fake.calls_to(1) == before
        cleared = ClearedPart(uuid=hand.read().gpus[1].uuid, before=hand.time.now())
        hand.judging.ask(NodeHealthSpec(cleared=(cleared,)))
        hand.judge()
        assert hand.read().gpus[1].quiet == ""


def test_an_upgrade_is_read_by_a_fresh_child(tmp_path: Path, nursery: Nursery) -> None:
    """The old one says at once that it is out of date, which is no fault, and Unknown at no time."""
    with by_hand(tmp_path, nursery) as hand:
        hand.read()
        hand.fake.mismatch("590.44.01")
        failed = hand.next(NvmlFailed)
        assert isinstance(failed, NvmlFailed)
        assert (failed.error.name, failed.fresh) == ("LibRmVersionMismatch", False)
        assert hand.shown == SOUND
        assert hand.read().driver == "590.44.01"
        assert hand.judging.known.driver == "590.44.01"
        assert hand.worker.keeper.started == 2


def test_parts_say_what_they_are(tmp_path: Path, nursery: Nursery) -> None:
    """Two models beside each other, one of them parted by MIG and no longer: NodeHealth follows within a round."""
    with by_hand(tmp_path, nursery, 3) as hand:
        two_models(hand)
        hand.fake.mig(1, True)
        hand.read()
        told = [(part.model, part.mig) for part in hand.judging.parts]
        assert told == [(H100, False), (A100, True), (H100, False)]
        assert len(hand.judging.known.gpus[GPU_1].mig_devices) == 3
        hand.fake.mig(1, False)
        hand.read()
        assert hand.judging.parts[1].mig is False
        assert hand.judging.known.gpus[GPU_1].mig_devices == ()
        assert hand.shown == SOUND
