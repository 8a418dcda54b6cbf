"""The pod player on the real API server: real processes, real pods, a real reboot's story."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from kube import paths
from kube.api import NotFound
from kube.session import connect
from kube.types import Job, Lease, Pod
from sandbox import nodes as simulated
from sandbox import power
from sandbox.actors import CONTROLLER, SYSTEM_NAMESPACE
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE, install
from sandbox.machine import Machine
from sandbox.nodes import Reboots, SimulatedNode
from sandbox.pod_player import (
    NAMESPACE,
    REBOOT_COMMAND,
    VALIDATE_COMMAND,
    PodPlayer,
)

PYTHON = (sys.executable, "-c")
T = TypeVar("T")


class Stage:
    """A node, the player on it, and Jobs of the repairs' namespace."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode) -> None:
        self.sandbox = sandbox
        self.node = node
        self.jobs: list[str] = []
        self.controller = connect(
            server=sandbox.server,
            token_file=sandbox.token_file(SYSTEM_NAMESPACE, CONTROLLER),
            ca_file=sandbox.ca_file,
            user_agent="pod-player-test",
        )

    def run(self, name: str, *command: str, **pod: Any) -> None:
        spec = {
            "restartPolicy": "Never",
            "serviceAccountName": "nodemend-repair",
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": self.node.name},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": IMAGE, "command": list(command)}],
            **pod,
        }
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"backoffLimit": 0, "template": {"spec": spec}},
        }
        self.controller.create(paths.jobs(NAMESPACE), body)  # nobody else may
        self.jobs.append(name)

    def pod(self, job: str) -> Pod | None:
        query = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        raw = self.sandbox.admin.get(paths.pods(NAMESPACE), query)
        items = msgspec.json.decode(raw)["items"]
        return msgspec.convert(items[0], Pod) if items else None

    def ended(self, job: str) -> Pod:
        def look() -> Pod | None:
            pod = self.pod(job)
            return pod if pod is not None and pod.status.phase in ("Succeeded", "Failed") else None

        return eventually(look, f"the pod of Job {job} to end")

    def job(self, name: str) -> Job:
        return msgspec.json.decode(self.sandbox.admin.get(paths.job(NAMESPACE, name)), type=Job)


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s for {what}")


@pytest.fixture(scope="module")
def stage(sandbox: Sandbox) -> Iterator[Stage]:
    install(sandbox)
    (node,) = simulated.create(sandbox, ["player-node"])
    player = PodPlayer(sandbox, [node], also_allowed=[PYTHON])
    player.start()
    made = Stage(sandbox, node)
    yield made
    made.controller.close()
    player.stop()
    sandbox.kubectl("delete", "jobs", "--all", "-n", NAMESPACE)
    node.delete(sandbox.admin)
    node.close()


def terminated(pod: Pod) -> tuple[int, str]:
    """The exit code and the termination message of a pod's only container."""
    (status,) = pod.status.container_statuses
    assert status.state.terminated is not None
    return status.state.terminated.exit_code, status.state.terminated.message


MESSAGE = "import os, pathlib, sys; pathlib.Path(sys.argv[1]).write_text(os.environ['NODE_NAME'])"


def test_a_jobs_command_is_really_run(stage: Stage) -> None:
    """Its exit status, its termination message and the Job's success are real."""
    stage.run("really", *PYTHON, MESSAGE, "/dev/termination-log")
    pod = stage.ended("really")
    eventually(lambda: stage.job("really").status.succeeded or None, "the Job to succeed")

    assert (pod.status.phase, terminated(pod)) == ("Succeeded", (0, "player-node"))


def test_a_command_that_fails_fails_its_job(stage: Stage) -> None:
    """A status other than 0 is a failed pod, and with backoffLimit 0 a failed Job."""
    stage.run("fails", *PYTHON, "raise SystemExit(3)")
    pod = stage.ended("fails")
    eventually(lambda: stage.job("fails").status.failed or None, "the Job to fail")

    assert (pod.status.phase, terminated(pod)) == ("Failed", (3, ""))


