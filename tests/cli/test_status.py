"""`status`: what stands in which row, and that nothing which could not be judged counts as healthy."""

from typing import Any

import pytest

from kube.api import Forbidden, NotFound, Unavailable
from tests.cli.objects import (
    PUT_ASIDE,
    Cluster,
    condition,
    finding,
    health,
    lease,
    node,
    pods_fail,
    policy,
    remediation,
)
from tests.fakes import request_to

FAULT = condition("GpuXidError", "True", "Xid79FallenOffBus")
LEADER = lease("nodemend-controller", holder="controller-a")


def test_a_healthy_fleet_is_a_count() -> None:
    """No row for healthy nodes; nodes that nodemend does not watch are not counted."""
    cluster = Cluster().add(
        nodes=[node("gpu-1"), node("gpu-2"), {**node("cpu-1"), "status": {"conditions": []}}],
        healths=[health("gpu-1"), health("gpu-2")],
        policies=[policy(pools=[{"pool": "all", "nodes": 2}])],
        leases=[LEADER, lease("gpu-1"), lease("gpu-2")],
    )
    answer = cluster.run("status")
    assert (answer.code, answer.err) == (0, "")
    assert answer.row("gpu ") == "gpu all Enforce 2 0 0 0 - -"
    assert answer.row("2 of 2") == "2 of 2 watched nodes are healthy."
    assert answer.row("controller:") == "controller: controller-a leads, heard 2s ago"


NODE_ROWS = [
    pytest.param(
        {
            "nodes": [node("gpu-1", fault=FAULT)],
            "remediations": [
                remediation("inc-1", "gpu-1", "Repairing", message="waits for a new boot id", heldBy="")
            ],
        },
        "gpu-1 GpuXidError=True (Xid79FallenOffBus) Repairing 4m0s - waits for a new boot id",
        id="an open incident shows its phase and message",
    ),
    pytest.param(
        {
            "nodes": [node("gpu-1", fault=FAULT)],
            "remediations": [
                remediation("inc-1", "gpu-1", "Quarantined", message="m", heldBy="budget: 1 of 1 out")
            ],
        },
        "gpu-1 GpuXidError=True (Xid79FallenOffBus) Quarantined 4m0s budget: 1 of 1 out m",
        id="what holds an incident is named",
    ),
    pytest.param(
        {"nodes": [node("gpu-1", fault=condition("GpuXidError", "Unknown", "AgentSilent"))]},
        "gpu-1 GpuXidError=Unknown (AgentSilent) - 5m0s - GpuXidError is Unknown, which causes nothing",
        id="unknown is not healthy",
    ),
    pytest.param(
        {
            "nodes": [node("gpu-1", fault=FAULT)],
            "healths": [health("gpu-1", findings=[finding()])],
            "remediations": [remediation("inc-1", "gpu-1", "Cancelled", closedAt="2026-11-29T02:58:00Z")],
        },
        "gpu-1 GpuXidError=True (Xid79FallenOffBus) - 5m0s - the fault stands, but incident inc-1 ended as Cancelled "
        "with the same evidence: only new evidence opens another",
        id="a fault that a person ended says why nothing happens",
    ),
    pytest.param(
        {
            "nodes": [node("gpu-1", fault=FAULT)],
            "healths": [health("gpu-1", findings=[finding()])],
            "policies": [],
        },
        "gpu-1 GpuXidError=True (Xid79FallenOffBus) - 5m0s - no policy selects this node",
        id="a fault under no policy says so",
    ),
    pytest.param(
        {"nodes": [pods_fail(node("gpu-1"))]},
        f"gpu-1 PodStartFailing=True (RepeatedStartFailures) - 5m0s - {PUT_ASIDE}",
        id="pods that fail to start, in the scheduler's words",
    ),
    pytest.param(
        {"nodes": [pods_fail({**node("gpu-1"), "status": {"conditions": []}})], "healths": []},
        f"gpu-1 PodStartFailing=True (RepeatedStartFailures) - 5m0s - {PUT_ASIDE}",
        id="pods that fail to start on a node without an agent",
    ),
    pytest.param(
        {"nodes": [pods_fail(node("gpu-1", fault=FAULT))], "policies": []},
        "gpu-1 GpuXidError=True (Xid79FallenOffBus), PodStartFailing=True (RepeatedStartFailures) - 5m0s - "
        "nothing is done without proof: GpuXidError is True but NodeHealth holds no standing finding for it",
        id="pods that fail to start beside a fault",
    ),
    pytest.param(
        {"nodes": [node("gpu-1", ready="Unknown")]},
        "gpu-1 Ready=Unknown (KubeletReady) - 5m0s - no incident is open",
        id="a node that is not ready is not healthy",
    ),
    pytest.param(
        {"nodes": [node("gpu-1", unschedulable=True)]},
        "gpu-1 cordoned - - - cordoned, not by nodemend",
        id="a cordon of others is told apart from ours",
    ),
    pytest.param(
        {"nodes": [node("gpu-1", annotations={"nodemend.dev/quarantine": "{}"}, unschedulable=True)]},
        "gpu-1 cordoned - - - quarantined, but no incident is open (`explain` says more)",
        id="a quarantine that nobody answers for is shown",
    ),
    pytest.param(
        {"nodes": [node("gpu-1")], "leases": [lease("gpu-1", renewed="2026-11-29T02:50:00.000000Z")]},
        "gpu-1 agent silent for 10m - - - no incident is open",
        id="an agent that fell silent is shown before the controller says so",
    ),
    pytest.param(
        {"nodes": [node("gpu-1")], "healths": []},
        "gpu-1 - - - - no agent has reported",
        id="a condition without a report behind it is not healthy",
    ),
    pytest.param(
        {"nodes": [], "remediations": [remediation("inc-1", "gpu-1", "Draining", message="m")]},
        "gpu-1 - Draining 4m0s - the Node is gone from the cluster. m",
        id="an incident whose node is gone keeps its row",
    ),
]


