"""Controller and scheduler as they are shipped: two pods each of the product's image on a real node, under their own tokens.

A second node without GPUs carries them, as the manifests ask; Kubernetes' own scheduler puts them there. The node with GPUs
is where the scheduler's pods run. Played are the machines below the nodes, the driver and NVIDIA's device plugin; there
is no kube-proxy, and network policies are not enforced.
"""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kube import paths
from kube.api import PatchType
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE, MANIFESTS
from sandbox.kubelet_node import KubeletNode
from sandbox.kubelet_parts import Parts
from tests.cluster import deployed
from tests.cluster.deployed import (
    CONTROLLER,
    SCHEDULER,
    SYSTEM_NAMESPACE,
    Deployed,
    apply_scheduler,
    bound_by,
)

PLAIN = "kubelet-plain"
GRACE_S = 30.0
LEASE_S = 15.0
SHOW = "import os, time; print(os.environ['NVIDIA_VISIBLE_DEVICES'], flush=True); time.sleep(3600)"


class Stage:
    """Both Deployments, and a namespace for pods with GPUs."""

    def __init__(self, programs: dict[str, Deployed], sandbox: Sandbox, gpu_node: KubeletNode) -> None:
        self.programs, self.sandbox, self.gpu_node = programs, sandbox, gpu_node
        self.scheduler = programs[SCHEDULER]
        self.namespace = f"test-{secrets.token_hex(4)}"
        sandbox.create_namespace(self.namespace)

    def run_pod(self, name: str, gpus: int) -> list[str]:
        """Let a pod of the scheduler's run, as anybody would; give the GPUs that its container was told of."""
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
        container = {
            "name": "it",
            "image": IMAGE,
            "command": ["python3", "-c", SHOW],
            "resources": resources,
        }
        spec = {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
        began = time.monotonic()
        self.sandbox.admin.create(paths.pods(self.namespace), {"metadata": {"name": name}, "spec": spec})
        wait = ("wait", "--for=condition=Ready", f"pod/{name}", "-n", self.namespace, "--timeout=60s")
        self.sandbox.kubectl(*wait, timeout_s=90)
        print(f"pod {name} was Ready after {time.monotonic() - began:.1f} s")
        pod = json.loads(self.sandbox.admin.get(paths.pod(self.namespace, name)))
        assert pod["spec"]["nodeName"] == self.gpu_node.name
        log = ("logs", name, "-n", self.namespace)
        self.scheduler.until(lambda: "GPU-" in self.sandbox.kubectl(*log), "the pod to name its GPUs", 20)
        return self.sandbox.kubectl(*log).strip().split(",")


@pytest.fixture(scope="module")
def stage(kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, kubelet_parts: Parts) -> Iterator[Stage]:
    """All four pods, Ready. The controller only observes: what other tests left on the node is none of its business."""
    with (
        _observing(kubelet_sandbox),
        _without_pods_left_on(PLAIN, kubelet_sandbox),
        KubeletNode(kubelet_sandbox, PLAIN, gpus=0, parts=kubelet_parts) as plain,
        deployed.standing(kubelet_sandbox, plain, (CONTROLLER, SCHEDULER)) as programs,
    ):
        stage = Stage({one.name: one for one in programs}, kubelet_sandbox, kubelet_node)
        yield stage
        kubelet_sandbox.kubectl("delete", "namespace", stage.namespace, "--wait=false")


@contextmanager
def _observing(sandbox: Sandbox) -> Iterator[None]:
    mode = json.loads(sandbox.admin.get(paths.policy("default")))["spec"]["mode"]
    _set_mode(sandbox, "Observe")
    try:
        yield
    finally:
        _set_mode(sandbox, mode)


@contextmanager
def _without_pods_left_on(node: str, sandbox: Sandbox) -> Iterator[None]:
    """Do at once what the controller manager does a minute after a node is gone: other tests count the agents' pods."""
    try:
        yield
    finally:
        on_it = ("-n", SYSTEM_NAMESPACE, "--field-selector", f"spec.nodeName={node}")
        sandbox.kubectl("delete", "pod", *on_it, "--force", "--grace-period=0")


def _set_mode(sandbox: Sandbox, mode: str) -> None:
    sandbox.admin.patch(paths.policy("default"), {"spec": {"mode": mode}}, PatchType.MERGE)


@pytest.mark.parametrize("name", [CONTROLLER, SCHEDULER])
def test_two_replicas_become_ready_and_one_of_them_leads(stage: Stage, name: str) -> None:
    """By their own probes, off the node with GPUs, and with no more rights on that node than the manifests say."""
    program = stage.programs[name]
    program.until(lambda: program.leader() in program.pods(), "one of them to hold the Lease", LEASE_S)
    pods = program.pods()

    assert len(pods) == 2
    assert {pod["spec"]["nodeName"] for pod in pods.values()} == {program.node.name}
    program.until(lambda: program.say_they_lead() == [program.leader()], "its metrics to say so", 10)
    for pod in pods:
        assert "ok" in program.get(pod, "/readyz")
        seen = program.process(pod)
        assert (seen["Uid"], seen["Gid"]) == (" ".join(["65532"] * 4),) * 2
        assert (seen["NoNewPrivs"], seen["CapEff"], seen["Seccomp"]) == ("1", "0" * 16, "2")
        assert "ro" in program.root_options(pod)


def test_a_pod_with_gpus_is_bound_by_the_leader_and_runs(stage: Stage) -> None:
    """The Binding came with the leader's own projected token, and the device plugin handed out two GPUs."""
    given = stage.run_pod("first", gpus=2)

    assert len(set(given)) == 2
    assert set(given) <= {gpu.uuid for gpu in stage.gpu_node.gpus}
    (who,) = bound_by(stage.sandbox, stage.namespace, "first")
    assert who == (f"system:serviceaccount:{SYSTEM_NAMESPACE}:{SCHEDULER}", stage.scheduler.leader())


@pytest.mark.parametrize("name", [CONTROLLER, SCHEDULER])
def test_a_leader_that_is_drained_hands_over_at_once(stage: Stage, name: str) -> None:
    """SIGTERM by kubelet: the Lease is released, another leads within seconds, the pod ends well and within its grace.

    Its successor starts as fast as the one beside it asks again, and either may be first.
    """
    program = stage.programs[name]
    leader = program.leader()
    program.delete(leader)
    led_after_s = program.until(lambda: program.leader() not in ("", leader), "another to lead", GRACE_S)
    other = program.leader()
    if program is stage.scheduler:
        stage.run_pod("after-the-drain", gpus=1)
        assert [pod for _, pod in bound_by(stage.sandbox, stage.namespace, "after-the-drain")] == [other]
    gone_after_s = led_after_s + program.until(lambda: program.is_gone(leader), "the pod to be gone", GRACE_S)
    print(f"{name}: another led after {led_after_s:.1f} s, the pod was gone after {gone_after_s:.1f} s")

    assert led_after_s < LEASE_S / 2
    assert gone_after_s < GRACE_S
    assert program.exits[leader] == 0
    assert "leader.released" in program.said(leader)
    program.roll_out()
    assert program.say_they_lead() == [program.leader()] == [other]


def test_a_leader_that_is_killed_is_followed_when_its_lease_has_run_out(stage: Stage) -> None:
    """Kill -9 in its container: kubelet starts it again, and it does not take itself for the leader that it was."""
    scheduler = stage.scheduler
    (other,) = scheduler.pods().keys() - {leader := scheduler.leader()}
    scheduler.kill(leader)
    scheduler.until(lambda: scheduler.container(leader)["restartCount"] == 1, "kubelet to restart it", 30)
    led_after_s = scheduler.until(lambda: scheduler.leader() == other, "the other one to lead", 2 * LEASE_S)
    print(f"the other led {led_after_s:.1f} s after the restart")
    stage.run_pod("after-the-kill", gpus=1)

    assert [pod for _, pod in bound_by(stage.sandbox, stage.namespace, "after-the-kill")] == [other]
    assert scheduler.exits[leader] == 137
    scheduler.roll_out()
    assert scheduler.say_they_lead() == [scheduler.leader()] == [other]


def test_a_configuration_with_mistakes_is_said_and_rolls_out_nowhere(stage: Stage) -> None:
    """The new pod ends again and again, its log and its status name file, key and value; the two old ones go on."""
    scheduler = stage.scheduler
    before, leader = scheduler.pods().keys(), scheduler.leader()
    text = (MANIFESTS / "scheduler/config/scheduler.toml").read_text()
    wrong = text.replace("enable_fractions =", "enable_fraction =").replace('mode = "d', 'mode = "D')
    apply_scheduler(stage.sandbox, wrong)
    try:
        scheduler.until(lambda: len(scheduler.pods()) == 3, "the roll-out to begin", 30)
        (new,) = scheduler.pods().keys() - before
        scheduler.until(lambda: scheduler.waits_for(new) == "CrashLoopBackOff", "it to end again and again")
        ended = scheduler.container(new)["lastState"]["terminated"]
        lines = scheduler.kubectl("logs", new, "--previous").strip().splitlines()
    finally:
        apply_scheduler(stage.sandbox)
    scheduler.until(lambda: scheduler.is_gone(new), "it to be gone", GRACE_S)

    file = "nodemend-scheduler: /etc/nodemend/scheduler.toml"
    assert lines[0].startswith(f"{file}: enable_fraction: unknown key; known here are agents, ")
    assert lines[1:] == [f"{file}: mode: 'Default' is not one of default, compatible"]
    assert (ended["exitCode"], ended.get("message", "").strip().splitlines()) == (2, lines)
    scheduler.roll_out()
    assert scheduler.pods().keys() == before
    assert scheduler.leader() == leader


@pytest.mark.parametrize("name", [CONTROLLER, SCHEDULER])
def test_nothing_went_wrong_unseen(stage: Stage, name: str) -> None:
    """No traceback, in no pod; no probe ended a container, and only the one that was killed began again."""
    program = stage.programs[name]
    program.roll_out()
    restarts = sum(program.container(pod)["restartCount"] for pod in program.pods())

    assert "Traceback" not in program.logs()
    assert '"exception"' not in program.logs()
    assert restarts == program.kills
    events = program.kubectl(
        "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}"
    )
    assert [line for line in events.splitlines() if line.startswith("Killing") and "probe" in line] == []
