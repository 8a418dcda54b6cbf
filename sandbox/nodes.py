"""Simulated GPU nodes: a machine made of files, and its Node object as a real platform's kubelet and GPU Operator show it.

KWOK keeps the Node Ready and plays its pods' status (`kwok_stages.yaml`); repairs' pods are really run (`pod_player`); the
agent of a node is nodemend's own program or class, reading the machine's files (`actors`, `agents`).
"""

import resource
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kube import paths
from kube.api import AlreadyExists, Api, NotFound
from kube.types import Lease, Node
from sandbox.fake_nvml import FakeDriver
from sandbox.machine import Gpu, Machine
from sandbox.platforms import Platform, platform

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
DEFAULT_PLATFORM = "HGX H100 8-GPU"
_AT_ONCE = 16
# Kernel log, an agent's reader of it, and a view for a validation; beside them sessions, logs and watches.
_FILES_A_NODE, _FILES_BESIDE = 4, 512
# KWOK renews a Lease every 10 s, up to 0.4 s later; in between it leaves it alone.
_AFTER_RENEWAL, _BEFORE_RENEWAL = timedelta(seconds=1), timedelta(seconds=6)
NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Cluster(Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    @property
    def state_dir(self) -> Path: ...

    @property
    def admin(self) -> Api: ...


class PoweredProgram(Protocol):
    """A program that dies and comes back with its machine: the agent."""

    def power_off(self) -> None: ...

    def power_on(self) -> None: ...


class Reboots(msgspec.Struct, frozen=True, kw_only=True):
    """How a machine takes a reboot. `down_s` until its kubelet speaks again, then `not_ready_s` until it is Ready.

    obeys=False: the command succeeds and nothing happens. comes_back=False: it goes down and stays down.
    """

    down_s: float = 1.0
    not_ready_s: float = 0.5
    obeys: bool = True
    comes_back: bool = True


class SimulatedNode:
    """One simulated node. Its files are made here, its Node object by `register`."""

    def __init__(self, name: str, kind: Platform, root: Path, number: int = 0) -> None:
        self.name = name
        self.platform = kind
        self.machine = Machine(root, name, kind)
        self.reboots = Reboots()
        self.agent: PoweredProgram | None = None
        self.up = threading.Event()
        self.up.set()
        self.power_switch = threading.Lock()
        self.rebooted = 0
        self._number = number

    @property
    def root(self) -> Path:
        """The folder that stands in for the machine's root."""
        return self.machine.root

    @property
    def driver_root(self) -> Path:
        """Where the machine's driver lies once `install_driver` put one there."""
        return self.root / "driver"

    @property
    def driver(self) -> FakeDriver | None:
        """The machine's NVIDIA driver, None for a machine that was given none."""
        return FakeDriver.attach(self.driver_root) if self.driver_root.is_dir() else None

    def install_driver(self) -> FakeDriver:
        """Give the machine a driver: its agent uses NVML from the next start on, and GPUs can be reset one by one.

        Raises MissingProgramError where gcc is missing.
        """
        return FakeDriver(self.driver_root, self.gpus)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.machine.gpus

    @property
    def boot_id(self) -> str:
        return self.machine.boot_id

    @property
    def lines_written(self) -> int:
        """Records that are in the kernel log, over all boots."""
        return self.machine.kernel_log.lines_written

    def write_kernel_line(self, text: str, level: int = 4) -> int:
        """Let the kernel log one record; return its sequence number."""
        return self.machine.kernel_log.write(text, level=level)

    def write_xid(self, code: int, text: str, *, gpu: int = 0, pid: str = "'<unknown>'") -> str:
        """Let the NVIDIA driver report an XID on GPU `gpu`; return the line."""
        line = xid_line(self.gpus[gpu].pci, code, text, pid=pid)
        self.write_kernel_line(line)
        return line

    def body(self) -> dict[str, Any]:
        """Describe the Node object as kubelet, cloud provider and gpu-feature-discovery would."""
        return body(self.name, self.platform, self.boot_id, self._number)

    def register(self, api: Api) -> Node:
        """Create the Node object, as a kubelet does at its start; one that is there is taken as it is. Raises ApiError."""
        try:
            return msgspec.json.decode(api.create(paths.nodes(), self.body()), type=Node)
        except AlreadyExists:
            return self.read(api)

    def read(self, api: Api) -> Node:
        """Read the Node object. Raises NotFound and other ApiErrors."""
        return msgspec.json.decode(api.get(paths.node(self.name)), type=Node)

    def delete(self, api: Api) -> None:
        """Delete the Node object; the machine stays. Raises ApiError."""
        api.delete(paths.node(self.name))

    def close(self) -> None:
        """Let go of the machine's kernel log."""
        self.machine.close()


def create(
    sandbox: Cluster,
    names: Sequence[str],
    platform_name: str = DEFAULT_PLATFORM,
    *,
    ready_within_s: float | None = 60.0,
) -> list[SimulatedNode]:
    """Make machines and their Nodes, and wait until all are Ready and take pods (None: do not wait).

    Raises PlatformDefect for an unknown platform, ApiError, OSError where so many files may not be open, or TimeoutError
    naming the nodes that are not Ready.
    """
    kind = platform(platform_name)
    _allow_open_files(len(names) * _FILES_A_NODE + _FILES_BESIDE)
    folder = sandbox.state_dir / "nodes"
    nodes = [SimulatedNode(name, kind, folder / name, number) for number, name in enumerate(names)]
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="register") as pool:
        list(pool.map(lambda node: node.register(sandbox.admin), nodes))
        if ready_within_s is not None:
            list(pool.map(lambda node: wait_ready(sandbox.admin, node, ready_within_s), nodes))
    return nodes


