"""A program that leaves the same XID on node after node is suspected, and what it would have cost is held."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from checks.finding import Action, Effect, Severity, Urgency
from controller.case import WORKLOAD
from controller.explain import explain
from controller.plan import plan
from controller.workloads import APPLICATION
from kube.nodehealth import HealthFinding
from kube.policy import BreakerPolicy, BudgetPolicy, Mode, RemediationPolicy, WorkloadPolicy
from kube.remediation import WORKLOAD_ACKNOWLEDGED, Phase, RemediationStatus
from tests import build as make
from tests.controller.core.test_workload_causes import reason_of
from tests.controller.core.world import World

ROOMY = BudgetPolicy(max_unavailable="100%", max_quarantined="100%", max_repairs_in_flight=20)
WIDE = BreakerPolicy(threshold="100%", min_nodes=50)
HOUR = timedelta(hours=1)


def policy(**spec: Any) -> RemediationPolicy:
    return make.policy(**{"budget": ROOMY, "breaker": WIDE, "sinks": ("pager",), **spec})


class Cluster(World):
    """Twelve nodes on which jobs fail."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(*(make.node(f"gpu-{number}") for number in range(1, 13)), policies=[policy(**spec)])

    def gsp(self, node: str, holder: str = "ml/llm-0-x7k2p", **changes: Any) -> HealthFinding:
        """Build a GSP timeout: it looks like hardware, and a program can bring it about."""
        reset = {
            "reason": "Xid119GspTimeout",
            "effect": Effect.PART_OUT,
            "urgency": Urgency.NOW,
            "action": Action.RESET_GPU,
            "holder": holder,
        }
        return self.seen(node, **{**reset, **changes})

    def fail(self, *nodes: str, apart: timedelta = HOUR, **changes: Any) -> None:
        """Let it happen on these nodes, one after the other."""
        for node in nodes:
            self.now += apart
            self.fault(node, self.gsp(node, **changes))
            self.after()

    def held(self) -> list[str]:
        """Name the nodes whose incident is held for a workload."""
        return [
            one.spec.node_name
            for one in sorted(self.remediations.values(), key=lambda one: one.spec.opened_at)
            if one.status.held_by == WORKLOAD
        ]

    def pages(self) -> list[tuple[str, str]]:
        """Give the kind and the beginning of what the policy's receivers are owed about workloads."""
        (one,) = self.policies.values()
        return [
            (row.transition, row.summary[:45])
            for row in one.status.notifications
            if row.id.startswith("workload-")
        ]


THREE = ("gpu-1", "gpu-2", "gpu-3")


def test_the_third_node_and_all_further_ones_are_held_and_one_page_says_so() -> None:
    """The first two are drained and repaired as ever; the others stay cordoned, with nothing evicted."""
    world = Cluster()
    world.fail(*THREE, "gpu-4")
    assert world.held() == ["gpu-3", "gpu-4"]
    assert [bool(world.of(node).status.attempts) for node in (*THREE, "gpu-4")] == [True, True, False, False]
    assert world.of("gpu-4").status.phase is Phase.QUARANTINED
    assert world.nodes["gpu-4"].spec.unschedulable
    assert world.pages() == [("open", "workload suspected: ml/llm leaves Xid119GspTi")]
    (shown,) = world.policies["gpus"].status.workloads
    assert (shown.owner, shown.cause, shown.held) == ("ml/llm", "Xid119GspTimeout", ("gpu-3", "gpu-4"))


def same(world: Cluster) -> None:
    world.fail(*THREE)


def apart(world: Cluster) -> None:
    world.fail("gpu-1", "gpu-2")
    world.fail("gpu-3", apart=timedelta(hours=25))


def owners(world: Cluster) -> None:
    for number, node in enumerate(THREE):
        world.fail(node, holder=f"ml/job{'abc'[number]}-0")


def namespaces(world: Cluster) -> None:
    for number, node in enumerate(THREE):
        world.fail(node, holder=f"team-{number}/llm-0")


