"""The stage of the real chain: one real node with its agent's pod, a team's pods, the controller, and what is seen of it.

The kernel log is this machine's own where that is for drills (`sandbox.real_kernel_log`), else the simulated one, and `log`
says which. The agent's DaemonSet is as the product has it but for its configuration: what comes from the real log did not
come from a kernel, so it counts as a drill, and only from one record on, which moves with each boot. Between the one log and
the other lies a reboot, since an agent goes on where it had read to in this boot.
"""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from controller.repairs import reset_gpu, revalidate
from kube import paths
from kube.api import PatchType
from kube.clock import SYSTEM
from kube.remediation import Remediation
from kube.types import Pod
from sandbox import gpu_operator, workloads
from sandbox.actors import SINK, start_controller
from sandbox.agent_files import merged, toml
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.kubelet_node import SIMULATED_REBOOT, KubeletNode
from sandbox.nodes import xid_line
from sandbox.real_kernel_log import KernelLogRefused, RealKernelLog
from sandbox.receiver import Receiver
from sandbox.story import Milestone, Reached, Story
from sandbox.watching import WORK_NAMESPACE, Watching
from tests.cluster.stage import QUICK_LEASE, raw_node

SYSTEM_NAMESPACE, REPAIRS = "nodemend-system", "nodemend-repairs"
# Namespace and label of whose pods are looked for.
AGENT = (SYSTEM_NAMESPACE, "app.kubernetes.io/name=nodemend-agent")
PLUGIN = (gpu_operator.NAMESPACE, f"app={gpu_operator.DEVICE_PLUGIN}")
WORK_PODS, GPUS_A_POD = 2, 2
_CLOSED_WITHIN_S = 120.0
_UP_WITHIN_S = 90.0
# The product's own commands, in pods of the product's image; only what ends the machine is simulated.
_CONTROLLER = {
    "leader": QUICK_LEASE,
    "repairs": {
        "reboot": {"command": list(SIMULATED_REBOOT)},
        "reset-gpu": {"command": list(reset_gpu.REPAIR.command)},
    },
    "validation": {"command": list(revalidate.REPAIR.command)},
}
_POLICY = {"drillsAreReal": True, "sinks": [SINK]}


class _Pods(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Pod, ...] = ()


class Stage:
    """What the tests of the real chain act on and look at."""

    def __init__(
        self, sandbox: Sandbox, node: KubeletNode, watching: Watching, log: RealKernelLog | str
    ) -> None:
        assert node.driver is not None
        self.sandbox = sandbox
        self.node = node
        self.driver: FakeDriver = node.driver
        self.watching = watching
        self._log = log

    @property
    def log(self) -> str:
        """Which kernel log the faults are written to, and why not the other one."""
        if isinstance(self._log, str):
            return f"the simulated kernel log ({self._log})"
        return "the real /dev/kmsg"

    # Acting

    def set_policy(self, **spec: Any) -> None:
        self.sandbox.admin.patch(paths.policy("default"), {"spec": spec}, PatchType.MERGE)

    def write_xid(self, code: int, text: str, gpu: int) -> str:
        """Let the kernel log hold an XID of this GPU; return the line."""
        if isinstance(self._log, str):
            return self.node.write_xid(code, text, gpu=gpu)
        line = xid_line(self.node.gpus[gpu].pci, code, text)
        self._log.write(line)
        return line

    def configure_agent(self) -> None:
        """Write what the agent and revalidations are told; it counts for pods and containers that start from now on."""
        more: dict[str, Any] = {"nvml": {"period": "5s"}, "kubelet": {"interval": "5s"}}
        if isinstance(self._log, RealKernelLog):
            self._log.write("nodemend: GPU errors that follow are a drill of its tests")
            more["kernel_log"] = {"admit_foreign": True, "after_sequence": self._log.newest()}
        configure(self.sandbox, more)

    def play(self, milestones: Sequence[Milestone], begin: Callable[[], object]) -> list[Reached]:
        """Do `begin` and wait for all milestones; give them as they were reached. Raises AssertionError with the story.

        The incidents that are over are deleted first: the newest one is what milestones are about.
        """
        self.sandbox.kubectl("delete", "remediations", "--all")
        self.until(lambda: self.incident() is None, "earlier incidents to be gone")
        told: list[Reached] = []
        story = Story(node=self.node.name, milestones=milestones, clock=SYSTEM, tell=told.append)
        begin()
        self.watching.follow(story)
        assert story.wait(_CLOSED_WITHIN_S), f"not reached: {', '.join(story.missing())}\n{self.story()}"
        for one in told:
            print(f"+{one.after_s:7.3f} s  {one.title:22} {one.words}")
        return told

    # Looking

    def before(self) -> dict[str, Any]:
        """Take down what the Node must look like again in the end."""
        return {**raw_node(self.sandbox.admin, self.node.name), "labels": self.node.read().metadata.labels}

    def await_work(self) -> list[Pod]:
        """Wait until the team's pods run; give them."""
        running = ["Running"] * WORK_PODS
        self.until(lambda: [pod.status.phase for pod in self.work()] == running, "the team's pods to run")
        return self.work()

    def work(self) -> list[Pod]:
        return [
            pod for pod in self.watching.work_on(self.node.name) if pod.metadata.deletion_timestamp is None
        ]

    def holders(self) -> list[str]:
        """Give who holds each GPU that is held, as NodeHealth says."""
        health = self.watching.healths.get(self.node.name)
        return [part.held_by for part in health.status.parts if part.held] if health is not None else []

    def is_watched(self) -> bool:
        """Tell whether the agent reports this boot."""
        health = self.watching.healths.get(self.node.name)
        return health is not None and health.status.boot_id == self.node.boot_id

    def incident(self) -> Remediation | None:
        """Give the newest incident."""
        return max(self.watching.remediations.values(), key=lambda one: one.spec.opened_at, default=None)

    def attempts(self) -> list[tuple[str, str]]:
        """Give kind and result of the Jobs that ran; a pod that kubelet refused did not (`controller.validation`)."""
        one = self.incident()
        rows = one.status.attempts if one is not None else ()
        return [(row.kind, row.result) for row in rows if row.result != "Refused"]

    def validation(self) -> str:
        one = self.incident()
        return one.status.attempts[-1].message if one is not None and one.status.attempts else ""

    def until(self, true: Callable[[], bool], what: str, timeout_s: float = _UP_WITHIN_S) -> None:
        """Wait until it is so. Raises AssertionError with the story."""
        assert self.watching.wait_for(true, timeout_s), f"waited {timeout_s:g} s for {what}\n{self.story()}"

    def story(self) -> str:
        """Tell what a person would look at first."""
        one = self.incident()
        lines = [f"faults are written to {self.log}"]
        if one is not None:
            lines += [f"{one.metadata.name} is {one.status.phase}: {one.status.message}"]
            lines += [str(row) for row in one.status.attempts]
        lines.append(self.sandbox.kubectl("get", "pods", "--all-namespaces", "-o", "wide"))
        lines.append(self.sandbox.kubectl("get", "nodehealth", self.node.name, "-o", "yaml"))
        return "\n".join(lines)


