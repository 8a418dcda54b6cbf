"""Which pods hold a node: kubectl drain's classes, with the policy where kubectl asks for a flag."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from controller.drain import (
    BLOCKED_LIMIT,
    EVICTIONS_AT_ONCE,
    Fate,
    accepted,
    classify,
    gpu_pods,
    left_on,
    next_round,
    pause,
    shown,
    stuck_at,
)
from controller.terms import Terms, read
from controller.view import Eviction
from kube.policy import DrainPolicy
from kube.types import Pod
from tests import build as make
from tests.build import NOW, SETTINGS

DAEMON: dict[str, Any] = {
    "owner": "DaemonSet",
    "owner_name": "exporter",
    "owner_uid": "ds-exporter",
    "namespace": "monitoring",
}


def terms(**drain: Any) -> Terms:
    return read(make.policy(drain=DrainPolicy(**drain)), SETTINGS)


@pytest.mark.parametrize(
    ("pod", "drain", "fate"),
    [
        pytest.param(make.pod(), {}, Fate.EVICT, id="a ReplicaSet's pod"),
        pytest.param(make.pod(owner="Job"), {}, Fate.EVICT, id="a Job's pod"),
        pytest.param(make.pod(phase="Pending"), {}, Fate.EVICT, id="a pod that is only bound yet"),
        pytest.param(make.pod(**DAEMON), {}, Fate.LEAVE, id="a DaemonSet's pod"),
        pytest.param(
            make.pod(**{**DAEMON, "owner_name": "gone"}),
            {},
            Fate.BLOCKED,
            id="a pod of a DaemonSet that does not exist",
        ),
        pytest.param(
            make.pod(**{**DAEMON, "owner_uid": "ds-of-before"}),
            {},
            Fate.BLOCKED,
            id="a pod of a DaemonSet that was made anew",
        ),
        pytest.param(
            make.pod(**{**DAEMON, "owner_name": "gone"}),
            {"unmanaged_pods": "evict"},
            Fate.EVICT,
            id="the same, where policy evicts",
        ),
        pytest.param(
            make.pod(annotations={"kubernetes.io/config.mirror": "x"}), {}, Fate.LEAVE, id="a mirror pod"
        ),
        pytest.param(make.pod(owner="Node", owner_name="gpu-1"), {}, Fate.LEAVE, id="a static pod"),
        pytest.param(make.pod(phase="Succeeded"), {}, Fate.LEAVE, id="a pod that is done"),
        pytest.param(make.pod(phase="Failed", owner=None), {}, Fate.LEAVE, id="a pod that failed, of nobody"),
        pytest.param(make.pod(owner=None), {}, Fate.BLOCKED, id="a pod that nothing starts again"),
        pytest.param(
            make.pod(owner=None),
            {"unmanaged_pods": "evict"},
            Fate.EVICT,
            id="the same, where policy evicts it",
        ),
        pytest.param(make.pod(empty_dir=True), {}, Fate.EVICT, id="a pod with emptyDir data"),
        pytest.param(
            make.pod(empty_dir=True),
            {"empty_dir_data": "block"},
            Fate.BLOCKED,
            id="the same, where policy keeps it",
        ),
        pytest.param(make.pod(namespace="kube-system"), {}, Fate.LEAVE, id="an excluded namespace"),
        pytest.param(
            make.pod(namespace="kube-system"),
            {"excluded_namespaces": ()},
            Fate.EVICT,
            id="no namespace excluded",
        ),
        pytest.param(
            make.pod(namespace="nodemend-system"), {"excluded_namespaces": ()}, Fate.LEAVE, id="our own pods"
        ),
        pytest.param(
            make.pod(namespace="nodemend-repairs", owner="Job"), {}, Fate.LEAVE, id="our own repairs"
        ),
        pytest.param(make.pod(deleted=NOW), {}, Fate.GOING, id="a pod on its way out"),
        pytest.param(make.pod(owner=None, deleted=NOW), {}, Fate.GOING, id="a pod of nobody on its way out"),
    ],
)
def test_every_pod_has_a_class(pod: Pod, drain: Mapping[str, Any], fate: Fate) -> None:
    """What is left, evicted, waited for, or blocks."""
    fleet = make.fleet(make.node(), daemonsets=[make.daemonset()])
    assert classify(pod, terms(**drain), fleet).fate is fate


def test_the_leftovers_are_in_a_fixed_order() -> None:
    """Two leaders see the same list, whatever order the server gave it in."""
    pods = [make.pod("b"), make.pod("a"), make.pod("c", owner=None), make.pod("d", deleted=NOW)]
    first = left_on("gpu-1", terms(), make.fleet(make.node(), pods=pods), NOW)
    second = left_on("gpu-1", terms(), make.fleet(make.node(), pods=pods[::-1]), NOW)
    assert first == second
    assert [p.metadata.name for p in first.evict] == ["a", "b"]
    assert (len(first.going), len(first.blocked)) == (1, 1)
    assert first.names() == (
        "jobs/c (nothing would start it again elsewhere, and the policy says block), jobs/a, jobs/b and 1 more"
    )


def test_an_empty_node_holds_nothing() -> None:
    """DaemonSets' pods, finished pods and our own do not count."""
    pods = [make.pod(**DAEMON), make.pod("x", phase="Succeeded"), make.pod("y", namespace="nodemend-system")]
    fleet = make.fleet(make.node(), pods=pods, daemonsets=[make.daemonset()])
    assert not left_on("gpu-1", terms(), fleet, NOW)


