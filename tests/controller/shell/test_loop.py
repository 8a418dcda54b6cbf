"""controller.loop with the real core over a fake server: the thin loop closes, and nothing is done twice or on old sight."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from controller.outcome import Result
from controller.webhook import Answer
from kube import paths
from kube.api import Conflict, PatchType, TooManyRequests, Unavailable
from kube.timestamps import rfc3339
from tests.controller.shell.fleet import Fleet
from tests.fake_api import Predicate
from tests.fakes import request_to


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Eight healthy nodes under an Enforce policy, with a controller."""
    made = Fleet()
    yield made
    made.stop()


def facts(fleet: Fleet, name: str) -> dict[str, Any]:
    """Everything of a Node that people and schedulers see, without version and status."""
    node = fleet.api.read(paths.node(name))
    return {
        "spec": node["spec"],
        "annotations": node["metadata"].get("annotations", {}),
        "labels": node["metadata"]["labels"],
    }


def by_controller(method: str, part: str) -> Predicate:
    """Match the controller's requests: the status of a Node is the agent's and kubelet's to write."""
    matches, agent = request_to(method, part), request_to("*", paths.node_status("gpu-0"))
    return lambda request: matches(request) and not agent(request)


def to_repairing(fleet: Fleet) -> None:
    """Lead gpu-0 to the point where its reboot Job exists."""
    fleet.report("gpu-0", fault=True)
    fleet.turn()
    assert fleet.phase() == "Repairing"


def to_returned(fleet: Fleet) -> None:
    """From there to the end: the machine reboots, the revalidation passes."""
    fleet.reboot("gpu-0")
    fleet.turn()
    fleet.finish(fleet.jobs()[-1])
    fleet.turn()


def test_a_well_fleet_is_left_alone(fleet: Fleet) -> None:
    """No incident, no touch of a Node, no page; only the policy's numbers are written."""
    fleet.turn()
    assert {request.path for request in fleet.api.writes()} <= {paths.policy_status("gpus")}


def test_the_loop_closes(fleet: Fleet) -> None:
    """A fault is contained, drained, repaired, proven, revalidated, and the node is exactly as it was."""
    before = facts(fleet, "gpu-0")
    fleet.add_pod("gpu-0", "train-0")
    to_repairing(fleet)
    assert fleet.api.read(paths.node("gpu-0"))["spec"]["unschedulable"] is True
    assert fleet.sent("CREATE", "/eviction") == 1
    (job,) = fleet.jobs()
    assert job.endswith("-1")
    to_returned(fleet)
    assert fleet.phase() == "Returned"
    assert facts(fleet, "gpu-0") == before
    assert len(fleet.jobs()) == 2
    assert fleet.inbox.types()[0] == "remediation.open"
    assert fleet.inbox.types()[-1] == "remediation.resolve"
    assert {said.phase.value for said in fleet.said} >= {"Quarantined", "Repairing", "Returned"}


def test_a_crash_after_every_turn_changes_nothing(fleet: Fleet) -> None:
    """Killed and started anew after each single tick: one incident, one eviction, one Job of each kind, each page once."""
    fleet.add_pod("gpu-0", "train-0")
    fleet.report("gpu-0", fault=True)
    for stage in ("repair", "validation", "end"):
        for _ in range(25):
            fleet.stop()
            fleet.start()
            fleet.tick()
            fleet.clock.advance(0.1)
        fleet.turn()
        if stage == "repair":
            assert fleet.phase() == "Repairing"
            fleet.reboot("gpu-0")
        elif stage == "validation":
            assert fleet.phase() == "Revalidating"
            fleet.finish(fleet.jobs()[-1])
    assert fleet.phase() == "Returned"
    assert (len(fleet.incidents()), len(fleet.jobs()), fleet.sent("CREATE", "/eviction")) == (1, 2, 1)
    assert fleet.sent("CREATE", "/jobs") == 2


