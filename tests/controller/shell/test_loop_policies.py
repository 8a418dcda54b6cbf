"""controller.loop: a repair follows the policy that is in force at its moment, whichever that is by now."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from controller.outcome import Result
from kube import paths
from tests.controller.shell.fleet import Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Eight nodes under an Enforce policy; gpu-0's repair is written down and not yet submitted."""
    made = Fleet()
    made.report("gpu-0", fault=True)
    for _ in range(30):
        made.hear()
        if made.incidents() and made.phase() == "Repairing":
            break
        made.loop.tick()
        made.clock.advance(0.1)
    yield made
    made.stop()


def test_a_policy_that_was_replaced_by_another_goes_on_with_that_one(fleet: Fleet) -> None:
    """Renamed in the middle of an incident: its repair must not wait for a name that is gone."""
    fleet.api.remove(paths.policy("gpus"))
    fleet.api.add(paths.policies(), {"metadata": {"name": "all-gpus"}, "spec": {"mode": "Enforce"}})
    fleet.later(timedelta(seconds=10))
    assert len(fleet.jobs()) == 1


@pytest.mark.parametrize("held", [{"mode": "Observe"}, {"mode": "Enforce", "paused": True}])
def test_a_policy_of_higher_priority_that_holds_stops_a_repair_at_once(
    fleet: Fleet, held: dict[str, object]
) -> None:
    """The watch has not brought it yet; the server is asked."""
    fleet.api.add(paths.policies(), {"metadata": {"name": "hold"}, "spec": {"priority": 9, **held}})
    outcomes = [outcome for _ in range(3) for outcome in fleet.loop.tick().outcomes]
    assert [outcome.result for outcome in outcomes if outcome.kind == "RunRepair"][:1] == [Result.REFUSED]
    assert fleet.jobs() == []