@pytest.mark.parametrize(
    ("finalizers", "overdue", "why"),
    [
        pytest.param((), 59, None, id="within a minute after its grace"),
        pytest.param((), 60, "its deletion is overdue: the kubelet has not ended it", id="overdue"),
        pytest.param(("x/y",), 60, "its deletion is held by finalizers x/y", id="held by a finalizer"),
        pytest.param(("x/y",), -300, None, id="within its own grace"),
    ],
)
def test_a_pod_that_does_not_go_is_named(finalizers: tuple[str, ...], overdue: int, why: str | None) -> None:
    """A finalizer is reported, never stripped."""
    stuck = make.pod(deleted=NOW - timedelta(seconds=overdue), finalizers=finalizers)
    left = left_on("gpu-1", terms(), make.fleet(make.node(), pods=[stuck]), NOW)
    assert [b.why for b in left.blocked] == ([] if why is None else [why])
    if why is None:
        assert stuck_at(left) == NOW + timedelta(seconds=60 - overdue)


def refused(seconds_ago: float, tries: int = 1) -> Eviction:
    return Eviction(incident="inc-1", at=NOW - timedelta(seconds=seconds_ago), refused="no", tries=tries)


def taken(seconds_ago: float) -> Eviction:
    return Eviction(incident="inc-1", at=NOW - timedelta(seconds=seconds_ago))


@pytest.mark.parametrize(
    ("last", "evict", "again_in"),
    [
        pytest.param(None, True, None, id="never asked"),
        pytest.param(refused(4), False, 1, id="refused four seconds ago"),
        pytest.param(refused(5), True, None, id="refused five seconds ago"),
        pytest.param(refused(9, tries=2), False, 1, id="refused twice"),
        pytest.param(refused(59, tries=40), False, 1, id="refused for ever: once a minute"),
        pytest.param(taken(10), False, 50, id="accepted, and not seen to go yet"),
        pytest.param(taken(60), True, None, id="accepted a minute ago, and still there"),
    ],
)
def test_evictions_pause_after_a_refusal(last: Eviction | None, evict: bool, again_in: int | None) -> None:
    """The pause doubles from five seconds to a minute."""
    pod = make.pod()
    evictions = {} if last is None else {pod.metadata.uid: last}
    fleet = make.fleet(make.node(), pods=[pod], evictions=evictions)
    this = next_round(left_on("gpu-1", terms(), fleet, NOW), fleet, NOW)
    assert bool(this.evict) == evict
    assert this.recheck_at == (None if again_in is None else NOW + timedelta(seconds=again_in))
    assert [b.why for b in this.refused] == (["no"] if last is not None and last.refused else [])


def test_pauses_are_bounded() -> None:
    """However often it is refused."""
    assert [pause(tries).total_seconds() for tries in (1, 2, 3, 4, 5, 10_000)] == [5, 10, 20, 40, 60, 60]
    assert pause(None).total_seconds() == 60


def test_a_round_is_bounded_and_what_holds_it_up_is_too() -> None:
    """A node with hundreds of pods takes several rounds, and its record stays small."""
    pods = [make.pod(f"p-{n:03}") for n in range(200)]
    evictions = {pod.metadata.uid: refused(1) for pod in pods[:150]}
    fleet = make.fleet(make.node(), pods=pods, evictions=evictions)
    left = left_on("gpu-1", terms(), fleet, NOW)
    this = next_round(left, fleet, NOW)
    assert [p.metadata.name for p in this.evict] == [f"p-{n:03}" for n in range(150, 150 + EVICTIONS_AT_ONCE)]
    assert len(shown(left, this.refused)) == BLOCKED_LIMIT


def test_accepted_evictions_are_counted_for_their_incident() -> None:
    """Refusals and other incidents' do not count."""
    evictions = {"a": taken(1), "b": refused(1), "c": Eviction(incident="inc-2", at=NOW)}
    assert accepted("inc-1", make.fleet(make.node(), evictions=evictions)) == 1


def test_pods_that_hold_gpus_are_found() -> None:
    """Finished pods and our own Jobs' do not hold any."""
    pods = [
        make.pod("a", gpus=4),
        make.pod("b"),
        make.pod("c", gpus=1, phase="Succeeded"),
        make.pod("d", gpus=8, namespace="nodemend-repairs"),
    ]
    assert gpu_pods("gpu-1", ["nvidia.com/gpu"], make.fleet(make.node(), pods=pods)) == ("jobs/a",)