@pytest.mark.parametrize(
    ("method", "part"),
    [
        pytest.param("CREATE", "/remediations", id="opening"),
        pytest.param("PATCH", "/remediations/", id="saving"),
        pytest.param("PATCH", "/nodes/gpu-0", id="cordon and restore"),
        pytest.param("CREATE", "/eviction", id="eviction"),
        pytest.param("CREATE", "/jobs", id="Jobs"),
    ],
)
@pytest.mark.parametrize("after", [False, True], ids=["never arrived", "answer lost"])
def test_a_request_that_fails_is_made_good(fleet: Fleet, method: str, part: str, after: bool) -> None:
    """Unknown outcome of a write: looked at anew, tried again after a pause, done once."""
    fleet.add_pod("gpu-0", "train-0")
    fleet.api.fail_next(by_controller(method, part), Unavailable("gone"), after=after)
    fleet.report("gpu-0", fault=True)
    for _ in range(4):
        fleet.later(timedelta(seconds=5))
    assert fleet.phase() == "Repairing"
    fleet.api.fail_next(by_controller(method, part), Unavailable("gone"), after=after)
    fleet.reboot("gpu-0")
    for _ in range(3):
        fleet.later(timedelta(seconds=5))
    fleet.finish(fleet.jobs()[-1])
    for _ in range(3):
        fleet.later(timedelta(seconds=5))
    assert fleet.phase() == "Returned"
    assert (len(fleet.incidents()), len(fleet.jobs()), fleet.api.names(paths.pods("ml"))) == (1, 2, [])
    assert "unschedulable" not in facts(fleet, "gpu-0")["spec"]


def test_a_node_that_does_not_pass_stays_out_and_a_person_is_told_why(fleet: Fleet) -> None:
    """Both revalidations fail: the cordon stands, and the page holds the pod's own words."""
    to_repairing(fleet)
    fleet.reboot("gpu-0")
    fleet.turn()
    for _ in range(2):
        job = fleet.jobs()[-1]
        fleet.end_pod(
            "gpu-0",
            job,
            '{"result":"Failed","checks":[{"name":"gpus","result":"Failed","message":"7 of 8"}]}',
        )
        fleet.finish(job, "Failed")
        fleet.turn()
    assert (fleet.phase(), facts(fleet, "gpu-0")["spec"]["unschedulable"]) == ("Escalated", True)
    assert "gpus: 7 of 8" in fleet.inbox.bodies[-1]["data"]["message"]
    assert fleet.inbox.bodies[-1]["data"]["severity"] == "critical"


def test_on_old_sight_nothing_is_decided(fleet: Fleet) -> None:
    """Stores that the server was not heard about lately are not planned on, however ill they look."""
    fleet.turn()
    fleet.report("gpu-0", fault=True)
    fleet.hear()
    sent = len(fleet.api.writes())
    fleet.deafen()
    tick = fleet.loop.tick()
    assert "was not heard for 120 s" in tick.idle
    assert (tick.outcomes, len(fleet.api.writes())) == ((), sent)


def test_before_the_first_lists_nothing_is_decided() -> None:
    """A store that is not in could miss the very object that forbids a step."""
    fleet = Fleet()
    fleet.report("gpu-0", fault=True)
    tick = fleet.loop.tick()
    fleet.stop()
    assert (tick.idle.startswith("not read yet: nodes"), tick.outcomes) == (True, ())


def test_a_replica_that_lost_the_lease_writes_nothing(fleet: Fleet) -> None:
    """Every step ends as not_leader; no request leaves, no page either."""
    fleet.report("gpu-0", fault=True)
    fleet.leads = False
    sent = len(fleet.api.writes())
    outcomes = fleet.tick().outcomes
    assert {outcome.result for outcome in outcomes} == {Result.NOT_LEADER}
    assert (len(fleet.api.writes()), fleet.inbox.bodies) == (sent, [])


def test_dry_run_reads_and_plans_and_writes_nothing() -> None:
    """And does not spin: what was withheld is asked for again after a minute."""
    fleet = Fleet(dry_run=True)
    fleet.report("gpu-0", fault=True)
    sent = len(fleet.api.writes())
    first, second = fleet.tick(), fleet.tick()
    fleet.stop()
    assert {outcome.result for outcome in first.outcomes} == {Result.DRY_RUN}
    assert (second.outcomes, len(fleet.api.writes())) == ((), sent)
    assert second.wait_s > 1


def test_observe_writes_what_it_would_do_and_touches_nothing() -> None:
    """The incident stands, the Node does not know of it."""
    fleet = Fleet(mode="Observe")
    before = facts(fleet, "gpu-0")
    fleet.report("gpu-0", fault=True)
    fleet.turn()
    (incident,) = fleet.incidents()
    fleet.stop()
    assert (incident["status"]["phase"], "would" in incident["status"]["message"]) == ("Suspected", True)
    assert facts(fleet, "gpu-0") == before


