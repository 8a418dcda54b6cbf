"""Quiet is when nothing was under way for a while, not the moment between two waves of binds."""

from controller.scheduler.shell.dispatch import Dispatch
from controller.scheduler.shell.effects import Effects
from kube.clock import SYSTEM
from tests.fakes import FakeApi, FakeClock, wait_until
from tests.scheduler_shell.dispatch_stage import Preparing
from tests.scheduler_shell.shell_words import gang


def test_it_is_quiet_from_when_the_last_outcome_was_collected() -> None:
    """Before the first order it always was."""
    time = FakeClock()
    dispatch = Dispatch(
        Effects(FakeApi(SYSTEM)), Preparing(), lambda _: "gone", lambda: None, clock=time.clock
    )
    assert dispatch.quiet_s > 1_000_000
    dispatch.bind([gang("p")])
    wait_until(lambda: dispatch.in_line == 0)
    time.advance(5)
    assert (dispatch.quiet_s, dispatch.under_way) == (0.0, 1)
    dispatch.collect()
    assert dispatch.quiet_s == 0.0
    time.advance(5)
    assert dispatch.quiet_s == 5.0
    dispatch.collect()
    assert dispatch.quiet_s == 5.0
    dispatch.stop()
