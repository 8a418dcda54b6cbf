"""controller.loop: what the watch has not brought yet still stops an eviction, since the server is asked right before it."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from controller.outcome import Result
from kube import paths
from kube.api import PatchType
from kube.remediation import CANCEL
from tests.controller.shell.fleet import Fleet


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Eight nodes; gpu-0 runs two pods."""
    made = Fleet()
    made.add_pod("gpu-0", "train-0")
    made.add_pod("gpu-0", "train-1")
    yield made
    made.stop()


def uncordon(fleet: Fleet) -> None:
    fleet.api.patch(paths.node("gpu-0"), {"spec": {"unschedulable": None}}, PatchType.MERGE)


def cancel(fleet: Fleet) -> None:
    (incident,) = fleet.incidents()
    said = {"metadata": {"annotations": {CANCEL: "2026-01-01T12:00:00Z"}}}
    fleet.api.patch(paths.remediation(incident["metadata"]["name"]), said, PatchType.MERGE)


def recover(fleet: Fleet) -> None:
    fleet.report("gpu-0", fault=False)


@pytest.mark.parametrize(
    ("strike", "ended"),
    [
        pytest.param(uncordon, "Cancelled", id="a person uncordoned"),
        pytest.param(cancel, "Cancelled", id="a person cancelled"),
        pytest.param(recover, "Revalidating", id="the fault is gone"),
    ],
)
def test_an_eviction_is_not_sent_on_old_sight(
    fleet: Fleet, strike: Callable[[Fleet], None], ended: str
) -> None:
    """The stores still show a drain: not one pod is lost, and the next sight ends it (planetlabs/draino#50)."""
    fleet.report("gpu-0", fault=True)
    for _ in range(30):
        fleet.hear()
        if fleet.incidents() and fleet.phase() == "Draining":
            break
        fleet.loop.tick()
        fleet.clock.advance(0.1)
    strike(fleet)
    outcomes = [outcome for _ in range(3) for outcome in fleet.loop.tick().outcomes]
    evictions = [outcome.result for outcome in outcomes if outcome.kind == "Evict"]
    assert evictions[:2] == [Result.REFUSED, Result.SKIPPED]
    assert fleet.sent("CREATE", "/eviction") == 0
    fleet.later(timedelta(seconds=10))
    assert fleet.phase() == ended
    assert fleet.sent("CREATE", "/eviction") == 0
