"""nodemend's real agent on a simulated node: under its DaemonSet pod's token, living and dying with its machine."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kube.api import NotFound
from kube.types import NodeCondition
from sandbox import nodes as simulated
from sandbox import power
from sandbox.actors import AgentActor, start_agent
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import Reboots, SimulatedNode

T = TypeVar("T")
OFF_THE_BUS = (79, "GPU has fallen off the bus.")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = 30.0) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s:g} s for {what}")


class Watched:
    """A node with its agent."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, actor: AgentActor) -> None:
        self.sandbox = sandbox
        self.node = node
        self.actor = actor

    def condition(self) -> NodeCondition | None:
        return self.node.read(self.sandbox.admin).condition("GpuXidError")

    def becomes(self, status: str) -> NodeCondition:
        def look() -> NodeCondition | None:
            try:
                seen = self.condition()
            except NotFound:
                return None
            return seen if seen is not None and seen.status == status else None

        return eventually(
            look, f"GpuXidError={status} on {self.node.name}; {self.sandbox.logs(self.actor.name)}"
        )


@pytest.fixture
def watched(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[Watched]:
    install(sandbox)
    (node,) = simulated.create(sandbox, [f"agent-{abs(hash(request.node.name)) % 10**6}"])
    node.reboots = Reboots(down_s=0.2, not_ready_s=0.2)
    actor = start_agent(sandbox, node)
    actor.wait_ready(30)
    yield Watched(sandbox, node, actor)
    actor.stop()
    node.delete(sandbox.admin)
    node.close()


def test_a_kernel_line_becomes_a_condition(watched: Watched) -> None:
    """The whole way: pipe, agent, its own token, API server."""
    before = watched.becomes("False")
    watched.node.write_xid(*OFF_THE_BUS, gpu=3)
    after = watched.becomes("True")

    assert (before.reason, after.reason) == ("NoXidError", "Xid79FallenOffBus")
    assert watched.node.gpus[3].uuid in after.message


def test_the_agent_bears_its_pods_token(watched: Watched) -> None:
    """The token names the pod and the node, which the admission policy for agents will ask for."""
    raw = next(
        path
        for path in (watched.sandbox.state_dir / "tokens" / "nodemend-system").glob("nodemend-agent.*")
        if watched.node.name in claims(path.read_text())["node"]["name"]
    )

    assert claims(raw.read_text())["pod"]["name"].startswith("nodemend-agent-")


def claims(token: str) -> dict[str, dict[str, str]]:
    payload = token.split(".")[1]
    decoded = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    found: dict[str, dict[str, str]] = decoded["kubernetes.io"]
    return found


def test_a_killed_agent_comes_back_and_forgets_nothing(watched: Watched) -> None:
    """Kill -9 with a fault standing: the condition stays True, also once the new process judges."""
    watched.becomes("False")
    watched.node.write_xid(*OFF_THE_BUS)
    first = watched.becomes("True")
    watched.actor.kill()
    eventually(lambda: watched.actor.starts == 2 or None, "the agent to start again")
    watched.actor.wait_ready(30)
    time.sleep(1.0)
    second = watched.becomes("True")

    assert second.last_transition_time == first.last_transition_time


def test_a_reboot_takes_the_agent_down_and_clears_what_it_ended(watched: Watched) -> None:
    """The agent's process of the old boot is gone; the one of the new boot says False."""
    watched.becomes("False")
    watched.node.write_xid(*OFF_THE_BUS)
    watched.becomes("True")
    old = watched.actor.process
    power.reboot(watched.node, watched.sandbox.admin)
    cleared = watched.becomes("False")

    assert old is not None
    assert not old.alive
    assert watched.actor.process is not old
    assert cleared.reason == "NoXidError"


def test_a_node_made_anew_is_watched_again(watched: Watched) -> None:
    """Another Node object under the name, whose DaemonSet pod stayed: the same agent publishes there too."""
    watched.becomes("False")
    simulated.await_calm(watched.sandbox.admin, watched.node)
    watched.node.delete(watched.sandbox.admin)
    watched.node.register(watched.sandbox.admin)

    assert watched.becomes("False").reason == "NoXidError"


def test_another_pod_is_another_process(watched: Watched) -> None:
    """A pod that was deleted takes its process and its token with it, as a roll-out does."""
    watched.becomes("False")
    old = watched.actor.process
    watched.sandbox.kubectl(
        "delete", "pod", "-n", "nodemend-system", f"--field-selector=spec.nodeName={watched.node.name}", "--wait=false"
    )  # fmt: skip
    eventually(lambda: watched.actor.starts == 2 or None, "an agent of the new pod")

    assert old is not None
    assert not old.alive
