"""The stage of the drills: simulated nodes with real agents, controllers that are started again like a Deployment's, a
receiver of pages, and teams' pods. Everything is nodemend's own programs under their own tokens on a real API server.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from controller.repairs import INCIDENT_LABEL
from kube import paths
from kube.api import Api, NotFound, PatchType
from kube.clock import SYSTEM
from kube.remediation import CLOSED, Remediation
from kube.types import Node
from sandbox.actors import SINK, AgentActor, ControllerActor, start_agent, start_controller
from sandbox.cluster import Sandbox
from sandbox.nodes import Reboots, SimulatedNode
from sandbox.pod_player import NAMESPACE, REBOOT_COMMAND, VALIDATE_COMMAND, PodPlayer
from sandbox.receiver import Message, Receiver
from sandbox.watching import Watching, data_of
from tests.cluster import held_command

ROOT = Path(__file__).parents[2]
CONDITION = "GpuXidError"
OFF_THE_BUS = (79, "GPU has fallen off the bus.")
REBOOT, VALIDATE = "reboot", "validate"
# Shorter than in production, so that a drill need not wait 15 s for a Lease to run out; the leader change has its own.
QUICK_LEASE = {"lease_duration": "8s", "renew_deadline": "6s", "retry_period": "1s"}
_DOWN_UNTIL_TOLD_S = 3600.0
_LONGEST_DOWN_S = 120.0
_HELD = (sys.executable, str(Path(held_command.__file__)))


class Replicas:
    """The controller's Deployment: a process that ends is started again, unless `left_alone` is set."""

    def __init__(self, sandbox: Sandbox, count: int, receiver: Receiver, settings: Mapping[str, Any]) -> None:
        self.left_alone = threading.Event()
        self.exits: list[int] = []
        self.actors = start_controller(sandbox, replicas=count, sinks={SINK: receiver}, settings=settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="replicas", daemon=True)
        self._thread.start()

    def leader(self) -> ControllerActor | None:
        """Give the replica whose log says that it leads."""
        return next((actor for actor in self.actors if actor.process.alive and leads(actor.logs)), None)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        for actor in self.actors:
            actor.resume()
            actor.stop()

    def _keep_running(self) -> None:
        while not self._stop.wait(0.2):
            if self.left_alone.is_set():
                continue
            for actor in self.actors:
                status = actor.process.poll()
                if status is not None:
                    self.exits.append(status)
                    actor.start()


def leads(log: str) -> bool:
    """Tell from a controller's log whether its last process leads."""
    told = False
    for line in log.splitlines():
        if '"leader.acquired"' in line:
            told = True
        elif '"config.loaded"' in line:
            told = False
    return told


