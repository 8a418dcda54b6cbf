"""Our Deployments as pods on a real node: installed as a user does it, and what is seen of them from outside."""

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from bench.node_watch import Outside
from kube import paths
from kube.api import ApiError
from kube.types import Pod
from sandbox.cluster import Sandbox
from sandbox.install import MANIFESTS, install_scheduler
from sandbox.kubelet_node import KubeletNode
from sandbox.processes import Process

Raw = dict[str, Any]
SYSTEM_NAMESPACE = "nodemend-system"
CONTROLLER, SCHEDULER = "nodemend-controller", "nodemend-scheduler"
PORTS = {CONTROLLER: 9477, SCHEDULER: 9478}
WITHIN_S = 90.0
_POD_CLAIM = "authentication.kubernetes.io/pod-name"


class Deployed:
    """The pods of one Deployment. `exits`: how the last run of each pod's container ended, by name; `kills` were ours."""

    def __init__(self, sandbox: Sandbox, node: KubeletNode, name: str) -> None:
        self.sandbox, self.node, self.name = sandbox, node, name
        self.exits: dict[str, int] = {}
        self.kills = 0
        self._followed: dict[str, Process] = {}
        self._watch = Outside(sandbox.admin, paths.pods(SYSTEM_NAMESPACE), Pod, self._see)

    # Acting

    def scale(self, replicas: int) -> None:
        self.kubectl("scale", "deployment", self.name, f"--replicas={replicas}")

    def roll_out(self) -> None:
        """Wait until all replicas are those that were asked for, and Ready. Raises KubectlError."""
        self.kubectl("rollout", "status", f"deployment/{self.name}", f"--timeout={WITHIN_S:g}s")

    def delete(self, pod: str) -> None:
        """Ask a pod to end, as a drain does; its log is followed to the end."""
        self.follow(pod)
        self.kubectl("delete", "pod", pod, "--wait=false")

    def kill(self, pod: str) -> None:
        """Kill -9 the container's process, from the machine that it runs on."""
        self.node.run("kill", "-KILL", self.pid(pod))
        self.kills += 1

    def follow(self, pod: str) -> None:
        """Keep what the pod says from its beginning on, since kubelet forgets it with the pod."""
        argv = [str(self.sandbox.programs["kubectl"]), f"--kubeconfig={self.sandbox.admin_kubeconfig}"]
        self._followed[pod] = self.sandbox.spawn(
            f"log-of-{pod}", [*argv, "logs", "--follow", pod, "-n", SYSTEM_NAMESPACE]
        )

    # Looking

    def pods(self) -> dict[str, Raw]:
        """Give the pods that are not ending, by name."""
        query = {"labelSelector": f"app.kubernetes.io/name={self.name}"}
        items = json.loads(self.sandbox.admin.get(paths.pods(SYSTEM_NAMESPACE), query))["items"]
        return {one["metadata"]["name"]: one for one in items if "deletionTimestamp" not in one["metadata"]}

    def container(self, pod: str) -> Raw:
        """Give the status of the pod's container; empty where kubelet has not said anything."""
        statuses = self.pods().get(pod, {}).get("status", {}).get("containerStatuses", [{}])
        return dict(statuses[0])

    def waits_for(self, pod: str) -> str:
        """Give the reason why the pod's container does not run; empty where it does, or has just ended."""
        return str(self.container(pod).get("state", {}).get("waiting", {}).get("reason", ""))

    def is_gone(self, pod: str) -> bool:
        query = {"fieldSelector": f"metadata.name={pod}"}
        return not json.loads(self.sandbox.admin.get(paths.pods(SYSTEM_NAMESPACE), query))["items"]

    def lease(self) -> Raw:
        """Give the Lease's spec; empty while there is none."""
        with suppress(ApiError):
            spec: Raw = json.loads(self.sandbox.admin.get(paths.lease(SYSTEM_NAMESPACE, self.name)))["spec"]
            return spec
        return {}

    def leader(self) -> str:
        """Name the pod that holds the Lease; empty for nobody."""
        return str(self.lease().get("holderIdentity", "")).rpartition("_")[0]

    def say_they_lead(self) -> list[str]:
        """Name the pods whose own metrics say that they lead."""
        return [pod for pod in self.pods() if "nodemend_leader 1.0" in self.get(pod, "/metrics").splitlines()]

    def get(self, pod: str, page: str) -> str:
        """Ask the pod at its own address. Raises OSError."""
        address = self.pods()[pod]["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:{PORTS[self.name]}{page}", timeout=5) as answer:
            return str(answer.read().decode())

    def pid(self, pod: str) -> str:
        """Give the pid of the container's process on its node, as containerd has it."""
        container = self.container(pod)["containerID"].removeprefix("containerd://")
        tasks = self.node.run("ctr", "--namespace", "k8s.io", "task", "ls").splitlines()
        return next(pid for name, pid, *_ in map(str.split, tasks) if name == container)

    def process(self, pod: str) -> dict[str, str]:
        """Give what the kernel says of the container's process: /proc/PID/status, by its first words."""
        lines = self.node.run("cat", f"/proc/{self.pid(pod)}/status").splitlines()
        return {key: " ".join(value.split()) for key, _, value in (line.partition(":") for line in lines)}

    def root_options(self, pod: str) -> list[str]:
        """Give how the container's root is mounted."""
        lines = self.node.run("cat", f"/proc/{self.pid(pod)}/mounts").splitlines()
        return next(line.split()[3].split(",") for line in lines if line.split()[1] == "/")

    def logs(self) -> str:
        """Give all that was said by the pods there are, their earlier containers, and those that were followed."""
        said = [self.sandbox.logs(f"log-of-{pod}") for pod in self._followed]
        for pod in self.pods():
            said.append(self.kubectl("logs", pod))
            if self.container(pod).get("restartCount"):
                said.append(self.kubectl("logs", pod, "--previous"))
        return "\n".join(said)

    def said(self, pod: str) -> str:
        """Give the log of a pod that was followed."""
        return self.sandbox.logs(f"log-of-{pod}")

    def kubectl(self, *arguments: str) -> str:
        return self.sandbox.kubectl("-n", SYSTEM_NAMESPACE, *arguments, timeout_s=WITHIN_S + 30)

    def until(self, true: Callable[[], bool], what: str, timeout_s: float = WITHIN_S) -> float:
        """Wait until it is so; give the seconds it took. Raises AssertionError with what a person would look at."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > timeout_s:
                seen = self.kubectl("get", "pods,lease", "-o", "wide"), self.logs()[-4000:]
                raise AssertionError(f"waited {timeout_s:g} s for {what}\n" + "\n".join(seen))
            time.sleep(0.05)
        return time.monotonic() - began

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Look on; in the end there is no pod of it any more, and nobody holds its Lease."""
        with self._watch:
            try:
                yield
            finally:
                self.scale(0)
                query = ("--for=delete", "pod", "-l", f"app.kubernetes.io/name={self.name}")
                self.kubectl("wait", *query, f"--timeout={WITHIN_S:g}s")

    def _see(self, pod: Pod, _at: float) -> None:
        for status in pod.status.container_statuses:
            ended = status.state.terminated or status.last_state.terminated
            if ended is not None:
                self.exits[pod.metadata.name] = ended.exit_code


