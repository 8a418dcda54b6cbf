"""The controller's requests against the real API server, with the real schemas: what no fake can prove.

Whole loops are played elsewhere; here each kind of request is made once and its answer is looked at.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controller.apply import Applier, World
from controller.config import JobsSection
from controller.outcome import Result
from controller.steps import (
    Delete,
    Evict,
    Open,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    Save,
    SavePolicy,
    Silence,
    Step,
    WriteSpec,
)
from kube import paths
from kube.api import NotFound, PatchType
from kube.clock import SYSTEM
from kube.nodehealth import NodeHealthSpec
from kube.policy import PolicyStatus, PoolStatus
from kube.remediation import (
    BlockedPod,
    DrainRecord,
    NodeBefore,
    Notification,
    Phase,
    Remediation,
    RemediationStatus,
    TimelineEntry,
)
from kube.types import Node
from sandbox.cluster import Sandbox
from sandbox.install import IMAGE, install
from tests.controller.shell.samples import FINDING, attempt, spec
from tests.controller.shell.world import config
from tests.manifests.deeds import session


class Live:
    """A Node of our own on the real API server, and an applier that reaches it under the controller's own token."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.api = sandbox.admin
        self.controller = session(sandbox, "nodemend-system", "nodemend-controller")
        self.name = f"live-{secrets.token_hex(4)}"
        self.incident = f"inc-{secrets.token_hex(6)}"
        self.now = SYSTEM.now()
        body = {
            "metadata": {"name": self.name, "annotations": {"example.com/rack": "r1"}},
            "spec": {"taints": [{"key": "example.com/team", "effect": "NoSchedule"}]},
        }
        self.api.create(paths.nodes(), body)
        status = {
            "conditions": [
                {"type": "GpuXidError", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
            "nodeInfo": {"bootID": "boot-1"},
        }
        self.api.patch(paths.node_status(self.name), {"status": status}, PatchType.STRATEGIC)
        self.applier = Applier(
            World(
                api=self.controller,
                clock=SYSTEM,
                config=config(jobs=JobsSection(image=IMAGE)),
                held_node=lambda _: self.node(),
                why_not_repair=lambda _: None,
                why_not_evict=lambda _: None,
                why_not_validate=lambda _: None,
                why_not_write=lambda: None,
            )
        )

    def node(self) -> Node:
        return msgspec.json.decode(self.api.get(paths.node(self.name)), type=Node)

    def open_incident(self) -> None:
        incident = {
            "apiVersion": "nodemend.dev/v1alpha1",
            "kind": "Remediation",
            "metadata": {"name": self.incident},
            "spec": msgspec.to_builtins(
                spec(node_name=self.name, node_uid=self.node().metadata.uid, policy="default")
            ),
        }
        self.api.create(paths.remediations(), incident)

    def raw(self) -> dict[str, Any]:
        """Everything of the Node that is not the server's own book-keeping or the controller manager's."""
        node = json.loads(self.api.get(paths.node(self.name)))
        taints = [t for t in node["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/")]
        marks = node["metadata"]["annotations"]
        kept = {key: mark for key, mark in marks.items() if not key.startswith("node.alpha.kubernetes.io/")}
        return {"annotations": kept, "spec": {**node["spec"], "taints": taints}}

    def settled(self, step: Callable[[Node], Step]) -> Result:
        """Apply a step made of the Node as it stands, past the controller manager's own writes to it."""
        results = [self.applier.apply(step(self.node())).result]
        while results[-1] is Result.CONFLICT and len(results) < 20:
            results.append(self.applier.apply(step(self.node())).result)
        return results[-1]

    def quarantine(self, node: Node, **changes: Any) -> Quarantine:
        values: dict[str, Any] = {
            "node_uid": node.metadata.uid,
            "resource_version": node.metadata.resource_version,
            "incident": self.incident,
            "before": NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=self.now),
        }
        return Quarantine(node=self.name, **{**values, **changes})

    def restore(self, node: Node) -> Restore:
        return Restore(
            node=self.name,
            node_uid=node.metadata.uid,
            resource_version=node.metadata.resource_version,
            incident=self.incident,
            uncordon=True,
            untaint=True,
        )


@pytest.fixture(scope="module")
def installed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with nodemend's own manifests."""
    install(sandbox, "enforce")
    return sandbox


@pytest.fixture
def live(installed: Sandbox) -> Iterator[Live]:
    """A Node of its own for each test; what is left of it would count in the budgets of later tests."""
    made = Live(installed)
    yield made
    for path in (
        paths.node(made.name),
        paths.node_health(made.name),
        paths.remediation(made.incident),
        *(paths.job("nodemend-repairs", f"{kind}-{made.incident}-1") for kind in ("reboot", "validate")),
    ):
        with suppress(NotFound):
            made.api.delete(path)
    made.controller.close()


def test_quarantine_and_exact_restore(live: Live) -> None:
    """One patch each; afterwards the Node is what it was."""
    before = live.raw()
    assert live.settled(live.quarantine) is Result.DONE
    held = live.raw()
    assert (held["spec"]["unschedulable"], [taint["key"] for taint in held["spec"]["taints"]]) == (
        True,
        ["example.com/team", "nodemend.dev/quarantine"],
    )
    assert live.settled(live.restore) is Result.DONE
    assert live.raw() == before


def applier_on(live: Live, stale: Node) -> Applier:
    """Make an applier whose store still holds this Node."""
    return Applier(
        World(
            api=live.api,
            clock=SYSTEM,
            config=config(),
            held_node=lambda _: stale,
            why_not_repair=lambda _: None,
            why_not_evict=lambda _: None,
            why_not_validate=lambda _: None,
            why_not_write=lambda: None,
        )
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"resource_version": "1"}, id="another version"),
        pytest.param({"node_uid": "11111111-1111-4111-8111-111111111111"}, id="another UID"),
    ],
)
def test_a_node_that_changed_refuses_the_patch(live: Live, changes: dict[str, str]) -> None:
    """The server's 409 or 422, whichever it is, comes out as a conflict; the Node is as before."""
    before = live.raw()
    step = live.quarantine(live.node(), **changes)
    claimed = live.node()
    metadata = msgspec.structs.replace(
        claimed.metadata, uid=step.node_uid, resource_version=step.resource_version
    )
    stale = msgspec.structs.replace(claimed, metadata=metadata)
    assert applier_on(live, stale).apply(step).result is Result.CONFLICT
    assert live.raw() == before