@pytest.mark.parametrize(("objects", "row"), NODE_ROWS)
def test_node_rows(objects: dict[str, Any], row: str) -> None:
    """Each way of not being healthy has its row."""
    cluster = Cluster().add(
        **{"healths": [health("gpu-1")], "policies": [policy()], "leases": [LEADER], **objects}
    )
    answer = cluster.run("status")
    assert answer.row("gpu-1 ") == row
    assert answer.row("0 of").startswith("0 of")


def test_who_needs_a_person_stands_first() -> None:
    """Escalated before everything else, then by how far along, then by name."""
    phases = {"gpu-1": "Suspected", "gpu-2": "Draining", "gpu-3": "Escalated", "gpu-4": "Draining"}
    cluster = Cluster().add(
        nodes=[node(name) for name in phases],
        remediations=[remediation(f"inc-{name}", name, phase) for name, phase in phases.items()],
        leases=[LEADER],
    )
    rows = cluster.run("status", "-o", "json").json()["nodes"]
    assert [row["node"] for row in rows] == ["gpu-3", "gpu-2", "gpu-4", "gpu-1"]


def test_a_closed_incident_leaves_no_row() -> None:
    """A node that was given back is healthy."""
    cluster = Cluster().add(
        nodes=[node("gpu-1")],
        healths=[health("gpu-1")],
        remediations=[remediation("inc-1", "gpu-1", "Returned")],
    )
    assert cluster.run("status").row("1 of 1") == "1 of 1 watched nodes are healthy."


def test_warnings_are_counted_and_take_nothing_out() -> None:
    """An application XID is mentioned, the node stays healthy."""
    warned = health("gpu-1", findings=[finding("Xid31MmuFault", severity="Warning")])
    answer = Cluster().add(nodes=[node("gpu-1")], healths=[warned]).run("status")
    assert answer.row("1 of 1").startswith("1 of 1 watched nodes are healthy; 1 with warnings")


def test_budget_and_breaker_speak_by_name() -> None:
    """Both limits are shown in the controller's own words, with the breaker's age."""
    pool = {
        "pool": "h100",
        "nodes": 8,
        "outOfService": 4,
        "quarantined": 1,
        "repairsInFlight": 1,
        "budget": "budget: 4 of 1",
        "breaker": "breaker: 4 turned",
        "breakerSince": "2026-11-29T02:51:00Z",
    }
    answer = Cluster().add(policies=[policy(pools=[pool], problems=["rule 2 names no reason"])]).run("status")
    row = "gpu h100 Enforce 8 4 1 1 budget: 4 of 1 breaker: 4 turned (since 2026-11-29 02:51Z)"
    assert answer.row("gpu ") == row
    assert answer.row("PROBLEM") == "PROBLEM: policy gpu: rule 2 names no reason"


