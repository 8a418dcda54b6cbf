"""controller.apply: every step idempotent, every answer an Outcome, nothing sent that must not be."""

from datetime import timedelta

import msgspec
import pytest

from controller.outcome import Result
from controller.steps import (
    Delete,
    Evict,
    Restore,
    Save,
    SavePolicy,
    StartClients,
    Step,
    WriteExpected,
    WriteSpec,
)
from kube import paths
from kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotLeader,
    PatchType,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kube.nodehealth import Expected, NodeHealthSpec, Peers
from kube.policy import PolicyStatus
from kube.remediation import DrainRecord, Phase, Remediation
from tests.controller.shell.one_of_each import (
    OPEN,
    every_step,
    quarantine,
    restore,
)
from tests.controller.shell.samples import INCIDENT, NODE, NOW, UID, attempt, raw, remediation, status
from tests.controller.shell.world import Bench
from tests.fakes import request_to


def test_under_dry_run_nothing_is_sent() -> None:
    """Whatever the step: no request at all, and it is said."""
    bench = Bench(dry_run=True)
    assert {bench.applier.apply(step).result for step in every_step(bench)} == {Result.DRY_RUN}
    assert bench.api.requests == []


def test_without_leadership_nothing_is_sent() -> None:
    """The answer is an outcome that says why."""
    bench = Bench(why_not_write=lambda: "this replica does not lead")
    outcomes = [bench.applier.apply(step) for step in every_step(bench)]
    assert {(outcome.result, outcome.why) for outcome in outcomes} == {
        (Result.NOT_LEADER, "this replica does not lead")
    }
    assert bench.api.requests == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(NotLeader("lease"), Result.NOT_LEADER, id="the session refused to send it"),
        pytest.param(Conflict("changed", code=409), Result.CONFLICT, id="the object changed"),
        pytest.param(Unavailable("503", code=503), Result.UNAVAILABLE, id="the server is away"),
        pytest.param(Unavailable("no answer"), Result.UNAVAILABLE, id="the answer was lost"),
        pytest.param(
            TooManyRequests("busy", code=429, retry_after_s=3), Result.THROTTLED, id="the server is busy"
        ),
        pytest.param(Forbidden("rbac", code=403), Result.FORBIDDEN, id="RBAC or admission says no"),
        pytest.param(Unauthorized("token", code=401), Result.FORBIDDEN, id="the token is not taken"),
        pytest.param(Invalid("schema", code=422), Result.INVALID, id="the schema says no"),
        pytest.param(
            Invalid("metadata.uid: Invalid value", code=422), Result.CONFLICT, id="the Node is another one"
        ),
        pytest.param(ApiError("teapot", code=418), Result.UNAVAILABLE, id="something unheard of"),
    ],
)
def test_an_error_is_an_outcome_and_never_escapes(error: ApiError, expected: Result) -> None:
    """For every kind of step."""
    bench = Bench()
    bench.under_repair()
    for step in every_step(bench):
        bench.api.stop_failing()
        bench.api.fail_next(request_to("*", ""), error, times=None)
        outcome = bench.applier.apply(step)
        # Nothing to restore or to start, and eviction has a table of its own.
        if not isinstance(step, Restore | StartClients | Evict):
            assert (outcome.result, outcome.wait_s) == (expected, error.retry_after_s), step


def test_opening_creates_the_incident_with_its_story() -> None:
    """Status is a subresource: it needs a second request, made from the first one's answer."""
    bench = Bench()
    outcome = bench.applier.apply(OPEN)
    stored = bench.api.read(paths.remediation(INCIDENT))
    assert outcome.result is Result.DONE
    assert stored["spec"]["nodeUID"] == UID
    assert stored["status"]["phase"] == "Suspected"
    assert stored["metadata"]["labels"]["nodemend.dev/node"] == NODE
    assert [obj.metadata.name for obj in outcome.objects] == [INCIDENT]
    assert None not in stored["spec"].values()


def test_opening_twice_is_once() -> None:
    """A crash after the request, or a second leader, finds its own incident and leaves its story alone."""
    bench = Bench()
    bench.applier.apply(OPEN)
    before = bench.api.read(paths.remediation(INCIDENT))
    assert bench.applier.apply(OPEN).result is Result.UNCHANGED
    assert bench.api.read(paths.remediation(INCIDENT)) == before


def test_an_incident_whose_story_got_lost_in_a_crash_gets_it() -> None:
    """Created, then killed before the status was written: the next apply writes it."""
    bench = Bench()
    bench.api.fail_next(request_to("PATCH", "/status"), Unavailable("killed"))
    assert bench.applier.apply(OPEN).result is Result.UNAVAILABLE
    assert bench.applier.apply(OPEN).result is Result.DONE
    assert bench.api.read(paths.remediation(INCIDENT))["status"]["phase"] == "Suspected"


def test_an_incident_of_that_name_for_another_node_is_not_ours() -> None:
    """Names are derived, not proof: the UID is."""
    bench = Bench()
    other = {**raw(remediation()), "metadata": {"name": INCIDENT}}
    other["spec"]["nodeUID"] = "another"
    bench.api.add(paths.remediations(), other)
    outcome = bench.applier.apply(OPEN)
    assert (outcome.result, "exists for another Node" in outcome.why) == (Result.CONFLICT, True)


