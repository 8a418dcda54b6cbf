"""What holds for the checks of NVML whatever arrives."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks import driver, gpu_missing
from checks.check import Check, Clearing, Context, Judgement
from checks.condition import MESSAGE_LIMIT, Status, fold
from checks.finding import Part, PartKind
from checks.observation import (
    GpuReading,
    NvmlError,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
    SourceFailed,
)
from tests.checks.kernel import BOOT, NEXT_BOOT, START, at
from tests.checks.nvml import Watched, dead, gpu, pci, read, sound

# Each example is a history of several judgements; a hundred of them would take the time of a cluster test.
FEWER = settings(max_examples=40)
BOTH = [pytest.param(driver.CHECK, id="driver"), pytest.param(gpu_missing.CHECK, id="gpu_missing")]
MOMENTS = st.integers(-100, 100_000).map(at)
ADDRESSES = st.sampled_from(["", *(pci(number) for number in range(4))])
ERRORS = st.builds(
    NvmlError,
    call=st.sampled_from(["nvmlInitWithFlags", "nvmlDeviceGetUUID"]),
    code=st.integers(0, 31) | st.just(999) | st.integers(),
    name=st.text(max_size=8),
)
GPUS = st.builds(
    GpuReading,
    index=st.integers(0, 4),
    pci=ADDRESSES,
    uuid=st.sampled_from(["", "GPU-1", "GPU-2"]),
    model=st.sampled_from(["", "NVIDIA H100"]),
    errors=st.lists(ERRORS, max_size=2).map(tuple),
    quiet=st.sampled_from(["", "", "XID 79"]),
)
CHILDREN = st.integers(1, 3)
READS = st.builds(
    NvmlRead,
    seen_at=MOMENTS,
    child=CHILDREN,
    driver=st.just("580"),
    library=st.just("13"),
    count=st.integers(0, 5),
    gpus=st.lists(GPUS, max_size=5).map(tuple),
)
FAILURES = st.builds(
    NvmlFailed, seen_at=MOMENTS, child=CHILDREN, error=ERRORS, since=MOMENTS, fresh=st.booleans()
)
HANGS = st.builds(
    NvmlHung,
    seen_at=MOMENTS,
    child=CHILDREN,
    call=st.text(max_size=8),
    pci=ADDRESSES,
    uuid=st.just(""),
    since=MOMENTS,
    child_gone=st.booleans(),
)
RELEASES = st.builds(NvmlReleased, seen_at=MOMENTS, why=st.text(max_size=8))
OBSERVATIONS: st.SearchStrategy[list[Observation]] = st.lists(
    st.one_of(READS, READS, FAILURES, HANGS, RELEASES), max_size=5
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu.count": st.sampled_from(["0", "3", "4", "x"]),
        "node.kubernetes.io/instance-type": st.sampled_from(["p6e-gb200.36xlarge", "other"]),
        "nvidia.com/gpu.product": st.sampled_from(["A100", "A100-MIG-1g.10gb"]),
    },
)


def _contexts(check: Check) -> st.SearchStrategy[Context]:
    addresses = st.lists(ADDRESSES.filter(bool), unique=True, max_size=4).map(tuple)
    return st.builds(
        Context,
        now=MOMENTS,
        boot_id=st.sampled_from([BOOT, BOOT, BOOT, NEXT_BOOT, ""]),
        cleared_before=st.none() | MOMENTS,
        clearings=st.lists(st.builds(Clearing, pci=ADDRESSES, before=MOMENTS), max_size=1).map(tuple),
        parts=st.lists(st.builds(Part, kind=st.just(PartKind.GPU), pci=ADDRESSES), max_size=3).map(tuple),
        labels=LABELS,
        expected=st.none() | st.integers(0, 5),
        last_validated=st.none() | st.integers(0, 5),
        nvml=st.sampled_from([True, True, True, False]),
        bus=st.none() | addresses,
        bus_error=st.sampled_from(["", "", "no /sys"]),
        settings=st.just(check.default_settings),
    )


def _status(check: Check, judgement: Judgement) -> Status | None:
    """Give what the agent would publish where nothing stood before; None for nothing."""
    if judgement.exists is False or (judgement.not_yet and not judgement.findings):
        return None
    condition = fold(
        check.condition,
        findings=judgement.findings,
        unreadable=judgement.unreadable,
        healthy=check.healthy,
        previous=None,
        now=START,
    )
    assert len(condition.message) <= MESSAGE_LIMIT
    return condition.status


@pytest.mark.parametrize("check", BOTH)
@FEWER
@given(st.data())
def test_any_history_is_judged_and_remembered(check: Check, data: st.DataObject) -> None:
    """No history raises; findings keep to the table of reasons; the memory survives a file."""
    judgement = Judgement()
    declared = {reason.name: reason for reason in check.reasons}
    unknown = {reason.name for reason in check.unknown_reasons}
    for _ in range(data.draw(st.integers(1, 4))):
        around = data.draw(_contexts(check))
        judgement = check.judge(data.draw(OBSERVATIONS), judgement.memory, around)
        _status(check, judgement)
        for finding in judgement.findings:
            reason = declared[finding.reason]
            assert (finding.severity, finding.effect) == (reason.severity, reason.effect)
            assert finding.first_seen <= finding.last_seen
        assert judgement.unreadable is None or judgement.unreadable.reason in unknown
        keys = [finding.key() for finding in judgement.findings]
        assert len(set(keys)) == len(keys)
        if judgement.memory is not None:
            raw = msgspec.json.encode(judgement.memory)
            assert msgspec.json.decode(raw, type=check.memory_type) == judgement.memory


@pytest.mark.parametrize("check", BOTH)
@FEWER
@given(st.data())
def test_reading_nothing_is_never_false(check: Check, data: st.DataObject) -> None:
    """Without one round of NVML nobody says that all is well, whatever else is told."""
    judgement = Judgement()
    for _ in range(data.draw(st.integers(1, 5))):
        said: list[Observation] = [seen for seen in data.draw(OBSERVATIONS) if not isinstance(seen, NvmlRead)]
        said.append(SourceFailed(source="nvml", error="gone", tries=3, seen_at=START))
        judgement = check.judge(said, judgement.memory, data.draw(_contexts(check)))
        assert _status(check, judgement) is not Status.FALSE


@pytest.mark.parametrize("check", BOTH)
@FEWER
@given(st.data())
def test_the_last_word_decides_whatever_the_order_of_a_batch(check: Check, data: st.DataObject) -> None:
    """A batch that arrives shuffled is judged like one in order."""
    around = data.draw(_contexts(check))
    words = data.draw(
        st.lists(st.one_of(READS, FAILURES, HANGS, RELEASES), unique_by=lambda o: o.seen_at, max_size=5)
    )
    shuffled = data.draw(st.permutations(words))
    assert check.judge(words, None, around) == check.judge(shuffled, None, around)


@FEWER
@given(st.lists(OBSERVATIONS, max_size=6), st.integers(0, 3))
def test_a_lost_gpu_never_yields_false_until_it_answers(
    batches: list[list[Observation]], number: int
) -> None:
    """Within one boot and without a clearing, no word about anything else makes it well."""
    one = Watched(gpu_missing.CHECK, bus=4).hears(sound(4))
    one.hears(read(*(dead(n, 15) if n == number else gpu(n) for n in range(4))))
    assert one.shown == "True GpuLost"
    for batch in batches:
        others: list[Observation] = [seen for seen in batch if not _speaks_of(seen, number)]
        one.waits(30, *others)
        assert one.condition is not None
        assert one.condition.status is Status.TRUE
    assert one.hears(sound(4)).shown == "False AllGpusPresent"


def _speaks_of(seen: Observation, number: int) -> bool:
    """Tell a round in which the GPU itself may have answered, under whatever name."""
    return isinstance(seen, NvmlRead) and any(reading.pci in ("", pci(number)) for reading in seen.gpus)


@FEWER
@given(st.lists(st.sampled_from([9, 10, 12, 15, 18, 28, 999]), min_size=1, max_size=5))
def test_a_driver_that_stays_away_is_a_fault_whatever_it_says(codes: list[int]) -> None:
    """The trouble goes on under changing names, and its grace period with it."""
    one = Watched(driver.CHECK).hears(sound(8))
    for turn in range(21):
        error = NvmlError(call="nvmlInitWithFlags", code=codes[turn % len(codes)], name="E")
        failure = NvmlFailed(seen_at=START, child=2, error=error, since=START, fresh=True)
        one.waits(30, failure)
    assert one.condition is not None
    assert one.condition.status is Status.TRUE
    assert len(one.judgement.findings) == 1
