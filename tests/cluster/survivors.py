"""Real nodes under observation: each with its agent's pod, what may befall them, and all that was ever published of them.

A watch from outside takes down every change of our conditions, and of what NodeHealth says of faults and parts, so that what
came and went between two looks is seen too; where the watch itself was cut off, the transition times tell.
"""

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from kube import paths
from kube.api import Api, ApiError
from kube.clock import SYSTEM
from kube.nodehealth import NodeHealth
from kube.store import Change, Store
from kube.types import Node, NodeCondition
from kube.watch import Reflector
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.kubelet_node import KubeletNode

Kept = TypeVar("Kept", Node, NodeHealth)
TYPES = ("GpuDriverFault", "GpuMissing", "GpuXidError")
HEALTHY = (
    "GpuDriverFault False DriverUsable",
    "GpuMissing False AllGpusPresent",
    "GpuXidError False NoXidError",
)
ILL = (
    "GpuDriverFault True GpuResetRequired",
    "GpuMissing True GpuLost",
    "GpuXidError True Xid79FallenOffBus",
)
OFF_THE_BUS, LOST, RESET = 1, 2, 3
# The last but one is what the driver itself asks for, found ten seconds after it began to.
FAULTS = "GpuLost 0000:3a:00, GpuResetRequired 0000:5d:00, RecoveryGpuReset 0000:5d:00, Xid79FallenOffBus 0000:2a:00"
STATE = "/var/lib/nodemend"
SYSTEM_NAMESPACE = "nodemend-system"
WITHIN_S = 90.0
_AGENT = {"labelSelector": "app.kubernetes.io/name=nodemend-agent"}


def until(true: Callable[[], bool], timeout_s: float = WITHIN_S) -> None:
    """Wait until it is so, asking now and then. Raises AssertionError."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"did not become true within {timeout_s:g} s: {true}"
        time.sleep(0.1)


class Account:
    """All that was published of one node, in words: the changes of its conditions, and of what its NodeHealth says."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.of_conditions: list[str] = []
        self.of_health: list[str] = []
        self.conditions: dict[str, NodeCondition | None] = dict.fromkeys(TYPES)
        self.health: NodeHealth | None = None

    def see_node(self, _change: Change, node: Node | None) -> None:
        """Take one event of the Node."""
        if node is None or node.metadata.name != self.name:
            return
        for kind, before in self.conditions.items():
            held = node.condition(kind)
            now = held and msgspec.structs.replace(held, last_heartbeat_time=None)
            if now != before:
                self.conditions[kind] = now
                self.of_conditions.append(_words(kind, before, now))

    def take(self) -> tuple[list[str], list[str]]:
        """Give what was published since the last time, of conditions and in NodeHealth, each sorted."""
        conditions, self.of_conditions = self.of_conditions, []
        health, self.of_health = self.of_health, []
        return sorted(conditions), sorted(health)

    def shows(self) -> tuple[str, ...]:
        """Give all conditions as they were last shown."""
        return tuple(f"{c.type} {c.status} {c.reason}" for c in self.conditions.values() if c)

    def says(self, key: str) -> str:
        """Give what NodeHealth last said about one thing: see `said`."""
        return said(self.health).get(key, "")

    def see_health(self, change: Change, health: NodeHealth | None) -> None:
        """Take one event of its NodeHealth."""
        if health is None or health.metadata.name != self.name:
            return
        before, now = said(self.health), said(None if change is Change.DELETED else health)
        self.health = None if change is Change.DELETED else health
        self.of_health += [f"{key}: {value}" for key, value in now.items() if before.get(key) != value]


def _words(kind: str, before: NodeCondition | None, now: NodeCondition | None) -> str:
    """Say how a condition changed; whether its transition time moved belongs to it."""
    if now is None:
        return f"{kind} is gone"
    moved = before is None or before.last_transition_time != now.last_transition_time
    same = before is not None and (before.status, before.reason) == (now.status, now.reason)
    words = f"{kind} {'says' if same else now.status} {now.message if same else now.reason}"
    return f"{words}, transition" if moved else words


def said(health: NodeHealth | None) -> dict[str, str]:
    """Give what NodeHealth says of what stands, without counters and times."""
    if health is None:
        return {"object": "deleted"}
    status = health.status
    if status.observed_at is None:
        return {"object": "empty"}
    faults = {f"{row.reason} {row.part.pci}".strip() for row in status.findings if row.severity == "Fault"}
    counts = (
        sum(part.offered is True for part in status.parts),
        sum(part.withdrawn_at is not None for part in status.parts),
        sum(bool(part.uuid) for part in status.parts),
        status.last_validated.gpus if status.last_validated is not None else 0,
    )
    names = ("offered", "withdrawn", "named", "validated")
    return {
        "object": "written",
        "faults": ", ".join(sorted(faults)) or "none",
        **{name: str(count) for name, count in zip(names, counts, strict=True)},
    }


