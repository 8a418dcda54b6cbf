"""XID 154 and field 230: what the driver wants, beside other XIDs, alone, polled, and as its word that all is well."""

import pytest

from checks.check import Clearing
from checks.condition import Status
from checks.observation import KERNEL_LOG, RecordsLost
from checks.xid import XidMemory, restore
from tests.checks.kernel import at
from tests.checks.xid_scene import PCI, PEER, Machine

WISHES = [
    pytest.param("reset", 1, "RecoveryGpuReset", id="reset"),
    pytest.param("reboot", 2, "RecoveryNodeReboot", id="reboot"),
    pytest.param("p2p", 3, "RecoveryDrainP2p", id="drain P2P"),
    pytest.param("drain", 4, "RecoveryDrainAndReset", id="drain and reset"),
    pytest.param("imex", 5, "RecoveryImexDomain", id="IMEX domain"),
]


@pytest.mark.parametrize(
    ("to", "effect", "urgency", "action"),
    [
        pytest.param("reset", "part-out", "now", "RESET_GPU", id="reset"),
        pytest.param("reboot", "node-out", "now", "REBOOT", id="reboot"),
        pytest.param("p2p", "no-multi-gpu", "when-idle", "RESET_GPU", id="drain P2P"),
        pytest.param("drain", "part-out", "when-idle", "RESET_GPU", id="drain and reset"),
        pytest.param("imex", "no-multi-node", "person", "CONTACT_SUPPORT", id="IMEX domain"),
    ],
)
def test_what_a_wish_takes_away(to: str, effect: str, urgency: str, action: str) -> None:
    """As its row says."""
    (found,) = Machine().wants(1, to).judgement.findings
    assert (found.effect, found.urgency, found.action) == (effect, urgency, action)


@pytest.mark.parametrize(("to", "number", "reason"), WISHES)
def test_a_wish_comes_and_goes(to: str, number: int, reason: str) -> None:
    """By a line and by the field; it ends with None in a line or polled, or with a clearing, and not with silence."""
    told = Machine().wants(1, to)
    assert told.the(reason).detail == "XID 154"
    assert (told.faults, told.status) == ([reason], Status.TRUE)
    assert told.wants(60, "none", to).judgement.findings == ()
    assert told.status is Status.FALSE
    polled = told.polls(90, number)
    assert polled.the(reason).evidence == (f"NVML field 230 (recovery action) reads {number}",)
    assert polled.polls(120, number).the(reason).count == 1
    assert polled.polls(150, None).faults == [reason]
    assert polled.restart().polls(180, 0).judgement.findings == ()


@pytest.mark.parametrize(("to", "number", "reason"), WISHES)
def test_a_clearing_ends_a_wish_until_the_field_says_it_again(to: str, number: int, reason: str) -> None:
    """Whoever cleared it may have been wrong."""
    machine = Machine().wants(1, to)
    machine.cleared = (Clearing(pci=PCI, before=at(5)),)
    assert machine.wait(6).judgement.findings == ()
    assert machine.polls(30, number).faults == [reason]


