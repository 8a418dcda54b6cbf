"""What `kubectl nodemend explain` says is the controller's own judgement, in the order in which on-call asks."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.explain import explain
from controller.view import Failure
from kube.policy import Mode
from kube.remediation import BlockedPod, Notification, Phase
from tests import build as make
from tests.build import NOW, SEEN, XID
from tests.controller.core.stage import INCIDENT, REBOOT, TOUCHED, drain_record, reboot, stage

TRUE = {XID: "True"}
RUNS = f"{REBOOT} is to end boot boot-1, by 2026-03-01T12:45:00Z"
GONE = "Xid79FallenOffBus on GPU 3 at 0000:03:00 is reported as gone, which alone gives nothing back."


def test_a_node_that_is_well() -> None:
    """Says that nothing is going to be done."""
    assert explain(make.fleet(make.node()), "gpu-1", NOW) == (
        "The agent was last heard at 2026-03-01T11:59:55Z.",
        "The node is Ready and schedulable.",
        "In force: policy gpus, mode Enforce.",
        "Pool default: 0 of 1 nodes out of service, at most 1 by budget; 0 of 1 repair(s) in flight.",
        "No incident is open and no fault stands: nothing is going to be done.",
    )


def test_a_node_that_is_not_there() -> None:
    """With what becomes of its incident."""
    fleet = stage(Phase.DRAINING)
    gone = msgspec.structs.replace(fleet, nodes={})
    assert explain(gone, "gpu-1", NOW) == (
        "There is no Node gpu-1 in the cluster.",
        f"Incident {INCIDENT} is about to close as Superseded.",
    )
    assert explain(make.fleet(), "gpu-9", NOW) == ("There is no Node gpu-9 in the cluster.",)


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        pytest.param(
            {"phase": Phase.DRAINING, "pods": [make.pod()]},
            [
                "Seen: Xid79FallenOffBus on GPU 3 at 0000:03:00.",
                f"Incident {INCIDENT}: Draining since 2026-03-01T11:59:55Z.",
                "Next: the eviction of jobs/train-0.",
                "Still on the node: jobs/train-0.",
                "Then: reboot.",
            ],
            id="a drain",
        ),
        pytest.param(
            {"phase": Phase.DRAINING, "pods_synced": False},
            ["Which pods are still on the node is not known here.", "Then: reboot."],
            id="a drain of a node whose pods nobody listed",
        ),
        pytest.param(
            {"phase": Phase.QUARANTINED},
            ["Next: cordon and taint on the node."],
            id="a quarantine that is decided",
        ),
        pytest.param(
            {"phase": Phase.QUARANTINED, "recipe": make.before(tainted=False)},
            ["Next: the cordon on the node."],
            id="a quarantine without the taint",
        ),
        pytest.param(
            {"phase": Phase.REPAIRING, "message": RUNS},
            [f"Next: the Job {REBOOT}."],
            id="a repair that is decided",
        ),
        pytest.param(
            {
                "phase": Phase.REVALIDATING,
                "reported": [make.finding()],
                "repaired_at": NOW,
                "message": "the agent is told that a person repaired it",
            },
            ["Next: the agent is told that the fault was repaired."],
            id="a person's word that is passed on",
        ),
        pytest.param(
            {"phase": Phase.DRAINING, "drain": drain_record(finished_at=SEEN)},
            [f"Next: Repairing ({RUNS})."],
            id="the next phase, in its own words",
        ),
        pytest.param(
            {"phase": Phase.DRAINING, "drain": drain_record(finished_at=SEEN)},
            ["No pod that has to leave is on the node any more.", "Then: reboot."],
            id="a drained node",
        ),
        pytest.param(
            {
                "phase": Phase.SUSPECTED,
                "policy": make.policy(default_wait="1m"),
                "held_by": "wait",
                "message": "waits",
            },
            [
                "Held by wait: waits.",
                "If nothing changes until then, it is looked at again at 2026-03-01T12:00:55Z.",
            ],
            id="a wait, and when it is over",
        ),
        pytest.param(
            {
                "phase": Phase.QUARANTINED,
                "marked": True,
                "others": [make.node(f"out-{n}", ready=False) for n in range(9)],
            },
            [
                "Pool default: 10 of 10 nodes out of service, at most 1 by budget; 0 of 1 repair(s) in flight.",
                "Then: the drain, held by budget: budget: pool default is at its limit of 10% out of service.",
            ],
            id="the limit that holds, by name",
        ),
        pytest.param(
            {"phase": Phase.REPAIRING, "attempts": (reboot(submitted_at=SEEN),)},
            ["Then: proof by a new boot id, or failure by 2026-03-01T12:45:00Z."],
            id="a repair under way",
        ),
        pytest.param(
            {
                "phase": Phase.REPAIRING,
                "failures": {"gpu-1": Failure(step="RunRepair", at=SEEN, tries=3, why="denied by admission")},
            },
            ["RunRepair failed 3 time(s), last at 2026-03-01T11:59:55Z: denied by admission."],
            id="a request that fails",
        ),
        pytest.param(
            {"phase": Phase.REVALIDATING},
            ["Then: the node is given back exactly as it was found, if its revalidation succeeds."],
            id="a revalidation",
        ),
        pytest.param(
            {"phase": Phase.ESCALATED, "condition": "False", "reported": []},
            [f"Then: nothing until a person says so: kubectl nodemend repaired gpu-1. {GONE}"],
            id="a person's turn, with the fault gone",
        ),
        pytest.param(
            {"phase": Phase.SUSPECTED, "condition": "Unknown"},
            ["Not known: GpuXidError. Unknown causes nothing."],
            id="Unknown",
        ),
        pytest.param(
            {"phase": Phase.SUSPECTED, "health": {"observed_at": NOW - timedelta(minutes=9)}},
            [
                "The agent was last heard at 2026-03-01T11:51:00Z, too long ago for anything new to be started."
            ],
            id="a silent agent",
        ),
        pytest.param(
            {"phase": Phase.SUSPECTED, "policy": make.policy(mode=Mode.ENFORCE, paused=True)},
            [
                "In force: policy gpus, mode Enforce, paused.",
                "Then: quarantine, held by policy: policy gpus is paused.",
            ],
            id="a paused policy",
        ),
        pytest.param(
            {"phase": Phase.SUSPECTED, "policies": []},
            ["In force: nothing, since no policy selects this node."],
            id="no policy",
        ),
    ],
)
def test_each_phase_says_what_was_seen_what_holds_and_what_comes(
    given: dict[str, Any], lines: list[str]
) -> None:
    """In words that name pods, limits, times and commands."""
    fields = dict(given)
    said = explain(stage(fields.pop("phase"), **fields), "gpu-1", NOW)
    assert [line for line in lines if line not in said] == []


@pytest.mark.parametrize("phase", [*sorted(TOUCHED), Phase.SUSPECTED, Phase.QUARANTINED])
def test_no_step_is_told_by_its_inner_name(phase: Phase) -> None:
    """Nobody knows at night what a Save is; and what a budget refused a moment ago is not what comes next."""
    pod = make.pod()
    refused = BlockedPod(namespace="jobs", name="train-0", uid=pod.metadata.uid, why="a budget allows none")
    fleet = stage(phase, pods=[pod], drain=drain_record(blocked=(refused,)))
    said = " ".join(explain(fleet, "gpu-1", NOW))
    inner = re.findall(r"\b(Save|Evict|Restore|Quarantine|RunRepair|RunValidation|WriteSpec)\b", said)
    assert inner == []
    assert "the eviction of" not in said


def test_the_breaker_is_said_by_name() -> None:
    """With the number of nodes that it holds."""
    ill = [make.node(f"ill-{n}", conditions=TRUE) for n in range(4)]
    healths = [make.health(n, [make.finding()]) for n in ill]
    said = explain(
        stage(Phase.SUSPECTED, others=[*ill, *make.idle_nodes(5)], other_healths=healths), "gpu-1", NOW
    )
    assert (
        "The breaker of the pool is tripped for 5 node(s): breaker: more than 10% of pool default turned ill within "
        "10 min, so the observer is suspected." in said
    )


def test_a_message_that_could_not_be_delivered_is_said() -> None:
    """The sink and the last error."""
    dead = Notification(
        id="i-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=SEEN,
        dead=True,
        error="500",
    )
    said = explain(stage(Phase.ESCALATED, notifications=(dead,)), "gpu-1", NOW)
    assert "Message i-1-pager to sink pager could not be delivered: 500." in said


def test_a_mark_without_its_incident_is_said() -> None:
    """With the commands that a person needs, since nobody else will undo it."""
    node = make.quarantined(make.node(), "inc-deleted")
    (line,) = [line for line in explain(make.fleet(node), "gpu-1", NOW) if "inc-deleted" in line]
    assert line == (
        "It carries the mark of incident inc-deleted, which no longer exists; the cordon is left as it is. If the node is "
        "well: kubectl uncordon gpu-1, and remove the annotation and taint nodemend.dev/quarantine."
    )


def test_a_mark_that_cannot_be_read_is_said() -> None:
    """It is not passed over."""
    node = make.node(annotations={"nodemend.dev/quarantine": "{"})
    assert any(
        line.startswith("Annotation nodemend.dev/quarantine cannot be read")
        for line in explain(make.fleet(node), "gpu-1", NOW)
    )


def test_a_fault_that_opens_an_incident_next_is_said() -> None:
    """Before the controller has done anything, as a client sees it."""
    node = make.node(conditions=TRUE)
    fleet = make.fleet(node, *make.idle_nodes(9), healths=[make.health(node, [make.finding()])])
    assert explain(fleet, "gpu-1", NOW)[-1] == (
        "Next: an incident opens as Quarantined: Xid79FallenOffBus on GPU 3 at 0000:03:00: the node takes no new work."
    )


def test_a_node_that_was_replaced_is_said() -> None:
    """The incident belongs to the Node of before."""
    fleet = stage(Phase.REPAIRING)
    replaced = msgspec.structs.replace(fleet, nodes={**fleet.nodes, "gpu-1": make.node(uid="uid-new")})
    assert (
        explain(replaced, "gpu-1", NOW)[-1]
        == f"Incident {INCIDENT} is about to close as Superseded: it was another Node object."
    )
    assert REBOOT