def nobody(world: Cluster) -> None:
    world.fail(*THREE, holder="")


def shared(world: Cluster) -> None:
    world.fail(*THREE, holder="ml/llm-0, web/chat-7d9fbb4c6b-x7k2p")


def unnamed(world: Cluster) -> None:
    world.fail(*THREE, holder="ml/llm-0 and 3 more")


def replicas(world: Cluster) -> None:
    world.fail(*THREE, holder="ml/llm-0, ml/llm-1")


def recovery(world: Cluster) -> None:
    """The driver says in an XID 154 what it wants after the 119."""
    for node in THREE:
        world.now += HOUR
        gsp = world.gsp(node)
        asked = msgspec.structs.replace(gsp, reason="RecoveryGpuReset", detail="XID 154, after XID 119")
        world.fault(node, gsp, asked)
        world.after()


def one_node(world: Cluster) -> None:
    for index in range(3):
        world.fail("gpu-1", part=make.finding(index=index).part)


def memory(world: Cluster) -> None:
    world.fail(*THREE, reason="Xid48DoubleBitEcc")


def causes(world: Cluster) -> None:
    world.fail("gpu-1", "gpu-2")
    world.fail("gpu-3", reason="Xid109ContextSwitchTimeout")


def unclean(world: Cluster) -> None:
    """The third node's GPU shows an ECC fault beside it."""
    world.fail("gpu-1", "gpu-2")
    world.now += HOUR
    ecc = world.seen("gpu-3", condition="GpuEccFault", reason="UncorrectableEcc", action=Action.RESET_GPU)
    world.fault("gpu-3", world.gsp("gpu-3"), ecc)
    world.after()


def unclean_witness(world: Cluster) -> None:
    """One of the nodes that would tell on the workload is sick itself."""
    ecc = world.seen("gpu-1", condition="GpuEccFault", reason="UncorrectableEcc", action=Action.RESET_GPU)
    world.fault("gpu-1", world.gsp("gpu-1"), ecc)
    world.after()
    world.fail("gpu-2", "gpu-3")


def long_ago(world: Cluster) -> None:
    """The first node's GPU had an ECC fault last week, which was repaired."""
    ecc = world.seen("gpu-1", condition="GpuEccFault", reason="UncorrectableEcc", action=Action.RESET_GPU)
    world.fault("gpu-1", ecc)
    world.after()
    one = world.of("gpu-1")
    closed = msgspec.structs.replace(one.status, phase=Phase.RETURNED, closed_at=world.now)
    world.remediations[one.metadata.name] = msgspec.structs.replace(one, status=closed)
    world.well("gpu-1")
    world.after(days=6)
    world.fail(*THREE)


def elsewhere(world: Cluster) -> None:
    """Another GPU of the third node is sick, and has to be repaired whatever the workload did."""
    world.fail("gpu-1", "gpu-2")
    world.now += HOUR
    other = world.seen("gpu-3", reason="Xid79FallenOffBus", part=make.finding(index=6).part)
    world.fault("gpu-3", world.gsp("gpu-3"), other)
    world.after()


def drill(world: Cluster) -> None:
    world.fail("gpu-1", "gpu-2", drill=True)
    world.fail("gpu-3")


