"""nodemend's programs in a sandbox: the real processes, under the tokens of their own ServiceAccounts.

`start_agent` gives a node its agent as the node's DaemonSet pod would: with a token bound to that pod, started again when it
dies or when the pod is another one, dead while its machine is down. `start_controller` and `start_scheduler` give the leader
and its stand-ins.
"""

import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog

from kube import paths
from kube.api import ApiError, PatchType
from kube.types import Pod, Struct
from sandbox.agent_files import merged, toml, write_config
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE
from sandbox.nodes import SimulatedNode
from sandbox.pod_player import AGENT_COMMAND, REBOOT_COMMAND, RESET_COMMAND, VALIDATE_COMMAND, PodPlayer
from sandbox.processes import Process
from sandbox.receiver import Receiver

SYSTEM_NAMESPACE = "nodemend-system"
AGENT = "nodemend-agent"
CONTROLLER = "nodemend-controller"
SCHEDULER = "nodemend-scheduler"
SINK = "sandbox"
_LOOK_S = 0.2
_POD_LOOK_S = 2.0
_RESTART_S = (
    1.0  # kubelet starts a container again at once, then after 10 s and more; a drill need not wait that long
)
_POD_WITHIN_S = 60.0

log = structlog.get_logger()


class _PodList(Struct, frozen=True, kw_only=True):
    items: tuple[Pod, ...] = ()


