"""The ways out of an incident on the real control plane: a failed proof, a drain that cannot end, a word, a mere look.

Each test plays one incident on a node of its own, with nodemend's own programs, and looks at what a person would look at.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.repairs import INCIDENT_LABEL
from kube import paths
from kube.remediation import QUARANTINE, Phase
from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.pod_player import NAMESPACE, REBOOT_COMMAND
from sandbox.watching import data_of
from tests.cluster.holds import Case, Held, break_gpu, open_gate, prepare, why_not_held
from tests.cluster.ledger import Audit, account, distinct
from tests.cluster.stage import REBOOT, Stage, raw_node, standing, take_away

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stage(sandbox: Sandbox) -> Iterator[Stage]:
    """One controller for all tests of this file."""
    install(sandbox, "enforce")
    sandbox.create_namespace("ways-out")
    with standing(sandbox, "ways-out") as stage:
        stage.start_controllers()
        yield stage
    sandbox.kubectl("delete", "namespace", "ways-out", "--wait=false")


class Scene:
    """A stage with one case on it."""

    def __init__(self, stage: Stage, name: str, held: Held, **policy: Any) -> None:
        self.stage = stage
        (node,) = simulated.create(stage.sandbox, [name])
        self.case = Case(held=held, node=node)
        prepare(stage, self.case, **policy)
        stage.start_agents([node])
        self.case.before = raw_node(stage.admin, name)
        stage.cordons[name] = [False]

    @property
    def name(self) -> str:
        return self.case.name

    def reaches(self, phase: Phase, timeout_s: float = 90.0) -> str:
        """Wait until the newest incident is in that phase and its pages are out; give its message."""

        def there() -> bool:
            incidents = self.stage.incidents(self.name)
            rows = incidents[-1].status.notifications if incidents else ()
            out = all(row.sent_at is not None or row.dead for row in rows)
            return bool(incidents) and incidents[-1].status.phase is phase and out

        self.stage.wait(there, f"{self.name} to be {phase}", timeout_s)
        return self.stage.incidents(self.name)[-1].status.message

    def is_held(self) -> None:
        self.stage.wait(
            lambda: not why_not_held(self.stage, self.case), f"{self.name} to be held in {self.case.held}"
        )

    def pages(self) -> list[tuple[str, str]]:
        """Give transition and summary of every distinct page, in order."""
        incident = self.stage.incidents(self.name)[-1].metadata.name
        return list(distinct(self.stage.pages(incident)).values())

    def is_out(self) -> bool:
        """Tell whether the node takes no new work, with our taint on it."""
        spec = raw_node(self.stage.admin, self.name)["spec"]
        return bool(spec.get("unschedulable")) and QUARANTINE in [t["key"] for t in spec.get("taints", [])]

    def jobs(self) -> list[dict[str, Any]]:
        """Give the Jobs of the node's incidents."""
        names = [one.metadata.name for one in self.stage.incidents(self.name)]
        every = json.loads(self.stage.admin.get(paths.jobs(NAMESPACE)))["items"]
        return [job for job in every if job["metadata"]["labels"].get(INCIDENT_LABEL) in names]


@pytest.fixture
def play(stage: Stage) -> Iterator[Callable[..., Scene]]:
    """Set scenes, and take them away."""
    scenes: list[Scene] = []

    def set_scene(name: str, held: Held = Held.JUST_TRUE, **policy: Any) -> Scene:
        scenes.append(Scene(stage, name, held, **policy))
        return scenes[-1]

    yield set_scene
    take_away(stage, [scene.case.node for scene in scenes])


def test_a_node_that_fails_its_proof_stays_out_until_a_person_mended_it(play: Callable[..., Scene]) -> None:
    """A card that is gone after the reboot: Escalated, cordoned, paged with the count; mended: proven, given back."""
    scene = play("fails-its-proof", revalidation={"timeout": "3m", "attempts": 1})
    scene.case.node.machine.pull(3)
    break_gpu(scene.case)
    message = scene.reaches(Phase.ESCALATED)
    assert scene.is_out()
    assert "7 found, 8 demanded" in message
    assert [told for told, _ in scene.pages()] == ["open", "update", "update"]
    assert ": escalated: " in scene.pages()[-1][1]
    assert "7 found, 8 demanded" in scene.pages()[-1][1]

    scene.case.node.machine.put_back(3)
    answer = scene.stage.say("repaired", scene.name)
    assert (answer.returncode, answer.stderr) == (0, "")
    scene.reaches(Phase.RETURNED)
    found = account(scene.stage, scene.case, Audit(scene.stage))
    assert [told for told, _ in scene.pages()] == ["open", "update", "update", "update", "resolve"]
    assert (found.as_found, found.odd, found.machine_reboots, found.node_patches) == (True, (), 1, 2)
    assert [(one.reboots, one.validations) for one in found.incidents] == [(1, 2)]


