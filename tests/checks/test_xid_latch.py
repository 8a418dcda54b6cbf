"""How findings of the XID check stand and end, who counts, what happens when the log cannot be read, and the bounds."""

from datetime import datetime
from time import process_time

import pytest

from checks.condition import Status
from checks.finding import NODE, Severity
from checks.observation import Observation, RecordsLost, SourceFailed, SourceRead
from checks.xid import XidMemory, restore
from checks.xid_ledger import EVIDENCE_LINES, MAX_FINDINGS
from checks.xid_line import TEXT_LIMIT
from tests.checks.kernel import (
    NEXT_BOOT,
    START,
    UUID,
    at,
    condition,
    context,
    failed,
    judged,
    lost,
    reasons,
    record,
    was_read,
    xid,
)


class TestLatch:
    """A fault stands until the node boots again or somebody clears it; silence does not heal."""

    def test_it_stands_without_news(self) -> None:
        memory = judged([xid(1, 79)]).memory
        assert reasons(judged([was_read(2)], memory).findings) == ["Xid79FallenOffBus"]

    def test_a_new_boot_ends_it(self) -> None:
        memory = judged([xid(1, 79)]).memory
        judgement = judged([was_read(2)], memory, context(boot_id=NEXT_BOOT))
        assert (judgement.findings, judgement.not_yet) == ((), "")

    def test_an_unreadable_boot_id_ends_nothing(self) -> None:
        memory = judged([xid(1, 79)]).memory
        assert reasons(judged([], memory, context(boot_id="")).findings) == ["Xid79FallenOffBus"]

    @pytest.mark.parametrize(
        ("cleared_before", "stands"),
        [
            pytest.param(at(0), True, id="a clearing before it"),
            pytest.param(at(5), False, id="a clearing at its last sight"),
            pytest.param(at(6), False, id="a clearing after it"),
        ],
    )
    def test_a_clearing_ends_what_was_seen_up_to_then(
        self, cleared_before: datetime, *, stands: bool
    ) -> None:
        memory = judged([xid(1, 79), xid(5, 79)]).memory
        assert bool(judged([], memory, context(cleared_before=cleared_before)).findings) == stands

    def test_a_fault_after_the_clearing_stands(self) -> None:
        memory = judged([xid(1, 79)]).memory
        judgement = judged([xid(9, 79)], memory, context(cleared_before=at(6)))
        assert [(f.first_seen, f.count) for f in judgement.findings] == [(at(9), 1)]

    def test_a_fault_after_the_clearing_stands_with_a_clock_that_lags(self) -> None:
        """The clearing carries another machine's clock; once applied it cannot hide what is read later."""
        cleared = context(cleared_before=at(60))
        memory = judged([xid(1, 79)], None, cleared).memory
        assert reasons(judged([xid(9, 79)], memory, cleared).findings) == ["Xid79FallenOffBus"]

    def test_an_old_line_read_again_after_the_clearing_does_not_fire(self) -> None:
        """An agent that lost its memory reads the whole log again: old lines carry their own time."""
        again = record(1, "NVRM: Xid (PCI:0000:3b:00): 79", seen_at=at(50), happened_at=at(1))
        cleared = context(cleared_before=at(20))
        first = judged([was_read(40)], None, cleared)
        assert judged([again], first.memory, cleared).findings == ()

    def test_a_record_of_another_boot_is_not_of_this_one(self) -> None:
        assert judged([record(1, "NVRM: Xid (PCI:0000:3b:00): 79", boot_id=NEXT_BOOT)]).findings == ()


