"""Shared mounts as they are judged: every reason in, out and unknown."""

import errno
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.condition import Status
from checks.finding import Severity
from checks.observation import SourceFailed
from checks.storage import CHECK, restore
from checks.storage_reading import MOUNTS, MountReading, MountsRead
from tests.checks.kernel import BOOT, NEXT_BOOT, at
from tests.checks.nvml import Watched

FINE = MountReading(
    path="/data",
    mounted=True,
    fstype="nfs4",
    source="filer:/data",
    options="rw,relatime rw,vers=4.2",
    read_only=False,
    took_ms=3,
    free_percent=40,
)
MISSING = MountReading(path="/data", mounted=False)
HANGS = msgspec.structs.replace(FINE, took_ms=None, hangs_ms=10_000)
STALE = msgspec.structs.replace(FINE, took_ms=None, error="statvfs: Stale file handle", errno=errno.ESTALE)
READ_ONLY = msgspec.structs.replace(FINE, read_only=True, options="rw,relatime ro")
SLOW = msgspec.structs.replace(FINE, took_ms=2000)
VERY_SLOW = msgspec.structs.replace(FINE, took_ms=9000)
ODD = msgspec.structs.replace(FINE, took_ms=None, error="the look said b''")
MEANT = msgspec.structs.replace(READ_ONLY, may_be_read_only=True)


def looks(*mounts: MountReading) -> MountsRead:
    return MountsRead(seen_at=at(0), mounts=mounts)


def failed(tries: int = 1) -> SourceFailed:
    return SourceFailed(source=MOUNTS, error="/proc/1/mountinfo: denied", tries=tries, seen_at=at(0))


def watched(**settings: Any) -> Watched:
    return Watched(CHECK, bus=0, **settings).set(looked_at=(MOUNTS,))


@pytest.mark.parametrize(
    ("mount", "seconds", "shown"),
    [
        pytest.param(FINE, 30, "False SharedStorageAnswers", id="all is well"),
        pytest.param(MEANT, 30, "False SharedStorageAnswers", id="read-only where it may be"),
        pytest.param(MISSING, 30, "", id="missing in one look alone: nothing is said yet"),
        pytest.param(MISSING, 90, "True MountMissing", id="missing"),
        pytest.param(HANGS, 90, "True MountHung", id="hangs"),
        pytest.param(STALE, 90, "True MountFailed", id="fails"),
        pytest.param(READ_ONLY, 30, "True MountReadOnly", id="read-only"),
        pytest.param(SLOW, 1800, "False SharedStorageAnswers", id="slow is a warning"),
        pytest.param(VERY_SLOW, 600, "", id="very slow for some minutes"),
        pytest.param(VERY_SLOW, 960, "True MountVerySlow", id="very slow for long"),
        pytest.param(ODD, 90, "Unknown SharedStorageUnreadable", id="three looks that say nothing"),
        pytest.param(
            msgspec.structs.replace(FINE, took_ms=None, error="entry: Permission denied", errno=13),
            90,
            "Unknown SharedStorageUnreadable",
            id="an error that says nothing of the server",
        ),
        pytest.param(
            msgspec.structs.replace(FINE, mounted=None),
            90,
            "Unknown SharedStorageUnreadable",
            id="no mountinfo",
        ),
        pytest.param(
            msgspec.structs.replace(FINE, read_only=None),
            90,
            "Unknown SharedStorageUnreadable",
            id="no options",
        ),
    ],
)
def test_one_mount_for_a_while(mount: MountReading, seconds: int, shown: str) -> None:
    """What stands after so long."""
    assert watched().waits(seconds, looks(mount)).shown == shown


@pytest.mark.parametrize(
    ("mount", "seconds", "reason"),
    [
        pytest.param(MISSING, 90, "MountMissing", id="missing"),
        pytest.param(HANGS, 90, "MountHung", id="hung"),
        pytest.param(STALE, 90, "MountFailed", id="failed"),
        pytest.param(READ_ONLY, 90, "MountReadOnly", id="read-only"),
        pytest.param(VERY_SLOW, 960, "MountVerySlow", id="very slow"),
        pytest.param(SLOW, 180, "MountSlow", id="slow"),
    ],
)
def test_every_reason_comes_and_goes(mount: MountReading, seconds: int, reason: str) -> None:
    """It ends once the mount was well for a while, not with the first good look."""
    one = watched().waits(seconds, looks(mount))
    assert reason in one.reasons
    one.waits(30, looks(FINE))
    assert reason in one.reasons
    one.waits(120, looks(FINE))
    assert (one.reasons, one.shown) == ([], "False SharedStorageAnswers")


@pytest.mark.parametrize(
    "mount",
    [
        pytest.param(MISSING, id="missing"),
        pytest.param(HANGS, id="hung"),
        pytest.param(STALE, id="failed"),
        pytest.param(READ_ONLY, id="read-only"),
    ],
)
def test_a_fault_outlives_silence(mount: MountReading) -> None:
    """Losing sight of a sick mount does not heal it; of the others nobody says that they are well."""
    one = watched().waits(90, looks(mount))
    before = one.condition
    one.waits(600, failed(3))
    assert one.condition == before