def test_a_command_that_is_refused_says_so_in_its_pod(stage: Stage) -> None:
    """126, as a shell says of what it may not execute."""
    stage.run("refused", "systemctl", "reboot")

    assert terminated(stage.ended("refused")) == (
        126,
        "the sandbox does not run 'systemctl reboot' on the machine below it",
    )


SLEEPS = (
    "import os, pathlib, signal, sys, time\n"
    "out = pathlib.Path(os.environ['NODEMEND_SANDBOX_POD_DIR'])\n"
    "signal.signal(signal.SIGTERM, lambda *_: ((out / 'terminated').touch(), sys.exit(0)))\n"
    "(out / 'started').touch()\n"
    "time.sleep(300)\n"
)


def test_a_deleted_pod_is_asked_to_end_and_then_goes(stage: Stage) -> None:
    """SIGTERM first; the object goes when its process has ended, as with a kubelet."""
    stage.run("deleted", *PYTHON, SLEEPS)
    pods = stage.node.root / "pods"
    (started,) = eventually(lambda: list(pods.glob("*/started")) or None, "the process to start")
    pod = stage.pod("deleted")
    assert pod is not None
    stage.sandbox.kubectl("delete", "job", "deleted", "-n", NAMESPACE, "--wait=false")
    eventually(lambda: stage.pod("deleted") is None or None, "the pod to go")

    assert started.parent.name == pod.metadata.uid
    assert (started.parent / "terminated").exists()


class FakeAgent:
    """Notes what its machine does to it, and in which boot."""

    def __init__(self, machine: Machine) -> None:
        self.seen: list[tuple[str, str]] = []
        self._machine = machine

    def power_off(self) -> None:
        self.seen.append(("off", self._machine.boot_id))

    def power_on(self) -> None:
        self.seen.append(("on", self._machine.boot_id))


def restarts(stage: Stage) -> list[tuple[int, bool]]:
    """Restarts and readiness of the containers on the node, but for those of repairs."""
    raw = stage.sandbox.kubectl(
        "get", "pods", "-n", "nodemend-system", "-o", "json",
        f"--field-selector=spec.nodeName={stage.node.name}",
    )  # fmt: skip
    return [
        (status["restartCount"], status["ready"])
        for pod in json.loads(raw)["items"]
        for status in pod["status"]["containerStatuses"]
    ]


def test_a_reboot_shows_on_the_node_as_a_real_one_does(stage: Stage) -> None:
    """New boot id, an event, Ready False and True again; the agent dies in the old boot and comes back in the new."""
    node, admin = stage.node, stage.sandbox.admin
    agent = FakeAgent(node.machine)
    node.agent = agent
    node.reboots = Reboots(down_s=0.1, not_ready_s=1.0)
    node.write_kernel_line("of the old boot")
    before = node.boot_id
    eventually(lambda: restarts(stage) == [(0, True)] or None, "the DaemonSet's pod to run")
    stage.run("reboot", *REBOOT_COMMAND, "--boot-id", before)

    def ready(status: str) -> bool | None:
        seen = node.read(admin)
        condition = seen.condition("Ready")
        new = seen.status.node_info.boot_id != before
        return True if new and condition is not None and condition.status == status else None

    eventually(lambda: ready("False"), "Ready to be False in a new boot")
    eventually(lambda: ready("True"), "Ready to be True again")
    eventually(lambda: len(agent.seen) == 2 or None, "the agent to come back")
    events = json.loads(
        stage.sandbox.kubectl("get", "events", "-o", "json", "--field-selector=reason=Rebooted")
    )["items"]
    node.agent = None

    assert node.read(admin).status.node_info.boot_id == node.boot_id != before
    assert agent.seen == [("off", before), ("on", node.boot_id)]
    assert [e["involvedObject"]["name"] for e in events if node.boot_id in e["message"]] == [node.name]
    assert terminated(stage.ended("reboot"))[0] == 0
    assert restarts(stage) == [(1, True)]
    simulated.wait_ready(admin, node, 30)


def test_a_second_order_for_the_same_boot_does_nothing(stage: Stage) -> None:
    """The Job was told which boot it must end; that one has ended."""
    before, count = stage.node.boot_id, stage.node.rebooted
    stage.run("late", *REBOOT_COMMAND, "--boot-id", "00000000-0000-0000-0000-000000000000")

    assert terminated(stage.ended("late"))[0] == 1
    assert (stage.node.boot_id, stage.node.rebooted) == (before, count)