def test_silence_is_written_beside_the_conditions_of_others(live: Live) -> None:
    """Strategic merge by type. The controller manager writes to a new Node too: then it is decided anew."""
    for _ in range(20):
        seen = live.node().metadata
        step = Silence(
            node=live.name,
            node_uid=seen.uid,
            resource_version=seen.resource_version,
            conditions=(("GpuXidError", "Unknown", "AgentSilent", "x"),),
        )
        outcome = live.applier.apply(step)
        if outcome.result is not Result.CONFLICT:
            break
    assert outcome.result is Result.DONE
    condition = live.node().condition("GpuXidError")
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "AgentSilent")
    other = msgspec.structs.replace(step, node_uid="11111111-1111-4111-8111-111111111111")
    assert live.applier.apply(other).result is Result.CONFLICT


def test_silence_never_covers_what_an_agent_just_said(live: Live) -> None:
    """It speaks again, and turns the condition True, in the moment in which it was to be called silent."""
    stale = live.node()
    step = Silence(
        node=live.name,
        node_uid=stale.metadata.uid,
        resource_version=stale.metadata.resource_version,
        conditions=(("GpuXidError", "Unknown", "AgentSilent", "x"),),
    )
    told = {"conditions": [{"type": "GpuXidError", "status": "True", "reason": "Xid79FallenOffBus"}]}
    live.api.patch(paths.node_status(live.name), {"status": told}, PatchType.STRATEGIC)
    assert live.applier.apply(step).result is Result.CONFLICT  # the store holds the newer Node
    assert applier_on(live, stale).apply(step).result is Result.CONFLICT  # only the server does
    condition = live.node().condition("GpuXidError")
    assert condition is not None
    assert condition.status == "True"


def test_an_incident_with_everything_in_it_is_taken_by_the_schema(live: Live) -> None:
    """Opened twice, saved full, saved empty again, deleted twice."""
    opened = Open(
        node=live.name,
        name=live.incident,
        spec=spec(node_name=live.name, node_uid=live.node().metadata.uid),
        status=RemediationStatus(phase=Phase.SUSPECTED, phase_since=live.now, evidence=(FINDING,)),
    )
    assert [live.applier.apply(opened).result for _ in range(2)] == [Result.DONE, Result.UNCHANGED]
    full = RemediationStatus(
        phase=Phase.DRAINING,
        phase_since=live.now,
        message="x",
        evidence=(FINDING,),
        before=NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=live.now),
        drain=DrainRecord(
            started_at=live.now,
            deadline=live.now,
            blocked=(BlockedPod(namespace="n", name="p", uid="u", why="w"),),
        ),
        attempts=(
            attempt(),
            attempt(job="two", submitted_at=live.now, finished_at=live.now, result="Failed"),
        ),
        notifications=(
            Notification(
                id="i", sink="oncall", transition="open", sequence=1, summary="s", created_at=live.now
            ),
        ),
        timeline=(TimelineEntry(at=live.now, phase="Suspected", message="m"),),
        held_by="budget",
    )
    for status in (full, RemediationStatus(phase=Phase.CANCELLED, phase_since=live.now, closed_at=live.now)):
        held = msgspec.json.decode(live.api.get(paths.remediation(live.incident)), type=Remediation)
        step = Save(
            node=live.name,
            name=live.incident,
            resource_version=held.metadata.resource_version,
            status=status,
        )
        outcome = live.applier.apply(step)
        assert (outcome.result, outcome.why) == (Result.DONE, "")
        read = msgspec.json.decode(live.api.get(paths.remediation(live.incident)), type=Remediation)
        assert read.status == status
    assert live.applier.apply(step).result is Result.CONFLICT
    gone = Delete(node=live.name, name=live.incident)
    assert [live.applier.apply(gone).result for _ in range(2)] == [Result.DONE, Result.ABSENT]