def test_the_page_names_what_to_type(play: Callable[..., Scene]) -> None:
    """An escalated page holds the very command that ends it, and typing that brings the node back."""
    scene = play("page-names", held=Held.ESCALATED)
    break_gpu(scene.case)
    scene.reaches(Phase.ESCALATED)
    incident = scene.stage.incidents(scene.name)[-1].metadata.name
    commands = data_of(scene.stage.pages(incident)[-1])["commands"]
    assert isinstance(commands, dict)
    assert f"kubectl nodemend repaired {scene.name}" in commands.values()
    too_early = scene.stage.say("cancel", "no-such-node")
    assert too_early.returncode == 2
    assert scene.stage.say("repaired", scene.name).returncode == 0
    scene.reaches(Phase.RETURNED)
    assert raw_node(scene.stage.admin, scene.name) == scene.case.before


def test_a_drain_that_is_never_allowed_ends_with_a_person_and_never_in_force(
    play: Callable[..., Scene],
) -> None:
    """At the drain's deadline: Escalated, the guarded pod runs on, nothing was deleted, no repair was begun."""
    scene = play("never-allowed", held=Held.DRAINING, drain={"deadline": "6s", "unmanagedPods": "evict"})
    break_gpu(scene.case)
    message = scene.reaches(Phase.ESCALATED)
    found = account(scene.stage, scene.case, Audit(scene.stage))
    assert scene.is_out()
    assert f"{scene.stage.namespace}/{scene.case.guarded}" in message
    assert scene.case.guarded in scene.pages()[-1][1]
    assert found.evicted == {"slow": 1, "work": 1}
    assert [(one.reboots, one.validations) for one in found.incidents] == [(0, 0)]
    assert Audit(scene.stage).done("delete", "pods") == []
    guarded = json.loads(scene.stage.admin.get(paths.pod(scene.stage.namespace, scene.case.guarded)))
    assert "deletionTimestamp" not in guarded["metadata"]


def test_observe_changes_nothing_on_the_node(play: Callable[..., Scene]) -> None:
    """It says what it would do; Node, pods, Jobs and on-call are left in peace."""
    scene = play("observed", held=Held.SUSPECTED)
    break_gpu(scene.case)
    scene.is_held()
    (incident,) = scene.stage.incidents(scene.name)
    found = account(scene.stage, scene.case, Audit(scene.stage))
    assert incident.status.message.startswith("mode Observe: would cordon the node for Xid79FallenOffBus")
    assert (found.as_found, found.node_patches, found.evicted, found.machine_reboots) == (True, 0, {}, 0)
    assert (scene.jobs(), scene.pages(), found.cordons) == ([], [], (False,))


def test_a_repair_in_the_sandbox_cannot_reach_the_machine_below(play: Callable[..., Scene]) -> None:
    """Its Job has neither the host's processes nor its network, and its command is the simulated reboot."""
    scene = play("harmless", held=Held.REPAIRING)
    break_gpu(scene.case)
    scene.is_held()
    (job,) = scene.jobs()
    pod = job["spec"]["template"]["spec"]
    assert [pod.get(name, False) for name in ("hostPID", "hostNetwork", "hostIPC")] == [False] * 3
    command = pod["containers"][0]["command"]
    assert command[2 : 3 + len(REBOOT_COMMAND)] == [REBOOT, *REBOOT_COMMAND]
    assert not {"sysrq", "nsenter", "systemctl"} & set(json.dumps(job).replace("/", " ").split())
    assert pod["automountServiceAccountToken"] is False
    open_gate(scene.stage, scene.case)
    scene.reaches(Phase.RETURNED)


def test_a_repair_that_has_not_begun_is_called_back_by_a_cancel(play: Callable[..., Scene]) -> None:
    """A kubelet that hangs leaves the Job's pod pending; it must not reboot the node long after it was given back."""
    scene = play("called-back")
    scene.case.node.up.clear()
    break_gpu(scene.case)
    scene.stage.wait(lambda: bool(scene.jobs()), "the repair's Job", 60)
    assert scene.stage.say("cancel", scene.name).returncode == 0
    scene.reaches(Phase.CANCELLED)
    scene.stage.wait(lambda: not scene.jobs(), "the Job to be gone", 30)
    scene.case.node.up.set()
    found = account(scene.stage, scene.case, Audit(scene.stage))
    assert (found.as_found, found.odd, found.machine_reboots) == (True, (), 0)