@contextmanager
def standing(sandbox: Sandbox, node: KubeletNode) -> Iterator[Stage]:
    """Set the stage up on a node of its own cluster, and leave both as they were found."""
    log = _borrow_kernel_log()
    with ExitStack() as afterwards:
        if isinstance(log, RealKernelLog):
            afterwards.callback(log.close)
        receiver = afterwards.enter_context(Receiver(sandbox.state_dir / "receiver-real-chain"))
        watching = afterwards.enter_context(Watching(sandbox.admin, SYSTEM, receiver))
        stage = Stage(sandbox, node, watching, log)
        afterwards.callback(_take_away, stage, agent_settings(sandbox))
        stage.set_policy(**_POLICY)
        node.show_kernel_log(real=isinstance(log, RealKernelLog))
        node.before_boot = stage.configure_agent
        gpu_operator.install_device_plugin(sandbox)
        workloads.start(sandbox, replicas=WORK_PODS, gpus=GPUS_A_POD, may_be_away="100%")
        for controller in start_controller(sandbox, sinks={SINK: receiver}, settings=_CONTROLLER):
            afterwards.callback(controller.stop)
        node.reboot()
        stage.until(stage.is_watched, "the agent to report this boot")
        yield stage


def _take_away(stage: Stage, settings: Mapping[tuple[str, str], str]) -> None:
    stage.sandbox.kubectl("delete", "namespace", WORK_NAMESPACE, "--wait=false")
    stage.sandbox.kubectl("delete", "remediations", "--all", "--wait=false")
    stage.set_policy(**dict.fromkeys([*_POLICY, "taint"]))
    write_agent_settings(stage.sandbox, settings)
    stage.node.before_boot = lambda: None
    stage.node.show_kernel_log(real=False)
    stage.node.reboot()  # what was heard in the other log is of a boot that is over


def _borrow_kernel_log() -> RealKernelLog | str:
    """Take this machine's own kernel log, or give the reason why that is not for drills."""
    try:
        return RealKernelLog(wait_s=10.0)
    except KernelLogRefused as error:
        return str(error)


def pods(sandbox: Sandbox, namespace: str, selector: str = "") -> list[Pod]:
    """List pods, those that are going included."""
    raw = sandbox.admin.get(paths.pods(namespace), {"labelSelector": selector})
    return list(msgspec.json.decode(raw, type=_Pods).items)


def configure(sandbox: Sandbox, more: Mapping[str, Any]) -> None:
    """Merge settings into the configuration of agent and revalidations, as the manifests brought it."""
    shipped = {name: merged(tomllib.loads(text), more) for name, text in agent_settings(sandbox).items()}
    write_agent_settings(sandbox, {name: toml(table) for name, table in shipped.items()})


def agent_settings(sandbox: Sandbox) -> dict[tuple[str, str], str]:
    """Give agent.toml by namespace and name of the ConfigMap that holds it."""
    daemonsets = paths.collection("apps", "v1", "daemonsets", SYSTEM_NAMESPACE)
    daemonset = json.loads(sandbox.admin.get(paths.member(daemonsets, "nodemend-agent")))
    volumes = daemonset["spec"]["template"]["spec"]["volumes"]
    (config,) = (volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
    held = {(SYSTEM_NAMESPACE, config), (REPAIRS, "nodemend-agent")}
    return {key: json.loads(sandbox.admin.get(_config_map(*key)))["data"]["agent.toml"] for key in held}


def write_agent_settings(sandbox: Sandbox, settings: Mapping[tuple[str, str], str]) -> None:
    for key, text in settings.items():
        sandbox.admin.patch(_config_map(*key), {"data": {"agent.toml": text}}, PatchType.MERGE)


def _config_map(namespace: str, name: str) -> str:
    return paths.member(paths.collection("", "v1", "configmaps", namespace), name)