class TestOverride:
    """It takes the place of the action of XIDs of that GPU within half a minute, whichever came first."""

    @pytest.mark.parametrize(
        ("xid_at", "wish_at", "action"),
        [
            pytest.param(100, 100, "REBOOT", id="at once"),
            pytest.param(100, 130, "REBOOT", id="30 s behind"),
            pytest.param(130, 100, "REBOOT", id="30 s before"),
            pytest.param(100, 131, "RESET_GPU", id="31 s behind"),
            pytest.param(131, 100, "RESET_GPU", id="31 s before"),
        ],
    )
    def test_near_in_time(self, xid_at: float, wish_at: float, action: str) -> None:
        machine = Machine()
        for _, step in sorted([(xid_at, "xid"), (wish_at, "wish")]):
            if step == "xid":
                machine.xid(xid_at, 119)
            else:
                machine.wants(wish_at, "reboot")
        assert machine.the("Xid119GspTimeout").action == action
        assert machine.faults[0] == "RecoveryNodeReboot"
        both = action == "REBOOT"
        assert ("XID 119" in machine.the("RecoveryNodeReboot").detail) == both
        assert ("the driver asks for RecoveryNodeReboot" in machine.the("Xid119GspTimeout").detail) == both

    def test_both_name_each_other_in_either_order(self) -> None:
        first = Machine().wants(1, "reset").xid(2, 119).xid(3, 45).xid(4, 119)
        assert first.the("RecoveryGpuReset").detail == "XID 154; with XID 119"
        assert first.the("Xid119GspTimeout").detail == "x; the driver asks for RecoveryGpuReset"
        second = Machine().xid(1, 119).wants(2, "reset").xid(3, 119)
        assert second.the("RecoveryGpuReset").detail == "XID 154, after XID 119"

    def test_the_other_gpu_keeps_its_own(self) -> None:
        machine = Machine().xid(1, 119, pci=PEER).wants(2, "reboot")
        assert machine.the("Xid119GspTimeout").action == "RESET_GPU"

    def test_what_waits_for_a_person_need_not_where_the_driver_knows(self) -> None:
        """NVIDIA's bucket is to ask support; the driver says that a reset is enough."""
        machine = Machine().xid(1, 59).wants(2, "reset")
        found = machine.the("Xid59PmuFault")
        assert (found.action, found.urgency) == ("RESET_GPU", "now")

    def test_a_fall_from_the_bus_needs_its_reboot(self) -> None:
        machine = Machine().xid(1, 79).wants(2, "reset")
        assert machine.the("Xid79FallenOffBus").action == "REBOOT"

    def test_a_drain_makes_nothing_less_urgent(self) -> None:
        found = Machine().xid(1, 95).wants(2, "drain").the("Xid95UncontainedEcc")
        assert (found.action, found.urgency) == ("RESET_GPU", "now")

    def test_followers_are_no_cause(self) -> None:
        machine = Machine().xid(1, 45).xid(1, 43).wants(2, "reset")
        assert machine.the("RecoveryGpuReset").detail == "XID 154"

    def test_an_application_xid_is_named_and_stays_a_warning(self) -> None:
        machine = Machine().xid(1, 31).wants(2, "reset")
        assert machine.faults == ["RecoveryGpuReset"]
        assert machine.the("RecoveryGpuReset").detail == "XID 154, after XID 31"
        assert machine.the("Xid31MmuFault").action == "RESET_GPU"


class TestOrder:
    """reboot > reset > drain and reset > drain P2P > IMEX: the strongest stands until None."""

    @pytest.mark.parametrize(
        ("wishes", "stands"),
        [
            pytest.param(["drain", "reset"], "RecoveryGpuReset", id="it gets worse"),
            pytest.param(["reboot", "reset"], "RecoveryNodeReboot", id="a weaker one behind"),
            pytest.param(["imex", "p2p", "drain"], "RecoveryDrainAndReset", id="three"),
            pytest.param(["p2p", "imex"], "RecoveryDrainP2p", id="IMEX is the weakest"),
        ],
    )
    def test_one_stands(self, wishes: list[str], stands: str) -> None:
        machine = Machine()
        for number, wish in enumerate(wishes):
            machine.wants(number, wish)
        assert machine.faults == [stands]
        assert machine.the(stands).count == len(wishes)
        assert machine.polls(60, 3).faults == [stands]
        assert machine.wants(90, "none").faults == []


