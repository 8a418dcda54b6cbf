"""A machine whose clock was ahead and is set right: what was dated in the future hinders nothing that comes after."""

from tests.checks.xid_scene import CARD, PCI, PEER, Machine

AHEAD = 400 * 24 * 3600.0


class TestSetBack:
    """One line came while the clock was ahead."""

    def test_lines_are_still_joined(self) -> None:
        machine = Machine().xid(AHEAD, 13, pci=PEER).xid(10, 48).xid(12, 63)
        assert machine.faults == ["Xid48DoubleBitEcc"]

    def test_an_event_is_still_known_for_the_line_before_it(self) -> None:
        machine = Machine().xid(AHEAD, 13, pci=PEER).xid(10, 48).event(12, 48).wait(40)
        assert machine.the("Xid48DoubleBitEcc").count == 1

    def test_repeats_are_still_counted(self) -> None:
        machine = Machine()
        for seconds, pod in ((AHEAD, "a/train"), (10, "b/serve"), (3600, "c/eval")):
            machine.holders = {CARD: pod, PCI: pod}
            machine.xid(seconds, 31, "MMU Fault").wait(seconds + 31)
        assert machine.faults == ["XidRepeatsAcrossPods"]
        assert "b/serve" in machine.the("XidRepeatsAcrossPods").detail

    def test_the_driver_s_word_that_all_is_well_is_heard(self) -> None:
        machine = Machine().xid(AHEAD, 95).wants(AHEAD + 1, "reset")
        assert machine.polls(10, 0).faults == []

    def test_a_round_that_waited_longer_than_the_line_is_not(self) -> None:
        """A machine that slept: the round is old, the clock is right."""
        machine = Machine().wants(1000, "reset")
        machine.now = 1001
        machine.polls_at(10, 0)
        assert machine.faults == ["RecoveryGpuReset"]
