"""controller.message: what on-call needs, as an event that the public parser takes, always below 20 kB."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings import http
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.message import CONTENT_TYPE, LARGEST, Meaning, of_incident, of_policy
from kube.policy import PolicyStatus, PoolStatus, RemediationPolicy, WorkloadStatus
from kube.remediation import BlockedPod, DrainRecord, NodeBefore, Phase, Remediation, RemediationStatus
from kube.types import ObjectMeta
from tests.controller.shell.samples import FINDING, INCIDENT, NODE, NOW, UID, attempt, remediation, row

MEANINGS = {
    "Xid79FallenOffBus": Meaning(summary="The GPU fell off the PCIe bus.", runbook="Drain, reboot, reseat.")
}


def event(body: bytes) -> Any:
    """Parse as the CloudEvents SDK does."""
    return http.from_structured_event(http.HTTPMessage(headers={"content-type": CONTENT_TYPE}, body=body))


def told(incident: Remediation, transition: str = "open") -> Any:
    """Give the data of the event of one row."""
    return event(of_incident(row(transition), incident, cluster="west", meanings=MEANINGS)).get_data()


def test_the_public_parser_takes_the_envelope() -> None:
    """Required attributes, the type of the transition, and the sequence extension."""
    parsed = event(of_incident(row("update", 12), remediation(), cluster="we st/1", meanings=MEANINGS))
    assert parsed.get_id() == f"{INCIDENT}.oncall.12"
    assert parsed.get_type() == "dev.nodemend.remediation.update"
    assert parsed.get_source() == "//nodemend.dev/clusters/we%20st%2F1"
    assert (parsed.get_subject(), parsed.get_time()) == (NODE, NOW)
    assert parsed.get_extension("sequence") == "00000012"


def test_it_says_what_on_call_needs() -> None:
    """Where, what, since when, the proof, what was tried, and how to stop it."""
    incident = remediation(
        phase=Phase.ESCALATED,
        message="the reboot changed nothing",
        attempts=(attempt(result="Failed", message="no new boot", finished_at=NOW + timedelta(minutes=45)),),
        before=NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=NOW),
        drain=DrainRecord(
            started_at=NOW,
            deadline=NOW,
            blocked=(BlockedPod(namespace="ml", name="train-0", uid="u", why="budget pdb-1"),),
        ),
    )
    data = told(incident)
    assert (data["cluster"], data["node"], data["nodeUID"]) == ("west", NODE, UID)
    assert (data["providerID"], data["incident"], data["phase"]) == ("test:///gpu-7", INCIDENT, "Escalated")
    (finding,) = data["findings"]
    assert finding["part"] == {
        "kind": "gpu",
        "index": 3,
        "uuid": "GPU-5d0c",
        "pci": "0000:3b:00",
        "serial": "1650522",
        "name": "",
    }
    assert (finding["firstSeen"], finding["rawLines"]) == ("2026-01-01T11:59:20.000Z", list(FINDING.evidence))
    assert data["reasons"]["Xid79FallenOffBus"] == {
        "meaning": "The GPU fell off the PCIe bus.",
        "runbook": "Drain, reboot, reseat.",
    }
    assert [(tried["kind"], tried["result"]) for tried in data["tried"]] == [("reboot", "Failed")]
    assert data["blockedPods"][0]["name"] == "train-0"
    assert data["changedOnNode"] == {"cordoned": True, "tainted": True, "unschedulableBefore": False}
    assert data["commands"]["stop"] == f"kubectl nodemend cancel {NODE}"


@pytest.mark.parametrize(
    ("transition", "phase", "expected"),
    [
        pytest.param("open", Phase.QUARANTINED, "warning", id="we are at work"),
        pytest.param("update", Phase.ESCALATED, "critical", id="a person is needed"),
        pytest.param("resolve", Phase.RETURNED, "info", id="it is over"),
    ],
)
def test_the_severity_follows_from_who_is_needed(transition: str, phase: Phase, expected: str) -> None:
    """Only what waits for a person is critical."""
    assert told(remediation(phase=phase), transition)["severity"] == expected


def test_a_flood_of_evidence_is_cut_and_the_cut_is_said() -> None:
    """Raw lines go first, then findings; the identity of the node stays."""
    loud = msgspec.structs.replace(FINDING, evidence=("ß" * 4000,) * 50)
    body = of_incident(row(), remediation(evidence=(loud,) * 40), cluster="west", meanings=MEANINGS)
    data = event(body).get_data()
    assert len(body) <= LARGEST
    assert (data["node"], len(data["findings"]) + data["findingsOmitted"]) == (NODE, 40)


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(max_size=3000), lines=st.lists(st.text(max_size=2000), max_size=30), many=st.integers(1, 60)
)
def test_no_text_makes_it_larger_than_the_limit(text: str, lines: list[str], many: int) -> None:
    """Whatever a kernel log, a Job or a policy says."""
    finding = msgspec.structs.replace(FINDING, evidence=tuple(lines), detail=text)
    incident = Remediation(
        metadata=ObjectMeta(name=INCIDENT),
        spec=remediation().spec,
        status=RemediationStatus(
            message=text,
            evidence=(finding,) * many,
            attempts=(attempt(message=text),) * many,
            drain=DrainRecord(
                started_at=NOW,
                deadline=NOW,
                blocked=(BlockedPod(namespace="n" * 63, name="p" * 253, uid="u", why=text),) * many,
            ),
        ),
    )
    meanings = {finding.reason: Meaning(summary=text, runbook=text)}
    body = of_incident(row(summary=text), incident, cluster="west", meanings=meanings)
    assert len(body) <= LARGEST


def test_a_tripped_breaker_names_its_pools() -> None:
    """One page for the storm, with the numbers."""
    policy = RemediationPolicy(
        metadata=ObjectMeta(name="gpus"),
        status=PolicyStatus(
            pools=(
                PoolStatus(pool="a", nodes=8, breaker="4 of 8 within 10m", breaker_since=NOW),
                PoolStatus(pool="b"),
            )
        ),
    )
    parsed = event(of_policy(row("open", id="breaker-gpus-1"), policy, cluster="west"))
    assert (parsed.get_type(), parsed.get_subject()) == ("dev.nodemend.breaker.open", "gpus")
    data = parsed.get_data()
    assert (data["severity"], [pool["pool"] for pool in data["pools"]]) == ("critical", ["a"])


def test_a_suspected_workload_has_a_type_of_its_own() -> None:
    """Who is suspected of what, and on which nodes the repair is held."""
    suspected = WorkloadStatus(owner="ml/llm", cause="Xid119GspTimeout", held=("gpu-3",), since=NOW)
    policy = RemediationPolicy(metadata=ObjectMeta(name="gpus"), status=PolicyStatus(workloads=(suspected,)))
    parsed = event(of_policy(row("open", id="workload-0a1b2c3d4e5f-1-oncall"), policy, cluster="west"))
    assert parsed.get_type() == "dev.nodemend.workload.open"
    (told_of,) = parsed.get_data()["workloads"]
    assert (told_of["owner"], told_of["held"]) == ("ml/llm", ["gpu-3"])
