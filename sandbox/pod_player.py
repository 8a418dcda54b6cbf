"""Plays the pods of repairs on simulated nodes, as a kubelet does: by really running their container's command.

The command runs as a process of this machine, with the simulated machine's folder in its environment and its paths in place
of the mounts. Whatever a Job asks for, only the programs allowed here ever run: a repair that would reach the machine below
(nsenter, systemctl, a reboot that is not simulated) is refused, and the pod fails saying so.
"""

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.clock import SYSTEM, Clock
from kube.store import Change, Store
from kube.watch import Reflector
from sandbox import played_pod, power
from sandbox.agent_files import write_config
from sandbox.nodes import SimulatedNode
from sandbox.played_pod import Container, PlayedPod
from sandbox.simulated_reboot import NODE_DIR, take_request

NAMESPACE = "nodemend-repairs"
POD_DIR = "NODEMEND_SANDBOX_POD_DIR"
REBOOT_COMMAND = (sys.executable, "-m", "sandbox.simulated_reboot")
AGENT_COMMAND = (sys.executable, "-m", "agent")
# What a controller in the sandbox is told to run; `$(NAME)` is Kubernetes' own way to name a container's variable.
VALIDATE_COMMAND = (*AGENT_COMMAND, "validate", "--config", f"$({POD_DIR})/agent.toml")
RESET_COMMAND = (*AGENT_COMMAND, "reset-gpu", "--config", f"$({POD_DIR})/agent.toml")
_RESET_OPTIONS = {
    "--uuid",
    "--boot-id",
    "--timeout-s",
    "--termination-message-path",
}  # not where the driver lies
_AT_ONCE = 64
_MESSAGE_LIMIT = 4096  # kubelet's, for one container
_LONGEST_RUN_S = 3600.0
_POLL_S = 0.05

log = structlog.get_logger()


class RunningProgram(Protocol):
    """What is needed of a `sandbox.processes.Process`."""

    def poll(self) -> int | None: ...

    def stop(self, grace_s: float = 5.0) -> int: ...

    def kill(self) -> int: ...