def test_a_human_uncordon_before_the_job_is_created_stops_the_repair(fleet: Fleet) -> None:
    """Seen by the server alone: the guard on fresh objects refuses, the next plan cancels (NVSentinel#141)."""
    fleet.report("gpu-0", fault=True)
    for _ in range(30):
        fleet.hear()
        incidents = fleet.incidents()
        if incidents and incidents[0]["status"]["phase"] == "Repairing":
            break
        fleet.loop.tick()
        fleet.clock.advance(0.1)
    fleet.api.patch(paths.node("gpu-0"), {"spec": {"unschedulable": None}}, PatchType.MERGE)
    outcomes = [outcome for _ in range(3) for outcome in fleet.loop.tick().outcomes]
    assert [outcome.result for outcome in outcomes if outcome.kind == "RunRepair"][:1] == [Result.REFUSED]
    assert fleet.jobs() == []
    fleet.later(timedelta(seconds=10))
    assert fleet.phase() == "Cancelled"
    node = fleet.api.read(paths.node("gpu-0"))
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["team"]
    assert "unschedulable" not in node["spec"]


def test_a_cordon_that_a_person_set_before_stays(fleet: Fleet) -> None:
    """At the end the node is as empty as the person wanted it (gpu-operator#304)."""
    fleet.api.patch(paths.node("gpu-0"), {"spec": {"unschedulable": True}}, PatchType.MERGE)
    to_repairing(fleet)
    to_returned(fleet)
    assert fleet.phase() == "Returned"
    assert facts(fleet, "gpu-0")["spec"]["unschedulable"] is True
    assert [taint["key"] for taint in facts(fleet, "gpu-0")["spec"]["taints"]] == ["team"]


def test_a_budgets_refusal_is_shown_and_asked_again_later(fleet: Fleet) -> None:
    """The pod is named with the PodDisruptionBudget; two refusals within the pause would be one too many."""
    fleet.add_pod("gpu-0", "train-0")
    blocked = TooManyRequests(
        "The disruption budget pdb-1 needs 1 healthy pods and has 1 currently",
        code=429,
        causes=("DisruptionBudget",),
    )
    fleet.api.fail_next(request_to("CREATE", "/eviction"), blocked, times=2)
    fleet.report("gpu-0", fault=True)
    fleet.turn()
    (incident,) = fleet.incidents()
    assert (
        incident["status"]["drain"]["blocked"][0]["why"] == "PodDisruptionBudget pdb-1 allows no eviction now"
    )
    assert fleet.sent("CREATE", "/eviction") == 1
    for _ in range(4):
        fleet.later(timedelta(seconds=10))
    assert fleet.phase() == "Repairing"
    assert fleet.sent("CREATE", "/eviction") == 3


def test_taint_auto_leaves_the_taint_out_where_a_daemonset_could_not_come_back(fleet: Fleet) -> None:
    """Cordoned all the same; the operator's pods can still be replaced."""
    owner = {"kind": "DaemonSet", "name": "driver", "uid": "ds", "controller": True}
    fleet.api.add(
        "/apis/apps/v1/namespaces/gpu-operator/daemonsets",
        {
            "metadata": {"name": "driver", "namespace": "gpu-operator", "uid": "ds"},
            "spec": {"template": {"spec": {}}},
        },
    )
    fleet.api.add(
        paths.pods("gpu-operator"),
        {
            "metadata": {"name": "driver-x", "namespace": "gpu-operator", "ownerReferences": [owner]},
            "spec": {"nodeName": "gpu-0"},
        },
    )
    to_repairing(fleet)
    spec = facts(fleet, "gpu-0")["spec"]
    assert (spec["unschedulable"], [taint["key"] for taint in spec["taints"]]) == (True, ["team"])


def test_half_of_the_fleet_at_once_is_held_by_name(fleet: Fleet) -> None:
    """The breaker says so in the policy's status, pages once, and nothing is drained or repaired."""
    fleet.turn()
    for name in fleet.names[:4]:
        fleet.report(name, fault=True)
    fleet.turn()
    pool = fleet.api.read(paths.policy("gpus"))["status"]["pools"][0]
    assert pool["breaker"]
    assert fleet.jobs() == []
    assert fleet.sent("CREATE", "/eviction") == 0
    assert fleet.inbox.types().count("breaker.open") == 1


