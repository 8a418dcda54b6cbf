"""The whole chain with real processes: a kernel line on one node ends in the node given back, and in three pages."""

import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
import pytest

from kube import paths
from kube.api import NotFound
from kube.remediation import Phase, Remediation
from kube.types import Lease
from sandbox import nodes as simulated
from sandbox.actors import Actors, started
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import NOT_READY_TAINTS, Reboots, SimulatedNode
from sandbox.pod_player import why_not_run
from sandbox.receiver import Receiver

T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: Callable[[], str], timeout_s: float = 60.0) -> T:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {timeout_s:g} s; {what()}")


def leader(sandbox: Sandbox) -> str:
    """Who leads; empty for nobody."""
    try:
        raw = sandbox.admin.get(paths.lease("nodemend-system", "nodemend-controller"))
    except NotFound:
        return ""
    return msgspec.json.decode(raw, type=Lease).spec.holder_identity


def story_of(sandbox: Sandbox, node: SimulatedNode) -> Remediation | None:
    items = msgspec.json.decode(sandbox.admin.get(paths.remediations()))["items"]
    stories = msgspec.convert(items, list[Remediation])
    return next((one for one in stories if one.spec.node_name == node.name), None)


@pytest.fixture
def pair(sandbox: Sandbox) -> Iterator[list[SimulatedNode]]:
    """Two nodes that reboot fast, and a policy for them alone."""
    install(sandbox, "enforce", policy={"nodeSelector": {"nodemend.dev/test": "actors"}})
    nodes = simulated.create(sandbox, ["actors-1", "actors-2"])
    for node in nodes:
        node.reboots = Reboots(down_s=0.2, not_ready_s=0.2)
        sandbox.kubectl("label", "node", node.name, "nodemend.dev/test=actors")
    yield nodes
    sandbox.kubectl("delete", "remediations", "--all")
    sandbox.kubectl("delete", "jobs", "--all", "-n", "nodemend-repairs")
    for node in nodes:
        node.delete(sandbox.admin)
        node.close()
    install(sandbox, "enforce", policy={"nodeSelector": {}, "sinks": []})


def test_a_sick_node_is_repaired_proven_and_given_back(sandbox: Sandbox, pair: list[SimulatedNode]) -> None:
    """Every program is real, under its own token; only the machine, its pods and its reboot are simulated."""
    sick, well = pair
    before = sick.boot_id
    with (
        Receiver(sandbox.state_dir / "receivers" / "actors") as receiver,
        started(sandbox, pair, receiver=receiver, replicas=2) as actors,
    ):
        eventually(lambda: leader(sandbox) or None, lambda: logs(actors))
        sick.write_xid(79, "GPU has fallen off the bus.", gpu=3)

        def returned() -> Remediation | None:
            story = story_of(sandbox, sick)
            return story if story is not None and story.status.phase is Phase.RETURNED else None

        story = eventually(returned, lambda: f"{story_of(sandbox, sick)}\n{logs(actors)}")
        resolved = receiver.wait_for(lambda m: m.type == "dev.nodemend.remediation.resolve", timeout_s=20)
        after = sick.read(sandbox.admin)
        pages = [message.type.rpartition(".")[2] for message in receiver.accepted]

    assert story.spec.boot_id == before != sick.boot_id == after.status.node_info.boot_id
    assert (sick.rebooted, well.rebooted) == (1, 0)
    # Kubernetes' own taint of a machine that was away goes when its controller looks again, seconds later on a busy one.
    left = [taint.key for taint in after.spec.taints if taint.key not in NOT_READY_TAINTS]
    assert (after.spec.unschedulable, left) == (False, [])
    assert resolved.event["subject"] == sick.name
    assert (pages[0], pages[-1], {m.refused for m in receiver.messages}) == ("open", "resolve", {""})


def logs(actors: Actors) -> str:
    return "\n".join(controller.logs[-2000:] for controller in actors.controllers)


def test_a_controller_is_killed_paused_and_started_as_a_test_likes(sandbox: Sandbox) -> None:
    """The second replica takes over when the leader is killed; the dead one can be started again."""
    install(sandbox)
    quick = {"leader": {"lease_duration": "6s", "renew_deadline": "4s", "retry_period": "1s"}}
    with started(sandbox, [], replicas=2, settings=quick) as actors:
        config = tomllib.loads(actors.controllers[0].config.read_text())
        commands = [config["repairs"]["reboot"]["command"], config["validation"]["command"]]
        first = eventually(lambda: leader(sandbox) or None, lambda: logs(actors))
        leading = next(c for c in actors.controllers if '"leader.acquired"' in c.logs)
        leading.kill()
        status = leading.process.poll()
        second = eventually(
            lambda: h if (h := leader(sandbox)) not in ("", first) else None, lambda: logs(actors)
        )
        leading.start()
        other = next(c for c in actors.controllers if c is not leading)
        other.pause()
        third = eventually(
            lambda: h if (h := leader(sandbox)) not in ("", second) else None, lambda: logs(actors)
        )
        other.resume()
        ended = other.process.wait(20)

    assert [why_not_run(command) for command in commands] == [None, None]
    assert status == -signal.SIGKILL
    assert third not in (first, second)
    assert ended == 1  # it lost the lead while it stood still, and ends rather than act on what it believed
