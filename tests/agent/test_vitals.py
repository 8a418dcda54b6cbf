"""When the agent counts as dead: kubelet restarts it, and its Lease is not renewed."""

from agent.vitals import LOOP_STALE_S, READER_STALE_S, WRITER_STALE_S, Vitals
from tests.fakes import FakeClock


def test_a_loop_that_stands_still_is_neither_alive_nor_healthy() -> None:
    """The deadline is named."""
    clock = FakeClock()
    vitals = Vitals(clock.clock)
    clock.advance(LOOP_STALE_S)
    assert vitals.why_not_alive() is None
    clock.advance(1)
    said = f"the judging loop last went round {LOOP_STALE_S + 1:.0f} s ago, {LOOP_STALE_S:.0f} s is the most"
    assert (vitals.why_not_alive(), vitals.why_not_healthy(0)) == (said, said)
    vitals.loop_went_round()
    assert vitals.why_not_alive() is None


def test_a_writer_or_a_reader_that_stands_still_is_unhealthy_and_the_loop_alive() -> None:
    """Conditions are still judged and published then, so the Lease goes on."""
    clock = FakeClock()
    vitals = Vitals(clock.clock)
    clock.advance(WRITER_STALE_S + 1)
    vitals.loop_went_round()
    assert vitals.why_not_alive() is None
    assert "the writer" in (vitals.why_not_healthy(0) or "")
    vitals.writer_went_round()
    assert vitals.why_not_healthy(0) is None
    assert "reader" in (vitals.why_not_healthy(READER_STALE_S + 1) or "")
