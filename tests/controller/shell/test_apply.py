"""controller.apply: every step idempotent, every answer an Outcome, nothing sent that must not be."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

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
from kube.nodehealth import NodeHealthSpec
from kube.policy import PolicyStatus
from kube.remediation import DrainRecord, NodeBefore, Phase, Remediation
from tests.controller.shell.samples import INCIDENT, NODE, NOW, UID, attempt, raw, remediation, spec, status
from tests.controller.shell.world import Bench
from tests.fakes import request_to

POD_UID = "pod-uid-1"
EVICT = Evict(node=NODE, incident=INCIDENT, namespace="ml", name="train-0", uid=POD_UID)
OPEN = Open(node=NODE, name=INCIDENT, spec=spec(), status=status())
VALIDATION = RunValidation(
    node=NODE,
    incident=INCIDENT,
    attempt=1,
    job=f"{INCIDENT}-revalidate-1",
    gpu_resource="nvidia.com/gpu",
    gpus=8,
    timeout_s=900,
)
REPAIR = RunRepair(
    node=NODE, incident=INCIDENT, repair="reboot", attempt=1, job=f"{INCIDENT}-reboot-1", boot_id="boot-1"
)


def quarantine(bench: Bench, **changes: Any) -> Quarantine:
    """Build the step for the Node as it stands."""
    node = bench.node(NODE)
    assert node is not None
    values: dict[str, Any] = {
        "node_uid": UID,
        "resource_version": node.metadata.resource_version,
        "incident": INCIDENT,
        "before": NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=NOW),
    }
    return Quarantine(node=NODE, **{**values, **changes})


def restore(bench: Bench) -> Restore:
    """Build the step for the Node as it stands."""
    node = bench.node(NODE)
    assert node is not None
    return Restore(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        incident=INCIDENT,
        uncordon=True,
        untaint=True,
    )


def every_step(bench: Bench) -> list[Step]:
    """One of each kind."""
    return [
        OPEN,
        Save(node=NODE, name=INCIDENT, resource_version="1", status=status()),
        quarantine(bench),
        restore(bench),
        EVICT,
        REPAIR,
        VALIDATION,
        Silence(node=NODE, node_uid=UID, conditions=(("GpuXidError", "Unknown", "AgentSilent", "x"),)),
        WriteSpec(node=NODE, spec=NodeHealthSpec(cleared_before=NOW)),
        SavePolicy(node="", name="gpus", resource_version="1", status=PolicyStatus()),
        Delete(node=NODE, name=INCIDENT),
    ]


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
        if not isinstance(step, Restore | Evict):  # nothing to restore, and eviction has a table of its own
            assert (outcome.result, outcome.wait_s) == (expected, error.retry_after_s), step


# Open and Save


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


def test_deleting_what_is_gone_is_done() -> None:
    """Twice is once."""
    bench = Bench()
    bench.applier.apply(OPEN)
    step = Delete(node=NODE, name=INCIDENT)
    assert [bench.applier.apply(step).result for _ in range(2)] == [Result.DONE, Result.ABSENT]


# Nodes


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


# Evictions


@pytest.mark.parametrize(
    ("error", "expected", "why"),
    [
        pytest.param(
            TooManyRequests(
                "The disruption budget pdb-1 needs 1 healthy pods and has 1 currently",
                code=429,
                causes=("DisruptionBudget",),
                retry_after_s=10,
            ),
            Result.BLOCKED,
            "PodDisruptionBudget pdb-1 allows no eviction now",
            id="429 with a budget as cause: held by it",
        ),
        pytest.param(
            TooManyRequests("slow down", code=429, retry_after_s=2),
            Result.THROTTLED,
            "slow down",
            id="429 without: the server is busy",
        ),
        pytest.param(
            Unavailable(
                "POST x: 500 This pod has more than one PodDisruptionBudget, which the eviction subresource does "
                "not support.",
                code=500,
            ),
            Result.MISCONFIGURED,
            "more than one PodDisruptionBudget",
            id="500 with several budgets: needs a person",
        ),
        pytest.param(
            Unavailable("etcd", code=500), Result.UNAVAILABLE, "etcd", id="any other 500: try again"
        ),
        pytest.param(
            Forbidden("no", code=403, causes=("NamespaceTerminating",)),
            Result.BLOCKED,
            "being deleted",
            id="403 with a namespace that is going",
        ),
        pytest.param(Forbidden("rbac", code=403), Result.FORBIDDEN, "rbac", id="403 otherwise"),
        pytest.param(
            Conflict(
                "Operation cannot be fulfilled: the UID in the precondition (a) does not match", code=409
            ),
            Result.ABSENT,
            "another pod",
            id="409 for the UID: this pod is gone",
        ),
        pytest.param(Conflict("try again", code=409), Result.CONFLICT, "try again", id="409 otherwise"),
    ],
)
def test_the_eviction_apis_answers(error: ApiError, expected: Result, why: str) -> None:
    """One code stands for several things there; each is told apart."""
    bench = Bench()
    bench.api.fail_next(request_to("CREATE", "/eviction"), error)
    outcome = bench.applier.apply(EVICT)
    assert (outcome.result, why in outcome.why) == (expected, True)


def test_an_eviction_names_the_pod_by_its_uid() -> None:
    """A StatefulSet's pod of the same name on another node is not ours to evict (kubernetes/kubernetes#138229)."""
    bench = Bench()
    pod = {"metadata": {"name": "train-0", "namespace": "ml", "uid": POD_UID}}
    bench.api.add(paths.pods("ml"), pod)
    assert bench.applier.apply(EVICT).result is Result.DONE
    bench.api.add(paths.pods("ml"), {"metadata": {"name": "train-0", "namespace": "ml", "uid": "new"}})
    assert bench.applier.apply(EVICT).result is Result.ABSENT
    assert bench.api.names(paths.pods("ml")) == ["train-0"]
    assert bench.api.writes()[0].body["deleteOptions"] == {"preconditions": {"uid": POD_UID}}