def test_a_policys_numbers_and_a_clearing_are_taken_by_the_schemas(live: Live) -> None:
    """SavePolicy and WriteSpec."""
    version = json.loads(live.api.get(paths.policy("default")))["metadata"]["resourceVersion"]
    status = PolicyStatus(
        observed_generation=1,
        observed_at=live.now,
        pools=(PoolStatus(pool="p", nodes=8, breaker="x", breaker_since=live.now),),
    )
    saved = live.applier.apply(SavePolicy(node="", name="default", resource_version=version, status=status))
    assert (saved.result, saved.why) == (Result.DONE, "")
    live.api.create(
        paths.node_healths(),
        {"apiVersion": "nodemend.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": live.name}},
    )
    written = live.applier.apply(
        WriteSpec(node=live.name, spec=NodeHealthSpec(cleared_before=live.now, cleared_by="a test"))
    )
    assert (written.result, written.why) == (Result.DONE, "")


def test_the_jobs_are_taken_by_the_server_and_created_once(live: Live) -> None:
    """Both manifests pass the server's validation; the second create finds its own."""
    deadline = live.now + timedelta(minutes=10)
    live.open_incident()
    job = f"reboot-{live.incident}-1"
    open_attempt = attempt(job=job, started_at=live.now, deadline=deadline)
    status = {"phase": "Repairing", "attempts": [without_none(msgspec.to_builtins(open_attempt))]}
    live.api.patch(paths.remediation_status(live.incident), {"status": status}, PatchType.MERGE)
    live.api.create(
        paths.node_healths(),
        {"apiVersion": "nodemend.dev/v1alpha1", "kind": "NodeHealth", "metadata": {"name": live.name}},
    )
    steps: list[Step] = [
        RunRepair(
            node=live.name, incident=live.incident, repair="reboot", attempt=1, job=job, boot_id="boot-1"
        ),
        RunValidation(
            node=live.name,
            incident=live.incident,
            attempt=1,
            job=f"validate-{live.incident}-1",
            gpu_resource="nvidia.com/gpu",
            gpus=8,
            timeout_s=600,
        ),
    ]
    for step in steps:
        outcomes = [live.applier.apply(step) for _ in range(2)]
        assert [(o.result, o.why) for o in outcomes] == [(Result.DONE, ""), (Result.UNCHANGED, "")]


def without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if item is not None}


@pytest.mark.parametrize(
    ("budgets", "uid", "expected", "why"),
    [
        pytest.param(0, "right", Result.DONE, "", id="no budget"),
        pytest.param(0, "wrong", Result.ABSENT, "another pod", id="another pod of that name"),
        pytest.param(
            1, "right", Result.BLOCKED, "PodDisruptionBudget b0 allows no eviction now", id="one budget"
        ),
        pytest.param(2, "right", Result.MISCONFIGURED, "more than one PodDisruptionBudget", id="two budgets"),
    ],
)
def test_the_eviction_apis_real_answers(
    live: Live, installed: Sandbox, namespace: str, budgets: int, uid: str, expected: Result, why: str
) -> None:
    """The words that tell one 429 or 500 from another are the server's own."""
    live.open_incident()
    for number in range(budgets):
        installed.kubectl(
            "-n", namespace, "create", "pdb", f"b{number}", "--selector=app=x", "--min-available=1"
        )
    pod = {
        "metadata": {"name": "p", "labels": {"app": "x"}},
        "spec": {"nodeName": live.name, "containers": [{"name": "c", "image": "i"}]},
    }
    made = json.loads(live.api.create(paths.pods(namespace), pod))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    live.api.patch(paths.pod_status(namespace, "p"), {"status": running}, PatchType.STRATEGIC)
    step = Evict(
        node=live.name,
        incident=live.incident,
        namespace=namespace,
        name="p",
        uid=made["metadata"]["uid"] if uid == "right" else "11111111-1111-4111-8111-111111111111",
    )
    outcome = live.applier.apply(step)
    assert (outcome.result, why in outcome.why) == (expected, True)
