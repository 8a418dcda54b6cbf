"""Signs of life are dated by the controller's clock: an agent whose own is wrong is neither silent nor alive for ever."""

from datetime import datetime, timedelta

import pytest

from controller.sight import Sight
from controller.stores import Stores
from controller.view import Settings
from kube.types import Lease, LeaseSpec, ObjectMeta
from tests.fakes import FakeClock

HOUR = timedelta(hours=1)


class Listening:
    """A controller's sight of one agent's Lease."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stores = Stores(lambda: None)
        self.version = 0

        def guard(*_: object) -> None:
            return None

        self.sight = Sight(
            self.stores,
            Settings(),
            self.clock.clock,
            guard=guard,
            eviction_guard=guard,
            validation_guard=guard,
        )

    def lease(self, renewed: datetime) -> Lease:
        self.version += 1
        metadata = ObjectMeta(name="gpu-1", namespace="x", uid="u", resource_version=str(self.version))
        return Lease(metadata=metadata, spec=LeaseSpec(renew_time=renewed))

    def lists(self, *renewed: datetime) -> None:
        leases = [self.lease(at) for at in renewed]
        self.stores.leases.replace(leases, str(self.version + 1), self.clock.monotonic())
        self.version += 1

    def hears(self, renewed: datetime) -> None:
        self.stores.leases.apply("MODIFIED", self.lease(renewed), self.clock.monotonic())

    def confirmed(self) -> datetime | None:
        fleet = self.sight.look(deliveries={}, evictions={}, failures={})
        return fleet.leases["gpu-1"].spec.renew_time


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(-HOUR, id="its clock is an hour behind"),
        pytest.param(timedelta(), id="its clock is right"),
        pytest.param(24 * HOUR, id="its clock is a day ahead"),
    ],
)
def test_a_renewal_counts_from_when_it_was_heard(wrong: timedelta) -> None:
    """And no longer: an agent that stops to renew grows old from there, whatever date it left."""
    listening = Listening()
    listening.lists(listening.clock.now() + wrong)
    listening.clock.advance(30)
    heard = listening.clock.now()
    listening.hears(heard + wrong)
    listening.clock.advance(600)
    assert listening.confirmed() == heard


def test_an_event_that_renews_nothing_is_no_sign_of_life() -> None:
    """Somebody labelled it."""
    listening = Listening()
    listening.lists()
    said = listening.clock.now() - HOUR
    heard = listening.clock.now()
    listening.hears(said)
    listening.clock.advance(60)
    listening.hears(said)
    assert listening.confirmed() == heard


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        pytest.param(-HOUR, -HOUR, id="an old one is old: a controller that starts does not wait anew"),
        pytest.param(HOUR, timedelta(), id="one in the future is of now at most"),
    ],
)
def test_of_a_lease_that_was_there_before_the_date_must_do(said: timedelta, believed: timedelta) -> None:
    """Nobody heard when it was renewed."""
    listening = Listening()
    now = listening.clock.now()
    listening.lists(now + said)
    listening.clock.advance(30)
    assert listening.confirmed() == now + believed
