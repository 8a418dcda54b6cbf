"""Looking whether KAI Scheduler is there: what holds a scheduler that is to serve its name, and when it goes on."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from controller.scheduler.shell import kai_watch
from controller.scheduler.shell.kai_watch import KaiWatch
from kube import paths
from kube.api import ApiError, Forbidden, Unavailable
from kube.store import Store
from kube.types import Pod
from tests.fakes import FakeApi, FakeClock, request_to, wait_until
from tests.scheduler_shell.kai_words import (
    BINDER_FLAGS,
    MUTATING,
    REGISTRY,
    deployment_body,
    entry,
    pod,
    webhook_body,
)

DEPLOYMENTS = paths.collection("apps", "v1", "deployments", "kai-scheduler")
HOOKS = paths.collection("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
BINDER = deployment_body("binder", f"{REGISTRY}/binder:v0.17.0", args=BINDER_FLAGS)
HOOK = webhook_body(
    MUTATING, "mutating-kai-admission", entry("admission.kai-scheduler.svc", "/mutate--v1-pod")
)


class Scene:
    """A watch over a fake server."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.pods: Store[Pod] = Store()
        self.woken = 0
        self.watch = KaiWatch(self.api, self.pods, self.clock.clock, self._wake)

    def know(self, *pods: Pod) -> None:
        self.pods.replace(list(pods), "1", self.clock.monotonic())

    def look(self, after_s: float = 0.0) -> str | None:
        self.clock.advance(after_s)
        self.watch.look()
        return self.watch.why_not()

    def lists(self) -> int:
        return sum(request.method == "LIST" for request in self.api.requests)

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.know()
    return made


def test_nothing_is_served_before_it_was_looked(scene: Scene) -> None:
    """Not knowing is no permission."""
    assert "not looked yet" in (scene.watch.why_not() or "")
    assert scene.look() is None
    assert scene.woken == 1


def test_pods_that_were_not_read_yet_hold_too() -> None:
    """A binder may be among them."""
    assert "the pods were not read yet" in (Scene().look() or "")


def _add_binder(scene: Scene) -> None:
    scene.api.add(DEPLOYMENTS, BINDER)


def _add_hook(scene: Scene) -> None:
    scene.api.add(HOOKS, HOOK)


def _add_pod(scene: Scene) -> None:
    scene.know(pod("binder-1", "binder", args=BINDER_FLAGS))


WAYS: list[tuple[Callable[[Scene], None], str, float]] = [
    (_add_binder, "Deployment kai-scheduler/binder (binder, replicas 1)", kai_watch.CLEAR_S),
    (_add_hook, "MutatingWebhookConfiguration mutating-kai-admission", kai_watch.CLEAR_S),
    (_add_pod, "pod kai-scheduler/binder-1 (binder)", kai_watch.LOOK_S),
]


@pytest.mark.parametrize(("come", "words", "within_s"), WAYS, ids=["a Deployment", "a webhook", "a pod"])
def test_what_comes_back_stops_it_and_is_named(
    scene: Scene, come: Callable[[Scene], None], words: str, within_s: float
) -> None:
    """A list a minute, and pods as they come."""
    assert scene.look() is None
    come(scene)
    why = scene.look(within_s) or ""
    assert words in why
    assert "docs/migration-kai.md" in why


def test_it_goes_on_soon_after_the_way_is_free(scene: Scene) -> None:
    """A person who migrates does not wait a minute for each try."""
    scene.api.add(DEPLOYMENTS, BINDER)
    assert scene.look()
    scene.api.remove(f"{DEPLOYMENTS}/binder")
    assert scene.look(kai_watch.HELD_S) is None


FAILURES: list[tuple[ApiError, str]] = [
    (Forbidden("deployments is forbidden", code=403), "forbidden"),
    (Unavailable("no answer"), "no answer"),
]


@pytest.mark.parametrize(("error", "words"), FAILURES, ids=["without the right to look", "without an answer"])
@pytest.mark.parametrize("path", ["deployments", "validatingwebhookconfigurations"])
def test_a_look_that_fails_says_nothing_and_holds(
    scene: Scene, error: ApiError, words: str, path: str
) -> None:
    """Until one succeeds."""
    assert scene.look() is None
    scene.api.fail_next(request_to("LIST", path), error)
    why = scene.look(kai_watch.CLEAR_S) or ""
    assert "cannot say whether KAI Scheduler is there" in why
    assert words in why
    assert scene.look(kai_watch.HELD_S) is None


def test_an_answer_that_cannot_be_read_holds(scene: Scene) -> None:
    """It may be just the one that matters."""
    scene.api.add(DEPLOYMENTS, {**BINDER, "spec": {"replicas": "many"}})
    assert "cannot be read" in (scene.look() or "")


def test_lists_are_paged_and_each_is_asked_for_once_a_minute(scene: Scene) -> None:
    """However often pods are looked at."""
    for number in range(501):
        scene.api.add(
            paths.collection("apps", "v1", "deployments", "x"), {"metadata": {"name": f"d{number:03}"}}
        )
    scene.api.add(DEPLOYMENTS, BINDER)
    assert "kai-scheduler/binder" in (scene.look() or "")
    first = scene.lists()
    scene.look(1.0)
    assert (first, scene.lists()) == (4, 4)


def test_whoever_begins_to_lead_looks_first(scene: Scene) -> None:
    """What a follower saw a minute ago is not enough to begin with."""
    assert scene.look() is None
    scene.watch.look_again()
    assert "being looked" in (scene.watch.why_not() or "")
    assert scene.look(), "what is told by a look that began before counts for nothing"
    stop = threading.Event()
    thread = threading.Thread(target=scene.watch.run, args=(stop,), daemon=True)
    before = scene.lists()
    thread.start()
    wait_until(lambda: scene.watch.why_not() is None)
    assert scene.lists() > before
    stop.set()
    scene.watch.end()
    thread.join(5)
    assert not thread.is_alive()


def test_a_look_grows_old(scene: Scene) -> None:
    """A thread that hangs in a read must not leave us sure."""
    assert scene.look() is None
    scene.clock.advance(kai_watch.OLDEST_S + 1)
    assert "was not looked for 181 s" in (scene.watch.why_not() or "")


def test_many_are_not_all_named(scene: Scene) -> None:
    """The message stays one that fits a probe's answer."""
    pods: list[Any] = [pod(f"kai-{number}", f"kai-scheduler-{number}") for number in range(7)]
    scene.know(*pods)
    assert "and 2 more" in (scene.look() or "")
