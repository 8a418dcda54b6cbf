"""Every error code from every call that the NVML child makes, through the real child and the real checks.

What each must come to stands in tests/agent/nvml/codes.py. The codes of calls to a GPU are given by many GPUs of one machine
at once, each another one, so that each finding is also shown to be on the right GPU, and on no other.
"""

import re
from functools import partial
from pathlib import Path

import msgspec
import pytest

from agent.host import nvml_binding
from agent.nvml_feed import wish_of
from checks.observation import KERNEL_LOG, KernelRecord, NvmlFailed, SourceRead
from tests.agent.nvml.by_hand import BOOT, EVENTS, SOUND, Hand, by_hand
from tests.agent.nvml.codes import (
    ALL,
    AT_ONCE,
    BY_ADDRESS,
    LASTING,
    OF_A_GPU,
    OF_EVENTS,
    OF_EVENTS_OF_A_GPU,
    OF_MIG,
    OF_NVML,
    ROWS,
    Gpu,
    Row,
)
from tests.agent.nvml.nursery import Nursery
from tests.fakes import wait_until

# The driver check's default settings.
GRACE_S, LASTS_S, SETTLES_S, PATIENCE_S = 600, 180, 60, 90
GPUS = 14
TIMEOUT = 10  # from the wait for events: nothing happened
LAST = GPUS - 1
OF_ONE = [row for row in ROWS if row.gpu is not Gpu.DRIVER]
OF_ALL = [row for row in ROWS if row.gpu is Gpu.DRIVER]
# What a GPU does not have is never asked again, so those come last.
BATCHES = (
    [row for row in OF_ONE if row.gpu is not Gpu.NOTHING][:12],
    [row for row in OF_ONE if row.gpu is not Gpu.NOTHING][12:]
    + [row for row in OF_ONE if row.gpu is Gpu.NOTHING],
)
FIELD = "field 230 of nvmlDeviceGetFieldValues"


def test_the_table_knows_every_call_of_the_child() -> None:
    """One that is new to the child must be new here too."""
    sources = sorted(Path(nvml_binding.__file__).parent.glob("nvml_*.py"))
    named = {call for source in sources for call in re.findall(r'"(nvml[A-Z]\w+)"', source.read_text())}
    assert named == set(ALL)
    assert {row.code for row in ROWS} >= {1, 2, 3, 4, *range(6, 22), 23, *range(25, 31), 999}


