"""The pool of act 4: nodes of its own with agents and played kubelets, two teams' queues, a narrow policy and the scheduler.

The scheduler, the agents and the controller are the product's own programs, under their own accounts. Simulated are the
nodes (KWOK), the pods on them, and which card a kubelet gives to whom (`sandbox.played_kubelet`).
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from cli.__main__ import run
from kube import paths
from kube.api import ApiError, PatchType
from kube.clock import SYSTEM
from kube.store import Change, Store
from kube.types import Pod
from sandbox import nodes as simulated
from sandbox import sharing_objects as objects
from sandbox.actors import SINK, AgentActor, SchedulerActor, start_agent, start_scheduler
from sandbox.cluster import KubectlError, Sandbox
from sandbox.install import install_scheduler
from sandbox.nodes import SimulatedNode
from sandbox.played_kubelet import PlayedKubelet
from sandbox.sharing_steps import PoolScene
from sandbox.watching import Watching

_READY_WITHIN_S = 60.0
_ASKED_EVERY_S = 5


class SharedPool:
    """What act 4 does to the pool, and what it sees of it."""

    def __init__(
        self, sandbox: Sandbox, watching: Watching, nodes: Sequence[SimulatedNode], pods: Store[Pod]
    ) -> None:
        self.watching = watching
        self.nodes = {node.name: node for node in nodes}
        self.kubelets: dict[str, PlayedKubelet] = {}
        self._api, self._pods = sandbox.admin, pods
        self._disrupted: dict[str, str] = {}
        self._bound_at: dict[str, float] = {}
        pods.subscribe(self._see)

    def create_job(self, name: str, queue: str, *, pods: int, gpus: int, least: int = 1) -> None:
        """Raises ApiError."""
        body = objects.job(name, queue, pods=pods, gpus=gpus, least=least)
        self._api.create(paths.jobs(objects.POOL), body)

    def end_job(self, name: str) -> None:
        """Take a Job away with its pods, as when its work is done. Raises ApiError."""
        how = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        self._api.delete(paths.job(objects.POOL, name), how)

    def scene(self, node: str = "", sick: str = "", *, cards: bool = False) -> PoolScene:
        """Give what can be seen now; with `node` and `sick` also of that card, with `cards` who has which of the node.

        Raises ApiError where the cards cannot be told.
        """
        pods = self._pods.values()
        if not node:
            return PoolScene(pods=pods, disrupted=dict(self._disrupted))
        one = self.watching.scene(node)
        held = self.kubelets[node].held() if cards else {}
        return PoolScene(
            pods=pods,
            disrupted=dict(self._disrupted),
            node=one.node,
            health=one.health,
            remediation=one.remediation,
            sick=sick,
            pages=one.pages,
            cards={name: uuids for (namespace, name), uuids in held.items() if namespace == objects.POOL},
        )

    def spread_s(self, pods: Sequence[Pod]) -> float:
        """Give the seconds between the first and the last of these pods to get its node, as the watch saw it."""
        times = [self._bound_at[pod.metadata.uid] for pod in pods if pod.metadata.uid in self._bound_at]
        return max(times) - min(times) if times else 0.0

    def typed(self, *words: str) -> list[str]:
        """Give what `kubectl nodemend` prints for these words. Raises KubectlError with what it says where it fails."""
        out, problems = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(problems):
            code = run(words, open_api=lambda _arguments: self._api, clock=SYSTEM)
        if code:
            raise KubectlError(
                f"kubectl nodemend {' '.join(words)}: status {code}: {problems.getvalue().strip()}"
            )
        return out.getvalue().splitlines()

    def _see(self, _change: Change, pod: Pod | None) -> None:
        if pod is None:
            return
        if pod.spec.node_name:
            self._bound_at.setdefault(pod.metadata.uid, SYSTEM.monotonic())
        for condition in pod.status.conditions:
            if condition.type == "DisruptionTarget" and condition.status == "True":
                self._disrupted[pod.metadata.name] = condition.reason


@contextmanager
def standing(sandbox: Sandbox, watching: Watching, say: Callable[[str], None]) -> Iterator[SharedPool]:
    """Set the pool up beside what stands, and take it away with the block. Needs a controller that runs, with a sink.

    Raises TimeoutError, ApiError, KubectlError, sandbox.install's NotEnforced.
    """
    install_scheduler(sandbox, example_queues=False)
    sandbox.admin.create(paths.policies(), objects.policy(SINK))
    sandbox.create_namespace(objects.POOL)
    with ExitStack() as running:
        nodes = _nodes(sandbox, running)
        pods: Store[Pod] = Store()
        pool = SharedPool(sandbox, watching, nodes, pods)
        watching.keep(paths.pods(objects.POOL), Pod, pods)
        pool.kubelets = {node.name: _kubelet(sandbox, node, running) for node in nodes}
        agents = [_agent(sandbox, node, pool.kubelets[node.name], running) for node in nodes]
        for queue in objects.queues():
            sandbox.admin.create(paths.queues(), queue)
        running.callback(_take_away, sandbox)
        (scheduler,) = start_scheduler(sandbox, settings={"pool": objects.POOL})
        running.callback(_stop, scheduler)
        for agent in agents:
            agent.wait_ready(_READY_WITHIN_S)
        if not watching.wait_for(
            lambda: pods.synced and all(_is_known(pool, one) for one in nodes), _READY_WITHIN_S
        ):
            raise TimeoutError(
                f"the agents of {' and '.join(objects.NODES)} did not report their GPUs in {_READY_WITHIN_S:g} s"
            )
        say(
            f"{len(nodes)} more nodes of {nodes[0].platform.name} join as pool {objects.POOL};"
            f" nodemend-scheduler places its pods, containment is narrow"
        )
        yield pool


def _nodes(sandbox: Sandbox, running: ExitStack) -> list[SimulatedNode]:
    made = simulated.create(sandbox, objects.NODES)
    label = {"metadata": {"labels": {objects.POOL_LABEL: objects.POOL}}}
    for node in made:
        running.callback(node.close)
        sandbox.admin.patch(paths.node(node.name), label, PatchType.MERGE)
    return made


def _kubelet(sandbox: Sandbox, node: SimulatedNode, running: ExitStack) -> PlayedKubelet:
    return running.enter_context(PlayedKubelet(sandbox.admin, node.name, [gpu.uuid for gpu in node.gpus]))


def _agent(sandbox: Sandbox, node: SimulatedNode, kubelet: PlayedKubelet, running: ExitStack) -> AgentActor:
    asked: Mapping[str, object] = {
        "enabled": True,
        "interval": f"{_ASKED_EVERY_S}s",
        "pod_resources": str(kubelet.socket),
    }
    agent = start_agent(sandbox, node, settings={"kubelet": asked})
    running.callback(agent.stop)
    return agent


def _is_known(pool: SharedPool, node: SimulatedNode) -> bool:
    """Whether the node's agent has reported all its cards, and that kubelet offers them."""
    health = pool.watching.healths.get(node.name)
    parts = health.status.parts if health is not None else ()
    offered = {part.uuid for part in parts if part.offered}
    seen = pool.watching.nodes.get(node.name)
    looked = seen.condition("GpuXidError") if seen is not None else None
    return (
        {gpu.uuid for gpu in node.gpus} <= offered
        and looked is not None
        and looked.status == "False"
        and seen is not None
        and seen.metadata.labels.get(objects.POOL_LABEL) == objects.POOL
    )


def _stop(scheduler: SchedulerActor) -> None:
    if scheduler.process.alive:
        scheduler.stop()


def _take_away(sandbox: Sandbox) -> None:
    """Delete the Jobs and the queues, children first; a queue stays for as long as its status names children."""
    admin = sandbox.admin
    with suppress(ApiError):
        admin.delete(paths.jobs(objects.POOL), {"propagationPolicy": "Background"})
    for queue in reversed(objects.queues()):
        name = queue["metadata"]["name"]
        with suppress(ApiError):
            admin.patch(paths.queue_status(name), {"status": {"childQueues": None}}, PatchType.MERGE)
            admin.delete(paths.member(paths.queues(), name))
