"""A real node: the product's own pods on a real kubelet, what survives restarts and reboots, and that nothing is left."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.repairs import JobSettings, Order, reboot
from kube import paths
from sandbox import cgroups, state
from sandbox.cluster import KubectlError, Sandbox
from sandbox.install import IMAGE
from sandbox.kubelet_node import SIMULATED_REBOOT, KubeletNode
from sandbox.kubelet_parts import Parts
from sandbox.machine import DRIVER
from sandbox.processes import carrying
from tests.fakes import wait_until

SYSTEM = "nodemend-system"
CONTROLLER = f"system:serviceaccount:{SYSTEM}:nodemend-controller"

# What a container of the node sees of the machine below it.
LOOK = """
import os, time
print(open("/proc/sys/kernel/random/boot_id").read().strip())
print(open("/proc/driver/nvidia/version").read().split()[7])
print(len(os.listdir("/sys/bus/pci/devices")))
print(os.environ["KUBERNETES_SERVICE_HOST"])
print(os.environ.get("NVIDIA_VISIBLE_DEVICES", "none"), flush=True)
time.sleep(3600)
"""

# Starts a sandbox with a node that runs a pod, says where everything is, and waits to be killed.
OWNER = """
import json, sys, time
from pathlib import Path
import msgspec
from sandbox.cluster import Sandbox
from sandbox.kubelet_node import SIMULATED_REBOOT, KubeletNode
from sandbox.kubelet_parts import Parts
SLEEP = "import time; time.sleep(3600)"
programs = {name: Path(path) for name, path in json.loads(sys.argv[1]).items()}
parts = msgspec.json.decode(sys.argv[2], type=Parts, dec_hook=lambda kind, value: kind(value))
with Sandbox(programs=programs, with_kwok=False, progress=lambda line: None) as it:
    with KubeletNode(it, "doomed", gpus=0, parts=parts) as node:
        it.kubectl("run", "it", "--image=nodemend:sandbox", "--command", "--", "python3", "-c", SLEEP)
        it.kubectl("wait", "--for=condition=Ready", "pod/it", "--timeout=60s", timeout_s=90)
        print(json.dumps({"id": it.id, "state": str(it.state_dir), "interface": node.interface}), flush=True)
        time.sleep(600)
"""


def _ignore(_line: str) -> None:
    pass


def _pod(sandbox: Sandbox, name: str, *, gpus: int = 0) -> None:
    container: dict[str, Any] = {
        "name": "it",
        "image": "nodemend:sandbox",
        "command": ["python3", "-c", LOOK],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    sandbox.admin.create(paths.pods("default"), pod)


@pytest.fixture(scope="module")
def look(kubelet_sandbox: Sandbox, kubelet_node: KubeletNode) -> Iterator[str]:
    """A pod on the node, running; its name."""
    assert kubelet_node.gpus
    _pod(kubelet_sandbox, "look")
    kubelet_sandbox.kubectl("wait", "--for=condition=Ready", "pod/look", "--timeout=60s", timeout_s=90)
    yield "look"
    kubelet_sandbox.kubectl("delete", "pod", "look", "--wait=false")


def _log(sandbox: Sandbox, pod: str) -> str:
    """Give what kubelet has of a pod's log; nothing where it does not know the pod, as for a moment after its start."""
    try:
        return sandbox.kubectl("logs", pod)
    except KubectlError:
        return ""


def _agent(sandbox: Sandbox) -> dict[str, Any]:
    """Wait until the node's agent is Ready; give its pod."""
    selector = ("-n", SYSTEM, "-l", "app.kubernetes.io/name=nodemend-agent")
    sandbox.kubectl("wait", "pod", *selector, "--for=condition=Ready", "--timeout=90s", timeout_s=120)
    pods: list[dict[str, Any]] = json.loads(sandbox.kubectl("get", "pod", *selector, "-o", "json"))["items"]
    return pods[0]


def _container(sandbox: Sandbox, namespace: str, name: str) -> tuple[str, int, bool]:
    """Give a pod's container id, how often it was started again, and whether it is Ready."""
    pod = json.loads(sandbox.admin.get(paths.pod(namespace, name)))
    status = pod["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"], status["ready"]