def _allow_open_files(count: int) -> None:
    """Raise this process's soft limit of open files where needed. Raises OSError, naming the limit, where it cannot."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise OSError(f"so many nodes need {count} open files, the hard limit is {hard}: raise `ulimit -Hn`")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def wait_ready(
    api: Api, node: SimulatedNode, timeout_s: float, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until the Node is Ready and the controller manager took its not-ready taints away. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        why = why_not_ready(api, node)
        if why is None:
            return
        sleep(0.1)
    raise TimeoutError(f"node {node.name} after {timeout_s:g} s: {why}")


def why_not_ready(api: Api, node: SimulatedNode) -> str | None:
    """Say why the node takes no pods yet, None where it does."""
    try:
        seen = node.read(api)
    except NotFound:
        return "there is no such Node"
    ready = seen.condition("Ready")
    if ready is None or ready.status != "True":
        return f"Ready is {ready.status if ready else 'absent'}"
    taints = [taint.key for taint in seen.spec.taints if taint.key in NOT_READY_TAINTS]
    return f"it is tainted {', '.join(taints)}" if taints else None


def await_calm(api: Api, node: SimulatedNode, timeout_s: float = 60.0) -> None:
    """Wait until KWOK renews no Lease of this node; to be called before a Node is deleted that is soon made anew.

    Where it does so just then, its queue (v0.7.0) takes the node's name a second time with the new Node. The first to be due
    then removes the other and stays in front for ever: no Lease is renewed any more, nor made anew. Raises TimeoutError.
    """
    deadline = time.monotonic() + timeout_s
    renewed: datetime | None = None
    while time.monotonic() < deadline:
        with suppress(NotFound):
            renewed = msgspec.json.decode(api.get(kubelet_lease(node)), type=Lease).spec.renew_time
        if renewed is not None and _AFTER_RENEWAL < datetime.now(UTC) - renewed < _BEFORE_RENEWAL:
            return
        time.sleep(0.2)
    raise TimeoutError(f"node {node.name}: KWOK last renewed its Lease at {renewed}")


def why_not_played(api: Api, node: SimulatedNode) -> str | None:
    """Say why KWOK does not see what becomes of the node's pods, None where it plays them.

    It heeds only pods of nodes whose Lease it holds. With a Node that is deleted the garbage collector takes its Lease away;
    KWOK makes the new Node's at its next renewal, some 10 s later.
    """
    try:
        uid = node.read(api).metadata.uid
        lease = msgspec.json.decode(api.get(kubelet_lease(node)), type=Lease)
    except NotFound:
        return "the Node or its kubelet's Lease is not there"
    if not any(owner.uid == uid for owner in lease.metadata.owner_references):
        return "its kubelet's Lease is another Node's"
    return None


def kubelet_lease(node: SimulatedNode) -> str:
    """Give the path of the Lease by which the node's kubelet, or KWOK in its place, says that it lives."""
    return paths.lease("kube-node-lease", node.name)


def xid_line(pci: str, code: int, text: str, *, pid: str = "'<unknown>'", name: str = "<unknown>") -> str:
    """Write the driver's line for an XID; the PCI address is given there without its function."""
    return f"NVRM: Xid (PCI:{pci.rpartition('.')[0] or pci}): {code}, pid={pid}, name={name}, {text}"


def body(name: str, kind: Platform, boot_id: str, number: int = 0) -> dict[str, Any]:
    """Describe a Node object as kubelet, cloud provider and gpu-feature-discovery would; `number` makes its address."""
    unique = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.sandbox.nodemend.dev")
    resources = {
        "cpu": "192",
        "memory": "2Ti",
        "ephemeral-storage": "7Ti",
        "pods": "110",
        "nvidia.com/gpu": str(kind.gpus),
    }
    if kind.ib_ports:
        resources["rdma/ib"] = str(kind.ib_ports)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {KWOK_ANNOTATION: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": kind.arch,
                "node.kubernetes.io/instance-type": kind.slug,
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.count": str(kind.gpus),
                "nvidia.com/gpu.product": kind.gpu_product,
            },
        },
        "spec": {"providerID": f"sandbox://{kind.slug}/{unique}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {
                    "type": "InternalIP",
                    "address": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}",
                },
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "bootID": boot_id,
                "machineID": unique.hex,
                "systemUUID": str(unique),
                "architecture": kind.arch,
                "operatingSystem": "linux",
                "osImage": "simulated",
                "kernelVersion": "6.8.0-simulated",
                "kubeletVersion": "v1.37.2",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "simulated://1",
            },
        },
    }