class Stage:
    """What the drills act on. `namespace` holds the teams' pods."""

    def __init__(self, sandbox: Sandbox, namespace: str, receiver: Receiver, watching: Watching) -> None:
        self.sandbox = sandbox
        self.namespace = namespace
        self.receiver = receiver
        self.watching = watching
        self._boots: dict[float, threading.Event] = {}
        self.player = PodPlayer(
            sandbox, also_allowed=[_HELD], clock=msgspec.structs.replace(SYSTEM, sleep=self._sleep)
        )
        self.agents: dict[str, AgentActor] = {}
        self.replicas: Replicas | None = None
        self.cordons: dict[str, list[bool]] = {}
        watching.nodes.subscribe(lambda _change, node: self._note_cordon(node))

    @property
    def admin(self) -> Api:
        return self.sandbox.admin

    @property
    def controllers(self) -> Replicas:
        assert self.replicas is not None
        return self.replicas

    def start_agents(self, nodes: Sequence[SimulatedNode]) -> None:
        """Give each node its agent and its pod player; returns when every one has looked and found no fault."""
        self.player.add(nodes)
        with ThreadPoolExecutor(8) as pool:
            started = pool.map(lambda node: start_agent(self.sandbox, node), nodes)
            self.agents.update({actor.node.name: actor for actor in started})
        self.wait(lambda: all(self.status_of(node.name) == "False" for node in nodes), "all agents to look")

    def start_controllers(self, count: int = 1, **settings: Any) -> None:
        """Start the replicas; returns when one of them leads."""
        table = {
            "leader": QUICK_LEASE,
            "repairs": {"reboot": {"command": [*_HELD, REBOOT, *REBOOT_COMMAND]}},
            "validation": {"command": [*_HELD, VALIDATE, *VALIDATE_COMMAND]},
        }
        self.replicas = Replicas(self.sandbox, count, self.receiver, {**table, **settings})
        self.wait(lambda: self.controllers.leader() is not None, "a controller to lead")

    def stop(self) -> None:
        for boot in self._boots.values():
            boot.set()
        if self.replicas is not None:
            self.replicas.stop()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda actor: actor.stop(), list(self.agents.values())))
        self.player.stop()

    # Looking

    def wait(self, true: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
        """Wait until it is so. Raises TimeoutError."""
        if not self.watching.wait_for(true, timeout_s):
            raise TimeoutError(f"waited {timeout_s:g} s for {what}")

    def status_of(self, node: str) -> str:
        seen = self.watching.nodes.get(node)
        condition = seen.condition(CONDITION) if seen is not None else None
        return condition.status if condition is not None else "absent"

    def incidents(self, node: str) -> list[Remediation]:
        """Give the node's incidents, oldest first."""
        found = [one for one in self.watching.remediations.values() if one.spec.node_name == node]
        return sorted(found, key=lambda one: one.spec.opened_at)

    def incident(self, node: str) -> Remediation | None:
        """Give the node's open incident."""
        return next((one for one in self.incidents(node) if one.status.phase not in CLOSED), None)

    def pages(self, incident: str) -> list[Message]:
        return [m for m in self.receiver.messages if data_of(m).get("incident") == incident]

    def has_pod(self, name: str) -> bool:
        try:
            self.admin.get(paths.pod(self.namespace, name))
        except NotFound:
            return False
        return True

    def print_story(self, nodes: Sequence[str], lines: int = 40) -> None:
        """Print what tells why these nodes do not get on: their incidents, what runs on them, and the ends of the logs."""
        for node in nodes:
            for one in self.incidents(node):
                held = f", held by {one.status.held_by}" if one.status.held_by else ""
                print(f"== {node}: {one.metadata.name} is {one.status.phase}{held}: {one.status.message}")
                print(*one.status.attempts, sep="\n")
            on_it = f"--field-selector=spec.nodeName={node}"
            print(self.sandbox.kubectl("get", "pods", "--all-namespaces", "-o", "wide", on_it))
            told = [
                line for actor in self.controllers.actors for line in actor.logs.splitlines() if node in line
            ]
            print(*told, sep="\n")
        names = [actor.name for actor in self.controllers.actors]
        for name in [*names, *(self.agents[node].name for node in nodes)]:
            end = self.sandbox.logs(name).splitlines()[-lines:]
            print(f"== the end of the log of {name}", *end, sep="\n")

    # Acting as an administrator, a team, or a person on call

    def apply_policy(self, name: str, **spec: Any) -> None:
        """Create the policy of one node, with a pool of its own: no budget and no breaker couples it to others."""
        whole: dict[str, Any] = {
            "mode": "Enforce",
            "priority": 100,
            "nodeSelector": {"kubernetes.io/hostname": name},
            "sinks": [SINK],
            "ladder": [{"repair": "reboot", "timeout": "5m"}],
            "drain": {"deadline": "10m", "unmanagedPods": "evict"},
            "revalidation": {"timeout": "3m", "attempts": 2},
            **spec,
        }
        body = {
            "apiVersion": "nodemend.dev/v1alpha1",
            "kind": "RemediationPolicy",
            "metadata": {"name": name},
            "spec": whole,
        }
        self.admin.create(paths.policies(), body)

    def change_policy(self, name: str, **spec: Any) -> None:
        self.admin.patch(paths.policy(name), {"spec": spec}, PatchType.MERGE)

    def start_pod(
        self, node: str, name: str, *, gpus: int = 1, exits_after: str = "", grace_s: int = 30
    ) -> None:
        """Let a team run a pod on the node; `exits_after` is how long it takes to end after its SIGTERM."""
        annotations = {"sandbox.nodemend.dev/exits-after": exits_after} if exits_after else {}
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        body = {
            "metadata": {"name": name, "labels": {"pod": name}, "annotations": annotations},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": grace_s,
                "containers": [{"name": "c", "image": "example.invalid/work:1", "resources": resources}],
            },
        }
        self.admin.create(paths.pods(self.namespace), body)

    def forbid_eviction(self, pod: str) -> None:
        """Put a PodDisruptionBudget over one pod that never lets it go."""
        body = {
            "metadata": {"name": pod},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"pod": pod}}},
        }
        self.admin.create(f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets", body)

    def allow_eviction(self, pod: str) -> None:
        self.admin.delete(f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets/{pod}")

    def set_cordon(self, node: str, cordon: bool) -> None:
        """Cordon or uncordon as kubectl does: one patch of one field."""
        body = {"spec": {"unschedulable": cordon or None}}
        self.admin.patch(paths.node(node), body, PatchType.STRATEGIC)

    def say(self, word: str, node: str) -> subprocess.CompletedProcess[str]:
        """Type `kubectl-nodemend WORD NODE`."""
        return subprocess.run(
            [sys.executable, "-m", "cli", "--kubeconfig", str(self.sandbox.admin_kubeconfig), word, node],
            cwd=ROOT,
            env=self.sandbox.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def stay_down(self, node: SimulatedNode) -> None:
        """Let the node's machine, once it goes down, stay so until `boot`."""
        down_s = _DOWN_UNTIL_TOLD_S + len(self._boots)
        self._boots[down_s] = threading.Event()
        node.reboots = Reboots(down_s=down_s)

    def boot(self, node: SimulatedNode) -> None:
        self._boots[node.reboots.down_s].set()

    def _sleep(self, seconds: float) -> None:
        """Sleep for the pod player; the time that a machine is down ends when it is told to boot."""
        if seconds in self._boots:
            self._boots[seconds].wait(_LONGEST_DOWN_S)
        else:
            time.sleep(seconds)

    def _note_cordon(self, node: Node | None) -> None:
        if node is None:
            return
        told = self.cordons.setdefault(node.metadata.name, [])
        if not told or told[-1] != node.spec.unschedulable:
            told.append(node.spec.unschedulable)


def raw_node(api: Api, name: str) -> dict[str, Any]:
    """Read what a Node must look like again in the end: its spec and annotations, as JSON, without the server's own."""
    node = json.loads(api.get(paths.node(name)))
    annotations = node["metadata"].get("annotations", {})
    kept = {key: text for key, text in annotations.items() if not key.startswith("node.alpha.kubernetes.io/")}
    # Kubernetes' own taints of a node that is not heard come and go with its kubelet, whatever nodemend does.
    own = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    taints = [taint for taint in node["spec"].get("taints", ()) if taint["key"] not in own]
    spec = {key: value for key, value in node["spec"].items() if key != "taints"}
    return {"annotations": kept, "spec": {**spec, **({"taints": taints} if taints else {})}}


@contextmanager
def standing(sandbox: Sandbox, namespace: str) -> Iterator[Stage]:
    """Set the stage up and take everything of it away again."""
    with (
        Receiver(sandbox.state_dir / f"receiver-{namespace}") as receiver,
        Watching(sandbox.admin, SYSTEM, receiver) as watching,
    ):
        stage = Stage(sandbox, namespace, receiver, watching)
        stage.player.start()
        try:
            yield stage
        finally:
            stage.stop()


def take_away(stage: Stage, nodes: Sequence[SimulatedNode]) -> None:
    """Remove nodes, their policies, incidents and Jobs. The Node goes first: its incidents are what keeps it in peace."""
    incidents = [one.metadata.name for node in nodes for one in stage.incidents(node.name)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda node: stage.agents.pop(node.name).stop(), nodes))
    doomed = [paths.node(name) for node in nodes for name in (node.name, f"{node.name}-filler")]
    doomed += [paths.policy(node.name) for node in nodes]
    doomed += [paths.remediation(name) for name in incidents]
    for path in doomed:
        with suppress(NotFound):
            stage.admin.delete(path)
    if incidents:
        ours = f"{INCIDENT_LABEL} in ({','.join(incidents)})"
        stage.sandbox.kubectl("delete", "job", "-n", NAMESPACE, "-l", ours, "--wait=false")
    for node in nodes:
        node.close()