LEADERS = [
    pytest.param([LEADER], "controller-a leads, heard 2s ago", id="a fresh Lease"),
    pytest.param(
        [lease("nodemend-controller", renewed="2026-11-29T02:59:20.000000Z", holder="controller-a")],
        "controller-a leads, heard 40s ago",
        id="a machine whose clock is half a minute ahead",
    ),
    pytest.param(
        [lease("nodemend-controller", renewed="2026-11-29T02:59:14.000000Z", holder="controller-a")],
        "nobody leads (controller-a was last heard 46s ago): nothing is being done",
        id="a Lease that ran out",
    ),
    pytest.param(
        [], "none has ever led here (no Lease nodemend-controller): nothing is being done", id="no Lease"
    ),
    pytest.param(
        [lease("nodemend-controller", renewed="2026-11-29T02:00:00.000000Z", holder="controller-a")],
        "nobody leads (controller-a was last heard 60m ago): nothing is being done",
        id="an expired Lease",
    ),
]


@pytest.mark.parametrize(("leases", "words"), LEADERS)
def test_who_leads(leases: list[dict[str, Any]], words: str) -> None:
    """Whoever reads the table first learns whether anything is at work."""
    assert Cluster().add(leases=leases).run("status", "-o", "json").json()["controller"] == words


def test_lists_are_read_to_their_last_page() -> None:
    """More nodes than one page holds are all counted."""
    cluster = Cluster().add(
        nodes=[node(f"gpu-{number}") for number in range(1203)],
        healths=[health(f"gpu-{number}") for number in range(1203)],
    )
    assert cluster.run("status", "-o", "json").json()["healthy"] == 1203
    pages = [request for request in cluster.api.requests if request.path.endswith("/nodes")]
    assert [request.query.get("limit") for request in pages] == ["500", "500", "500"]


def test_an_object_that_cannot_be_read_is_named() -> None:
    """One odd Remediation hides neither itself nor the others."""
    odd = {"metadata": {"name": "inc-9", "uid": "u9"}, "spec": {"nodeName": 7}}
    answer = Cluster().add(nodes=[node("gpu-1")], healths=[health("gpu-1")], remediations=[odd]).run("status")
    assert answer.row("NOT READ").startswith("NOT READ: remediations: inc-9 cannot be read: Expected `str`")


def test_leases_are_optional() -> None:
    """An account that may not read Leases still gets the table, and is told what is missing from it."""
    cluster = Cluster().add(nodes=[node("gpu-1")], healths=[health("gpu-1")])
    cluster.api.fail_next(request_to("LIST", "/leases"), Forbidden("leases is forbidden", code=403))
    answer = cluster.run("status")
    assert answer.row("controller:") == "controller: unknown: its Lease could not be read"
    assert answer.row("NOT READ") == "NOT READ: leases in nodemend-system: leases is forbidden"


FAILURES = [
    pytest.param(Forbidden("nodes is forbidden", code=403), "not allowed to list nodes: ", id="forbidden"),
    pytest.param(
        Unavailable("connection refused"), "no answer from the cluster while trying to list nodes", id="down"
    ),
    pytest.param(NotFound("404", code=404), "(is nodemend installed here?)", id="not installed"),
]


@pytest.mark.parametrize(("error", "words"), FAILURES)
def test_failures_are_one_line(error: Exception, words: str) -> None:
    """What ends the command is one sentence on standard error and exit code 3."""
    cluster = Cluster()
    cluster.api.fail_next(request_to("LIST", "/nodes"), error, times=None)
    answer = cluster.run("status")
    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert words in answer.err


def test_cluster_text_is_cleaned() -> None:
    """A message with an escape sequence and a line break stays in its row, harmless; JSON is cleaned too."""
    hostile = remediation("inc-1", "gpu-1", "Escalated", message="a\x1b[2Jb\ngpu-9   fine")
    cluster = Cluster().add(nodes=[node("gpu-1")], remediations=[hostile])
    for output in ("table", "json"):
        answer = cluster.run("status", "-o", output)
        assert "\x1b" not in answer.out
        assert "\\u001b" not in answer.out
    assert cluster.run("status").row("gpu-1 ").endswith("a[2Jb gpu-9 fine")