class Host(Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    @property
    def admin(self) -> Api: ...

    def spawn(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> RunningProgram: ...


class PodPlayer:
    """Plays the pods of one namespace on the nodes given to it, from `start` until `stop`."""

    def __init__(
        self,
        host: Host,
        nodes: Sequence[SimulatedNode] = (),
        *,
        also_allowed: Sequence[Sequence[str]] = (),
        clock: Clock = SYSTEM,
    ) -> None:
        self._host = host
        self._nodes = {node.name: node for node in nodes}
        self._allowed = tuple(tuple(prefix) for prefix in also_allowed)
        self._clock = clock
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken: set[str] = set()  # UIDs; bounded by the pods of one sandbox's life
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pod")
        self._store: Store[PlayedPod] = Store()
        self._store.subscribe(self._notice)
        self._reflector = Reflector(
            host.admin, paths.pods(NAMESPACE), PlayedPod, self._store, clock=clock, stop=self._stop
        )
        self._thread = threading.Thread(target=self._reflector.run, name="pod-player", daemon=True)

    def add(self, nodes: Sequence[SimulatedNode]) -> None:
        """Play on these nodes too; pods that wait there already are taken up."""
        with self._lock:
            self._nodes.update({node.name: node for node in nodes})
        for pod in self._store.values():
            self._notice(Change.MODIFIED, pod)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Play no more pods; those that run are ended. The watch itself ends with the sandbox's session."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _notice(self, change: Change, pod: PlayedPod | None) -> None:
        if pod is None or change is Change.DELETED or self._stop.is_set():
            return
        with self._lock:
            node = self._nodes.get(pod.spec.node_name)
            if node is None or pod.metadata.uid in self._taken or pod.status.phase not in ("", "Pending"):
                return
            self._taken.add(pod.metadata.uid)
        with suppress(RuntimeError):  # stopped in this very moment
            self._pool.submit(self._play, pod, node)

    def _play(self, pod: PlayedPod, node: SimulatedNode) -> None:
        try:
            if self._await_machine(pod, node):
                self._run(pod, node)
            if self._deleted(pod):
                self._remove(pod)
        except Exception as error:  # noqa: BLE001 - the edge of this thread: one pod's trouble is no other's
            log.warning("pod.abandoned", pod=pod.metadata.name, node=node.name, error=str(error))

    def _await_machine(self, pod: PlayedPod, node: SimulatedNode) -> bool:
        """Wait for a machine that is down; False where the pod is not to be run any more."""
        while not (self._stop.is_set() or self._deleted(pod)):
            if node.up.wait(_POLL_S):
                return True
        return False

    def _run(self, pod: PlayedPod, node: SimulatedNode) -> None:
        started = self._clock.now()
        folder = node.root / "pods" / pod.metadata.uid
        folder.mkdir(parents=True, exist_ok=True)
        argv, env = command_line(pod.spec.containers[0], node, folder)
        why = why_not_play(pod) or why_not_run(argv, self._allowed)
        if why is not None:
            self._report(pod, played_pod.ended(started, started, 126, why))
            return
        view = folder / "kmsg"
        # The agent's own state counts there as on a real node, where a hostPath mounts it: it knows what was cleared.
        write_config(folder / "agent.toml", node, kmsg=view, state_dir=node.machine.state_dir)
        node.machine.kernel_log.open_view(view)
        try:
            program = self._host.spawn(f"pod-{pod.metadata.name}", argv, env, folder / "log")
            self._report(pod, played_pod.running(started))
            status = self._await(pod, node, program)
        finally:
            node.machine.kernel_log.close_view(view)
        end = played_pod.ended(started, self._clock.now(), status, _termination_message(folder))
        ending = take_request(node.root) if status == 0 else None
        if ending is None:
            self._report(pod, end)
            return
        with suppress(ApiError):  # a machine that goes down waits for no API server
            played_pod.report(self._host.admin, pod, end)
        sleep = self._clock.sleep
        power.reboot(node, self._host.admin, ending=ending, played_namespace=NAMESPACE, sleep=sleep)
        self._report(pod, end)

    def _await(self, pod: PlayedPod, node: SimulatedNode, program: RunningProgram) -> int:
        """Wait for the program's end; end it where the pod is deleted, the machine goes down or the player stops."""
        deadline = self._clock.monotonic() + _LONGEST_RUN_S
        while (status := program.poll()) is None:
            if not node.up.is_set() or self._stop.is_set() or self._clock.monotonic() > deadline:
                return _exit_code(program.kill())
            if self._deleted(pod):
                return _exit_code(program.stop(grace_s=pod.spec.termination_grace_period_seconds or 0))
            self._clock.sleep(_POLL_S)
        return _exit_code(status)

    def _report(self, pod: PlayedPod, status: played_pod.Status) -> None:
        power.persist(lambda: played_pod.report(self._host.admin, pod, status), self._clock.sleep)

    def _deleted(self, pod: PlayedPod) -> bool:
        now = self._store.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
        if now is None or now.metadata.uid != pod.metadata.uid:
            return True
        return now.metadata.deletion_timestamp is not None

    def _remove(self, pod: PlayedPod) -> None:
        """Let the object go after its processes ended, as a kubelet does."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}}
        with suppress(NotFound):
            self._host.admin.delete(paths.pod(pod.metadata.namespace, pod.metadata.name), body)


def why_not_play(pod: PlayedPod) -> str | None:
    """Say why the player cannot play a pod of this shape, None where it can."""
    if len(pod.spec.containers) != 1:
        return f"the sandbox plays pods of one container, this has {len(pod.spec.containers)}"
    return None


def why_not_run(argv: Sequence[str], also_allowed: Sequence[tuple[str, ...]] = ()) -> str | None:
    """Say why the sandbox does not run a command on the machine below it, None where it may.

    Allowed are the simulated reboot, the agent's `validate`, its `reset-gpu` with the driver of the simulated machine's own
    configuration, and what a test names by its first words.
    """
    if tuple(argv[:3]) == REBOOT_COMMAND:
        return None
    if tuple(argv[:4]) == (*AGENT_COMMAND, "validate"):
        return None
    if tuple(argv[:5]) == RESET_COMMAND[:5] and {w for w in argv[6:] if w.startswith("-")} <= _RESET_OPTIONS:
        return None
    if any(tuple(argv[: len(prefix)]) == prefix for prefix in also_allowed):
        return None
    return f"the sandbox does not run {' '.join(argv)!r} on the machine below it"


def command_line(container: Container, node: SimulatedNode, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Give the command and environment of a container, with this machine's path in place of its termination message's.

    `$(NAME)` is replaced as Kubernetes does, from the container's environment and the sandbox's own variables. Programs of
    the product's image are this machine's, `nodemend-agent` with the configuration that the image would find.
    """
    env = {NODE_DIR: str(node.root), POD_DIR: str(folder), "NODE_NAME": node.name}
    env |= {variable.name: variable.value for variable in container.env if variable.value}
    message = container.termination_message_path
    words = [
        re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", lambda match: env.get(match[1], match[0]), word)
        for word in (*container.command, *container.args)
    ]
    words = [str(folder / "termination-log") if word == message else word for word in words]
    return _of_this_machine(words, folder / "agent.toml"), env


def _of_this_machine(words: list[str], config: Path) -> list[str]:
    match words:
        case ["nodemend-agent", what, *rest]:
            return [*AGENT_COMMAND, what, "--config", str(config), *rest]
        case ["python3", *rest]:
            return [sys.executable, *rest]
    return words


def _termination_message(folder: Path) -> str:
    try:
        with (folder / "termination-log").open("rb") as file:
            return file.read(_MESSAGE_LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return ""


def _exit_code(status: int) -> int:
    """Turn Python's minus-the-signal into a container runtime's 128 plus the signal."""
    return status if status >= 0 else 128 - status