class AgentActor:
    """One node's agent and what a kubelet does for it. `power_off` and `power_on` are the machine's, see `sandbox.power`."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, settings: Mapping[str, Any]) -> None:
        self.node = node
        self.name = f"agent-{node.name}"
        self.process: Process | None = None
        self.starts = 0
        self._sandbox = sandbox
        self._settings = settings
        self._pod: tuple[str, str] | None = None
        self._powered = threading.Event()
        self._powered.set()
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._keep_running, name=self.name, daemon=True)

    def start(self) -> None:
        """Start it for the first time. Raises TimeoutError where its DaemonSet's pod does not appear on the node."""
        deadline = time.monotonic() + _POD_WITHIN_S
        while (pod := self._find_pod()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no pod of DaemonSet {AGENT} on node {self.node.name}")
            time.sleep(_LOOK_S)
        self._run(pod)
        self._thread.start()

    def kill(self) -> None:
        """Kill -9 it; it is started again, as its DaemonSet's pod would be."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """End it for good."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)
        with self._lock:
            if self.process is not None:
                self.process.stop()

    def power_off(self) -> None:
        self._powered.clear()
        with self._lock:
            if self.process is not None:
                self.process.kill()

    def power_on(self) -> None:
        self._powered.set()

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until it serves, which it says in its state folder. Raises TimeoutError with the end of its log."""
        deadline = time.monotonic() + timeout_s
        while not self.listen.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.name} does not listen after {timeout_s:g} s:\n{self._sandbox.logs(self.name)}"
                )
            time.sleep(_LOOK_S)

    @property
    def listen(self) -> Path:
        """The file that holds the address of /metrics and the probes."""
        return self.node.machine.state_dir / "listen"

    def _keep_running(self) -> None:
        pod_look = time.monotonic() + _POD_LOOK_S
        while not self._stop.wait(_LOOK_S):
            if not self._powered.is_set():
                continue
            ended = self.process is None or not self.process.alive
            if not ended and time.monotonic() < pod_look:
                continue
            pod_look = time.monotonic() + _POD_LOOK_S
            try:
                self._look_after(ended=ended)
            except ApiError as error:  # the API server may be down on purpose
                log.info("agent.unattended", node=self.node.name, error=str(error))

    def _look_after(self, *, ended: bool) -> None:
        pod = self._find_pod()
        if pod != self._pod and self.process is not None:
            self.process.stop()  # the pod is gone, and its token with it
            ended = True
        if pod is not None and ended and not self._stop.wait(_RESTART_S):
            self._run(pod)

    def _find_pod(self) -> tuple[str, str] | None:
        query = {
            "labelSelector": f"app.kubernetes.io/name={AGENT}",
            "fieldSelector": f"spec.nodeName={self.node.name}",
        }
        listed = msgspec.json.decode(
            self._sandbox.admin.get(paths.pods(SYSTEM_NAMESPACE), query), type=_PodList
        )
        alive = [pod.metadata for pod in listed.items if pod.metadata.deletion_timestamp is None]
        return (alive[0].name, alive[0].uid) if alive else None

    def _run(self, pod: tuple[str, str]) -> None:
        token = self._sandbox.token_file(SYSTEM_NAMESPACE, AGENT, pod=pod)
        machine = self.node.machine
        config = self.node.root / "etc" / "nodemend" / "agent.toml"
        kube = {
            "server": self._sandbox.server,
            "token_file": str(token),
            "ca_file": str(self._sandbox.ca_file),
        }
        more = merged({"kube": kube}, self._settings)
        write_config(config, self.node, kmsg=machine.kmsg, state_dir=machine.state_dir, more=more)
        with self._lock:
            if not self._powered.is_set() or self._stop.is_set():
                return
            self.listen.unlink(missing_ok=True)
            machine.kernel_log.rewind()
            self._pod = pod
            self.starts += 1
            argv = [*AGENT_COMMAND, "--config", str(config)]
            self.process = self._sandbox.spawn(self.name, argv, {"NODE_NAME": self.node.name})


def start_agent(
    sandbox: Sandbox, node: SimulatedNode, *, settings: Mapping[str, Any] | None = None
) -> AgentActor:
    """Start the agent of one node; `settings` are merged into its configuration. The manifests must be installed.

    Raises TimeoutError where the DaemonSet's pod does not appear, ApiError.
    """
    actor = AgentActor(sandbox, node, settings or {})
    actor.start()
    node.agent = actor
    return actor


class Replica:
    """One of several processes of which one leads."""

    def __init__(self, sandbox: Sandbox, name: str, config: Path) -> None:
        self.name = name
        self.config = config
        self._sandbox = sandbox
        self.process = self._spawn()

    def argv(self) -> list[str]:
        raise NotImplementedError

    def _spawn(self) -> Process:
        return self._sandbox.spawn(self.name, self.argv(), {"POD_NAME": self.name})

    @property
    def logs(self) -> str:
        return self._sandbox.logs(self.name)

    def kill(self) -> None:
        """Kill -9 it; nothing starts it again but `start`."""
        self.process.kill()

    def stop(self) -> None:
        """Ask it to end, as at a roll-out."""
        self.process.stop(grace_s=30)

    def pause(self) -> None:
        """Stop its clock, as a machine that hangs does (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def start(self) -> None:
        """Start it again, as its Deployment would."""
        if self.process.alive:
            raise ValueError(f"{self.name} still runs")
        self.process = self._spawn()


class ControllerActor(Replica):
    """One replica of the controller."""

    def argv(self) -> list[str]:
        return [sys.executable, "-m", "controller", "--config", str(self.config)]


class SchedulerActor(Replica):
    """One replica of the scheduler."""

    def argv(self) -> list[str]:
        return [sys.executable, "-m", "controller.scheduler", "run", "--config", str(self.config)]


def start_controller(
    sandbox: Sandbox,
    *,
    replicas: int = 1,
    sinks: Mapping[str, Receiver] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[ControllerActor]:
    """Start controllers under their ServiceAccount's own token. `sinks` by the name that policies use.

    `settings` are merged into the configuration (nested tables, as in controller.toml). The manifests must be installed.
    """
    series = secrets.token_hex(2)
    return [
        ControllerActor(
            sandbox,
            f"{CONTROLLER}-{series}-{number}",
            _write_controller_config(sandbox, f"{CONTROLLER}-{series}-{number}", sinks or {}, settings or {}),
        )
        for number in range(replicas)
    ]


def _write_controller_config(
    sandbox: Sandbox, name: str, sinks: Mapping[str, Receiver], settings: Mapping[str, Any]
) -> Path:
    token = sandbox.token_file(SYSTEM_NAMESPACE, CONTROLLER)
    table: dict[str, Any] = {
        "cluster_name": "sandbox",
        "listen": "127.0.0.1:0",
        "kube": {"server": sandbox.server, "token_file": str(token), "ca_file": str(sandbox.ca_file)},
        "jobs": {"image": IMAGE, "host_pid": False},
        "repairs": {
            "reboot": {"command": list(REBOOT_COMMAND)},
            "reset-gpu": {"command": list(RESET_COMMAND)},
        },
        "validation": {"command": list(VALIDATE_COMMAND)},
        "sinks": {
            sink: {"url": receiver.url, "secret_file": str(receiver.secret_file)}
            for sink, receiver in sinks.items()
        },
    }
    path = sandbox.state_dir / "controllers" / name / "controller.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml(merged(table, settings)))
    return path


def start_scheduler(
    sandbox: Sandbox, *, replicas: int = 1, settings: Mapping[str, Any] | None = None
) -> list[SchedulerActor]:
    """Start schedulers under their ServiceAccount's own token; `settings` are merged into the configuration (nested tables,
    as in scheduler.toml). The manifests must be installed (`sandbox.install.install_scheduler`).
    """
    series = secrets.token_hex(2)
    names = [f"{SCHEDULER}-{series}-{number}" for number in range(replicas)]
    return [
        SchedulerActor(sandbox, name, _write_scheduler_config(sandbox, name, settings or {}))
        for name in names
    ]


def _write_scheduler_config(sandbox: Sandbox, name: str, settings: Mapping[str, Any]) -> Path:
    token = sandbox.token_file(SYSTEM_NAMESPACE, SCHEDULER)
    table = {
        "listen": "127.0.0.1:0",
        "kube": {"server": sandbox.server, "token_file": str(token), "ca_file": str(sandbox.ca_file)},
    }
    path = sandbox.state_dir / "schedulers" / name / "scheduler.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml(merged(table, settings)))
    return path


class Actors(msgspec.Struct, kw_only=True):
    """What plays around a set of nodes."""

    agents: dict[str, AgentActor]
    controllers: list[ControllerActor]
    player: PodPlayer


@contextmanager
def started(
    sandbox: Sandbox,
    nodes: Sequence[SimulatedNode],
    *,
    receiver: Receiver | None = None,
    replicas: int = 1,
    settings: Mapping[str, Any] | None = None,
    agent_settings: Mapping[str, Any] | None = None,
    ready_within_s: float = 60.0,
) -> Iterator[Actors]:
    """Give all `nodes` their agents, play their repairs' pods and start the controller; end all that with the block.

    With a `receiver` the policy `default` pages it, as the sink `sandbox`. The manifests must be installed. Raises
    TimeoutError where an agent does not come up, ApiError.
    """
    if receiver is not None:
        spec = {"spec": {"sinks": [SINK]}}
        sandbox.admin.patch(paths.policy("default"), spec, PatchType.MERGE)
    player = PodPlayer(sandbox, nodes)
    player.start()
    actors: list[AgentActor | ControllerActor] = []
    try:
        agents = {node.name: start_agent(sandbox, node, settings=agent_settings) for node in nodes}
        actors += agents.values()
        sinks = {SINK: receiver} if receiver is not None else {}
        controllers = start_controller(sandbox, replicas=replicas, sinks=sinks, settings=settings)
        actors += controllers
        for agent in agents.values():
            agent.wait_ready(ready_within_s)
        yield Actors(agents=agents, controllers=controllers, player=player)
    finally:
        _stop_all(actors)
        player.stop()


def _stop_all(actors: Sequence[AgentActor | ControllerActor]) -> None:
    with ThreadPoolExecutor(16, thread_name_prefix="stop") as pool:
        list(pool.map(lambda actor: actor.stop(), actors))
