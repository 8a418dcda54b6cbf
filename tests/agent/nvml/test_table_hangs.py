"""A hang in every call that the NVML child makes, through the real child and the real checks.

The machine must be told which call to which GPU does not come back, the process must be gone, the other GPUs must go on
being asked, and the one that hung must not be asked again before somebody has dealt with it.
"""

from pathlib import Path

import pytest

from checks.observation import NvmlHung, NvmlReleased
from tests.agent.nvml.by_hand import EVENTS, QUIET_EVENTS, SOUND, Hand, by_hand
from tests.agent.nvml.codes import BY_ADDRESS, OF_A_GPU, OF_EVENTS, OF_EVENTS_OF_A_GPU, OF_MIG, OF_NVML
from tests.agent.nvml.nursery import Nursery
from tests.agent.nvml.test_table_codes import listen_anew, xid_79

HUNG_S, SETTLES_S = 60, 60
SICK = 1
"""The GPU whose call hangs, of three."""


# One call of each way in which the child makes them; there are more than twenty for health alone.
FOR_HEALTH = ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetClockInfo")


@pytest.mark.parametrize("call", [*OF_A_GPU, *FOR_HEALTH, *OF_MIG, *BY_ADDRESS, *OF_EVENTS_OF_A_GPU])
def test_a_call_to_a_gpu_hangs(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """ProbeHung on that GPU; no call is made to it any more until it is cleared, while the others answer."""
    timing = EVENTS if call in OF_EVENTS_OF_A_GPU else QUIET_EVENTS
    with by_hand(tmp_path, nursery, 3, timing=timing) as hand:
        for gpu in range(3 if call in OF_MIG else 0):
            hand.fake.mig(gpu, True)
        hand.read()
        if call in BY_ADDRESS:
            hand.judge(xid_79(hand, 2))
        hand.hang(call, SICK, blocks_sigterm=True)
        if call in OF_EVENTS_OF_A_GPU:
            listen_anew(hand)
        judge_hang(hand, call)


def judge_hang(hand: Hand, call: str) -> None:
    pci = hand.parts[SICK].pci
    process = hand.worker.child
    standing = hand.reasons()
    hung = hand.next(NvmlHung)
    assert isinstance(hung, NvmlHung)
    assert (hung.call, hung.pci, hung.child_gone) == (call, pci, True)
    assert process.how_ended() is not None
    assert hand.reasons() == standing, "one slow call is no fault"
    read = hand.read()
    assert read.gpus[SICK].quiet == f"{call} has not come back"
    assert read.gpus[SICK].uuid, "who it is stays known"
    assert [gpu.pci for gpu in read.gpus if gpu.errors] == []
    assert read.gpus[0].uuid
    before = hand.fake.calls_to(SICK)
    hand.live(HUNG_S + 30)
    assert hand.shown["GpuDriverFault"] == "True ProbeHung"
    assert hand.reasons() == standing | {pci: ["ProbeHung"]}
    assert f"at {pci}: ProbeHung ({call} does not come back)" in hand.message("GpuDriverFault")
    assert hand.fake.calls_to(SICK) == before
    hand.heal()
    hand.live(300)
    assert hand.fake.calls_to(SICK) == before, "that it is well again is not tried out"
    hand.judging.clear(hand.time.now())
    hand.judge()
    hand.live(SETTLES_S + 30)
    assert hand.fake.calls_to(SICK) > before
    assert hand.shown == SOUND
    assert not hand.findings


@pytest.mark.parametrize("call", OF_NVML)
def test_a_call_to_nvml_as_a_whole_hangs(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """ProbeHung on the node once a second process hung as well; it ends when NVML answers again."""
    with by_hand(tmp_path, nursery) as hand:
        hand.hang(call, blocks_sigterm=True)
        for _ in range(2):
            hung = hand.next(NvmlHung)
            assert isinstance(hung, NvmlHung)
            assert (hung.call, hung.pci, hung.child_gone) == (call, "", True)
        assert hand.shown["GpuDriverFault"] == "True ProbeHung"
        assert hand.reasons() == {"node": ["ProbeHung"]}
        assert f"node: ProbeHung ({call} does not come back)" in hand.message("GpuDriverFault")
        assert hand.worker.processes == 0, "none is left behind"
        hand.live(1200)
        assert hand.shown == {"GpuDriverFault": "True ProbeHung", "GpuMissing": "Unknown GpusNotAsked"}
        assert hand.worker.keeper.started < 10, "the next process waits, longer each time"
        hand.heal()
        hand.read()
        hand.live(SETTLES_S + 30)
        assert hand.shown == SOUND


@pytest.mark.parametrize(
    "blocks", [pytest.param(False, id="SIGTERM ends it"), pytest.param(True, id="it takes SIGKILL")]
)
@pytest.mark.parametrize("call", OF_EVENTS)
def test_a_call_for_events_hangs(tmp_path: Path, nursery: Nursery, call: str, blocks: bool) -> None:
    """It hangs beside the rounds, which go on: found like any other hang, and it does not come and go."""
    with by_hand(tmp_path, nursery, timing=EVENTS) as hand:
        hand.read()
        hand.hang(call, blocks_sigterm=blocks)
        listen_anew(hand)
        hung = hand.next(NvmlHung)
        assert isinstance(hung, NvmlHung)
        assert (hung.call, hung.pci, hung.child_gone) == (call, "", True)
        if call == "nvmlEventSetFree":
            hand.live(300)
            assert hand.shown == SOUND, "a set is left only when other GPUs are listened to"
            return
        hand.next(NvmlHung)
        assert hand.reasons() == {"node": ["ProbeHung"]}
        for _ in range(10):
            hand.live(60)
            assert hand.shown["GpuDriverFault"] == "True ProbeHung"
        hand.heal()
        hand.live(2 * SETTLES_S)
        assert hand.shown == SOUND


def test_nvml_is_never_shut_down(tmp_path: Path, nursery: Nursery) -> None:
    """A thread may be in a call, and the call itself may hang: the end of the process drops every handle."""
    with by_hand(tmp_path, nursery, timing=EVENTS) as hand:
        hand.hang("nvmlShutdown", blocks_sigterm=True)
        hand.read()
        hand.label("nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
        assert isinstance(hand.next(), NvmlReleased)
        assert hand.fake.clients() == ()
        assert ("nvmlShutdown", None) not in hand.fake.calls()