def test_a_machine_that_does_not_obey_keeps_its_boot(stage: Stage) -> None:
    """The Job succeeds and proves nothing: only a new boot id does."""
    stage.node.reboots = Reboots(obeys=False)
    before = stage.node.boot_id
    stage.run("ignored", *REBOOT_COMMAND, "--boot-id", before)

    assert terminated(stage.ended("ignored"))[0] == 0
    assert stage.node.boot_id == before


def test_a_node_deleted_while_its_machine_is_down_registers_again(stage: Stage) -> None:
    """The same machine under the same name is a new Node object, as after `kubectl delete node`."""
    node, admin = stage.node, stage.sandbox.admin
    node.reboots = Reboots(down_s=1.5, not_ready_s=0.1)
    uid, before = node.read(admin).metadata.uid, node.boot_id
    simulated.await_calm(admin, node)
    stage.run("deleted-meanwhile", *REBOOT_COMMAND, "--boot-id", before)
    eventually(lambda: node.boot_id != before or None, "the machine to go down")
    node.delete(admin)

    def again() -> bool | None:
        try:
            return node.read(admin).metadata.uid != uid or None
        except NotFound:
            return None

    eventually(again, "the Node to be there again")
    simulated.wait_ready(admin, node, 30)
    seen = node.read(admin)

    assert seen.status.node_info.boot_id == node.boot_id
    assert seen.spec.provider_id == node.body()["spec"]["providerID"]


def kubelet_lease(stage: Stage) -> str:
    raw = stage.sandbox.admin.get(paths.lease("kube-node-lease", stage.node.name))
    return msgspec.json.decode(raw, type=Lease).spec.holder_identity


def test_a_machine_that_stays_down_is_silent_until_it_comes_back(stage: Stage) -> None:
    """Nobody renews its kubelet's Lease, so that Kubernetes itself will find it dead; then it boots after all."""
    node, admin = stage.node, stage.sandbox.admin
    node.reboots = Reboots(down_s=0.1, not_ready_s=0.1, comes_back=False)
    alive = eventually(lambda: kubelet_lease(stage), "KWOK to hold the kubelet's Lease")
    stage.run("never-back", *REBOOT_COMMAND, "--boot-id", node.boot_id)
    eventually(lambda: not node.up.is_set() or None, "the machine to go down")
    dead = eventually(lambda: h if (h := kubelet_lease(stage)) != alive else None, "the Lease to be taken")
    node.reboots = Reboots(down_s=0.1, not_ready_s=0.1)
    power.come_back(node, admin)

    def held_again() -> str | None:
        try:
            return holder if (holder := kubelet_lease(stage)) == alive else None
        except NotFound:
            return None

    assert dead == "a-machine-that-is-down"
    assert eventually(held_again, "KWOK to hold the Lease again") == alive
    simulated.wait_ready(admin, node, 30)


def verdict(pod: Pod) -> tuple[int, str]:
    code, message = terminated(pod)
    return code, json.loads(message)["result"]


def test_the_products_own_validation_judges_the_machine(stage: Stage) -> None:
    """It passes on a healthy machine, and fails for a GPU that is gone and for a fault in this boot's kernel log."""
    node = stage.node
    count = ["--gpus", "8", "--termination-message-path", "/dev/termination-log"]
    stage.run("healthy", *VALIDATE_COMMAND, *count)
    healthy = verdict(stage.ended("healthy"))
    node.machine.pull(5)
    stage.run("pulled", *VALIDATE_COMMAND, *count)
    pulled = verdict(stage.ended("pulled"))
    node.machine.put_back(5)
    node.write_xid(79, "GPU has fallen off the bus.", gpu=5)
    stage.run("faulty", *VALIDATE_COMMAND, *count)
    faulty = verdict(stage.ended("faulty"))
    node.machine.boot()

    assert (healthy, pulled, faulty) == ((0, "Passed"), (1, "Failed"), (1, "Failed"))