class TestRecovered:
    """None ends what a reset ends, on that GPU alone."""

    def test_what_ends_and_what_stays(self) -> None:
        machine = Machine().xid(1, 119).xid(1, 64).xid(1, 79).xid(2, 119, pci=PEER).wants(3, "reset")
        machine.wants(100, "none", "reset")
        left = {(f.reason, f.part.pci) for f in machine.judgement.findings}
        assert left == {
            ("Xid64RowRemapFailed", PCI),
            ("Xid79FallenOffBus", PCI),
            ("Xid119GspTimeout", PEER),
        }

    @pytest.mark.parametrize("code", [48, 119])
    def test_what_comes_back_after_it_needs_a_board(self, code: int) -> None:
        """The second time the driver's word is not enough."""
        machine = Machine().xid(1, code).wants(2, "reset").wants(60, "none", "reset")
        assert machine.faults == []
        machine.restart().xid(100, code).wants(101, "reset").wants(160, "none", "reset")
        assert len(machine.faults) == 1
        assert machine.wait(9999).faults

    def test_the_end_of_a_drain_of_peers_heals_no_gpu(self) -> None:
        machine = Machine().xid(1, 119).wants(500, "p2p").wants(600, "none", "p2p")
        assert machine.faults == ["Xid119GspTimeout"]

    def test_also_where_only_the_end_of_it_was_read(self) -> None:
        assert Machine().xid(1, 119).wants(600, "none", "p2p").faults == ["Xid119GspTimeout"]
        assert Machine().xid(1, 119).wants(600, "none", "reset").faults == []

    def test_a_fault_after_it_stands(self) -> None:
        machine = Machine().wants(1, "reset").wants(50, "none", "reset").xid(51, 119)
        assert machine.faults == ["Xid119GspTimeout"]

    def test_none_on_a_sound_gpu_says_nothing(self) -> None:
        assert Machine().wants(1, "none", "reset").judgement.findings == ()
        assert Machine().polls(30, 0).judgement.findings == ()

    def test_zero_polled_without_a_wish_heals_nothing(self) -> None:
        """A driver that does not know the field may say 0 for ever."""
        assert Machine().xid(1, 119).polls(30, 0).polls(60, 0).faults == ["Xid119GspTimeout"]

    def test_a_round_from_before_the_line_does_not_contradict_it(self) -> None:
        """Its values were read while the line was written; the round after it counts."""
        machine = Machine().xid(1, 119).wants(30, "reset").polls(31, 0)
        assert machine.faults[0] == "RecoveryGpuReset"
        machine.polls(61, 0)
        assert machine.faults == []
        machine.wants(90, "reset").wants(91, "none", "reset").polls(92, 1)
        assert machine.faults == []

    def test_a_recovery_is_known_after_the_state_was_lost(self) -> None:
        """NodeHealth gives the wish back."""
        machine = Machine().xid(1, 119).wants(2, "reset")
        machine.memory = restore(machine.judgement.findings, XidMemory(was_read=True))
        assert machine.polls(60, 0).faults == []


def test_a_line_that_cannot_be_read_is_shown() -> None:
    """Cut off, or with a number that nobody explains: a warning, and nothing is done."""
    machine = Machine().say(1, f"NVRM: Xid (PCI:{PCI}): 154 (")
    machine.say(2, f"NVRM: Xid (PCI:{PCI}): 154, GPU recovery action changed from 0x0 (None) to 0x9 (News)")
    assert (machine.faults, machine.warnings) == ([], ["Xid154RecoveryActionChanged"])
    assert Machine().polls(30, 99).warnings == ["Xid154RecoveryActionChanged"]


def test_the_field_covers_lines_that_were_lost() -> None:
    """The log ran over; nothing ends, and what NVML says counts."""
    machine = Machine().xid(1, 119)
    machine.judge(RecordsLost(source=KERNEL_LOG, count=9, seen_at=at(2), why="it ran over"))
    assert machine.status is Status.TRUE
    machine.polls(30, 2)
    assert machine.faults == ["RecoveryNodeReboot", "Xid119GspTimeout"]
    assert "KernelRecordsLost" in machine.warnings


def test_what_was_played_changes_nothing_real() -> None:
    """A drill's None heals nothing, its wish takes no action's place, and a real wish takes the drill's place."""
    machine = Machine().xid(1, 119).wants(2, "reboot", drill=True)
    assert machine.the("RecoveryNodeReboot").drill
    assert machine.the("Xid119GspTimeout").action == "RESET_GPU"
    assert "Xid119GspTimeout" in machine.wants(3, "none", "reset", drill=True).faults
    assert not machine.wants(4, "reboot").the("RecoveryNodeReboot").drill


def test_a_storm_of_wishes_changes_no_message() -> None:
    """Counted, and the words stand still."""
    machine = Machine().xid(1, 119).wants(2, "reset")
    before = machine.condition
    for second in range(3, 25):
        machine.wants(second, "reset").xid(second, 119)
    assert machine.condition == before
    assert machine.the("RecoveryGpuReset").count == 23


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_gpu_off_the_bus_without_an_xid_is_a_cause_too(first: bool) -> None:
    """Whichever the driver says first."""
    machine, words = Machine(), f"NVRM: GPU {PCI}.0: GPU has fallen off the bus."
    machine = machine.wants(1, "reboot").say(3, words) if first else machine.say(1, words).wants(3, "reboot")
    assert "XID 79" in machine.the("RecoveryNodeReboot").detail