def test_a_pod_that_is_gone_is_evicted() -> None:
    """404 is success."""
    assert Bench().applier.apply(EVICT).result is Result.ABSENT


# Jobs


def test_a_repair_is_created_once_with_what_is_left_of_its_time() -> None:
    """Named by incident and attempt; a Job that starts late can never outlive the attempt."""
    bench = Bench()
    bench.under_repair()
    bench.clock.advance(60)
    outcome = bench.applier.apply(REPAIR)
    job = bench.api.read(paths.job("nodemend-repairs", REPAIR.job))
    assert outcome.result is Result.DONE
    assert job["spec"]["activeDeadlineSeconds"] == 44 * 60
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--boot-id", "boot-1"]
    assert [obj.metadata.name for obj in outcome.objects] == [REPAIR.job]


@pytest.mark.parametrize(
    "step", [pytest.param(REPAIR, id="repair"), pytest.param(VALIDATION, id="validation")]
)
def test_a_job_that_is_there_and_ours_is_success(step: RunRepair | RunValidation) -> None:
    """A crash between request and answer, or a second leader: one Job."""
    bench = Bench()
    bench.under_repair()
    bench.api.fail_next(request_to("CREATE", "/jobs"), Unavailable("answer lost"), after=True)
    assert bench.applier.apply(step).result is Result.UNAVAILABLE
    outcome = bench.applier.apply(step)
    assert (outcome.result, len(outcome.objects)) == (Result.UNCHANGED, 1)
    assert bench.api.names(paths.jobs("nodemend-repairs")) == [step.job]


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="a Job without label"),
        pytest.param(
            {"labels": {"nodemend.dev/incident": "inc-other"}, "annotations": {"nodemend.dev/node-uid": UID}},
            id="another incident's Job",
        ),
        pytest.param(
            {
                "labels": {"nodemend.dev/incident": INCIDENT},
                "annotations": {"nodemend.dev/node-uid": "other"},
            },
            id="a Job for another machine of that name",
        ),
    ],
)
@pytest.mark.parametrize(
    "step", [pytest.param(REPAIR, id="repair"), pytest.param(VALIDATION, id="validation")]
)
def test_a_job_of_that_name_that_is_not_ours_is_no_success(
    step: RunRepair | RunValidation, metadata: dict[str, Any]
) -> None:
    """Otherwise somebody's `true` in our namespace would pass for a revalidation."""
    bench = Bench()
    bench.under_repair()
    bench.api.add(paths.jobs("nodemend-repairs"), {"metadata": {"name": step.job, **metadata}})
    outcome = bench.applier.apply(step)
    assert (outcome.result, "is not ours" in outcome.why) == (Result.CONFLICT, True)


def test_the_guards_are_asked_on_what_the_server_says_now() -> None:
    """A person uncordoned between drain and reboot: the guard sees it, and no Job is created (NVSentinel#141)."""
    seen: list[bool] = []

    def guard(reread: Any) -> str | None:
        seen.append(reread.node.spec.unschedulable)
        return None if reread.node.spec.unschedulable else "a person uncordoned the node"

    bench = Bench(guard=guard)
    bench.under_repair()
    outcome = bench.applier.apply(REPAIR)
    assert (outcome.result, outcome.why) == (Result.REFUSED, "a person uncordoned the node")
    assert seen == [False]
    assert bench.api.writes() == []
    reads = {request.path for request in bench.api.requests}
    assert reads == {
        paths.node(NODE),
        paths.node_health(NODE),
        paths.remediation(INCIDENT),
        paths.policy("gpus"),
        paths.pods(),
    }