def _condition(node: KubeletNode, kind: str = "GpuXidError") -> str:
    found = node.read().condition(kind)
    return f"{found.status} {found.reason}" if found else "absent"


def test_a_container_sees_the_simulated_machine(
    kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, look: str
) -> None:
    """Boot id, driver and PCI bus are the node's in every container, and the Node says the same; logs come by kubelet."""
    wait_until(lambda: _log(kubelet_sandbox, look).count("\n") == 5, timeout_s=20)
    boot_id, driver, devices, service, gpus = _log(kubelet_sandbox, look).split()

    assert boot_id == kubelet_node.boot_id == kubelet_node.read().status.node_info.boot_id
    assert boot_id != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (driver, devices, service, gpus) == (DRIVER, "8", "10.0.0.1", "none")


def test_a_pod_is_given_the_gpus_that_it_asks_for(
    kubelet_sandbox: Sandbox, kubelet_node: KubeletNode
) -> None:
    """Two of the fake driver's UUIDs, chosen by the device plugin and counted by scheduler and kubelet."""
    _pod(kubelet_sandbox, "worker", gpus=2)
    kubelet_sandbox.kubectl("wait", "--for=condition=Ready", "pod/worker", "--timeout=60s", timeout_s=90)
    wait_until(lambda: "GPU-" in _log(kubelet_sandbox, "worker"), timeout_s=20)
    given = _log(kubelet_sandbox, "worker").split()[-1].split(",")
    kubelet_sandbox.kubectl("delete", "pod", "worker", "--wait=false")

    assert len(set(given)) == 2
    assert set(given) <= {gpu.uuid for gpu in kubelet_node.gpus}


def test_the_plugin_takes_a_gpu_away_and_gives_it_back_only_with_a_new_kubelet(
    kubelet_node: KubeletNode,
) -> None:
    """An application's XID changes nothing, another one takes the GPU for as long as the plugin lives."""
    assert kubelet_node.driver is not None
    kubelet_node.driver.event(5, data=31)
    kubelet_node.driver.event(6, data=48)
    kubelet_node.wait_allocatable("nvidia.com/gpu", 7)

    kubelet_node.restart_kubelet()
    kubelet_node.wait_allocatable("nvidia.com/gpu", 8)


def test_the_node_sees_no_process_of_this_machine(kubelet_node: KubeletNode) -> None:
    """Its process 1 is its own, so a privileged pod that enters that one by hostPID stays within the node."""
    seen = kubelet_node.run("ps", "-e", "-ww", "-o", "pid,args").splitlines()[1:]

    assert "node_init.py" in seen[0]
    assert not any("kube-apiserver" in line for line in seen)
    assert any("kubelet" in line for line in seen)


def test_the_agent_s_daemonset_runs_as_it_is(kubelet_sandbox: Sandbox, kubelet_node: KubeletNode) -> None:
    """The product's image under the DaemonSet's own token: a kernel record becomes the Node's condition."""
    _agent(kubelet_sandbox)
    kubelet_node.write_xid(79, "GPU has fallen off the bus.", gpu=3)

    wait_until(lambda: _condition(kubelet_node) == "True Xid79FallenOffBus", timeout_s=20)
    users = {
        event["user"]["username"]
        for event in kubelet_sandbox.audit_events()
        if event["objectRef"].get("subresource") == "status"
        and event["objectRef"].get("resource") == "nodehealths"
    }
    assert users == {f"system:serviceaccount:{SYSTEM}:nodemend-agent"}


@pytest.mark.parametrize(
    "restart",
    [
        pytest.param(lambda node: node.restart_kubelet(), id="kubelet is restarted"),
        pytest.param(lambda node: node.restart_kubelet(kill=True), id="kubelet is killed"),
        pytest.param(lambda node: node.restart_containerd(), id="containerd is restarted"),
        pytest.param(lambda node: node.restart_containerd(kill=True), id="containerd is killed"),
    ],
)
def test_pods_outlive_a_restart(
    restart: Callable[[KubeletNode], None], kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, look: str
) -> None:
    """The same containers run on, and kubelet takes them up again: it answers for their logs."""
    pods = (("default", look), (SYSTEM, _agent(kubelet_sandbox)["metadata"]["name"]))
    before = [_container(kubelet_sandbox, *pod) for pod in pods]

    restart(kubelet_node)

    kubelet_node.wait_ready()
    wait_until(lambda: "10.0.0.1" in _log(kubelet_sandbox, look), timeout_s=30)
    # kubelet may say "not ready" for a moment, until it has probed anew; a container that ended would have another id.
    wait_until(lambda: [_container(kubelet_sandbox, *pod) for pod in pods] == before, timeout_s=30)


