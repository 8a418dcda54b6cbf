"""What waits for another word: XID 45, errors of NVLink 5 that an XID 154 explains, and XIDs that NVML told."""

import pytest

from checks.condition import Status
from tests.checks.xid_scene import CARD, PCI, PEER, Machine

EVAL = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)"


@pytest.mark.parametrize(
    ("code", "text", "reason"),
    [
        pytest.param(45, "Ch 00000008", "Xid45PreemptiveChannelRemoval", id="45"),
        pytest.param(145, EVAL, "Xid145NvLinkRlwError", id="145 that XID 154 explains"),
    ],
)
class TestHolding:
    """Shown at once as a warning; for half a minute nobody says that all is well."""

    def test_alone(self, code: int, text: str, reason: str) -> None:
        machine = Machine().xid(1, code, text)
        assert machine.warnings == [reason]
        assert str(code) in machine.judgement.not_yet
        assert machine.judgement.unreadable is not None
        assert machine.judgement.unreadable.reason == "XidAwaitsCompanion"
        assert machine.restart().wait(30).judgement.not_yet
        assert not machine.wait(31).judgement.not_yet
        assert (machine.warnings, machine.status) == ([reason], Status.FALSE)

    def test_the_companion_comes(self, code: int, text: str, reason: str) -> None:
        machine = Machine().xid(1, code, text).restart().wants(25, "reset")
        assert (machine.faults, machine.warnings) == (["RecoveryGpuReset"], [reason])
        assert (machine.judgement.not_yet, machine.status) == ("", Status.TRUE)

    def test_nvml_tells_instead(self, code: int, text: str, reason: str) -> None:
        """The field says what the line would have; that it reads 0 may only be too early to tell."""
        machine = Machine().xid(1, code, text).polls(15, 1)
        assert (machine.judgement.not_yet, machine.warnings) == ("", [reason])
        assert Machine().xid(1, code, text).polls(15, 0).judgement.not_yet

    def test_the_driver_wants_nothing(self, code: int, text: str, reason: str) -> None:
        machine = Machine().xid(1, code, text).wants(5, "none", "reset")
        assert (machine.judgement.not_yet, machine.warnings) == ("", [reason])

    def test_it_comes_after_all(self, code: int, text: str, reason: str) -> None:
        """Nobody waited any more; what is near it in time is joined."""
        machine = Machine().xid(1, code, text).wait(40).wants(31, "reset")
        assert machine.faults == ["RecoveryGpuReset"]
        assert reason in machine.warnings

    def test_one_that_goes_on_is_waited_for_once(self, code: int, text: str, reason: str) -> None:
        """A job that ends every few seconds must not keep the condition from being judged for ever."""
        machine = Machine()
        for second in range(1, 300, 7):
            machine.xid(second, code, text)
        assert machine.judgement.not_yet == ""
        assert machine.the(reason).count == 43

    def test_a_clock_that_is_set_back_ends_the_wait(self, code: int, text: str, reason: str) -> None:
        machine = Machine().xid(5000, code, text).wait(10)
        assert machine.judgement.not_yet == ""
        assert machine.warnings == [reason]

    def test_a_single_look_waits_for_nothing(self, code: int, text: str, reason: str) -> None:
        machine = Machine(settings={"hold_seconds": 0}).xid(1, code, text)
        assert (machine.judgement.not_yet, machine.warnings) == ("", [reason])


def test_a_named_cause_that_was_seen_explains_45() -> None:
    """Nothing is missing then; a cause that was not seen may still come."""
    assert not Machine().xid(1, 13).xid(2, 45, "Ch 1 caused by previous Xid 13").judgement.not_yet
    assert Machine().xid(1, 13).xid(2, 45, "Ch 1 caused by previous Xid 149").judgement.not_yet


IGNORED = "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000)"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param((145, IGNORED), (145, EVAL), id="one of the same code that explains itself"),
        pytest.param((45, "Ch 1 caused by previous Xid 13"), (45, "Ch 2"), id="a 45 with a known cause"),
    ],
)
def test_one_that_needed_no_wait_takes_none_from_the_next(
    first: tuple[int, str], then: tuple[int, str]
) -> None:
    """Only what was waited for is not waited for again."""
    machine = Machine().xid(0, 13).xid(1, *first)
    assert not machine.judgement.not_yet
    assert machine.restart().xid(60, *then).judgement.not_yet
    assert not machine.wait(91).judgement.not_yet
    assert not machine.restart().xid(100, *then).judgement.not_yet
    assert machine.wait(1000).xid(1001, *then).judgement.not_yet