class Machine(Protocol):
    """A node's machine, whichever kind it is."""

    @property
    def driver(self) -> FakeDriver | None: ...

    def write_xid(self, code: int, text: str, *, gpu: int = 0) -> str: ...


def strike(machine: Machine) -> None:
    """Let three faults from three sources stand: `ILL`, and `FAULTS` in NodeHealth."""
    assert machine.driver is not None
    machine.write_xid(79, "GPU has fallen off the bus.", gpu=OFF_THE_BUS)
    machine.driver.lose(LOST)
    machine.driver.require_reset(RESET)


class Survivor:
    """One node, its agent's pod, and what may befall them."""

    def __init__(self, sandbox: Sandbox, node: KubeletNode) -> None:
        assert node.driver is not None
        self.sandbox = sandbox
        self.node = node
        self.driver = node.driver
        self.account = Account(node.name)
        self.writable_since = SYSTEM.now()

    def pod(self) -> dict[str, Any]:
        """Read the agent's pod, {} while there is none that runs. Raises ApiError."""
        query = {**_AGENT, "fieldSelector": f"spec.nodeName={self.node.name}"}
        items = json.loads(self.sandbox.admin.get(paths.pods(SYSTEM_NAMESPACE), query))["items"]
        live = [item for item in items if "deletionTimestamp" not in item["metadata"]]
        return live[0] if live and live[0]["status"].get("containerStatuses") else {}

    def container(self) -> str:
        """Give the id of the agent's container where it runs, else an empty one."""
        with suppress(ApiError):
            status = (self.pod().get("status") or {}).get("containerStatuses", [{}])[0]
            if "running" in status.get("state", {}):
                return str(status["containerID"]).removeprefix("containerd://")
        return ""

    def kill_agent(self) -> str:
        """Kill -9 the agent's container; give its id."""
        until(lambda: bool(self.container()))
        killed = self.container()
        self.node.run("ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", killed)
        return killed

    def await_agent(self, killed: str = "", since: datetime | None = None) -> None:
        """Wait until another container than `killed` runs, and has read everything and said so after `since`."""
        until(lambda: self.container() not in ("", killed))
        until(lambda: self._has_read(since))

    def _has_read(self, since: datetime | None) -> bool:
        health = self.account.health
        if health is None or health.status.observed_at is None or health.status.boot_id != self.node.boot_id:
            return False
        readable = {source.name for source in health.status.sources if source.readable}
        fresh = since is None or health.status.observed_at > since
        return fresh and {"kernel-log", "nvml", "pod-resources"} <= readable

    @contextmanager
    def agent_restarts(self) -> Iterator[None]:
        """Kill the agent, do what is in the block, and wait until it looks again and has written what it saw."""
        gone, since = self.kill_agent(), SYSTEM.now()
        yield
        self.await_agent(gone, since)

    def metric(self, name: str) -> float:
        """Read one of the agent's metrics, at its pod's own address."""
        address = self.pod()["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9476/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def cannot_save(self) -> bool:
        """Say whether the agent that runs now has failed to save its state."""
        with suppress(ApiError, OSError, LookupError, StopIteration):
            return self.metric("nodemend_state_file_errors_total") > 0
        return False

    def await_saved(self) -> None:
        """Wait until its state was saved since the disk takes it again."""
        until(lambda: self._saved_at() > self.writable_since)

    def _saved_at(self) -> datetime:
        return datetime.fromisoformat(json.loads(self.sh(f"cat {STATE}/state.json"))["saved_at"])

    def sh(self, command: str) -> str:
        """Run a shell command on the node."""
        return self.node.run("sh", "-c", command)


@contextmanager
def kept(api: Api, *accounts: Account) -> Iterator[None]:
    """Keep these accounts by watches of the API server; one that is cut off tries again at once."""
    stop = threading.Event()
    nodes: Store[Node] = Store()
    healths: Store[NodeHealth] = Store()
    for account in accounts:
        nodes.subscribe(account.see_node)
        healths.subscribe(account.see_health)

    def pause(_seconds: float) -> None:
        time.sleep(0.1)

    def keep(path: str, kind: type[Kept], store: Store[Kept]) -> None:
        reflector = Reflector(api, path, kind, store, clock=SYSTEM, stop=stop, pause=pause)
        threading.Thread(target=reflector.run, name=f"account {path}", daemon=True).start()

    keep(paths.nodes(), Node, nodes)
    keep(paths.node_healths(), NodeHealth, healths)
    try:
        yield
    finally:
        stop.set()