def test_saving_replaces_the_status_and_clears_what_is_none() -> None:
    """A merge patch must not leave yesterday's drain behind, nor put nulls into lists."""
    bench = Bench()
    bench.applier.apply(OPEN)
    drain = DrainRecord(started_at=NOW, deadline=NOW + timedelta(minutes=1), finished_at=NOW)
    for version_status in (
        status(phase=Phase.DRAINING, drain=drain, attempts=(attempt(), attempt(number=2))),
        status(phase=Phase.REPAIRING, attempts=(attempt(),)),
    ):
        version = bench.api.read(paths.remediation(INCIDENT))["metadata"]["resourceVersion"]
        outcome = bench.applier.apply(
            Save(node=NODE, name=INCIDENT, resource_version=version, status=version_status)
        )
    stored = bench.api.read(paths.remediation(INCIDENT))
    assert "drain" not in stored["status"]
    assert "submittedAt" not in stored["status"]["attempts"][0]
    assert msgspec.convert(stored, Remediation).status == version_status
    assert [msgspec.convert(stored, Remediation)] == list(outcome.objects)


def test_saving_over_another_state_is_a_conflict_and_changes_nothing() -> None:
    """The resource version of the plan is the precondition."""
    bench = Bench()
    bench.applier.apply(OPEN)
    before = bench.api.read(paths.remediation(INCIDENT))
    outcome = bench.applier.apply(
        Save(node=NODE, name=INCIDENT, resource_version="1", status=status(phase=Phase.ESCALATED))
    )
    assert outcome.result is Result.CONFLICT
    assert bench.api.read(paths.remediation(INCIDENT)) == before


def test_a_policys_status_is_saved_the_same_way() -> None:
    """Only the status subresource is written."""
    bench = Bench()
    bench.under_repair()
    version = bench.api.read(paths.policy("gpus"))["metadata"]["resourceVersion"]
    step = SavePolicy(
        node="",
        name="gpus",
        resource_version=version,
        status=PolicyStatus(problems=("x",), observed_generation=1),
    )
    assert bench.applier.apply(step).result is Result.DONE
    assert bench.api.read(paths.policy("gpus"))["status"]["observedGeneration"] == 1
    assert [request.path for request in bench.api.writes()] == [paths.policy_status("gpus")]


def test_clearing_is_written_into_the_nodes_health() -> None:
    """Only the named fields of spec."""
    bench = Bench()
    bench.under_repair()
    step = WriteSpec(node=NODE, spec=NodeHealthSpec(cleared_before=NOW, cleared_by="reboot"))
    assert bench.applier.apply(step).result is Result.DONE
    assert bench.api.read(paths.node_health(NODE))["spec"]["clearedBy"] == "reboot"


def test_what_is_expected_is_written_beside_the_rest_of_the_spec() -> None:
    """Peers that went away are removed, what an incident wrote meanwhile stays."""
    bench = Bench()
    bench.under_repair()
    told = WriteExpected(node=NODE, expected=Expected(ports=8), peers=Peers(ports=8, counted=3))
    bench.applier.apply(told)
    bench.applier.apply(WriteSpec(node=NODE, spec=NodeHealthSpec(cleared_before=NOW, expected=told.expected)))
    bench.applier.apply(told)
    bench.applier.apply(msgspec.structs.replace(told, peers=None))
    spec = bench.api.read(paths.node_health(NODE))["spec"]
    assert (spec["expected"]["ports"], spec.get("peers"), "clearedBefore" in spec) == (8, None, True)


def test_deleting_what_is_gone_is_done() -> None:
    """Twice is once."""
    bench = Bench()
    bench.applier.apply(OPEN)
    step = Delete(node=NODE, name=INCIDENT)
    assert [bench.applier.apply(step).result for _ in range(2)] == [Result.DONE, Result.ABSENT]


def test_quarantine_is_one_patch_and_the_answer_goes_back_to_the_stores() -> None:
    """Cordon, taint and mark together, as field manager nodemend-controller."""
    bench = Bench()
    outcome = bench.applier.apply(quarantine(bench))
    (request,) = bench.api.writes()
    assert (outcome.result, request.patch_type) == (Result.DONE, PatchType.JSON)
    assert request.query == {"fieldManager": "nodemend-controller"}
    assert [obj.metadata.name for obj in outcome.objects] == [NODE]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("seen", id="the store already holds the newer Node: nothing is sent"),
        pytest.param("unseen", id="the server alone knows: it answers 409"),
    ],
)
def test_a_quarantine_of_a_node_that_changed_is_a_conflict(change: str) -> None:
    """A person may have cordoned it in this very moment; the next tick decides anew."""
    bench = Bench()
    step = quarantine(bench)
    if change == "seen":
        bench.api.patch(paths.node(NODE), {"spec": {"unschedulable": True}}, PatchType.MERGE)
    else:
        bench.api.fail_next(request_to("PATCH", paths.node(NODE)), Conflict("changed", code=409))
    assert bench.applier.apply(step).result is Result.CONFLICT
    assert "nodemend.dev/quarantine" not in bench.api.read(paths.node(NODE))["metadata"]["annotations"]


def test_a_restore_after_a_quarantine_and_once_more_after_a_crash() -> None:
    """The second one finds nothing to do and sends nothing."""
    bench = Bench()
    bench.applier.apply(quarantine(bench))
    assert bench.applier.apply(restore(bench)).result is Result.DONE
    sent = len(bench.api.writes())
    assert bench.applier.apply(restore(bench)).result is Result.UNCHANGED
    assert len(bench.api.writes()) == sent


def test_a_node_that_is_another_one_now_is_not_touched() -> None:
    """Deleted and made anew under its name: another UID."""
    bench = Bench()
    steps: list[Step] = [quarantine(bench), restore(bench), every_step(bench)[7]]
    bench.api.remove(paths.node(NODE))
    assert {bench.applier.apply(step).result for step in steps} == {Result.CONFLICT}
    assert bench.api.writes() == []