def test_a_cause_that_comes_after_45_ends_the_wait() -> None:
    """Whichever 45 names, or any where it names none; another follower explains nothing."""
    assert not Machine().xid(1, 45, "Ch 1 caused by previous Xid 13").xid(2, 13).judgement.not_yet
    assert Machine().xid(1, 45, "Ch 1 caused by previous Xid 31").xid(2, 13).judgement.not_yet
    assert not Machine().xid(1, 45, "Ch 1").xid(2, 13).judgement.not_yet
    assert Machine().xid(1, 45, "Ch 1").xid(2, 43).judgement.not_yet
    assert Machine().xid(1, 45, "Ch 1").xid(2, 13, pci=PEER).judgement.not_yet


def test_a_program_that_crashes_without_end_is_waited_for_once_at_most() -> None:
    """Older drivers do not name the cause of a 45: one that came just before it is it."""
    assert not Machine().xid(1, 13).xid(2, 45, "Ch 1").judgement.not_yet
    assert Machine().xid(1, 43).xid(2, 45, "Ch 1").judgement.not_yet
    machine = Machine().xid(1, 45, "Ch 1").xid(2, 13)
    for second in range(40, 500, 40):
        assert not machine.xid(second, 45, "Ch 1").judgement.not_yet
        machine.xid(second + 1, 13)


@pytest.mark.parametrize("code", [43, 45])
def test_followers_never_act_on_hardware(code: int) -> None:
    """Not alone, not by the thousand, and not by naming a cause that nobody saw."""
    machine = Machine()
    for second in range(50):
        machine.xid(second, code, "Ch 1 caused by previous Xid 79")
    assert machine.wait(500).faults == []
    assert machine.status is Status.FALSE


class TestNvmlTells:
    """The kernel's line is worth more; without one the event counts by itself."""

    def test_a_line_behind_it_is_the_same_event(self) -> None:
        machine = Machine().event(1, 79)
        assert machine.judgement.findings == ()
        assert machine.judgement.not_yet == "NVML told of XID 79, which waits for its line in the kernel log"
        machine.xid(3, 79)
        assert machine.wait(60).the("Xid79FallenOffBus").count == 1

    def test_a_line_before_it_is_the_same_event(self) -> None:
        machine = Machine().xid(1, 119).event(3, 119).wait(60)
        assert machine.the("Xid119GspTimeout").count == 1

    def test_alone_it_counts(self) -> None:
        machine = Machine().event(1, 119).restart().wait(10)
        assert machine.faults == []
        found = machine.wait(11).the("Xid119GspTimeout")
        assert found.detail == "told by an NVML event, without a line of the kernel log"
        assert found.evidence == ("NVML event: XID 119",)
        assert machine.wait(60).the("Xid119GspTimeout").count == 1

    def test_a_much_older_line_is_another_event(self) -> None:
        machine = Machine().xid(1, 119).event(100, 119).wait(110)
        assert machine.the("Xid119GspTimeout").count == 2

    def test_another_gpus_line_is_not_it(self) -> None:
        machine = Machine().event(1, 119).xid(2, 119, pci=PEER).wait(60)
        assert {f.part.pci for f in machine.judgement.findings} == {PCI, PEER}

    def test_a_gpu_is_known_by_its_uuid(self) -> None:
        machine = Machine().event(1, 119, pci="", uuid=CARD).wait(60)
        assert machine.the("Xid119GspTimeout").part.pci == PCI

    def test_a_gpu_that_is_not_named_is_shown(self) -> None:
        """Any line of that code explains it; else it is a warning about the node."""
        assert Machine().event(1, 119, pci="").xid(2, 119).wait(60).warnings == []
        assert Machine().event(1, 119, pci="").wait(60).warnings == ["XidLineUnreadable"]

    def test_a_number_that_nvml_does_not_know(self) -> None:
        assert Machine().event(1, 999).xid(2, 119).wait(60).warnings == []
        assert Machine().event(1, 999).wait(60).warnings == ["XidUnknownCode"]

    @pytest.mark.parametrize("code", [13, 45, 145, 154])
    def test_what_needs_a_text_stays_a_warning(self, code: int) -> None:
        machine = Machine().event(1, code)
        assert machine.judgement.not_yet == ""
        assert machine.wait(60).faults == []
        assert len(machine.warnings) == 1

    def test_other_events_are_no_xid(self) -> None:
        assert Machine().event(1, 79, kind=0x8000).wait(60).judgement.findings == ()
