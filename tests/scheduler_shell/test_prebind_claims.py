"""ResourceClaims before a bind: what is written, when it is refused, and how it is taken back."""

import timeit
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import Conflict, Unavailable
from tests.fake_api import request_to
from tests.scheduler_shell.prebind_stage import (
    CLAIM,
    CLASSES,
    DRIVER,
    RULES,
    SLICES,
    Cluster,
    allocated,
    to_bind,
)

TAINT = {"key": "sick", "value": "xid-79", "effect": "NoSchedule"}


def test_a_pod_without_claims_and_volumes_costs_nothing() -> None:
    """No request and less than five microseconds, a service account's projected volume included."""
    cluster = Cluster()
    cluster.node()
    spec = {"volumes": [{"name": "token", "projected": {}}], "containers": [{"name": "c"}]}
    cluster.add(paths.pods("team"), {"metadata": {"name": "plain"}, "spec": spec})
    pod = cluster.pods.get("team/plain")
    assert pod is not None
    bind, prepare = to_bind(), cluster.prebind.prepare
    cluster.wrote()
    assert prepare(bind, pod).ready
    assert cluster.api.requests == []
    assert min(timeit.repeat(lambda: prepare(bind, pod), number=2000, repeat=7)) / 2000 < 5e-6


def test_a_new_claim_is_allocated_and_reserved_in_two_writes() -> None:
    """Finalizer first, then everything at once; asked again, nothing is written."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.wrote()
    first = cluster.prebind.prepare(to_bind(c1="1"), pod)
    assert (first.ready, cluster.wrote()) == (
        True,
        ["team/resourceclaims/c1", "team/resourceclaims/c1/status"],
    )
    assert cluster.prebind.prepare(to_bind(c1="1"), pod).ready
    assert cluster.wrote() == []
    held = cluster.api.read(CLAIM)
    assert held["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert (cluster.devices(), cluster.users()) == (["gpu-1"], ["p1"])
    assert held["status"]["reservedFor"] == [{"resource": "pods", "name": "p1", "uid": "uid-p1"}]


def test_a_pod_that_joins_an_allocated_claim_costs_one_write() -> None:
    """Only the reservation; who is there stays."""
    cluster = Cluster()
    cluster.node()
    cluster.claim(status=allocated(users=("other",)))
    pod = cluster.pod(claims=("c1",))
    cluster.wrote()
    assert cluster.prebind.prepare(to_bind(c1="0"), pod).ready
    assert (cluster.wrote(), cluster.users()) == (["team/resourceclaims/c1/status"], ["other", "p1"])


def test_what_drivers_read_is_copied() -> None:
    """Configuration of class and claim, and the taints that a request tolerates; two requests, each with its devices."""
    cluster = Cluster()
    cluster.node(gpus=3, gpu0=TAINT)
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"sharing": "none"}}}
    cluster.add(CLASSES, {"metadata": {"name": "gpu"}, "spec": {"config": [opaque]}})
    toleration = {"key": "sick", "operator": "Exists", "effect": "NoSchedule"}
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gpu", "count": 1, "tolerations": [toleration]}},
        {"name": "b", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
    ]
    config = [{"requests": ["b"], **opaque}]
    cluster.claim(spec={"devices": {"requests": requests, "config": config}})
    pod = cluster.pod(claims=("c1",))
    assert cluster.prebind.prepare(to_bind(c1="0,1,2"), pod).ready
    allocation = cluster.held()["allocation"]
    results = allocation["devices"]["results"]
    assert [(one["request"], one["device"]) for one in results] == [
        ("a", "gpu-0"),
        ("b", "gpu-1"),
        ("b", "gpu-2"),
    ]
    assert results[0]["tolerations"] == [toleration]
    assert allocation["devices"]["config"] == [
        {"source": "FromClass", **opaque},
        {"source": "FromClaim", "requests": ["b"], **opaque},
    ]


EITHER = [
    {"name": "many", "deviceClassName": "gpu", "count": 4},
    {"name": "two", "deviceClassName": "gpu", "count": 2, "tolerations": [{"operator": "Exists"}]},
]
REQUESTS = [
    {"name": "g", "firstAvailable": EITHER},
    {"name": "n", "exactly": {"deviceClassName": "gpu", "count": 1}},
]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        pytest.param(("g/two", "g/two", "n"), "", id="the second alternative"),
        pytest.param(("n", "g/two", "g/two"), "", id="in whatever order"),
        pytest.param(("g/many", "g/many", "n"), "what its request g asks for", id="too few of the first"),
        pytest.param(("g/two", "g/many", "n"), "what its request g asks for", id="some of each"),
        pytest.param(
            ("g/two", "g/two", "g/two"), "what its request g asks for", id="more than there were asked"
        ),
        pytest.param(("g/two", "g/two", "x"), "requests that it does not have", id="of another claim"),
        pytest.param(("g/two", "g/two"), "requests that it does not have", id="one has no request"),
        pytest.param((), "asks for 1 devices, and the plan has 3 for it", id="a plan that names none"),
    ],
)
def test_the_plan_says_which_request_each_device_is_for(names: tuple[str, ...], why: str) -> None:
    """What does not fit what the claim asks for goes back, and nothing is written."""
    cluster = Cluster()
    cluster.node(gpus=3)
    cluster.claim(spec={"devices": {"requests": REQUESTS}})
    pod = cluster.pod(claims=("c1",))
    bind = msgspec.structs.replace(to_bind(c1="0,1,2"), requests=(names,))
    found = cluster.prebind.prepare(bind, pod)
    assert (found.ready, why in found.why) == (not why, True), found.why
    results = cluster.held().get("allocation", {"devices": {"results": []}})["devices"]["results"]
    assert tuple(one["request"] for one in results) == (names if not why else ())
    assert all(("tolerations" in one) == (one["request"] == "g/two") for one in results)


def test_a_configuration_of_an_alternative_that_was_not_chosen_is_left_out() -> None:
    """What names the request counts for each alternative; what names all that are served needs no names."""
    cluster = Cluster()
    cluster.node(gpus=3)
    opaque = {"opaque": {"driver": DRIVER, "parameters": {}}}
    about: tuple[list[str], ...] = (["g/many"], ["g/two"], ["g"], ["n"], ["g/many", "n"], ["g", "n"], [])
    config = [{**({"requests": names} if names else {}), **opaque} for names in about]
    cluster.claim(spec={"devices": {"requests": REQUESTS, "config": config}})
    bind = msgspec.structs.replace(to_bind(c1="0,1,2"), requests=(("g/two", "g/two", "n"),))
    assert cluster.prebind.prepare(bind, cluster.pod(claims=("c1",))).ready
    written = cluster.held()["allocation"]["devices"]["config"]
    assert [one.get("requests", []) for one in written] == [["g/two"], ["g"], ["n"], ["g/many", "n"], [], []]


def _replace_slice(cluster: Cluster, **device: Any) -> None:
    devices = [{"name": "gpu-1"}, *([{"name": "gpu-0", **device}] if device else [])]
    cluster.change(f"{SLICES}/s-n1", {"spec": {"devices": devices}})


def _newer_pool(cluster: Cluster) -> None:
    spec = {
        "driver": DRIVER,
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 2},
        "devices": [{"name": "gpu-1"}],
    }
    cluster.add(SLICES, {"metadata": {"name": "s-new"}, "spec": spec})


def _rule(cluster: Cluster) -> None:
    spec = {"deviceSelector": {"pool": "n1", "device": "gpu-0"}, "taint": TAINT}
    cluster.add(RULES, {"metadata": {"name": "fence"}, "spec": spec})


OWNER = {"kind": "Pod", "name": "p1", "uid": "uid-before", "controller": True}


@pytest.mark.parametrize(
    ("claim", "happens", "why"),
    [
        pytest.param({}, lambda cluster: cluster.remove(CLAIM), "is gone", id="claim deleted"),
        pytest.param(
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            None,
            "is being deleted",
            id="claim being deleted",
        ),
        pytest.param(
            {"ownerReferences": [OWNER]},
            None,
            "made for another pod",
            id="pod recreated, the claim is the old one's",
        ),
        pytest.param(
            {"status": allocated("gpu-1")},
            None,
            "was given other devices",
            id="allocated otherwise meanwhile",
        ),
        pytest.param({}, _replace_slice, "gpu-0 is not offered any more", id="device vanished"),
        pytest.param({}, _newer_pool, "gpu-0 is not offered any more", id="device not in the newest pool"),
        pytest.param(
            {},
            lambda cluster: _replace_slice(cluster, taints=[TAINT]),
            "untolerated taint {sick: xid-79}",
            id="taint appeared",
        ),
        pytest.param({}, _rule, "untolerated taint {sick: xid-79}", id="taint by a rule"),
        pytest.param(
            {"status": allocated(users=("x",))},
            lambda cluster: _replace_slice(cluster, taints=[{**TAINT, "effect": "NoExecute"}]),
            "untolerated taint",
            id="taint on a device that others use already",
        ),
        pytest.param(
            {"status": allocated(users=tuple(f"x{index}" for index in range(256)))},
            None,
            "maximum of 256 users",
            id="no place left",
        ),
        pytest.param(
            {},
            lambda cluster: cluster.claim("c2", status=allocated(users=("x",))),
            "gpu-0 was given to team/c2 meanwhile",
            id="another claim has the device",
        ),
    ],
)
def test_refusals(claim: dict[str, Any], happens: Callable[[Cluster], None] | None, why: str) -> None:
    """The pod goes back with a reason that names the claim, and nothing is written."""
    cluster = Cluster()
    cluster.node()
    cluster.claim(**claim)
    pod = cluster.pod(claims=("c1",))
    if happens is not None:
        happens(cluster)
    cluster.wrote()
    found = cluster.prebind.prepare(to_bind(c1="0"), pod)
    assert (found.ready, found.waits, why in found.why) == (False, False, True), found.why
    assert 'resourceclaim "team/c1"' in found.why
    assert cluster.wrote() == []


@pytest.mark.parametrize("effect", ["None", "PreferNoSchedule"])
def test_a_taint_that_keeps_nobody_off_is_no_reason(effect: str) -> None:
    """A rule that is only tried out."""
    cluster = Cluster()
    cluster.node(gpu0={**TAINT, "effect": effect})
    cluster.claim()
    assert cluster.prebind.prepare(to_bind(c1="0"), cluster.pod(claims=("c1",))).ready


CONFLICT = Conflict("the object has been modified", code=409, reason="Conflict")


@pytest.mark.parametrize(
    ("times", "ready"), [pytest.param(1, True, id="once"), pytest.param(3, False, id="three times")]
)
def test_conflicts(times: int, ready: bool) -> None:
    """Read again, decide again, three times at most; then nothing is left behind."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.api.fail_next(request_to("PATCH", "/c1/status"), CONFLICT, times=times)
    found = cluster.prebind.prepare(to_bind(c1="0"), pod)
    assert (found.ready, cluster.users()) == (ready, ["p1"] if ready else [])
    assert ready or "changed by others 3 times" in found.why


