"""What holds of local storage for every reading, however odd: nothing raises, and nothing that is missing is well."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from checks.condition import Status
from checks.finding import Severity
from checks.local_storage import CHECK
from checks.observation import Observation
from checks.storage_reading import DisksRead, MountReading, NvmeReading
from tests.checks.disks import NVME, UNUSABLE, failed, looks, replace, watched
from tests.checks.kernel import at, record

LINE = "I/O error, dev nvme0n1, sector 95243456 op 0x0:(READ) flags 0x80700"
NUMBERS = st.none() | st.integers(-(2**65), 2**65) | st.integers(0, 255)
TEXTS = st.text(max_size=6)
NVMES = st.builds(
    NvmeReading,
    name=st.sampled_from(["nvme0", "nvme1"]) | TEXTS,
    pci=st.sampled_from(["", "0000:01:00", "0000:02:00"]),
    state=st.sampled_from(["live", "live", "dead", ""]) | TEXTS,
    model=TEXTS,
    critical_warning=NUMBERS,
    used_percent=NUMBERS,
    spare_percent=NUMBERS,
    error=st.sampled_from(["", "", "x"]),
    smart_error=st.sampled_from(["", "x"]),
    smart_denied=st.booleans(),
)
LOCAL = st.builds(
    MountReading,
    path=st.sampled_from(["/", "/var/lib/kubelet"]),
    fstype=st.sampled_from(["ext4", "squashfs"]),
    read_only=st.none() | st.booleans(),
    hangs_ms=st.none() | NUMBERS,
    took_ms=NUMBERS,
    error=st.sampled_from(["", "", "x"]),
    errno=st.sampled_from([0, 0, 5, 13]),
    free_percent=NUMBERS,
    free_inodes_percent=NUMBERS,
)
BUSES = st.none() | st.dictionaries(
    st.sampled_from(["0000:01:00", "0000:02:00"]), st.sampled_from(["", "nvme", "vfio-pci"])
)
SEEN = (
    st.builds(
        DisksRead,
        seen_at=st.just(at(0)),
        nvmes=st.lists(NVMES, max_size=3).map(tuple),
        bus=BUSES,
        local=st.lists(LOCAL, max_size=2).map(tuple),
    )
    | st.builds(failed)
    | st.builds(record, st.integers(1, 9), st.sampled_from([LINE, "x"]) | TEXTS)
)


@given(st.lists(st.tuples(st.lists(SEEN, max_size=3), st.sampled_from([30, 90, 600])), max_size=5))
def test_no_reading_raises(history: list[tuple[list[Observation], int]]) -> None:
    """Findings keep to the table, and the memory survives a file."""
    one = watched(expected_nvmes=2)
    declared = {reason.name: reason for reason in CHECK.reasons}
    for seen, seconds in history:
        one.waits(seconds, *seen)
        for finding in one.judgement.findings:
            assert finding.effect is declared[finding.reason].effect
        memory = msgspec.json.encode(one.judgement.memory)
        assert msgspec.json.decode(memory, type=CHECK.memory_type) == one.judgement.memory


MUTE = st.builds(
    NvmeReading,
    name=st.just("nvme0"),
    pci=st.just("0000:01:00"),
    state=st.sampled_from(["", "live"]),
    error=st.sampled_from(["", "x"]),
    smart_error=st.sampled_from(["", "x"]),
)
DUMB = LOCAL.filter(
    lambda one: one.took_ms is None or one.read_only is None or one.error or one.hangs_ms is not None
)


@given(st.tuples(MUTE, LOCAL) | st.tuples(st.just(NVME), DUMB))
def test_no_missing_data_is_well(look: tuple[NvmeReading, MountReading]) -> None:
    """What was not told never makes the class False, and never ends a fault."""
    fresh = watched().waits(300, looks(*look))
    assert fresh.condition is None or fresh.condition.status is not Status.FALSE
    ill = watched().waits(
        120, looks(replace(NVME, state="dead", critical_warning=4), replace(UNUSABLE, hangs_ms=1))
    )
    ill.waits(600, looks(replace(look[0], critical_warning=None, state="", error="x"), look[1]))
    assert any(finding.severity is Severity.FAULT for finding in ill.judgement.findings)
