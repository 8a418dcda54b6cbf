"""NodeHealth.status: what goes in, what is left out where it would be too large, and what is read back."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.node_health import (
    LIMIT_BYTES,
    Change,
    Report,
    change,
    kernel_log_position,
    latched,
    status,
    status_body,
)
from checks.check import NotEvaluated
from checks.finding import Finding, Part, PartKind, Severity
from checks.observation import KERNEL_LOG
from kube.nodehealth import NodeHealthStatus, PartState, SourceState
from tests.agent.scene import BOOT, TYPE, finding

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def report(*findings: Finding, parts: int = 1, **fields: object) -> Report:
    """Build a report of these findings."""
    whole = Report(
        node_uid="uid-1",
        boot_id=BOOT,
        agent_version="1",
        parts=tuple(PartState(kind="gpu", pci=f"0000:{n:02x}:00") for n in range(parts)),
        findings=tuple((TYPE, one) for one in findings),
        published=(TYPE,),
    )
    return msgspec.structs.replace(whole, **fields)


def size(written: NodeHealthStatus) -> int:
    return len(msgspec.json.encode(written))


def test_faults_come_first_and_warnings_newest_first() -> None:
    """The printer columns show the first row, so it is the worst one."""
    late, early = NOW + timedelta(seconds=5), NOW
    written = status(
        report(
            finding("Old", severity=Severity.WARNING, at=early),
            finding("New", severity=Severity.WARNING, at=late),
            finding("Fault", at=early),
        ),
        NOW,
    )
    assert [row.reason for row in written.findings] == ["Fault", "New", "Old"]
    assert written.omitted == 0


def test_what_is_about_the_node_itself_is_not_crowded_out_by_a_storm() -> None:
    """That records were lost is told, however many programs crashed since."""
    storm = [
        finding(f"Crash{number}", severity=Severity.WARNING, at=NOW + timedelta(seconds=1 + number))
        for number in range(300)
    ]
    lost = msgspec.structs.replace(
        finding("Lost", severity=Severity.WARNING, at=NOW), part=Part(kind=PartKind.NODE)
    )
    written = status(report(*storm, lost), NOW)
    assert written.omitted > 0
    assert written.findings[0].reason == "Lost"


def test_warnings_are_left_out_before_any_line_of_a_faults_evidence() -> None:
    """Where both do not fit, faults keep all they have, and what is missing is counted."""
    faults = [finding(f"F{n}", at=NOW, evidence=("x" * 900,) * 5) for n in range(6)]
    warnings = [
        finding(f"W{n}", severity=Severity.WARNING, at=NOW + timedelta(seconds=n), evidence=("y" * 900,))
        for n in range(20)
    ]
    written = status(report(*faults, *warnings), NOW)
    kept = [row for row in written.findings if row.severity == "Fault"]
    assert [len(row.evidence) for row in kept] == [5] * 6
    left = 20 - (len(written.findings) - 6)
    assert left > 0
    assert written.omitted == 2 * left  # the finding and its one line each
    assert written.findings[6].reason == "W19"


def test_old_evidence_goes_before_any_fault() -> None:
    """Faults alone are too large: the newest line of each stays."""
    faults = [finding(f"F{n:02}", at=NOW, evidence=(*(["x" * 1000] * 4), "newest")) for n in range(30)]
    written = status(report(*faults), NOW)
    assert [row.evidence for row in written.findings] == [("newest",)] * 30
    assert written.omitted == 30 * 4


def test_faults_go_last_and_the_worst_of_them_never() -> None:
    """Beyond all else the mildest faults are left out; parts and what is not evaluated went before them."""
    faults = [finding(f"F{n:03}", part=f"part-{n}", at=NOW, evidence=("x" * 100,)) for n in range(400)]
    written = status(
        report(*faults, parts=16, not_evaluated=(NotEvaluated(check="gate", part="all", why="y" * 900),) * 9),
        NOW,
    )
    assert (written.parts, written.not_evaluated) == ((), ())
    assert 50 < len(written.findings) < 400
    assert written.findings[0].reason == "F000"
    assert written.omitted == 2 * 400 + 16 + 9 - len(written.findings)


@given(
    faults=st.integers(0, 130),
    warnings=st.integers(0, 130),
    lines=st.integers(0, 5),
    width=st.integers(0, 1100),
    parts=st.integers(0, 64),
    letter=st.sampled_from(["x", '"', "ü", "\u2028", "\\"]),
)
def test_no_report_is_larger_than_its_limit(
    faults: int, warnings: int, lines: int, width: int, parts: int, letter: str
) -> None:
    """Whatever is found, the object fits, and what it says and what it omits add up."""
    evidence = (letter * width,) * lines
    found = [finding(f"F{n}", at=NOW, evidence=evidence) for n in range(faults)]
    found += [finding(f"W{n}", severity=Severity.WARNING, at=NOW, evidence=evidence) for n in range(warnings)]
    written = status(report(*found, parts=parts), NOW)
    assert size(written) <= LIMIT_BYTES
    said = sum(1 + len(row.evidence) for row in written.findings) + len(written.parts)
    assert said + written.omitted == len(found) * (1 + lines) + parts


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        pytest.param(report(finding(at=NOW)), Change.NOTHING, id="the same again"),
        pytest.param(report(finding(at=NOW, count=5)), Change.COUNTERS, id="a fault that was seen again"),
        pytest.param(
            report(finding(at=NOW), finding("W", severity=Severity.WARNING, at=NOW)),
            Change.COUNTERS,
            id="a new warning",
        ),
        pytest.param(report(finding(at=NOW), finding("Other", at=NOW)), Change.FACTS, id="a new fault"),
        pytest.param(report(), Change.FACTS, id="a fault that is gone"),
        pytest.param(report(finding(at=NOW), boot_id="boot-2"), Change.FACTS, id="another boot"),
        pytest.param(report(finding(at=NOW), node_uid="uid-2"), Change.FACTS, id="another Node object"),
        pytest.param(report(finding(at=NOW), published=()), Change.FACTS, id="another set of conditions"),
        pytest.param(report(finding(at=NOW), parts=2), Change.FACTS, id="another set of parts"),
        pytest.param(
            report(finding(at=NOW), sources=(SourceState(name="log", readable=False, error="x"),)),
            Change.FACTS,
            id="a source that fails",
        ),
    ],
)
def test_what_counts_as_a_change(after: Report, wanted: Change) -> None:
    """Facts are written at once, counters in their own time."""
    assert change(report(finding(at=NOW)), after) is wanted


def test_how_far_a_source_was_read_is_no_change() -> None:
    """Every kernel message would be one."""
    before, after = (
        report(sources=(SourceState(name=KERNEL_LOG, readable=True, sequence=n),)) for n in (1, 2)
    )
    assert change(before, after) is Change.NOTHING


def test_lost_records_are_counters() -> None:
    """They are shown, and are not worth a write each."""
    before, after = (report(sources=(SourceState(name=KERNEL_LOG, readable=True, lost=n),)) for n in (1, 2))
    assert change(before, after) is Change.COUNTERS


def test_what_is_written_is_read_back() -> None:
    """Findings come back as they were, warnings too: the log is read on behind them, so nobody would see them again."""
    fault = finding(at=NOW, count=7, evidence=("a line",))
    warning = finding("W", severity=Severity.WARNING, at=NOW, count=3)
    written = status(report(fault, warning), NOW)
    assert latched(written, boot_id=BOOT, node_uid="uid-1") == ((TYPE, fault), (TYPE, warning))


@pytest.mark.parametrize(
    ("boot_id", "node_uid"),
    [
        pytest.param("boot-2", "uid-1", id="of another boot"),
        pytest.param(BOOT, "uid-2", id="of another Node object"),
        pytest.param("", "uid-1", id="while the boot is not known"),
    ],
)
def test_evidence_is_void(boot_id: str, node_uid: str) -> None:
    """Nothing is latched on evidence of another machine or an earlier boot."""
    written = status(report(finding(at=NOW)), NOW)
    assert latched(written, boot_id=boot_id, node_uid=node_uid) == ()


def test_words_of_another_version_are_left_out() -> None:
    """A finding in words that this agent does not know is no reason to fail."""
    written = status(report(finding(at=NOW), finding("Other", at=NOW)), NOW)
    first = msgspec.structs.replace(written.findings[0], effect="explodes")
    odd = msgspec.structs.replace(written, findings=(first, written.findings[1]))
    assert [f.reason for _, f in latched(odd, boot_id=BOOT, node_uid="uid-1")] == ["Other"]


def test_the_position_in_the_kernel_log_belongs_to_its_boot() -> None:
    """It is where the next run goes on, in this boot only."""
    written = NodeHealthStatus(
        boot_id=BOOT, sources=(SourceState(name=KERNEL_LOG, readable=True, sequence=41),)
    )
    assert kernel_log_position(written, KERNEL_LOG, boot_id=BOOT) == 41
    assert kernel_log_position(written, KERNEL_LOG, boot_id="boot-2") is None
    assert kernel_log_position(NodeHealthStatus(boot_id=BOOT), KERNEL_LOG, boot_id=BOOT) is None


@pytest.mark.parametrize(
    ("faults", "warnings", "known"),
    [
        pytest.param(3, 3, True, id="all of it fits"),
        pytest.param(3, 300, True, id="only warnings were left out"),
        pytest.param(300, 0, False, id="faults were left out"),
    ],
)
def test_where_faults_were_left_out_the_log_must_be_read_again(
    faults: int, warnings: int, known: bool
) -> None:
    """Going on behind them would lose them for good."""
    found = [finding(f"F{n:03}", at=NOW) for n in range(faults)]
    found += [finding(f"W{n:03}", severity=Severity.WARNING, at=NOW) for n in range(warnings)]
    source = SourceState(name=KERNEL_LOG, readable=True, sequence=41)
    written = status(report(*found, sources=(source,)), NOW)
    assert kernel_log_position(written, KERNEL_LOG, boot_id=BOOT) == (41 if known else None)


def test_the_patch_names_every_field_and_holds_no_null_in_a_list() -> None:
    """What is empty now must overwrite what stood there, and the schema admits no null inside lists."""
    body = status_body(status(report(), NOW))["status"]
    assert set(body) == {field.encode_name for field in msgspec.structs.fields(NodeHealthStatus)}
    assert body["findings"] == []
    named = {"kind": "gpu", "pci": "0000:00:00"}
    unknown = {"uuid": "", "serial": "", "name": "", "model": "", "heldBy": ""}
    assert body["parts"] == [named | unknown]


def test_texts_are_cut_to_what_the_schema_admits() -> None:
    """One text too long would make the server refuse the whole report."""
    long = msgspec.structs.replace(finding(at=NOW), detail="d" * 5000, evidence=("e" * 9000,) * 100)
    written = status(
        report(long, driver="5" * 100, sources=(SourceState(name="s", readable=False, error="e" * 9000),)),
        NOW,
        limit=10**9,
    )
    row = written.findings[0]
    assert (len(row.detail), len(row.evidence), len(row.evidence[0])) == (1024, 64, 1024)
    assert (len(written.driver), len(written.sources[0].error)) == (64, 1024)
