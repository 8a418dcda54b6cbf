"""What a leader that died in the middle of preparing leaves, and what becomes of it."""

import pytest

from kube import paths
from kube.types import Pod
from tests.scheduler_shell.prebind_stage import NAME, Cluster, allocated, to_bind

SELECTED = "volume.kubernetes.io/selected-node"
DATA = paths.volume_claim("team", "data")


def new_leader(*users: str, scheduler: str = NAME, claim: bool = True) -> tuple[Cluster, Pod]:
    """Give a cluster with a waiting pod, whose claim holds a device and whose volume is asked for on a node."""
    cluster = Cluster()
    cluster.node()
    cluster.storage()
    cluster.volume_claim()
    cluster.change(DATA, {"metadata": {"annotations": {SELECTED: "n1"}}})
    cluster.claim(status=allocated(users=users) if claim else {})
    cluster.pod("p1", claims=("c1",), volumes=("data",), scheduler=scheduler)
    pod = cluster.pods.get("team/p1")
    assert pod is not None
    return cluster, pod


def tidy(cluster: Cluster, seconds: float) -> None:
    cluster.clock.advance(seconds)
    cluster.prebind.tidy()


@pytest.mark.parametrize(
    "users", [pytest.param(("p1",), id="reserved"), pytest.param((), id="nobody reserved")]
)
def test_what_nobody_could_use_for_two_minutes_is_taken_back(users: tuple[str, ...]) -> None:
    """Devices and node are free for everybody again, and the pod for every node."""
    cluster, _ = new_leader(*users)
    tidy(cluster, 20)
    tidy(cluster, 119)
    assert (cluster.devices(), cluster.selected()) == (["gpu-0"], "n1")
    tidy(cluster, 11)
    assert (cluster.devices(), cluster.users(), cluster.selected()) == ([], [], None)


def test_the_new_leader_takes_up_where_the_old_one_was() -> None:
    """As long as the pod is being prepared nothing is taken back, and the claim is used as it is."""
    cluster, pod = new_leader("p1")
    for _ in range(10):
        tidy(cluster, 50)
        cluster.prebind._waits_since.clear()  # the deadline of the volume is not the matter here
        assert cluster.prebind.prepare(to_bind(c1="0"), pod).waits
    assert (cluster.users(), cluster.selected()) == (["p1"], "n1")


@pytest.mark.parametrize(
    ("users", "scheduler", "node"),
    [
        pytest.param(("p1", "runs"), NAME, "", id="somebody else uses the claim"),
        pytest.param(("p1",), "default-scheduler", "", id="a pod of another scheduler"),
        pytest.param(("p1",), NAME, "n1", id="the pod was bound, which the watch does not show yet"),
    ],
)
def test_what_is_in_use_stays(users: tuple[str, ...], scheduler: str, node: str) -> None:
    """Nothing is taken from a pod that runs, or that is not ours."""
    cluster, _ = new_leader(*users, scheduler=scheduler)
    cluster.hears = False
    if node:
        cluster.change(paths.pod("team", "p1"), {"spec": {"nodeName": node}})
    for _ in range(5):
        tidy(cluster, 100)
    assert (cluster.devices(), cluster.users()) == (["gpu-0"], list(users))


def test_it_looks_now_and_then() -> None:
    """Called every cycle it costs next to nothing, and no request while there is nothing to do."""
    cluster, _ = new_leader("p1")
    cluster.wrote()
    for _ in range(100):
        tidy(cluster, 1)
    assert cluster.api.requests == []