@pytest.mark.parametrize(
    ("happens", "held"),
    [
        pytest.param(same, ["gpu-3"], id="the same on three nodes"),
        pytest.param(replicas, ["gpu-3"], id="its replicas share the part"),
        pytest.param(recovery, ["gpu-3"], id="with what the driver asks for after it"),
        pytest.param(shared, [], id="pods of two owners share the part"),
        pytest.param(unnamed, [], id="not all of its pods are named"),
        pytest.param(apart, [], id="the third more than a day later"),
        pytest.param(owners, [], id="three owners"),
        pytest.param(namespaces, [], id="three namespaces"),
        pytest.param(nobody, [], id="nobody held the part"),
        pytest.param(one_node, [], id="three GPUs of one node"),
        pytest.param(memory, [], id="what no program causes"),
        pytest.param(causes, [], id="another cause"),
        pytest.param(unclean, [], id="its part shows more"),
        pytest.param(unclean_witness, [], id="a witness's part shows more"),
        pytest.param(long_ago, ["gpu-3"], id="a witness's part was repaired long ago"),
        pytest.param(elsewhere, [], id="another part of the node is sick"),
        pytest.param(drill, [], id="drills tell nothing about what is real"),
    ],
)
def test_what_makes_a_workload_suspect(happens: Any, held: Sequence[str]) -> None:
    """One owner, one cause, three nodes, a day, clean parts: with any of them missing the repair is the node's own."""
    world = Cluster()
    happens(world)
    assert world.held() == held
    assert bool(world.pages()) == bool(held)


def test_warnings_of_a_node_without_incident_tell_too() -> None:
    """An application's XIDs take nothing out of service; what one of them would be repaired for is held by them."""
    world = Cluster()
    for node, reason in zip(
        THREE, ("Xid13GraphicsEngineException", "Xid31MmuFault", "Xid43Stopped"), strict=True
    ):
        warning = {"severity": Severity.WARNING, "effect": Effect.NONE, "action": Action.RESTART_APP}
        world.now += HOUR
        world.fault(node, world.gsp(node, reason=reason_of(reason), **warning))
        world.after()
    assert (world.held(), world.pages(), world.remediations) == ([], [], {})
    world.fail("gpu-4", reason=reason_of("Xid45"))
    assert world.held() == ["gpu-4"]
    suspect = world.of("gpu-4").status.suspect
    assert suspect is not None
    assert (suspect.cause, suspect.nodes) == (APPLICATION, (*THREE, "gpu-4"))


def test_it_survives_a_restart_and_the_loss_of_what_told() -> None:
    """What is held stands in the incident: with the witnesses' reports and pods gone it is held as before."""
    world = Cluster()
    world.fail(*THREE)
    for node in ("gpu-1", "gpu-2"):
        world.well(node)
        world.remediations = {n: one for n, one in world.remediations.items() if one.spec.node_name != node}
    before = world.remediations
    world.after(hours=30)
    world.again("gpu-3")
    world.settle()
    assert world.held() == ["gpu-3"]
    assert {n: one.status.suspect for n, one in before.items()} == {
        n: one.status.suspect for n, one in world.remediations.items() if n in before
    }
    assert len(world.pages()) == 1


def test_closed_incidents_remember() -> None:
    """The first two were repaired and given back hours ago; the third node is held all the same."""
    world = Cluster()
    world.fail("gpu-1", "gpu-2")
    for node in ("gpu-1", "gpu-2"):
        one = world.of(node)
        closed = msgspec.structs.replace(one.status, phase=Phase.RETURNED, closed_at=world.now)
        world.remediations[one.metadata.name] = msgspec.structs.replace(one, status=closed)
        world.well(node)
    world.fail("gpu-3")
    assert world.held() == ["gpu-3"]


def test_the_owner_is_written_down_while_the_pod_is_there() -> None:
    """Pods with names that say nothing, of one Job; by the time of the third, the first two are gone."""
    world = Cluster()
    for node, name in zip(THREE, ("alpha", "beta", "gamma"), strict=True):
        pod = make.pod(name, node, namespace="ml", owner="PyTorchJob", owner_name="llm", uid=f"uid-{name}")
        world.pods[pod.metadata.uid] = pod
        world.fail(node, holder=f"ml/{name}")
    assert world.held() == ["gpu-3"]
    assert [one.owner for node in THREE for one in world.of(node).status.holders] == ["ml/llm"] * 3


def test_a_person_lets_one_incident_go() -> None:
    """With the annotation on the Remediation it goes on; the other stays held, and the page stands."""
    world = Cluster()
    world.fail(*THREE, "gpu-4")
    world.say(WORKLOAD_ACKNOWLEDGED, "gpu-3")
    world.settle()
    assert world.held() == ["gpu-4"]
    assert world.of("gpu-3").status.phase is Phase.REPAIRING
    assert [kind for kind, _ in world.pages()] == ["open"]