class TestRestoring:
    """An agent that lost its state reads its own findings back."""

    def test_a_finding_read_back_stands(self) -> None:
        findings = judged([xid(1, 79)]).findings
        assert judged([], restore(findings, None)).findings == findings

    def test_what_the_memory_holds_goes_first(self) -> None:
        stale = judged([xid(1, 79)]).findings
        fresh = judged([xid(1, 79), xid(2, 79)])
        assert restore(stale, fresh.memory) == fresh.memory

    def test_a_newer_account_of_the_same_fault_takes_its_place(self) -> None:
        """The state file was left behind, as on a full disk: its older count must not stand beside a newer position."""
        old = judged([xid(1, 79)]).memory
        newer = judged([xid(1, 79), xid(2, 79)]).findings
        assert judged([], restore(newer, old)).findings == newer

    def test_a_drill_read_back_never_takes_the_place_of_the_real(self) -> None:
        real = judged([xid(1, 79)]).memory
        played = judged([xid(9, 79, drill=True)]).findings
        assert restore(played, real) == real

    def test_what_was_cleared_before_is_not_raised_again(self) -> None:
        """The agent acted on the clearing, and was killed before NodeHealth said so."""
        standing = judged([xid(1, 79)])
        cleared = context(cleared_before=at(5))
        memory = judged([], standing.memory, cleared).memory
        assert judged([], restore(standing.findings, memory), cleared).findings == ()

    def test_a_finding_of_another_boot_stays_out(self) -> None:
        findings = judged([xid(1, 79)]).findings
        memory = XidMemory(boot_id=NEXT_BOOT)
        assert restore(findings, memory) == memory

    def test_a_clearing_ends_what_was_read_back(self) -> None:
        findings = judged([xid(1, 79)]).findings
        assert judged([], restore(findings, None), context(cleared_before=at(1))).findings == ()

    def test_nothing_read_back_is_nothing(self) -> None:
        assert restore((), None) == XidMemory()


class TestReadingAgain:
    """Boot id and sequence name a record for ever."""

    def test_the_same_records_again_change_nothing(self) -> None:
        observations: list[Observation] = [xid(number, 119) for number in range(5)]
        first = judged(observations)
        assert judged(observations, first.memory) == first

    def test_a_batch_out_of_order_loses_nothing(self) -> None:
        (finding,) = judged([xid(3, 119), xid(1, 119), xid(2, 119)]).findings
        assert finding.count == 3

    def test_the_same_numbers_in_a_new_boot_are_new(self) -> None:
        memory = judged([xid(5, 119)]).memory
        again = record(5, "NVRM: Xid (PCI:0000:3b:00): 119", boot_id=NEXT_BOOT)
        assert reasons(judged([again], memory, context(boot_id=NEXT_BOOT)).findings) == ["Xid119GspTimeout"]


