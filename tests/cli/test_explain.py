"""`explain`: the whole story of a node in one answer, with what is missing from it."""

from typing import Any

import pytest

from kube.api import Forbidden
from tests.cli.objects import (
    KERNEL_LINE,
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

SICK = condition("GpuXidError", "True", "Xid79FallenOffBus")
BUDGET = "PodDisruptionBudget job allows no eviction now"
STORY: dict[str, Any] = {
    "message": "waits for a new boot id",
    "heldBy": "budget: 1 of 1 out",
    "heldSince": "2026-11-29T02:57:30Z",
    "drain": {
        "startedAt": "2026-11-29T02:56:00Z",
        "deadline": "2026-11-29T03:26:00Z",
        "evicted": 3,
        "blocked": [{"namespace": "train", "name": "job-0", "uid": "p", "why": BUDGET}],
    },
    "attempts": [
        {
            "number": 1,
            "kind": "reboot",
            "job": "inc-1-reboot-1",
            "bootIDBefore": "boot-1aaaaa",
            "startedAt": "2026-11-29T02:57:00Z",
            "submittedAt": "2026-11-29T02:57:01Z",
            "deadline": "2026-11-29T03:42:00Z",
        }
    ],
    "notifications": [
        {
            "id": "n1",
            "sink": "oncall",
            "transition": "open",
            "sequence": 1,
            "summary": "gpu-1: Xid79FallenOffBus",
            "createdAt": "2026-11-29T02:56:00Z",
            "sentAt": "2026-11-29T02:56:01Z",
        },
        {
            "id": "n2",
            "sink": "oncall",
            "transition": "update",
            "sequence": 2,
            "summary": "s",
            "createdAt": "2026-11-29T02:57:00Z",
            "attempts": 5,
            "dead": True,
            "error": "HTTP 500",
        },
    ],
    "timeline": [{"at": "2026-11-29T02:56:00Z", "phase": "Quarantined", "message": "cordoned and tainted"}],
}


def _cluster(phase: str = "Draining", **status: Any) -> Cluster:
    return Cluster().add(
        nodes=[
            node("gpu-1", fault=SICK, unschedulable=True, annotations={"nodemend.dev/quarantine": "{}"}),
            node("gpu-2"),
        ],
        healths=[health("gpu-1", findings=[finding()], driver="580.95.05", **status)],
        remediations=[remediation("inc-1", "gpu-1", phase, **STORY)],
        leases=[lease("nodemend-controller", holder="controller-a"), lease("gpu-1")],
    )


LINES = [
    pytest.param("State:", "State: cordoned (nodemend's quarantine stands)", id="whose cordon it is"),
    pytest.param("Agent:", "Agent: heard 2s ago, report 2m0s old", id="how fresh the report is"),
    pytest.param("Controller:", "Controller: controller-a leads, heard 2s ago", id="who is at work"),
    pytest.param(
        "  GpuXidError", "GpuXidError True Xid79FallenOffBus 5m0s Xid79FallenOffBus.", id="the condition"
    ),
    pytest.param("  phase", "phase Draining for 4m0s, policy gpu", id="the phase"),
    pytest.param("  held by", "held by: budget: 1 of 1 out (for 2m30s)", id="what holds it"),
    pytest.param(
        "    2026-11-29 02:56:00Z", "2026-11-29 02:56:00Z Quarantined cordoned and tainted", id="the timeline"
    ),
    pytest.param(
        "    waits for train",
        f"waits for train/job-0: {BUDGET}",
        id="who blocks the drain",
    ),
    pytest.param(
        "    deadline", "deadline 2026-11-29 03:26:00Z, 1560 s left, then it escalates", id="the deadline"
    ),
    pytest.param(
        "    1    reboot",
        "1 reboot running 2026-11-29 02:57:00Z 2026-11-29 03:42:00Z (deadline) boot-1aa -> ? -",
        id="the attempt",
    ),
    pytest.param(
        "    1    oncall",
        "1 oncall open sent 2026-11-29 02:56:01Z gpu-1: Xid79FallenOffBus",
        id="a page that was sent",
    ),
    pytest.param(
        "    2    oncall", "2 oncall update GIVEN UP after 5 tries HTTP 500", id="a page that was given up"
    ),
    pytest.param(
        "  kubectl nodemend cancel",
        "kubectl nodemend cancel gpu-1 # stop, and give the node back as it was found",
        id="the way out",
    ),
    pytest.param(
        "  kubectl -n train",
        "kubectl -n train get pdb # job-0 holds the drain",
        id="where to look for the blocker",
    ),
    pytest.param(
        "  kubectl nodemend runbook", "kubectl nodemend runbook Xid79FallenOffBus", id="the run-book"
    ),
]


@pytest.mark.parametrize(("start", "line"), LINES)
def test_the_story(start: str, line: str) -> None:
    """Every part of the story has its line."""
    assert _cluster().run("explain", "gpu-1").row(start) == line


def test_an_attempt_that_was_only_written_down_does_not_run() -> None:
    """Cancelled before its Job was created: nobody may wait for a reboot that never comes."""
    decided = {key: value for key, value in STORY["attempts"][0].items() if key != "submittedAt"}
    cluster = Cluster().add(
        nodes=[node("gpu-1")], remediations=[remediation("inc-1", "gpu-1", "Cancelled", attempts=[decided])]
    )
    answer = cluster.run("explain", "gpu-1")
    assert answer.row("    1    reboot").startswith("1 reboot not started 2026-11-29 02:57:00Z")
    assert "logs job/" not in answer.out


def test_a_drain_that_ended_waits_for_nobody() -> None:
    """After a cancel no pod holds anything, and no deadline runs."""
    out = _cluster("Cancelled").run("explain", "gpu-1").out
    assert "3 pods evicted" in out
    assert [word for word in ("waits for train", "left, then it escalates", "get pdb") if word in out] == []


def test_who_holds_a_drain_is_looked_up_where_it_is_held() -> None:
    """Budgets once for a namespace; a pod that holds it for another reason by itself."""
    blocked = [{"namespace": "train", "name": f"job-{n}", "uid": f"p{n}", "why": BUDGET} for n in range(3)]
    alone = {"namespace": "web", "name": "shell", "uid": "s", "why": "nothing would start it again elsewhere"}
    drain = {**STORY["drain"], "blocked": [*blocked, alone]}
    cluster = Cluster().add(
        nodes=[node("gpu-1")], remediations=[remediation("inc-1", "gpu-1", "Draining", drain=drain)]
    )
    out = cluster.run("explain", "gpu-1").out
    assert out.count("get pdb") == 1
    assert "kubectl -n train get pdb   # 3 pods hold the drain" in out
    assert "kubectl -n web describe pod shell   # holds the drain" in out


def test_a_taint_without_a_value_is_written_as_kubectl_writes_it() -> None:
    """And one with a value with it."""
    tainted = node("gpu-1", unschedulable=True)
    tainted["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "team", "value": "ml", "effect": "NoSchedule"},
    ]
    row = Cluster().add(nodes=[tainted]).run("explain", "gpu-1").row("Taints:")
    assert row == "Taints: node.kubernetes.io/unschedulable:NoSchedule, team=ml:NoSchedule"


def test_raw_lines_stand_under_their_finding() -> None:
    """The proof is shown as it was logged, once, whether the fault still stands or is only latched."""
    shown = f"| {KERNEL_LINE}"
    assert _cluster().run("explain", "gpu-1").out.count(shown) == 1
    cluster = Cluster().add(
        nodes=[node("gpu-1")],
        healths=[health("gpu-1")],
        remediations=[remediation("inc-1", "gpu-1", "Escalated")],
    )
    out = cluster.run("explain", "gpu-1").out
    assert "FINDINGS\n  none\n" in out
    assert out.count(shown) == 1


def test_the_controllers_own_judgement_is_asked() -> None:
    """What holds the node and what comes next are the controller's words, not a second opinion."""
    cluster = _cluster().add(policies=[policy()])
    lines = cluster.run("explain", "gpu-1", "-o", "json").json()["judged"]
    assert "In force: policy gpu, mode Enforce." in lines
    assert any(line.startswith("Held by budget") for line in lines)


def test_too_little_read_is_no_judgement() -> None:
    """Without the node's pods nothing is said about what comes next, and it is said that they were not read."""
    cluster = _cluster()
    cluster.api.fail_next(request_to("LIST", "/pods"), Forbidden("pods is forbidden", code=403))
    answer = cluster.run("explain", "gpu-1")
    assert answer.code == 0
    assert answer.row("  pods on gpu-1") == "pods on gpu-1: pods is forbidden"
    assert "THE CONTROLLER'S VIEW" not in answer.out


def test_repaired_is_offered_only_to_an_escalated_node() -> None:
    """The commands fit the phase."""
    offered = "kubectl nodemend repaired gpu-1"
    assert offered not in _cluster("Draining").run("explain", "gpu-1").out
    assert offered in _cluster("Escalated").run("explain", "gpu-1").out


def test_what_was_not_looked_at_is_said() -> None:
    """Not evaluated, not readable, lost and left out: four ways of not knowing, each with its words."""
    answer = _cluster(
        notEvaluated=[{"check": "xid", "part": "gpu/0000:3b:00", "why": "no kernel log"}],
        sources=[{"name": "kernel-log", "readable": False, "error": "Permission denied", "lost": 7}],
        omitted=2,
    ).run("explain", "gpu-1")
    assert answer.row("  xid, gpu") == "xid, gpu/0000:3b:00: no kernel log"
    assert answer.row("  kernel-log: Perm") == "kernel-log: Permission denied"
    assert answer.row("  kernel-log: 7") == "kernel-log: 7 records were lost before they could be read"
    assert answer.row("  2 entries").startswith("2 entries left out of NodeHealth")


def test_a_healthy_node_has_a_short_story() -> None:
    """No finding and no incident are said, not left out."""
    answer = _cluster().run("explain", "gpu-2")
    assert answer.code == 0
    assert "FINDINGS\n  none\n" in answer.out
    assert "INCIDENT\n  none, now or before\n" in answer.out


def test_pods_that_fail_to_start_are_told_with_their_run_book() -> None:
    """The scheduler's condition stands among the agent's, and no incident is made up for it."""
    cluster = Cluster().add(nodes=[pods_fail(node("gpu-1"))], healths=[health("gpu-1")], policies=[policy()])
    answer = cluster.run("explain", "gpu-1")
    assert answer.row("  PodStartFailing") == f"PodStartFailing True RepeatedStartFailures 5m0s {PUT_ASIDE}"
    assert answer.row("  kubectl nodemend runbook") == "kubectl nodemend runbook RepeatedStartFailures"
    assert answer.row("  none, now or before")


def test_the_last_incident_is_told_when_none_is_open() -> None:
    """After the return the story can still be read, and older ones are named."""
    cluster = Cluster().add(
        nodes=[node("gpu-1")],
        remediations=[
            remediation("inc-1", "gpu-1", "Cancelled", openedAt="2026-11-01T00:00:00Z"),
            remediation("inc-2", "gpu-1", "Returned", closedAt="2026-11-29T02:59:00Z"),
        ],
    )
    answer = cluster.run("explain", "gpu-1")
    assert "INCIDENT inc-2" in answer.out
    assert answer.row("  inc-1") == "inc-1 ended as Cancelled"
    assert "kubectl nodemend cancel" not in answer.out


def test_json_holds_the_same_story() -> None:
    """Scripts read the same facts."""
    told = _cluster().run("explain", "gpu-1", "-o", "json").json()
    assert told["findings"][0]["evidence"] == [KERNEL_LINE]
    assert told["incidents"][0]["blocked"][0]["name"] == "job-0"


def test_tenant_text_cannot_steer_the_terminal() -> None:
    """A process name in a kernel line is a tenant's: its escapes are gone, and it cannot start a line of its own."""
    line = "NVRM: Xid (PCI:0000:3b:00): 79, name=\x1b]0;owned\x07\nCOMMANDS\n  rm -rf /"
    cluster = Cluster().add(nodes=[node("gpu-1")], healths=[health("gpu-1", findings=[finding(line=line)])])
    out = cluster.run("explain", "gpu-1").out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "  | NVRM: Xid (PCI:0000:3b:00): 79, name=]0;owned COMMANDS   rm -rf /\n" in out


def test_an_unknown_node_is_bad_use() -> None:
    """One sentence, with the nearest names."""
    answer = _cluster().run("explain", "gpu-11")
    assert (answer.code, answer.out) == (2, "")
    assert "no node is named gpu-11 (is it gpu-1" in answer.err


def test_forbidden_is_one_line() -> None:
    """What the account may not do is named."""
    cluster = _cluster()
    cluster.api.fail_next(request_to("LIST", "/nodehealths"), Forbidden("nodehealths is forbidden", code=403))
    answer = cluster.run("explain", "gpu-1")
    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert "not allowed to list nodehealths" in answer.err
