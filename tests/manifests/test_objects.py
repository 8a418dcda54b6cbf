"""Our kinds on the real API server: what is accepted, what is refused and in which words, what kubectl shows."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube import paths
from kube.api import Invalid, PatchType
from kube.nodehealth import HealthFinding, HealthPart, NodeHealth, NodeHealthStatus
from kube.policy import PolicySpec, RemediationPolicy
from kube.remediation import Attempt, Phase, Remediation, RemediationSpec, RemediationStatus
from sandbox.cluster import KubectlError, Sandbox

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
AT = datetime(2026, 11, 29, 12, 0, 0, 123456, UTC)

FINDING = HealthFinding(
    condition="GpuXidError",
    reason="Xid79FallenOffBus",
    severity="Fault",
    effect="node-out",
    urgency="now",
    action="REBOOT",
    part=HealthPart(kind="gpu", pci="0000:3b:00", index=3),
    first_seen=AT,
    last_seen=AT,
    evidence=("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",),
)


def policy(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "RemediationPolicy",
        "metadata": {"generateName": "test-"},
        "spec": spec,
    }


def remediation(name: str) -> dict[str, Any]:
    spec = RemediationSpec(node_name="n1", node_uid="u1", policy="default", evidence=(FINDING,), opened_at=AT)
    return {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "Remediation",
        "metadata": {"name": name},
        "spec": msgspec.to_builtins(spec),
    }


@pytest.fixture
def opened(installed: Sandbox) -> Iterator[str]:
    """A Remediation that is open while the test runs."""
    name = "inc-0123456789ab"
    installed.admin.create(paths.remediations(), remediation(name))
    yield name
    installed.admin.delete(paths.remediation(name))


REFUSED = [
    ({"mode": "enforce"}, "mode", "Unsupported value", "a mode in lower case"),
    ({"containment": "part"}, "containment", "Unsupported value", "a third containment"),
    ({"fenceGrace": "1h"}, "fenceGrace", "at most 10m", "an hour within reach of a sick GPU"),
    ({"unseen": "maybe"}, "unseen", "Unsupported value", "another word for unseen nodes"),
    ({"taint": "yes"}, "taint", "Unsupported value", "another word for the taint"),
    ({"defaultWait": "5 min"}, "defaultWait", "should match", "a duration in words"),
    ({"defaultWait": 5}, "defaultWait", "must be of type string", "a bare number"),
    ({"drain": {"deadline": "0s"}}, "drain.deadline", "longer than 0s", "no time to drain"),
    ({"drain": {"emptyDirData": "keep"}}, "drain.emptyDirData", "Unsupported", "a third way with data"),
    ({"ladder": []}, "ladder", "at least 1", "a ladder without rungs"),
    ({"ladder": [{"timeout": "5m"}]}, "ladder[0].repair", "Required", "a rung without a repair"),
    ({"ladder": [{"repair": "reboot", "attempts": 0}]}, "ladder[0].attempts", "equal to 1", "no attempt"),
    ({"ladder": [{"repair": "reboot", "timeout": "0m"}]}, "ladder[0].timeout", "longer than", "no time"),
    ({"rules": [{"wait": "5m"}]}, "rules[0]", "at least one of reasons and conditions", "a rule for nothing"),
    ({"rules": [{"reasons": ["xid 79"]}]}, "rules[0].reasons[0]", "should match", "a reason with a blank"),
    ({"rules": [{"reasons": ["Xid79"], "ladder": []}]}, "rules[0].ladder", "at least 1", "an empty ladder"),
    ({"budget": {"maxRepairsInFlight": 0}}, "budget.maxRepairsInFlight", "equal to 1", "no repair in flight"),
    ({"budget": {"maxUnavailable": "0%"}}, "budget.maxUnavailable", "should match", "nothing may be out"),
    ({"budget": {"maxUnavailable": "101%"}}, "budget.maxUnavailable", "should match", "beyond everything"),
    ({"budget": {"maxQuarantined": "0"}}, "budget.maxQuarantined", "should match", "no node at all"),
    ({"breaker": {"window": "0h"}}, "breaker.window", "longer than 0s", "a breaker without a window"),
    ({"breaker": {"threshold": "ten"}}, "breaker.threshold", "should match", "a threshold in words"),
    ({"sinks": ["On Call"]}, "sinks[0]", "should match", "a sink that no configuration can name"),
    ({"poolLabel": "not a label"}, "poolLabel", "should match", "a pool label that is none"),
]


@pytest.mark.parametrize(("spec", "field", "why"), [pytest.param(*row[:3], id=row[3]) for row in REFUSED])
def test_a_policy_that_cannot_work_is_refused_with_its_field(
    installed: Sandbox, spec: dict[str, Any], field: str, why: str
) -> None:
    """Nobody finds out at three in the morning that a policy never applied."""
    with pytest.raises(Invalid, match=why) as refused:
        installed.admin.create(paths.policies(), policy(**spec))

    assert f"spec.{field}" in str(refused.value)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="all defaults"),
        pytest.param({"nodeSelector": {}}, id="every node"),
        pytest.param({"defaultWait": "1h30m", "drain": {"deadline": "90s"}}, id="durations of several units"),
        pytest.param({"rules": [{"conditions": ["GpuXidError"]}]}, id="a rule for a whole condition"),
        pytest.param(
            {"budget": {"maxUnavailable": "100%", "maxQuarantined": "1%"}}, id="shares at their ends"
        ),
        pytest.param(
            {"budget": {"maxUnavailable": "2"}, "breaker": {"threshold": "99999"}}, id="numbers of nodes"
        ),
    ],
)
def test_a_policy_that_works_is_accepted_and_read_back(installed: Sandbox, spec: dict[str, Any]) -> None:
    """What the server stored, defaults filled in, decodes to the struct that the controller takes."""
    raw = installed.admin.create(paths.policies(), policy(**spec))
    stored = msgspec.json.decode(raw, type=RemediationPolicy)
    installed.admin.delete(paths.policy(stored.metadata.name))

    assert stored.spec == msgspec.convert(spec, PolicySpec)


def test_an_unknown_key_in_a_policy_is_refused(installed: Sandbox) -> None:
    """kubectl validates strictly: a slip in a key is an error, not a silent default."""
    body = json.dumps(policy(mode="Enforce", maxUnavailable="5%"))
    with pytest.raises(KubectlError, match=r'unknown field \\?"spec\.maxUnavailable'):
        installed.kubectl("create", "-f", "-", stdin=body)


def test_evidence_never_changes(installed: Sandbox, opened: str) -> None:
    """The spec of a Remediation is latched: not even the administrator edits it."""
    for patch in (
        {"spec": {"bootID": "another"}},
        {"spec": {"evidence": [msgspec.to_builtins(FINDING) | {"reason": "Xid48DoubleBitEcc"}]}},
        {"spec": {"policy": "kinder"}},
    ):
        with pytest.raises(Invalid, match=r"spec.*is latched evidence and never changes"):
            installed.admin.patch(paths.remediation(opened), patch, PatchType.MERGE)


def test_a_person_may_annotate_a_remediation(installed: Sandbox, opened: str) -> None:
    """`repaired` and `cancel` are annotations, so latching the spec is no hindrance."""
    patch = {"metadata": {"annotations": {"nodemend.dev/cancel": "2026-11-29T12:00:00Z"}}}
    raw = installed.admin.patch(paths.remediation(opened), patch, PatchType.MERGE)

    assert "nodemend.dev/cancel" in msgspec.json.decode(raw, type=Remediation).metadata.annotations


def test_a_status_as_the_controller_writes_it_survives_the_round_trip(
    installed: Sandbox, opened: str
) -> None:
    """Absent values are sent as null, also within lists, and come back as absent; microseconds are kept."""
    attempt = Attempt(number=1, kind="reboot", job="j", started_at=AT, deadline=AT)
    status = RemediationStatus(
        phase=Phase.REPAIRING, phase_since=AT, evidence=(FINDING,), attempts=(attempt,), held_by=""
    )
    body = {"status": msgspec.to_builtins(status)}
    raw = installed.admin.patch(paths.remediation_status(opened), body, PatchType.MERGE)

    assert msgspec.json.decode(raw, type=Remediation).status == status


def test_spec_and_status_are_written_apart(installed: Sandbox) -> None:
    """The agent cannot set what the controller expects, nor the controller what the agent saw, by the other's door."""
    health = {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": "apart"},
        "status": msgspec.to_builtins(NodeHealthStatus(driver="1")),
    }
    created = msgspec.json.decode(installed.admin.create(paths.node_healths(), health), type=NodeHealth)
    body = {"status": {"findings": [msgspec.to_builtins(FINDING)]}, "spec": {"clearedBy": "agent"}}
    raw = installed.admin.patch(paths.node_health_status("apart"), body, PatchType.MERGE)
    written = msgspec.json.decode(raw, type=NodeHealth)
    installed.admin.delete(paths.node_health("apart"))

    assert created.status == NodeHealthStatus()
    assert (written.spec.cleared_by, written.status.findings) == ("", (FINDING,))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"severity": "Bad"}, "status.findings[0].severity", id="an unknown severity"),
        pytest.param({"effect": "dead"}, "status.findings[0].effect", id="an unknown effect"),
        pytest.param({"count": -1}, "status.findings[0].count", id="a negative count"),
        pytest.param({"firstSeen": "yesterday"}, "status.findings[0].firstSeen", id="a time in words"),
        pytest.param({"reason": "Xid 79; rm"}, "status.findings[0].reason", id="a reason that is no name"),
    ],
)
def test_a_report_that_is_none_is_refused_with_its_field(
    installed: Sandbox, change: dict[str, Any], field: str
) -> None:
    """What the controller acts on has the shape that it expects."""
    health = {
        "apiVersion": "nodemend.dev/v1alpha1",
        "kind": "NodeHealth",
        "metadata": {"name": "refused"},
    }
    installed.admin.create(paths.node_healths(), health)
    body = {"status": {"findings": [msgspec.to_builtins(FINDING) | change]}}
    try:
        with pytest.raises(Invalid) as refused:
            installed.admin.patch(paths.node_health_status("refused"), body, PatchType.MERGE)
    finally:
        installed.admin.delete(paths.node_health("refused"))

    assert field in str(refused.value)