def test_a_person_lets_all_go_and_what_comes_later_counts_anew() -> None:
    """With the annotation on the policy: what was seen up to then is nobody's doing, and the page is resolved."""
    world = Cluster()
    world.fail(*THREE, "gpu-4")
    said = {WORKLOAD_ACKNOWLEDGED: world.now.isoformat()}
    world.change_policy(policy(annotations=said))
    world.settle()
    assert world.held() == []
    assert [kind for kind, _ in world.pages()] == ["open", "resolve"]
    world.fail("gpu-5", "gpu-6")
    assert world.held() == []
    world.fail("gpu-7")
    assert world.held() == ["gpu-7"]


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        pytest.param({"workload": WorkloadPolicy(nodes=0)}, [], id="switched off"),
        pytest.param({"workload": WorkloadPolicy(nodes=4)}, [], id="more nodes"),
        pytest.param({"workload": WorkloadPolicy(within="90m")}, [], id="less time"),
        pytest.param({"workload": WorkloadPolicy(nodes=2)}, ["gpu-2", "gpu-3"], id="fewer nodes"),
    ],
)
def test_the_policy_says_how_many_and_within_what_time(spec: dict[str, Any], held: list[str]) -> None:
    """A job on a thousand GPUs may need other numbers."""
    world = Cluster(**spec)
    world.fail(*THREE)
    assert world.held() == held


def test_under_observe_nobody_is_paged() -> None:
    """Nothing would be held."""
    world = Cluster(mode=Mode.OBSERVE)
    world.fail(*THREE)
    assert (world.pages(), world.kinds()) == ([], [])


def test_explain_says_why_and_how_to_let_go() -> None:
    """Word, owner, nodes, command."""
    world = Cluster()
    world.fail(*THREE)
    told = " ".join(explain(world.fleet(), "gpu-3", world.now))
    for word in ("Held by workload", "ml/llm", "gpu-1, gpu-2, gpu-3", "within 24 h", WORKLOAD_ACKNOWLEDGED):
        assert word in told


def test_something_else_on_the_node_ends_the_hold() -> None:
    """What no workload explains is repaired."""
    world = Cluster()
    world.fail(*THREE)
    gsp = world.healths["gpu-3"].status.findings[0]
    lost = world.seen("gpu-3", reason="GpuLost", condition="GpuMissing", part=gsp.part)
    world.fault("gpu-3", gsp, lost)
    world.settle()
    assert world.held() == []
    assert world.of("gpu-3").status.phase is Phase.REPAIRING


def test_a_drain_that_began_goes_on_and_its_repair_is_held() -> None:
    """Evicted pods are not brought back by stopping half way, and a Job is not sent."""
    world = Cluster()
    world.fail("gpu-1", "gpu-2")
    pod = make.pod("train", "gpu-3", uid="uid-train")
    world.pods[pod.metadata.uid] = pod
    world.protected.add(pod.metadata.uid)
    world.now += HOUR
    gsp = world.gsp("gpu-3")
    world.fault("gpu-3", msgspec.structs.replace(gsp, holder=""))
    world.after(seconds=1)
    assert world.of("gpu-3").status.phase is Phase.DRAINING
    world.fault("gpu-3", gsp)
    world.settle()
    world.protected.clear()
    world.after(minutes=2)
    assert (world.of("gpu-3").status.phase, world.held()) == (Phase.DRAINING, ["gpu-3"])
    assert "uid-train" not in world.pods


def test_a_fleet_without_holders_costs_nothing() -> None:
    """No owner is looked for where no finding names a pod, and the status stays as it was."""
    world = Cluster()
    world.fail("gpu-1", holder="")
    status = world.of("gpu-1").status
    assert (status.holders, status.suspect) == (RemediationStatus().holders, None)
    assert plan(world.fleet(), world.now).steps == ()
