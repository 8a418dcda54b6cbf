"""Which APIs a cluster has: what it need not have comes and goes, what it must have is named until it is there."""

import threading
from collections.abc import Iterator

import pytest

from controller.scheduler.shell.stores import STALE_AFTER_S, Stores, Watches
from kube import paths
from kube.api import ApiError, Forbidden, NotFound, Unavailable
from tests.fakes import FakeApi, FakeClock, request_to, wait_until
from tests.scheduler_shell.shell_words import OURS

TOPOLOGIES = paths.collection("kai.scheduler", "v1alpha1", "topologies")
GONE = NotFound("the server could not find the requested resource", code=404)


class Cluster:
    """An API server that lacks some resources; each look of the watches is asked for."""

    def __init__(self, *lacks: str) -> None:
        self.api = FakeApi()
        self.time = FakeClock()
        self.stop = threading.Event()
        self.stores = Stores(lambda: None, OURS)
        self.watches = Watches(
            self.stores, self.api, agents_namespace="ns", clock=self.time.clock, stop=self.stop
        )
        for name in lacks:
            self.fails(name, GONE)

    def fails(self, name: str, error: ApiError, times: int | None = None) -> None:
        self.api.fail_next(request_to("LIST", f"/{name}"), error, times=times)

    def look(self) -> None:
        """Look for APIs once more, as every half minute."""
        self.watches.look_for_lacking()
        self.watches.look_for_optional()


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    made: list[Cluster] = []
    yield made
    for one in made:
        one.stop.set()
        one.api.close()


def started(clusters: list[Cluster], *lacks: str) -> Cluster:
    cluster = Cluster(*lacks)
    clusters.append(cluster)
    cluster.watches.start()
    return cluster


def test_what_a_cluster_need_not_have_is_not_waited_for_and_found_later(clusters: list[Cluster]) -> None:
    """Installed later it is followed; what it says counts from then on."""
    cluster = started(clusters, "topologies", "deviceclasses")
    wait_until(lambda: cluster.stores.why_not_synced() is None)
    assert {"topologies", "deviceclasses"}.isdisjoint(cluster.stores.present())
    cluster.api.stop_failing()
    cluster.api.add(TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    cluster.look()
    wait_until(lambda: cluster.stores.why_not_synced() is None)
    assert set(cluster.stores.topologies.snapshot()) == {"racks"}
    assert "topologies" in cluster.stores.present()


def test_a_server_that_does_not_say_changes_nothing(clusters: list[Cluster]) -> None:
    """One error on the way must not stop everybody's scheduling until the next look."""
    cluster = started(clusters, "topologies")
    wait_until(lambda: cluster.stores.why_not_synced() is None)
    cluster.api.stop_failing()
    cluster.fails("topologies", Unavailable("no answer"))
    cluster.look()
    assert cluster.stores.why_not_synced() is None


def test_at_the_start_what_nobody_knows_is_waited_for(clusters: list[Cluster]) -> None:
    """A cluster that may have devices is not planned as one that has none."""
    cluster = Cluster()
    clusters.append(cluster)
    cluster.fails("resourceslices", Unavailable("no answer"))
    cluster.watches.start()
    wait_until(lambda: cluster.stores.why_not_synced() == "not read yet: resourceslices")


def test_what_the_server_did_not_say_at_the_start_is_asked_again_soon(clusters: list[Cluster]) -> None:
    """One that has just started refuses everybody for a second or two, since it has not read the rights yet."""
    cluster = Cluster()
    clusters.append(cluster)
    cluster.fails("resourceslices", Forbidden("cannot list resource", code=403), times=2)
    cluster.watches.start()
    wait_until(lambda: cluster.stores.why_not_synced() is None, 10)


def test_an_api_that_is_taken_away_stops_nothing(clusters: list[Cluster]) -> None:
    """Its copy is empty then, and not merely old."""
    cluster = started(clusters)
    cluster.api.add(TOPOLOGIES, {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    wait_until(
        lambda: cluster.stores.why_not_synced() is None and "racks" in cluster.stores.topologies.snapshot()
    )
    cluster.time.advance(STALE_AFTER_S + 1)
    cluster.fails("topologies", GONE)
    cluster.look()
    assert cluster.stores.topologies.snapshot() == {}
    assert " topologies" not in (cluster.stores.why_not_fresh(cluster.time.monotonic()) or "")


def test_what_must_be_there_is_named_with_what_to_apply(clusters: list[Cluster]) -> None:
    """Without queues and pod groups nothing can be planned, and the user has to know why nothing is."""
    cluster = started(clusters, "queues", "podgroups")
    wait_until(lambda: "manifests/crds-kai" in (cluster.stores.why_not_synced() or ""))
    assert cluster.stores.why_not_synced() == "the server has no queues, podgroups: apply manifests/crds-kai"
    cluster.api.stop_failing()
    wait_until(lambda: cluster.stores.why_not_synced() is None, 20)
