"""Claims that are taken back, and claims that two schedulers want: who keeps the device."""

from collections.abc import Callable
from typing import Any

import pytest

from kube import paths
from kube.types import Pod
from tests.scheduler_shell.prebind_stage import CLAIM, SLICES, Cluster, allocated, to_bind

POD = paths.pod("team", "p1")


def _bound(cluster: Cluster) -> None:
    cluster.change(POD, {"spec": {"nodeName": "n1"}})


@pytest.mark.parametrize(
    ("others", "happens", "devices", "users"),
    [
        pytest.param((), None, [], [], id="alone: the devices are free again"),
        pytest.param(("x",), None, ["gpu-0"], ["x"], id="shared: only the reservation goes"),
        pytest.param((), _bound, ["gpu-0"], ["p1"], id="the pod is bound all the same: it keeps them"),
        pytest.param((), lambda cluster: cluster.remove(POD), [], [], id="the pod is gone"),
    ],
)
def test_undo(
    others: tuple[str, ...],
    happens: Callable[[Cluster], None] | None,
    devices: list[str],
    users: list[str],
) -> None:
    """What a bind that failed leaves."""
    cluster = Cluster()
    cluster.node()
    cluster.claim(status=allocated(users=others) if others else {})
    prepared = cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",)))
    assert prepared.ready
    if happens is not None:
        happens(cluster)
    cluster.prebind.undo(prepared)
    cluster.prebind.undo(prepared)
    assert (cluster.devices(), cluster.users()) == (devices, users)


def test_undo_leaves_another_claim_of_that_name() -> None:
    """The claim was deleted and made again for somebody else."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    prepared = cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",)))
    cluster.remove(CLAIM)
    body = {"metadata": {"name": "c1", "uid": "second"}, "spec": {}, "status": allocated(users=("p1",))}
    cluster.add(CLAIM.rpartition("/")[0], body)
    cluster.prebind.undo(prepared)
    assert cluster.users() == ["p1"]


def test_undo_meets_a_change_in_between() -> None:
    """Another pod was reserved between reading and writing: it keeps the devices."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    prepared = cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",)))
    status = {"status": {"reservedFor": allocated(users=("p1", "late"))["reservedFor"]}}

    def join(_path: str) -> None:
        cluster.before_patch = lambda _path: None
        cluster.change(f"{CLAIM}/status", status)

    cluster.before_patch = join
    cluster.prebind.undo(prepared)
    assert (cluster.devices(), cluster.users()) == (["gpu-0"], ["late"])


def test_the_last_two_are_taken_back_at_the_same_time() -> None:
    """Each sees the other one still reserved; whoever comes last frees the devices."""
    cluster = Cluster()
    cluster.node()
    cluster.claim(status=allocated(users=("late",)))
    prepared = cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",)))

    def leave(_path: str) -> None:
        cluster.before_patch = lambda _path: None
        cluster.change(
            f"{CLAIM}/status", {"status": {"reservedFor": allocated(users=("p1",))["reservedFor"]}}
        )

    cluster.before_patch = leave
    cluster.prebind.undo(prepared)
    assert (cluster.devices(), cluster.users()) == ([], [])


def test_without_the_watch_nobody_knows_who_was_first() -> None:
    """The pod waits with what it has, and is ready once the watch has shown it, without another write."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.hears = False
    found = cluster.prebind.prepare(to_bind(c1="0"), pod)
    assert (found.ready, found.waits, cluster.users()) == (False, True, ["p1"])
    cluster.hear()
    cluster.wrote()
    assert cluster.prebind.prepare(to_bind(c1="0"), pod).ready
    assert cluster.wrote() == []


def _two() -> tuple[Cluster, Cluster, Pod, Pod]:
    one = Cluster()
    two = Cluster(share=one)
    one.node()
    one.claim("c1")
    one.claim("c2")
    first, second = one.pod("p1", claims=("c1",)), one.pod("p2", claims=("c2",))
    two.hear()
    return one, two, first, second


def test_two_schedulers_give_one_device_away_and_the_first_keeps_it() -> None:
    """Neither sees the other's write before its own; after it, both know the order."""
    one, two, first, second = _two()
    one.hears = two.hears = False
    a = one.prebind.prepare(to_bind(c1="0"), first)
    b = two.prebind.prepare(to_bind(task="team/p2", c2="0"), second)
    assert (a.waits, b.waits) == (True, True)
    one.hear()
    two.hear()
    one.hears = two.hears = True
    b = two.prebind.prepare(to_bind(task="team/p2", c2="0"), second)
    a = one.prebind.prepare(to_bind(c1="0"), first)
    assert (a.ready, b.ready) == (True, False)
    assert "gpu-0 was given to team/c1 meanwhile" in b.why
    assert (one.devices("c1"), one.devices("c2"), one.users("c2")) == (["gpu-0"], [], [])


def test_a_scheduler_that_does_not_give_way_is_given_way_to() -> None:
    """A pod of another scheduler was given the device, later, but that scheduler does not look."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.pod("other", scheduler="default-scheduler")
    cluster.hears = False
    assert cluster.prebind.prepare(to_bind(c1="0"), pod).waits
    cluster.claim("c2", status=allocated(users=("other",)))
    cluster.hears = True
    found = cluster.prebind.prepare(to_bind(c1="0"), pod)
    assert (found.ready, cluster.devices("c1"), cluster.devices("c2")) == (False, [], ["gpu-0"])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"users": ("p2", "p3")}, id="a second pod joined it"),
        pytest.param(
            {"status": [{"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]},
            id="its driver spoke",
        ),
    ],
)
def test_a_claim_that_was_changed_since_may_have_been_first(changes: dict[str, Any]) -> None:
    """Its version says when it was changed last, not when it was allocated: give way."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.pod("p2")
    cluster.hears = False
    assert cluster.prebind.prepare(to_bind(c1="0"), pod).waits
    status = allocated(users=changes.get("users", ("p2",)))
    cluster.claim("c2", status={**status, "devices": changes.get("status", [])})
    cluster.hears = True
    assert not cluster.prebind.prepare(to_bind(c1="0"), pod).ready
    assert (cluster.devices("c1"), cluster.devices("c2")) == ([], ["gpu-0"])


def test_a_device_that_several_may_have() -> None:
    """Each has a share of its own."""
    cluster = Cluster()
    cluster.node()
    cluster.change(
        f"{SLICES}/s-n1", {"spec": {"devices": [{"name": "gpu-0", "allowMultipleAllocations": True}]}}
    )
    cluster.claim("c1")
    cluster.claim("c2", status=allocated(users=("x",), shareID="other"))
    assert cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",))).ready
    (result,) = cluster.held("c1")["allocation"]["devices"]["results"]
    assert len(result["shareID"]) == 36