def test_the_pods_of_the_node_are_read_anew_and_to_the_last_page() -> None:
    """A drain is done when a fresh list says so, not when the store does."""
    pods: list[str] = []

    def guard(reread: Any) -> str | None:
        pods.extend(pod.metadata.name for pod in reread.pods)
        return None

    bench = Bench(guard=guard)
    bench.under_repair()
    for number in range(501):
        name = f"p{number:03d}"
        bench.api.add(paths.pods("ml"), {"metadata": {"name": name}, "spec": {"nodeName": NODE}})
    bench.api.add(paths.pods("ml"), {"metadata": {"name": "elsewhere"}, "spec": {"nodeName": "other"}})
    bench.applier.apply(REPAIR)
    assert (len(pods), "elsewhere" in pods) == (501, False)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param("closed", "the incident is closed: Cancelled", id="a person cancelled"),
        pytest.param("finished", "attempt 1 is not open any more", id="the attempt is over"),
        pytest.param(
            "rebooted", "the node runs boot boot-2, not the one to end", id="the node rebooted by itself"
        ),
        pytest.param("unknown boot", "the node runs boot unknown", id="the boot id is empty"),
        pytest.param("late", "the attempt's deadline has passed", id="the deadline has passed"),
    ],
)
def test_what_happened_meanwhile_stops_a_repair(change: str, why: str) -> None:
    """Checked here too, whatever the guard says."""
    bench = Bench()
    bench.under_repair()
    incident, node = paths.remediation_status(INCIDENT), paths.node_status(NODE)
    match change:
        case "closed":
            bench.api.patch(incident, {"status": {"phase": "Cancelled"}}, PatchType.MERGE)
        case "finished":
            done = raw(attempt(result="Failed"))
            bench.api.patch(incident, {"status": {"attempts": [done]}}, PatchType.MERGE)
        case "rebooted":
            bench.api.patch(node, {"status": {"nodeInfo": {"bootID": "boot-2"}}}, PatchType.MERGE)
        case "unknown boot":
            bench.api.patch(node, {"status": {"nodeInfo": {"bootID": ""}}}, PatchType.MERGE)
        case _:
            bench.clock.advance(45 * 60)
    outcome = bench.applier.apply(REPAIR)
    assert (outcome.result, why in outcome.why) == (Result.REFUSED, True)
    assert bench.api.names(paths.jobs("nodemend-repairs")) == []


@pytest.mark.parametrize(
    "path",
    [
        paths.node(NODE),
        paths.node_health(NODE),
        paths.remediation(INCIDENT),
        paths.policy("gpus"),
        paths.pods(),
    ],
)
def test_what_cannot_be_read_stops_a_repair(path: str) -> None:
    """Could not read is unknown, and unknown repairs nothing."""
    bench = Bench()
    bench.under_repair()
    bench.api.fail_next(lambda request: request.path == path, Unavailable("503", code=503))
    assert bench.applier.apply(REPAIR).result is Result.UNAVAILABLE
    assert bench.api.names(paths.jobs("nodemend-repairs")) == []


def test_leadership_lost_while_reading_stops_a_repair() -> None:
    """Asked once more after the reads, which take their time."""
    bench = Bench(why_not_write=iter([None, "the Lease may pass on"]).__next__)
    bench.under_repair()
    assert bench.applier.apply(REPAIR).result is Result.NOT_LEADER
    assert bench.api.writes() == []


def test_without_an_image_nothing_is_repaired_and_that_is_said() -> None:
    """An empty image would make a Job that the server takes and no kubelet runs."""
    from controller.config import JobsSection

    bench = Bench(jobs=JobsSection())
    bench.under_repair()
    outcome = bench.applier.apply(REPAIR)
    assert (outcome.result, "jobs.image is not set" in outcome.why) == (Result.MISCONFIGURED, True)


def test_a_revalidation_asks_for_the_hardwares_gpus() -> None:
    """And ends with the step's own time."""
    bench = Bench()
    bench.applier.apply(VALIDATION)
    job = bench.api.read(paths.job("nodemend-repairs", VALIDATION.job))["spec"]
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (limits, job["activeDeadlineSeconds"]) == ({"nvidia.com/gpu": "8"}, 900)