def test_kubectl_get_is_readable(installed: Sandbox) -> None:
    """Every example is applied whole, status included, and each kind shows as a table under its short name."""
    examples = {path.stem: json.loads(as_json(installed, path)) for path in EXAMPLES.glob("[!k]*.yaml")}
    installed.kubectl("apply", "--server-side", "-k", str(EXAMPLES))
    for name in ("node-health", "remediation"):
        stated = json.dumps(examples[name])
        installed.kubectl("apply", "--server-side", "--subresource=status", "-f", "-", stdin=stated)
    try:
        shown = {
            kind: installed.kubectl("get", kind, examples[file]["metadata"]["name"]).splitlines()
            for kind, file in (
                ("nh", "node-health"),
                ("rem", "remediation"),
                ("rempol", "remediation-policy"),
            )
        }
    finally:
        installed.kubectl("delete", "-k", str(EXAMPLES))

    assert shown["nh"][0].split() == [
        "NAME", "WORST", "SEVERITY", "PART", "PCI", "DRIVER", "OBSERVED", "AGE",
    ]  # fmt: skip
    assert shown["nh"][1].split()[:6] == [
        "gpu-0017", "Xid79FallenOffBus", "Fault", "gpu", "0000:3b:00", "580.95.05",
    ]  # fmt: skip
    assert shown["rem"][1].split()[:3] == ["inc-5b0e77d1c9aa", "gpu-0017", "Repairing"]
    assert "Xid79FallenOffBus" in shown["rem"][1]
    assert shown["rempol"][1].split()[:4] == ["h100-training", "Enforce", "false", "10"]


def as_json(sandbox: Sandbox, path: Path) -> str:
    return sandbox.kubectl("create", "--dry-run=client", "-o", "json", "-f", str(path))
