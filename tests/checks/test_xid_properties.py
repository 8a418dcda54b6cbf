"""What holds for the XID check whatever arrives."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from checks.check import Context, Judgement
from checks.condition import MESSAGE_LIMIT, Status, fold
from checks.finding import Part
from checks.observation import (
    KERNEL_LOG,
    GpuReading,
    KernelRecord,
    NvmlEvent,
    NvmlRead,
    Observation,
    RecordsLost,
    SourceFailed,
    SourceRead,
)
from checks.xid import CHECK, XidMemory
from tests.checks.kernel import BOOT, NEXT_BOOT, START, at, judged

MOMENTS = st.integers(min_value=-100, max_value=100).map(at)
SEQUENCES = st.integers(min_value=0, max_value=2**63 - 1)
ADDRESSES = st.sampled_from(["0000:3b:00", "PCI:0000:3b:00.0", "PCI:0000:5e:00 GPU-I:05 GPU-CI:01", "bad"])
TEXTS = st.one_of(
    st.builds(
        "NVRM: Xid ({}): {}, pid=1, name={}, {}".format, ADDRESSES, st.integers(0, 300), st.text(), st.text()
    ),
    st.builds(
        "NVRM: Xid ({}): 154, GPU recovery action changed from 0x{:x} (None) to 0x{:x} {}".format,
        ADDRESSES,
        st.integers(0, 9),
        st.integers(0, 9),
        st.sampled_from(["(None)", "(GPU Reset Required)", "(Recover IMEX Domain)", "", "("]),
    ),
    st.builds(
        "NVRM: Xid (PCI:0000:3b:00): {}".format, st.sampled_from([13, 31, 45, 48, 63, 64, 74, 79, 119, 171])
    ),
    st.builds("nvidia-nvswitch0: SXid ({}): {}, {}".format, ADDRESSES, st.integers(10000, 30000), st.text()),
    st.builds("NVRM: GPU at {}: GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9".format, ADDRESSES),
    st.builds(
        "NVRM: The NVIDIA GPU {}{}".format, ADDRESSES, st.sampled_from(["", "\nNVRM: fallen off the bus"])
    ),
    st.just("NVRM: fallen off the bus and is not responding to commands."),
    st.just("NVRM: GPU Board Serial Number: 1320021"),
    st.text(alphabet=st.characters(), max_size=400),
)
RECORDS = st.builds(
    KernelRecord,
    boot_id=st.sampled_from([BOOT, BOOT, BOOT, NEXT_BOOT]),
    sequence=st.integers(0, 40) | SEQUENCES,
    facility=st.sampled_from([0, 0, 0, 1, 23]),
    level=st.integers(0, 7),
    monotonic_us=SEQUENCES,
    seen_at=MOMENTS,
    text=TEXTS,
    drill=st.booleans(),
    happened_at=st.none() | MOMENTS,
)
SOURCES = st.sampled_from([KERNEL_LOG, KERNEL_LOG, "nvml"])
LOST = st.builds(RecordsLost, source=SOURCES, count=st.integers(), seen_at=MOMENTS, why=st.text())
FAILED = st.builds(
    SourceFailed, source=SOURCES, error=st.text(), tries=st.integers(0, 2**31), seen_at=MOMENTS
)
READ = st.builds(SourceRead, source=SOURCES, seen_at=MOMENTS)
PCIS = st.sampled_from(["0000:3b:00", "0000:5e:00", "", "odd"])
ROUNDS = st.builds(
    NvmlRead,
    seen_at=MOMENTS,
    child=st.just(1),
    driver=st.just(""),
    library=st.just(""),
    count=st.integers(0, 9),
    gpus=st.lists(
        st.builds(
            GpuReading, index=st.integers(), pci=PCIS, recovery=st.none() | st.integers(0, 9) | st.integers()
        ),
        max_size=3,
    ).map(tuple),
)
EVENTS = st.builds(
    NvmlEvent,
    seen_at=MOMENTS,
    boot_id=st.sampled_from([BOOT, BOOT, NEXT_BOOT]),
    kind=st.sampled_from([8, 8, 0x8000]) | st.integers(),
    data=st.sampled_from([13, 79, 119, 154, 999]) | st.integers(),
    pci=PCIS,
    uuid=st.sampled_from(["", "GPU-1"]),
)
OBSERVATIONS: st.SearchStrategy[list[Observation]] = st.lists(
    st.one_of(RECORDS, RECORDS, RECORDS, LOST, FAILED, READ, ROUNDS, EVENTS), max_size=12
)
CONTEXTS = st.builds(
    Context,
    now=MOMENTS,
    boot_id=st.sampled_from([BOOT, BOOT, NEXT_BOOT, ""]),
    cleared_before=st.none() | MOMENTS,
    parts=st.lists(st.builds(Part, pci=st.sampled_from(["0000:3b:00", "", "0000:5e:00"])), max_size=3).map(
        tuple
    ),
    holders=st.dictionaries(
        st.sampled_from(["0000:3b:00", "GPU-1"]), st.text(max_size=400) | st.just("a/b, c/d")
    ),
    settings=st.just({}),
)


def _status(judgement: Judgement) -> Status:
    return fold(
        CHECK.condition,
        findings=judgement.findings,
        unreadable=judgement.unreadable,
        healthy=CHECK.healthy,
        previous=None,
        now=START,
    ).status


def _run(batches: Sequence[tuple[list[Observation], Context]]) -> Judgement:
    judgement = Judgement()
    for observations, around in batches:
        judgement = CHECK.judge(observations, judgement.memory, around)
    return judgement


@given(st.lists(st.tuples(OBSERVATIONS, CONTEXTS), max_size=4))
def test_judging_never_raises_and_stays_within_bounds(
    batches: list[tuple[list[Observation], Context]],
) -> None:
    """Any history gives printable, bounded evidence, a message that fits, and reasons that the check declares."""
    judgement = _run(batches)
    declared = {reason.name: reason for reason in CHECK.reasons}
    for finding in judgement.findings:
        reason = declared[finding.reason]
        assert (finding.severity, finding.effect) == (reason.severity, reason.effect)
        assert len(finding.evidence) <= 5
        assert all(len(line) <= 256 and line.isprintable() for line in finding.evidence)
        assert finding.detail.isprintable()
        assert finding.first_seen <= finding.last_seen
    condition = fold(
        CHECK.condition,
        findings=judgement.findings,
        unreadable=None,
        healthy=CHECK.healthy,
        previous=None,
        now=START,
    )
    assert len(condition.message) <= MESSAGE_LIMIT


@given(st.lists(st.tuples(OBSERVATIONS, CONTEXTS), min_size=1, max_size=3))
def test_memory_survives_json(batches: list[tuple[list[Observation], Context]]) -> None:
    """The agent keeps the memory in a file: what is read back is what was written, and judges alike."""
    memory = _run(batches).memory
    back = msgspec.json.decode(msgspec.json.encode(memory), type=CHECK.memory_type)
    assert back == memory
    around = Context(now=at(200), boot_id=BOOT)
    assert CHECK.judge([], back, around) == CHECK.judge([], memory, around)


@given(st.lists(RECORDS, max_size=20), CONTEXTS, st.integers(0, 20))
def test_reading_again_changes_nothing(records: list[KernelRecord], around: Context, start: int) -> None:
    """Records from any point of the log on, handed over once more, neither add nor remove anything."""
    first = CHECK.judge(records, None, around)
    again = CHECK.judge(sorted(records, key=lambda record: record.sequence)[start:], first.memory, around)
    assert (again.findings, again.memory) == (first.findings, first.memory)


@given(OBSERVATIONS, CONTEXTS)
def test_unreadable_is_never_healthy(observations: list[Observation], around: Context) -> None:
    """After the third failed try, and before the first read, the condition is not False."""
    cannot = SourceFailed(source=KERNEL_LOG, error="gone", tries=3, seen_at=START)
    assert _status(CHECK.judge([*observations, cannot], None, around)) is not Status.FALSE
    unheard: list[Observation] = [
        observation for observation in observations if isinstance(observation, SourceFailed)
    ]
    assert _status(CHECK.judge(unheard, None, around)) is not Status.FALSE


@given(OBSERVATIONS, st.lists(RECORDS, max_size=5), OBSERVATIONS)
def test_a_real_fault_is_not_talked_away(
    before: list[Observation], between: list[KernelRecord], after: list[Observation]
) -> None:
    """Within one boot and without a clearing nothing that arrives ends a fault that the kernel reported."""
    around = Context(now=START, boot_id=BOOT)
    memory = judged(before, None, around).memory
    assert isinstance(memory, XidMemory)
    fault = KernelRecord(
        boot_id=BOOT,
        sequence=min(memory.last_sequence + 1, 2**63 - 1),
        facility=0,
        level=4,
        monotonic_us=0,
        seen_at=START + timedelta(seconds=1),
        text="NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.",
    )
    if fault.sequence == memory.last_sequence:
        return
    memory = judged([fault], memory, around).memory
    judgement = judged([*between, *after], memory, around)
    assert "Xid79FallenOffBus" in {
        f.reason for f in judgement.findings if f.part.pci == "0000:c1:00" and not f.drill
    }


@given(st.lists(RECORDS, max_size=12), MOMENTS)
def test_a_clearing_leaves_nothing_of_before(records: list[KernelRecord], cleared: datetime) -> None:
    """Applied once to what stands, it ends exactly what was last seen up to then."""
    first = judged(records)
    second = judged([], first.memory, Context(now=START, boot_id=BOOT, cleared_before=cleared))
    assert second.findings == tuple(finding for finding in first.findings if finding.last_seen > cleared)


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=25), st.integers(1, 20))
def test_it_does_not_matter_in_how_many_batches_the_log_comes(
    texts: list[tuple[str, bool]], step: int
) -> None:
    """Lines are joined alike whether one judgement reads them all, or one each with a restart between."""
    around = Context(now=at(300), boot_id=BOOT)
    records: list[Observation] = [
        KernelRecord(
            boot_id=BOOT,
            sequence=number,
            facility=1 if drill else 0,
            level=4,
            monotonic_us=0,
            seen_at=at(number * step),
            text=text,
            drill=drill,
        )
        for number, (text, drill) in enumerate(texts)
    ]
    memory = None
    for one in records:
        kept = CHECK.judge([one], memory, around).memory
        memory = msgspec.json.decode(msgspec.json.encode(kept), type=CHECK.memory_type)
    assert (
        CHECK.judge([], memory, around).findings
        == CHECK.judge([], CHECK.judge(records, None, around).memory, around).findings
    )


@given(OBSERVATIONS, st.lists(ROUNDS, max_size=4))
def test_what_nvml_does_not_say_ends_nothing(before: list[Observation], rounds: list[NvmlRead]) -> None:
    """A round without the field (a GPU that is quiet, an old driver) leaves every finding as it is."""
    around = Context(now=at(300), boot_id=BOOT)
    settled = judged([], judged(before, None, around).memory, around)
    mute = [
        msgspec.structs.replace(
            heard, gpus=tuple(msgspec.structs.replace(gpu, recovery=None) for gpu in heard.gpus)
        )
        for heard in rounds
    ]
    assert judged(mute, settled.memory, around).findings == settled.findings