def test_a_reboot_ends_the_boot_and_everything_in_it(
    kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, look: str
) -> None:
    """The Node shows a new boot id, pods start again under their names, and what the kernel log said is over."""
    agent = _agent(kubelet_sandbox)["metadata"]["name"]
    kubelet_node.write_xid(79, "GPU has fallen off the bus.", gpu=1)
    wait_until(lambda: _condition(kubelet_node).startswith("True"), timeout_s=20)
    ended = kubelet_node.boot_id

    kubelet_node.reboot()

    assert kubelet_node.read().status.node_info.boot_id not in ("", ended)
    wait_until(lambda: _condition(kubelet_node).startswith("False"), timeout_s=60)
    wait_until(lambda: _container(kubelet_sandbox, "default", look)[1:] == (1, True), timeout_s=60)
    assert _agent(kubelet_sandbox)["metadata"]["name"] == agent
    wait_until(lambda: kubelet_node.boot_id in _log(kubelet_sandbox, look), timeout_s=20)


def test_a_pod_of_repairs_reboots_the_machine_it_runs_on(
    kubelet_sandbox: Sandbox, kubelet_node: KubeletNode
) -> None:
    """What the sandbox's reboot Job runs needs neither hostPID nor a mount, and ends the boot that it was told to end."""
    ended = kubelet_node.boot_id
    order = Order(
        job="reboot",
        node=kubelet_node.name,
        node_uid="",
        incident="test",
        attempt=1,
        boot_id=ended,
        command=SIMULATED_REBOOT,
        deadline_s=120,
    )
    settings = JobSettings(
        namespace="nodemend-repairs", service_account="nodemend-repair", image=IMAGE, host_pid=False
    )
    job = json.dumps(reboot.job(order, settings))
    kubelet_sandbox.kubectl("create", "-f", "-", f"--as={CONTROLLER}", stdin=job)

    wait_until(lambda: kubelet_node.boot_id != ended, timeout_s=30)
    kubelet_node.wait_ready()


def test_the_next_start_removes_what_a_killed_owner_left(
    kubelet_node: KubeletNode, kubelet_parts: Parts, kubernetes_programs: dict[str, Path], tmp_path: Path
) -> None:
    """With the owner die containerd, shims, pods, mounts and the cable; folder and cgroup go at the next start.

    Meanwhile another sandbox's node on the same machine is not touched.
    """
    programs = json.dumps({name: str(path) for name, path in kubernetes_programs.items()})
    parts = json.dumps(
        {
            "kubelet": str(kubelet_parts.kubelet),
            "product": str(kubelet_parts.product),
            "device_plugin": str(kubelet_parts.device_plugin),
            "pause": str(kubelet_parts.pause),
        }
    )
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, programs, parts],
            stdout=subprocess.PIPE,
            stderr=file,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        )
        assert owner.stdout is not None
        line = owner.stdout.readline()
        owner.kill()
        owner.wait(10)
        owner.stdout.close()
    assert line, errors.read_text()
    story = json.loads(line)
    cgroup = Path(
        "/sys/fs/cgroup/memory" if Path("/sys/fs/cgroup/memory").is_dir() else "/sys/fs/cgroup"
    ) / cgroups.name(story["id"]).lstrip("/")

    wait_until(lambda: not carrying(state.MARK, story["id"]), timeout_s=20)
    wait_until(lambda: not Path("/sys/class/net", story["interface"]).exists(), timeout_s=20)
    assert cgroup.is_dir()
    assert state.remove_dead(_ignore, folder=state.registry({"XDG_STATE_HOME": str(tmp_path)})) == [
        story["id"]
    ]
    assert not Path(story["state"]).exists()
    assert not cgroup.exists()
    assert story["state"] not in Path("/proc/self/mountinfo").read_text()
    kubelet_node.wait_ready()