def test_the_stores_copy_is_older_than_the_servers() -> None:
    """The claim was allocated by another pod of the gang a moment ago: join it."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.hears = False
    cluster.change(CLAIM, {"metadata": {"labels": {"touched": "yes"}}})
    cluster.change(f"{CLAIM}/status", {"status": allocated(users=("other",))})
    cluster.hears = True
    assert cluster.prebind.prepare(to_bind(c1="0"), pod).ready
    assert (cluster.devices(), cluster.users()) == (["gpu-0"], ["other", "p1"])


def test_an_answer_that_got_lost_is_taken_back() -> None:
    """Nobody knows whether the server took it, so what it may have taken is undone."""
    cluster = Cluster()
    cluster.node()
    cluster.claim()
    pod = cluster.pod(claims=("c1",))
    cluster.api.fail_next(request_to("PATCH", "/c1/status"), Unavailable("no answer"), after=True)
    found = cluster.prebind.prepare(to_bind(c1="0"), pod)
    assert (found.ready, "no answer" in found.why) == (False, True)
    assert (cluster.devices(), cluster.users()) == ([], [])


def test_the_second_claim_fails_and_the_first_is_taken_back() -> None:
    """A pod has all of its claims or none."""
    cluster = Cluster()
    cluster.node()
    cluster.claim("c1")
    cluster.claim("c2", status=allocated("gpu-0"))
    pod = cluster.pod(claims=("c1", "c2"))
    found = cluster.prebind.prepare(to_bind(c1="0", c2="1"), pod)
    assert (found.ready, cluster.devices("c1"), cluster.users("c1")) == (False, [], [])