@contextmanager
def standing(sandbox: Sandbox, node: KubeletNode, names: Sequence[str]) -> Iterator[list[Deployed]]:
    """Give these Deployments their two replicas on a node without GPUs; returns when all of them are Ready."""
    install_scheduler(sandbox)
    with ExitStack() as stack:
        deployed = [Deployed(sandbox, node, name) for name in names]
        for one in deployed:
            stack.enter_context(one.standing())
        for one in deployed:
            if one.name == SCHEDULER:
                apply_scheduler(sandbox)
            else:
                one.scale(2)
        for one in deployed:
            one.roll_out()
        yield deployed


def apply_scheduler(sandbox: Sandbox, settings: str | None = None) -> None:
    """Apply manifests/scheduler by kubectl, with another scheduler.toml where one is given.

    One thing differs from what is shipped: less CPU is asked for, since two replicas and the third of a roll-out must find
    room on a machine of two cores.
    """
    folder = sandbox.state_dir / "install" / "scheduler-pods"
    folder.mkdir(parents=True, exist_ok=True)
    less: Raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SCHEDULER, "namespace": SYSTEM_NAMESPACE},
        "spec": {"template": {"spec": {"containers": [_little("scheduler")]}}},
    }
    wanted: Raw = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath((MANIFESTS / "scheduler").resolve(), folder.resolve())],
        "patches": [{"patch": json.dumps(less)}],
    }
    if settings is not None:
        (folder / "scheduler.toml").write_text(settings)
        config = {"name": "nodemend-scheduler-config", "namespace": SYSTEM_NAMESPACE, "behavior": "replace"}
        wanted["configMapGenerator"] = [{**config, "files": ["scheduler.toml"]}]
    (folder / "kustomization.yaml").write_text(json.dumps(wanted))
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))


def _little(container: str) -> Raw:
    return {"name": container, "resources": {"requests": {"cpu": "50m"}}}


def bound_by(sandbox: Sandbox, namespace: str, pod: str) -> list[tuple[str, str]]:
    """Give who bound a pod by the server's audit record: the account, and the pod whose own token it came with."""
    return [
        (event["user"]["username"], event["user"].get("extra", {}).get(_POD_CLAIM, [""])[0])
        for event in sandbox.audit_events()
        if event["verb"] == "create"
        and event["responseStatus"]["code"] == 201
        and (about := event["objectRef"]).get("subresource") == "binding"
        and (about["namespace"], about["name"]) == (namespace, pod)
    ]