def test_a_reading_that_fails_three_times_is_unknown() -> None:
    """Before that, what stood stands."""
    one = watched().waits(30, looks(FINE))
    one.waits(60, failed())
    assert one.shown == "False SharedStorageAnswers"
    one.waits(30, failed())
    assert one.shown == "Unknown SharedStorageUnreadable"
    assert "denied" in one.message
    assert one.waits(30, looks(FINE)).shown == "False SharedStorageAnswers"


def test_nothing_heard_for_long_is_unknown() -> None:
    """A thread that died says nothing, and nothing is not well."""
    assert watched().waits(30, looks(FINE)).waits(600).shown == "Unknown SharedStorageUnreadable"


def test_no_mount_is_no_class() -> None:
    """Where none is configured there is no condition, and NodeHealth says why."""
    one = Watched(CHECK, bus=0).waits(90, looks(HANGS))
    assert (one.shown, one.judgement.exists) == ("", False)
    assert one.rows == [
        "no shared mount is looked at: [storage] mounts names none, or [storage] enabled is false"
    ]


def test_the_message_names_each_mount_and_holds_no_number_that_moves() -> None:
    """It changes only when something changed, or each look would cost a write."""
    other = msgspec.structs.replace(MISSING, path="/home")
    one = watched().waits(90, looks(HANGS, other))
    before = one.condition
    assert one.message == (
        "mount /data: MountHung (nfs4 filer:/data: a look at it does not come back); "
        "mount /home: MountMissing (nothing is mounted there)"
    )
    one.waits(90, looks(msgspec.structs.replace(HANGS, hangs_ms=99_000), other))
    assert one.condition == before
    assert one.judgement.findings[0].evidence == ("the look has been away for 10000 ms",)


def test_a_server_that_comes_and_goes_does_not_blink() -> None:
    """One good look between does not end a hang."""
    one = watched().waits(90, looks(HANGS))
    for _ in range(5):
        one.waits(30, looks(FINE)).waits(30, looks(HANGS))
        assert one.shown == "True MountHung"


def test_a_clearing_and_a_boot_end_it() -> None:
    """What is still so is found again."""
    one = watched().waits(90, looks(STALE)).is_cleared().waits(30)
    assert one.reasons == []
    assert one.waits(90, looks(STALE)).reasons == ["MountFailed"]
    assert one.set(boot_id=NEXT_BOOT).waits(30, looks(FINE)).shown == "False SharedStorageAnswers"


def test_findings_are_read_back_and_judged_anew() -> None:
    """A restarted agent whose state is lost goes on with what NodeHealth held."""
    findings = watched().waits(90, looks(HANGS)).judgement.findings
    one = watched()
    one.judgement = msgspec.structs.replace(one.judgement, memory=restore(findings, None))
    assert one.waits(30, looks(HANGS)).shown == "True MountHung"
    assert one.judgement.findings[0].first_seen == findings[0].first_seen
    assert one.waits(180, looks(FINE)).shown == "False SharedStorageAnswers"
    assert all(finding.boot_id == BOOT for finding in findings)


def test_a_single_look_waits_for_nothing() -> None:
    """`--once` and `validate` come back no second time."""
    assert watched(**CHECK.single_look).hears(looks(HANGS)).shown == "True MountHung"


def test_every_setting_says_why() -> None:
    """Its default has a reason."""
    assert CHECK.why_settings.keys() == CHECK.default_settings.keys()


NUMBERS = st.none() | st.integers(-(2**65), 2**65)
READINGS = st.builds(
    MountReading,
    path=st.sampled_from(["/data", "/home", ""]),
    mounted=st.none() | st.booleans(),
    fstype=st.text(max_size=4),
    source=st.text(max_size=4),
    options=st.text(max_size=4),
    read_only=st.none() | st.booleans(),
    may_be_read_only=st.booleans(),
    hangs_ms=NUMBERS,
    took_ms=NUMBERS,
    error=st.text(max_size=4),
    errno=st.sampled_from([0, 0, 2, 5, 13, 116]) | st.integers(-5, 200),
)
SEEN = st.lists(READINGS, min_size=1, max_size=3).map(lambda drawn: looks(*drawn)) | st.builds(failed)


@given(st.lists(st.tuples(SEEN, st.sampled_from([30, 90, 600])), max_size=6))
def test_no_reading_raises(history: list[tuple[MountsRead | SourceFailed, int]]) -> None:
    """Findings keep to the table, and the memory survives a file."""
    one = watched()
    declared = {reason.name: reason for reason in CHECK.reasons}
    for seen, seconds in history:
        one.waits(seconds, seen)
        for finding in one.judgement.findings:
            assert finding.effect is declared[finding.reason].effect
        memory = msgspec.json.encode(one.judgement.memory)
        assert msgspec.json.decode(memory, type=CHECK.memory_type) == one.judgement.memory


@given(READINGS.filter(lambda r: r.took_ms is None or r.mounted is None or r.error or r.hangs_ms is not None))
def test_no_missing_data_is_well(mount: MountReading) -> None:
    """A mount that did not answer never makes the class False, and never ends a fault."""
    fresh = watched().waits(300, looks(mount))
    assert fresh.condition is None or fresh.condition.status is not Status.FALSE
    ill = watched().waits(90, looks(msgspec.structs.replace(HANGS, path=mount.path)))
    ill.waits(600, looks(mount))
    assert any(finding.severity is Severity.FAULT for finding in ill.judgement.findings)
