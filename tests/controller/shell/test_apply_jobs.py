"""controller.apply: a Job is created once, guarded on what the server says that moment, and never taken from others."""

from typing import Any

import pytest

from controller.config import JobsSection
from controller.outcome import Result
from controller.steps import (
    RunRepair,
    RunValidation,
)
from kube import paths
from kube.api import (
    PatchType,
    Unavailable,
)
from tests.controller.shell.one_of_each import (
    CALL_BACK,
    REPAIR,
    VALIDATION,
)
from tests.controller.shell.samples import INCIDENT, NODE, UID, attempt, raw
from tests.controller.shell.world import Bench
from tests.fakes import request_to


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
        paths.policies(),
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
            "rebooted", "the node runs boot boot-2, not the attempt's", id="the node rebooted by itself"
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
        paths.policies(),
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
    bench = Bench(jobs=JobsSection())
    bench.under_repair()
    outcome = bench.applier.apply(REPAIR)
    assert (outcome.result, "jobs.image is not set" in outcome.why) == (Result.MISCONFIGURED, True)


def test_a_revalidation_asks_for_the_hardwares_gpus() -> None:
    """And ends with the step's own time."""
    bench = Bench()
    bench.under_repair()
    bench.applier.apply(VALIDATION)
    job = bench.api.read(paths.job("nodemend-repairs", VALIDATION.job))["spec"]
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (limits, job["activeDeadlineSeconds"]) == ({"nvidia.com/gpu": "8"}, 900)


def test_a_job_is_called_back_by_its_uid_with_its_pods() -> None:
    """Another Job that took its name meanwhile is not ours to delete; what is gone is gone."""
    bench = Bench()
    path = paths.job("nodemend-repairs", REPAIR.job)
    bench.api.add(paths.jobs("nodemend-repairs"), {"metadata": {"name": REPAIR.job, "uid": "other"}})
    assert bench.applier.apply(CALL_BACK).result is Result.CONFLICT
    bench.api.remove(path)
    bench.api.add(paths.jobs("nodemend-repairs"), {"metadata": {"name": REPAIR.job, "uid": "job-uid-1"}})
    assert [bench.applier.apply(CALL_BACK).result for _ in range(2)] == [Result.DONE, Result.ABSENT]
    assert bench.api.names(paths.jobs("nodemend-repairs")) == []
    assert bench.api.writes()[0].body["propagationPolicy"] == "Background"


def test_a_revalidation_asks_its_guard_on_what_the_server_says_now() -> None:
    """It takes all GPUs of the node: not where a person gave them to others a moment ago."""
    bench = Bench(validation_guard=lambda seen: "uncordoned" if not seen.node.spec.unschedulable else None)
    bench.under_repair()
    outcome = bench.applier.apply(VALIDATION)
    assert (outcome.result, outcome.why) == (Result.REFUSED, "uncordoned")
    assert bench.api.writes() == []
