"""The stage of the scheduler on a real node: kubelet chooses the cards, and containers say which ones they were given."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from kube import paths
from kube.api import ApiError, PatchType
from kube.nodehealth import NodeHealth, PartState
from kube.types import NodeCondition, Pod
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE
from sandbox.kubelet_node import KubeletNode
from sandbox.node_files import PAUSE
from sandbox.nodes import xid_line
from tests.cluster.real_node import AGENT, agent_settings, configure, pods, write_agent_settings
from tests.cluster.scheduler_stage import POOL_LABEL, Raw, SchedulerStage

GPU = "nvidia.com/gpu"
PUT_ASIDE = "PodStartFailing"
_XID, _SAID = 95, "Uncontained ECC error"
_VISIBLE = "NVIDIA_VISIBLE_DEVICES="
_CONTAINERS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
_FIND_CARDS = f"grep -o '{_VISIBLE}GPU[^\"]*' {_CONTAINERS}/*/config.json /dev/null || true"
_GONE_WITHIN_S = 60.0


class KubeletStage(SchedulerStage):
    """The pool is the one real node. `refused`: kubelet's reason by the UID of each pod that failed to start."""

    def __init__(self, sandbox: Sandbox, namespace: str, node: KubeletNode) -> None:
        self.refused: dict[str, str] = {}
        self.given: set[tuple[str, str]] = set()
        super().__init__(sandbox, namespace)
        assert node.driver is not None
        self.node, self.driver = node, node.driver
        self._is_ill = False
        self._settings = agent_settings(sandbox)

    # Acting

    def create_pods(self, prefix: str, queue: str, count: int, gpus: int = 1) -> list[str]:
        """Create bare pods that run until they are deleted; give their names."""
        names = [f"{prefix}-{number}" for number in range(count)]
        for name in names:
            self.create_pod(name, queue, gpus, containers=[pause(gpus)])
        return names

    def create_short_job(self, name: str, queue: str, pods: int, seconds: float) -> None:
        """Let the Job controller make so many pods of one GPU at once, which end by themselves after some seconds."""
        command = ["python3", "-c", f"import time; time.sleep({seconds})"]
        container = {**pause(1), "image": IMAGE, "command": command}
        template = self._template(queue, 1, {}, restartPolicy="Never", containers=[container])
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": {"parallelism": pods, "completions": pods, "template": template},
        }
        self.admin.create(paths.jobs(self.namespace), job)

    def create_replicas(self, name: str, queue: str, pods: int) -> None:
        """Let the ReplicaSet controller replace, at once and without end, each pod that failed."""
        template = self._template(queue, 1, {"app": name}, containers=[pause(1)])
        wanted = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": {"replicas": pods, "selector": {"matchLabels": {"app": name}}, "template": template},
        }
        self.admin.create(self._replica_sets, wanted)

    def end(self, *names: str) -> None:
        """Delete pods and wait until kubelet has let go of them."""
        for name in names:
            self.admin.delete(paths.pod(self.namespace, name))
        self.until(lambda: self._are_gone(names), f"{', '.join(names)} to be gone")

    def make_ill(self, uuid: str) -> None:
        """Let the kernel log hold an XID that NVML's clients, the plugin among them, are not told of."""
        self._is_ill = True
        (pci,) = (gpu.pci for gpu in self.node.gpus if gpu.uuid == uuid)
        self.node.write_kernel_line(xid_line(pci, _XID, _SAID))

    def fence(self, uuid: str) -> None:
        """Tell NVML's clients of that XID, too: the plugin withdraws the GPU."""
        (number,) = (place for place, gpu in enumerate(self.node.gpus) if gpu.uuid == uuid)
        self.driver.event(number, data=_XID)

    def break_starts(self) -> None:
        """Let the plugin offer every GPU and hand out none."""
        self.driver.setting("allocate_fails", "no CDI specification of this GPU")

    def mend_starts(self) -> None:
        self.driver.setting("allocate_fails", "")

    # Looking

    def started(self, prefix: str) -> list[str]:
        """Name the pods whose containers run."""
        return sorted(name for name, pod in self.alive(prefix).items() if pod.status.phase == "Running")

    def cards(self, prefix: str = "") -> dict[str, str]:
        """Give the UUIDs, joined by commas, that the container of each pod was told of; what was ever given is noted."""
        found = {}
        for line in self.node.run("sh", "-c", _FIND_CARDS).splitlines():
            path, _, uuids = line.partition(f":{_VISIBLE}")
            found[path.removeprefix(f"{_CONTAINERS}/").partition("/")[0]] = uuids
        named = {}
        for pod in self.read(paths.pods(self.namespace))["items"]:
            for status in pod["status"].get("containerStatuses", ()):
                container = status.get("containerID", "").removeprefix("containerd://")
                if container in found:
                    named[str(pod["metadata"]["name"])] = found[container]
        self.given |= set(named.items())
        return {name: uuids for name, uuids in named.items() if name.startswith(prefix)}

    def held(self) -> dict[str, str]:
        """Give the UUID that each pod of this namespace has, by kubelet's word to the agent."""
        parts = ((part.held_by.partition("/"), part.uuid) for part in self.parts().values() if part.held)
        return {name: uuid for (namespace, _, name), uuid in parts if namespace == self.namespace}

    def health(self) -> NodeHealth:
        return msgspec.json.decode(self.admin.get(paths.node_health(self.node.name)), type=NodeHealth)

    def parts(self) -> dict[str, PartState]:
        """Give what the agent knows of each GPU, by UUID."""
        return {part.uuid: part for part in self.health().status.parts if part.kind == "gpu"}

    def allocatable(self) -> str:
        return self.node.read().status.allocatable.get(GPU, "0")

    def condition(self) -> NodeCondition | None:
        """Give the Node's condition about starts that fail."""
        return self.node.read().condition(PUT_ASIDE)

    def is_watched(self) -> bool:
        """Tell whether the agent reports this boot, finds nothing ill and knows that kubelet offers every GPU."""
        try:
            status = self.health().status
        except ApiError:
            return False
        offered = [part.offered for part in self.parts().values()]
        return status.boot_id == self.node.boot_id and not status.findings and offered == [True] * 8

    def story(self) -> str:
        health = self.sandbox.kubectl("get", "nodehealth", self.node.name, "-o", "yaml")
        node = self.sandbox.kubectl("get", "node", self.node.name, "-o", "jsonpath={.status.conditions}")
        return f"{super().story()}\n{health[-4000:]}\n{node}"

    # Beginning and ending

    def prepare(self) -> None:
        """Take the node into the pool, its agent looking often; returns when it is known to be well."""
        self.label_node(self.pool)
        configure(self.sandbox, {"nvml": {"period": "5s"}, "kubelet": {"interval": "5s"}})
        for pod in pods(self.sandbox, *AGENT):
            self.admin.delete(paths.pod(pod.metadata.namespace, pod.metadata.name))
        self.node.wait_allocatable(GPU, 8)
        self.until(self.is_watched, "the agent to know the node as well", 120.0)

    def label_node(self, pool: str | None) -> None:
        labels: Mapping[str, Any] = {"metadata": {"labels": {POOL_LABEL: pool}}}
        self.admin.patch(paths.node(self.node.name), labels, PatchType.MERGE)

    def close(self) -> None:
        """End pods before the scheduler, gently, since a node's cards are free only when its containers have ended."""
        self.mend_starts()
        for path in (self._replica_sets, paths.jobs(self.namespace), paths.pods(self.namespace)):
            with suppress(ApiError):
                self.admin.delete(path, {"propagationPolicy": "Background"})
        self.until(lambda: not self.read(paths.pods(self.namespace))["items"], "all to end", _GONE_WITHIN_S)
        super().close()
        self.label_node(None)
        write_agent_settings(self.sandbox, self._settings)
        gone = {"status": {"conditions": [{"type": PUT_ASIDE, "$patch": "delete"}]}}
        self.admin.patch(paths.node_status(self.node.name), gone, PatchType.STRATEGIC)
        if self._is_ill:
            self.node.reboot()
            self.node.wait_allocatable(GPU, 8)

    @property
    def _replica_sets(self) -> str:
        return paths.collection("apps", "v1", "replicasets", self.namespace)

    def _are_gone(self, names: tuple[str, ...]) -> bool:
        return not {pod.metadata.name for pod in self.pods.store.values()} & set(names)

    def _see(self, pod: Pod, at: float) -> None:
        super()._see(pod, at)
        if pod.status.phase == "Failed":
            self.refused.setdefault(pod.metadata.uid, pod.status.reason)


@contextmanager
def standing(sandbox: Sandbox, namespace: str, node: KubeletNode) -> Iterator[KubeletStage]:
    """Set the stage up on a node of its own cluster, and leave the node as it was found."""
    stage = KubeletStage(sandbox, namespace, node)
    with stage.pods:
        try:
            stage.prepare()
            yield stage
        finally:
            stage.close()


def pause(gpus: int) -> Raw:
    """Describe a container with so many GPUs that does nothing until it is ended."""
    resources: Raw = {"requests": {"cpu": "10m"}, "limits": {GPU: str(gpus)} if gpus else {}}
    return {"name": "main", "image": PAUSE, "resources": resources}
