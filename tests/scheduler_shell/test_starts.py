"""What a pod says about starts on its node, by kubelet's own reasons."""

import pytest

from controller.scheduler.shell.starts import Blame, start_of
from kube.types import Pod
from tests.scheduler_shell.start_words import NOW, minutes, pod, running, turned_away, waiting


@pytest.mark.parametrize(
    ("seen", "reason", "blame"),
    [
        (turned_away("p"), "UnexpectedAdmissionError", Blame.NODE),
        (turned_away("p", reason="OutOfnvidia.com/gpu"), "OutOfnvidia.com/gpu", Blame.NODE),
        (turned_away("p", reason="OutOfcpu"), "OutOfcpu", Blame.NODE),
        (turned_away("p", reason="TopologyAffinityError"), "TopologyAffinityError", Blame.EITHER),
        (turned_away("p", reason="NodeAffinity"), "NodeAffinity", Blame.EITHER),
        (waiting("p", reason="CreateContainerError"), "CreateContainerError", Blame.EITHER),
        (waiting("p"), "RunContainerError", Blame.EITHER),
        (waiting("p", reason="CreateContainerConfigError"), "CreateContainerConfigError", Blame.WORKLOAD),
    ],
)
def test_a_failed_start_is_known_by_its_reason(seen: Pod, reason: str, blame: Blame) -> None:
    """Kubelet's own shortage speaks against the node; what the pod may have caused does not do so alone."""
    start = start_of(seen, NOW)
    assert start is not None
    assert start.failure is not None
    assert (start.failure.reason, start.failure.blame) == (reason, blame)


@pytest.mark.parametrize(
    "seen",
    [
        pod("p"),
        waiting("p", reason="ImagePullBackOff"),
        waiting("p", reason="ContainerCreating"),
        turned_away("p", reason="Evicted"),
        turned_away("p", reason="NodeShutdown"),
        pod("p", status={"phase": "Failed"}),
        pod("p", status={"phase": "Running"}),
    ],
)
def test_what_is_no_word_about_starts_is_left_out(seen: Pod) -> None:
    """It is still starting, or was ended for other reasons."""
    assert start_of(seen, NOW) is None


def test_a_runtime_that_could_not_run_a_container_is_known_while_kubelet_pauses() -> None:
    """The state says CrashLoopBackOff then; how the last run ended is the better word."""
    state = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": "StartError", "exitCode": 128}},
    }
    start = start_of(pod("p", status={"phase": "Running", "containerStatuses": [state]}), NOW)
    assert start is not None
    assert start.failure is not None
    assert start.failure.reason == "StartError"


def test_a_program_that_ran_and_failed_did_start() -> None:
    """Its own end is its own affair."""
    state = {
        "name": "main",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "startedAt": NOW.isoformat()}},
    }
    start = start_of(pod("p", status={"phase": "Running", "containerStatuses": [state]}), NOW)
    assert start is not None
    assert start.failure is None


def test_pods_of_one_workload_share_their_owner_and_not_their_template() -> None:
    """A newer version is another template, so that the old one that runs proves nothing for it."""
    old = start_of(running("web-5d4f8b7c96-abcde", owner="web-5d4f8b7c96", kind="ReplicaSet"), NOW)
    new = start_of(turned_away("web-6c7d9f8b54-fghij", owner="web-6c7d9f8b54", kind="ReplicaSet"), NOW)
    assert old is not None
    assert new is not None
    assert old.owner == new.owner == "team/web"
    assert old.template != new.template


def test_a_node_with_a_fast_clock_cannot_speak_of_the_future() -> None:
    """Its time counts as now."""
    start = start_of(running("p", at=minutes(30)), NOW)
    assert start is not None
    assert start.at == NOW