def test_a_refused_page_is_tried_by_the_schedule_and_no_resolve_overtakes_it(fleet: Fleet) -> None:
    """Tries are counted in the outbox; the incident goes on meanwhile."""
    fleet.inbox.answers = [Answer(error="500", status=500)] * 2
    to_repairing(fleet)
    assert fleet.inbox.bodies == []
    (incident,) = fleet.incidents()
    row = incident["status"]["notifications"][0]
    assert (row["attempts"], row["error"]) == (1, "500")
    fleet.later(timedelta(seconds=6))
    fleet.later(timedelta(minutes=6))
    assert fleet.inbox.types()[0] == "remediation.open"


def test_a_receiver_that_is_gone_is_not_asked_again(fleet: Fleet) -> None:
    """410 is final: the row is dead, and so is what would follow it."""
    fleet.inbox.answers = [Answer(error="410", status=410, gone=True)]
    to_repairing(fleet)
    (incident,) = fleet.incidents()
    row = incident["status"]["notifications"][0]
    assert (row["dead"], row["attempts"]) == (True, 1)


def test_a_receivers_own_wish_is_kept(fleet: Fleet) -> None:
    """503 with Retry-After of a minute: not after 5 s, as the schedule would have it."""
    fleet.inbox.answers = [Answer(error="503", status=503, wait=timedelta(minutes=1))]
    to_repairing(fleet)
    fleet.later(timedelta(seconds=20))
    assert fleet.inbox.bodies == []
    fleet.later(timedelta(seconds=50))
    assert fleet.inbox.types()[0] == "remediation.open"


def test_a_persons_cancel_gives_the_node_back_and_calls_its_job_back_once(fleet: Fleet) -> None:
    """The annotation is the person's word; the node is exactly as before."""
    before = facts(fleet, "gpu-0")
    to_repairing(fleet)
    (incident,) = fleet.incidents()
    word = {"nodemend.dev/cancel": rfc3339(fleet.clock.now())}
    fleet.api.patch(
        paths.remediation(incident["metadata"]["name"]), {"metadata": {"annotations": word}}, PatchType.MERGE
    )
    fleet.turn()
    assert (fleet.phase(), facts(fleet, "gpu-0")) == ("Cancelled", before)
    assert (fleet.jobs(), fleet.sent("DELETE", "/jobs/")) == ([], 1)


def test_conflicts_on_the_node_are_decided_anew(fleet: Fleet) -> None:
    """Kubelet writes at the same time: no error, a little later."""
    fleet.api.fail_next(by_controller("PATCH", "/nodes/gpu-0"), Conflict("changed", code=409), times=3)
    fleet.report("gpu-0", fault=True)
    for _ in range(5):
        fleet.later(timedelta(seconds=1))
    assert fleet.phase() == "Repairing"


def test_a_node_that_is_deleted_and_made_anew_ends_the_incident(fleet: Fleet) -> None:
    """The new machine of that name is not touched."""
    to_repairing(fleet)
    fleet.api.remove(paths.node("gpu-0"))
    fleet.api.remove(paths.node_health("gpu-0"))
    fleet.api.remove(paths.lease("nodemend-system", "gpu-0"))
    fleet.add_node("gpu-0", uid="another")
    fleet.turn()
    assert fleet.phase() == "Superseded"
    assert facts(fleet, "gpu-0")["spec"]["taints"] == [{"key": "team", "effect": "NoSchedule"}]


def test_metrics_tell_where_things_stand(fleet: Fleet) -> None:
    """Incidents by phase, steps by kind and result."""
    to_repairing(fleet)
    fleet.clock.advance(2)
    fleet.tick()
    value = fleet.metrics.registry.get_sample_value
    assert value("nodemend_incidents", {"phase": "Repairing"}) == 1
    assert value("nodemend_steps_total", {"kind": "Quarantine", "result": "done"}) == 1
    assert value("nodemend_steps_total", {"kind": "RunRepair", "result": "done"}) == 1
    assert value("nodemend_store_age_seconds", {"store": "pods"}) == 0