@pytest.mark.parametrize("call", OF_NVML)
def test_nvml_as_a_whole_answers_with_each_code(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """No fault before a fresh process has said so and the grace period is over; then the right one, or the right Unknown."""
    with by_hand(tmp_path, nursery) as hand:
        for row in ROWS:
            hand.fake.heal()
            hand.fake.answer(call, row.code)
            hand.begin_judging()
            judge_whole(hand, call, row)
        hand.fake.heal()
        hand.read()
        hand.wait(SETTLES_S)
        assert hand.shown == SOUND


def judge_whole(hand: Hand, call: str, row: Row) -> None:
    """Let NVML fail until the grace period is over, and hold every word against the table."""
    before = hand.reasons()
    failed = hand.next(NvmlFailed)
    while isinstance(failed, NvmlFailed) and not failed.fresh:
        failed = hand.next(NvmlFailed)
    assert isinstance(failed, NvmlFailed)
    assert (failed.error.call, failed.error.code) == (call, row.code)
    hand.wait(PATIENCE_S)
    early = hand.shown
    assert early["GpuDriverFault"].startswith("Unknown "), (row.says, early)
    assert hand.reasons() == before, row.says
    hand.wait(GRACE_S)
    assert hand.shown == {"GpuDriverFault": row.whole, "GpuMissing": "Unknown GpusNotAsked"}, row.says
    assert f"{call}: {failed.error.name} ({row.code})" in hand.message("GpuDriverFault")
    status, _, reason = row.whole.partition(" ")
    assert hand.reasons() == (before | {"node": [reason]} if status == "True" else before), row.says
    if status == "Unknown":
        assert early["GpuDriverFault"] == row.whole, "what is no fault needs no grace"


@pytest.mark.parametrize("call", [*OF_A_GPU, FIELD, *OF_MIG, *BY_ADDRESS])
def test_gpus_answer_with_each_code(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """Each GPU gives another code: each gets its own finding, or none, and the others are as well as they are."""
    with by_hand(tmp_path, nursery, GPUS) as hand:
        for gpu in range(GPUS if call in OF_MIG else 0):
            hand.fake.mig(gpu, True)
        hand.read()
        for batch in BATCHES:
            give(hand, call, batch)
            judge_gpus(hand, call, batch, standing=begin(hand, call))
            recover(hand)
        for row in OF_ALL:
            give(hand, call, [row])
            begin(hand, call)
            judge_whole(hand, call.split()[-1], row)


def begin(hand: Hand, call: str) -> dict[str, list[str]]:
    """Begin to judge anew, with a GPU that is left alone where the child makes the call only then; give what stands."""
    hand.begin_judging()
    if call in BY_ADDRESS:
        hand.judge(xid_79(hand, LAST), SourceRead(source=KERNEL_LOG, seen_at=hand.time.now()))
    return hand.reasons()


def xid_79(hand: Hand, gpu: int) -> KernelRecord:
    """Give the kernel's line that this GPU has fallen off the bus."""
    return KernelRecord(
        boot_id=BOOT,
        sequence=1,
        facility=0,
        level=3,
        monotonic_us=1,
        seen_at=hand.time.now(),
        text=f"NVRM: Xid (PCI:{hand.parts[gpu].pci}): 79, GPU has fallen off the bus.",
    )


def give(hand: Hand, call: str, rows: list[Row]) -> None:
    """Let each of the first GPUs give the code of one row."""
    for gpu, row in enumerate(rows):
        if call == FIELD:
            hand.fake.field(gpu, 230, 0, code=row.code)
        else:
            hand.fake.answer(call, row.code, gpu=gpu)


def judge_gpus(hand: Hand, call: str, rows: list[Row], standing: dict[str, list[str]]) -> None:
    """Hold what is found of each GPU at once, and after it has lasted, against the table."""
    wanted = {hand.parts[gpu].pci: meant(call, row) for gpu, row in enumerate(rows)}
    read = hand.read()
    assert [bool(gpu.quiet) for gpu in read.gpus] == [gpu.pci in standing for gpu in read.gpus]
    assert hand.reasons() == standing | named(wanted, AT_ONCE)
    hand.wait(LASTS_S - 60)
    assert hand.reasons() == standing | named(wanted, AT_ONCE) | missed(call, rows, hand)
    hand.wait(60)
    assert hand.reasons() == standing | named(wanted, AT_ONCE | LASTING) | missed(call, rows, hand)
    silenced = {f"at {pci}" for pci in standing}
    opened = {f"at {pci}" for pci, what in wanted.items() if what is Gpu.OPEN} | silenced
    assert {re.sub(r".*(at [0-9a-f:]+):.*", r"\1", row) for row in hand.not_shown()} == opened


def meant(call: str, row: Row) -> Gpu:
    """Give what the row comes to for this call, where that is another than for most."""
    lookup = call in ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByPciBusId_v2")
    if row.code == 13 and lookup:
        return Gpu.OPEN  # a GPU of which there is no handle shows nothing at all
    if row.code == 6 and call == "nvmlDeviceGetMigDeviceHandleByIndex":
        return Gpu.NOTHING  # a place without a MIG device
    if row.code in (6, 28) and call == "nvmlDeviceGetHandleByPciBusId_v2":
        return Gpu.NOTHING  # the driver does not have the GPU that sysfs shows: see `missed`
    return row.gpu


def missed(call: str, rows: list[Row], hand: Hand) -> dict[str, list[str]]:
    """Give the GPUs that only sysfs shows, once that has lasted: they are lost."""
    if call != "nvmlDeviceGetHandleByPciBusId_v2":
        return {}
    return {hand.parts[gpu].pci: ["GpuLost"] for gpu, row in enumerate(rows) if row.code in (6, 28)}


def named(wanted: dict[str, Gpu], which: set[Gpu]) -> dict[str, list[str]]:
    return {pci: [what.value] for pci, what in wanted.items() if what in which}


def recover(hand: Hand) -> None:
    """Let the GPUs be well and a person clear the node: what stood goes."""
    hand.fake.heal()
    for gpu in range(GPUS):
        hand.fake.field(gpu, 230, 0)
    hand.judging.clear(hand.time.now())
    hand.judge()
    hand.read()
    hand.wait(SETTLES_S)
    assert hand.shown == SOUND
    assert not hand.not_shown()


@pytest.mark.parametrize("call", OF_EVENTS_OF_A_GPU)
def test_gpus_give_no_events(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """Events only make the agent quicker: whatever a GPU says of them, nothing is found, and the others' events come."""
    with by_hand(tmp_path, nursery, GPUS, timing=EVENTS) as hand:
        hand.read()
        for batch in (*BATCHES, OF_ALL):
            give(hand, call, batch)
            before = calls_to_each(hand, call)
            listen_anew(hand)
            wait_until(partial(have_been_asked, hand, call, before), 20)
            assert hand.shown == SOUND
            hand.fake.heal()
        assert hand.worker.keeper.started == 1


def calls_to_each(hand: Hand, call: str) -> list[int]:
    calls = hand.fake.calls()
    return [calls.get((call, gpu), 0) for gpu in range(GPUS)]


def have_been_asked(hand: Hand, call: str, before: list[int]) -> bool:
    return all(now > then for now, then in zip(calls_to_each(hand, call), before, strict=True))


@pytest.mark.parametrize("call", OF_EVENTS)
def test_events_fail_with_each_code(tmp_path: Path, nursery: Nursery, call: str) -> None:
    """The agent knows why no events come; nothing is found, and the child goes on."""
    with by_hand(tmp_path, nursery, timing=EVENTS) as hand:
        hand.read()
        for row in ROWS:
            before = hand.fake.calls().get((call, None), 0)
            hand.fake.answer(call, row.code)
            listen_anew(hand)
            if call != "nvmlEventSetFree" and (call, row.code) != ("nvmlEventSetWait_v2", TIMEOUT):
                hand.until_events((call, row.code))
            wait_until(partial(has_been_asked, hand, call, before), 20)
            assert hand.shown == SOUND, row.says
            hand.fake.heal()
            listen_anew(hand)
            hand.until_events(None)
        assert hand.worker.keeper.started == 1
        assert not hand.findings


def has_been_asked(hand: Hand, call: str, before: int) -> bool:
    return hand.fake.calls().get((call, None), 0) > before


def listen_anew(hand: Hand) -> None:
    """Let the child listen to fewer GPUs, which it does with another set of events, and then to all again."""
    wish = wish_of(hand.judging)
    hand.worker.want(msgspec.structs.replace(wish, sick={hand.parts[-1].pci: "XID 79"}))
    hand.read()
    hand.read()