class TestWhoSpeaks:
    """Only the kernel counts, but for a drill, which is marked."""

    def test_a_record_of_userspace_does_not_count(self) -> None:
        assert judged([record(1, "NVRM: Xid (PCI:0000:3b:00): 79", facility=1)]).findings == ()

    def test_a_drill_is_marked(self) -> None:
        text = "NVRM: Xid (PCI:0000:3b:00): 79"
        (finding,) = judged([record(1, text, facility=1, drill=True)]).findings
        assert finding.drill
        assert condition([record(1, text, facility=1, drill=True)]).message.startswith("drill: ")

    def test_a_real_fault_takes_the_place_of_a_drill(self) -> None:
        """Nothing that was played counts as evidence for what is real."""
        (finding,) = judged([xid(1, 79, drill=True, text="played"), xid(2, 79, text="real")]).findings
        assert (finding.drill, finding.count, finding.first_seen, finding.detail) == (False, 1, at(2), "real")

    def test_a_drill_adds_nothing_to_a_real_fault(self) -> None:
        (finding,) = judged([xid(1, 79), xid(2, 79, drill=True)]).findings
        assert (finding.drill, finding.count, finding.last_seen) == (False, 1, at(1))

    def test_off_the_bus_in_earnest_replaces_a_drill(self) -> None:
        bare = record(2, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
        (finding,) = judged([xid(1, 79, drill=True), bare]).findings
        assert not finding.drill


class TestSource:
    """Not being able to look is Unknown, after three tries, and never healthy."""

    def test_nothing_read_says_nothing_yet(self) -> None:
        judgement = judged([])
        assert judgement.not_yet
        assert judgement.unreadable is not None

    @pytest.mark.parametrize(
        ("observations", "reason"),
        [
            pytest.param([was_read()], "", id="read, and it held nothing"),
            pytest.param([record(1, "eth0: up")], "", id="a record proves that it can be read"),
            pytest.param([failed(1), failed(2)], "KernelLogNotRead", id="never read, two tries"),
            pytest.param([was_read(), failed(1), failed(2)], "", id="read before, two tries"),
            pytest.param(
                [was_read(), failed(1), failed(2), failed(3)], "KernelLogUnreadable", id="three tries"
            ),
            pytest.param([failed(3), was_read(4)], "", id="it came back"),
            pytest.param(
                [failed(7), failed(1)], "KernelLogUnreadable", id="a restarted reader counts from one"
            ),
            pytest.param([lost(1), failed(1)], "KernelLogNotRead", id="only damage was read"),
            pytest.param([failed(3), lost(1)], "KernelLogUnreadable", id="damage is no sign of health"),
            pytest.param(
                [SourceFailed(source="nvml", error="x", tries=9, seen_at=START), was_read()],
                "",
                id="another source failed",
            ),
            pytest.param(
                [failed(3), SourceRead(source="nvml", seen_at=START)],
                "KernelLogUnreadable",
                id="another source was read",
            ),
        ],
    )
    def test_reading(self, observations: list[Observation], reason: str) -> None:
        unreadable = judged(observations).unreadable
        assert (unreadable.reason if unreadable else "") == reason

    def test_unknown_names_the_cause(self) -> None:
        unknown = condition([failed(3)])
        assert unknown.status is Status.UNKNOWN
        assert unknown.message == "the kernel log cannot be read: /dev/kmsg: Operation not permitted"

    def test_it_stays_unknown_over_a_restart(self) -> None:
        memory = judged([failed(3)]).memory
        unreadable = judged([], memory).unreadable
        assert unreadable is not None
        assert unreadable.reason == "KernelLogUnreadable"

    def test_a_fault_outweighs_a_source_that_went_silent(self) -> None:
        assert condition([xid(1, 79), failed(3)]).status is Status.TRUE

    def test_a_new_boot_has_not_been_read(self) -> None:
        memory = judged([was_read()]).memory
        assert judged([], memory, context(boot_id=NEXT_BOOT)).not_yet

    def test_lost_records_are_counted_and_shown(self) -> None:
        findings = judged([lost(3), lost(4, 9)]).findings
        assert [(f.reason, f.part, f.count, f.severity, f.last_seen) for f in findings] == [
            ("KernelRecordsLost", NODE, 7, Severity.WARNING, at(9))
        ]

    def test_records_lost_by_another_source_are_not_ours(self) -> None:
        assert judged([RecordsLost(source="audit", count=3, seen_at=START, why="x")]).findings == ()


class TestBounds:
    """A storm costs neither memory nor time."""

    def test_ten_thousand_records_are_judged_well_under_a_second(self) -> None:
        observations: list[Observation] = [
            xid(number, 45 if number % 2 else 13, pci=f"0000:{number % 8:02x}:00") for number in range(10_000)
        ]
        started = process_time()
        judgement = judged(observations)
        assert process_time() - started < 1.0  # CPU seconds; 0.2 of them when written
        assert sum(finding.count for finding in judgement.findings) == 10_000
        assert len(judgement.findings) == 8

    def test_a_storm_of_new_parts_stays_bounded_and_keeps_the_gravest(self) -> None:
        storm: list[Observation] = [xid(number, 45, pci=f"{number:04x}:01:00") for number in range(3000)]
        fault = xid(3000, 79)
        findings = judged([*storm, fault]).findings
        assert len(findings) <= MAX_FINDINGS + 4
        assert findings[0].reason == "Xid79FallenOffBus"
        omitted = [f.count for f in findings if f.reason == "XidFindingsOmitted"]
        assert omitted == [3000 + 1 - MAX_FINDINGS]

    def test_identities_stay_bounded(self) -> None:
        preambles: list[Observation] = [
            record(number, f"NVRM: GPU at PCI:{number:04x}:01:00: {UUID}") for number in range(500)
        ]
        memory = judged(preambles).memory
        assert isinstance(memory, XidMemory)
        assert len(memory.identities) == 64

    def test_evidence_is_bounded(self) -> None:
        (finding,) = judged([xid(number, 119, text="y" * 9000) for number in range(50)]).findings
        assert [len(line) for line in finding.evidence] == [TEXT_LIMIT] * EVIDENCE_LINES
