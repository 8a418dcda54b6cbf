"""What pod groups note and add up: starts, stale gangs, what their pods hold."""

from typing import Any

import pytest

from controller.scheduler.plan import Plan
from controller.scheduler.requests import Request
from controller.scheduler.shell import resource_lists
from kube import paths
from kube.scheduling import LAST_START, STALE_SINCE
from kube.timestamps import rfc3339
from tests.scheduler.kube_words import node
from tests.scheduler_shell.report_stage import NAMESPACE, Stage


def gang(running: int, least: int = 2) -> Stage:
    """Give a cluster with a gang of which so many pods run, and no room for others."""
    stage = Stage(node("n1", running))
    stage.queue()
    stage.group("gang", least)
    for index in range(running):
        stage.pod(f"gang-{index}", "gang", on="n1")
    return stage


def notes(stage: Stage, name: str = "gang") -> dict[str, str]:
    """Give the annotations of a group."""
    return dict(stage.group_raw(name)["metadata"].get("annotations", {}))


def test_a_gang_that_lost_a_member_notes_since_when() -> None:
    """Its grace counts from there, under every leader."""
    stage = gang(running=2)
    stage.settled()
    assert notes(stage) == {}
    stage.remove("gang-1")
    lost_at = stage.clock.now()
    stage.settled()
    assert notes(stage) == {STALE_SINCE: rfc3339(lost_at)}
    assert stage.report().snapshot.jobs[0].stale_since == lost_at


def test_the_note_goes_once_the_gang_is_whole() -> None:
    """And not before."""
    stage = gang(running=2)
    stage.remove("gang-1")
    stage.settled()
    stage.pod("gang-2", "gang", on="n1")
    stage.settled()
    assert notes(stage) == {}


def test_no_clock_starts_while_the_breaker_is_open() -> None:
    """Who saw so much fail at once may be the one that fails; a clock that runs already runs on."""
    stage = gang(running=2)
    stage.remove("gang-1")
    stage.settled(snapshot=stage.report(suspected="3 of 9 nodes turned ill").snapshot)
    assert notes(stage) == {}


def test_after_its_grace_the_cycle_evicts_what_is_left() -> None:
    """The note is what makes that work on a cluster."""
    stage = gang(running=2)
    stage.remove("gang-1")
    stage.settled()
    stage.clock.advance(61)
    assert [one.task for one in stage.report().plan.evictions] == ["team/gang-0"]


@pytest.mark.parametrize(
    ("pods", "before", "noted"),
    [
        pytest.param(2, "", True, id="a gang's start is noted"),
        pytest.param(1, "", False, id="a single pod says itself since when it runs"),
        pytest.param(1, "2025-01-01T00:00:00Z", True, id="unless its group tells of a run before"),
        pytest.param(2, "soon", True, id="a note that cannot be read is replaced"),
        pytest.param(2, "2027-01-01T00:00:00Z", False, id="a later one is not"),
    ],
)
def test_when_a_start_is_noted(pods: int, before: str, noted: bool) -> None:
    """Minimum run times count from there; a gang's once it is whole, which tells it from one of which binds were lost."""
    stage = Stage(node("n1", 4))
    stage.queue()
    metadata: dict[str, Any] = {"name": "gang", "annotations": {LAST_START: before} if before else {}}
    spec = {"queue": "research", "minMember": pods}
    stage.api.add(paths.pod_groups(NAMESPACE), {"metadata": metadata, "spec": spec})
    for index in range(pods):
        stage.pod(f"gang-{index}", "gang")
    at = stage.clock.now()
    assert stage.cycle().started == ("team/gang",)
    for index in range(pods):
        stage.round()
        assert notes(stage).get(LAST_START, "") in (
            ("",) if pods > 1 and not before else (before, rfc3339(at))
        )
        stage.bind(f"gang-{index}", "n1")
        stage.cycle()
    stage.round()
    assert notes(stage).get(LAST_START, "") == (rfc3339(at) if noted else before)


def test_a_start_is_noted_even_where_a_newer_cycle_came_before_the_write() -> None:
    """It is told of once, by the cycle that starts the job."""
    stage = Stage(node("n1", 4))
    stage.queue()
    stage.group("gang", 2)
    stage.pod("gang-0", "gang")
    stage.pod("gang-1", "gang")
    at = stage.clock.now()
    stage.cycle()
    stage.bind("gang-0", "n1")
    stage.bind("gang-1", "n1")
    stage.clock.advance(5)
    assert stage.cycle().started == ()
    stage.round()
    assert notes(stage) == {LAST_START: rfc3339(at)}


def test_what_a_gang_holds_and_asks_for_stands_in_its_status() -> None:
    """Plain quantities, as KAI's controller sums them."""
    stage = gang(running=2)
    stage.pod("gang-2", "gang")
    stage.settled()
    assert stage.group_raw("gang")["status"]["resourcesStatus"] == {
        "allocated": {"nvidia.com/gpu": "2", "cpu": "1", "memory": "2147483648"},
        "requested": {"nvidia.com/gpu": "3", "cpu": "1500m", "memory": "3221225472"},
    }
    stage.remove("gang-0")
    stage.settled()
    assert stage.group_raw("gang")["status"]["resourcesStatus"]["allocated"]["nvidia.com/gpu"] == "1"


def test_what_may_not_be_preempted_is_counted_as_such() -> None:
    """By the group's own word."""
    stage = Stage(node("n1", 4))
    stage.queue(gpus=4)
    stage.group("fixed", 2, preemptibility="non-preemptible")
    stage.pod("fixed-0", "fixed", on="n1")
    stage.pod("fixed-1", "fixed", on="n1")
    stage.settled()
    resources = stage.group_raw("fixed")["status"]["resourcesStatus"]
    assert resources["allocatedNonPreemptible"] == resources["allocated"]


def test_numbers_are_written_every_few_seconds_at_most() -> None:
    """A gang of many pods is bound within one, and costs one write or two."""
    stage = Stage(node("n1", 8))
    stage.queue()
    stage.group("gang", 8)
    for index in range(8):
        stage.pod(f"gang-{index}", "gang")
    writes: list[str] = []
    for index in range(8):
        stage.cycle()
        writes += stage.round(after_s=0.25)
        stage.bind(f"gang-{index}", "n1")
    stage.cycle()
    writes += stage.round(after_s=6.0) + stage.round()  # its start is noted first
    assert writes.count("PATCH podgroups/gang/status") == 2
    held = stage.group_raw("gang")["status"]["resourcesStatus"]["allocated"]
    assert held["nvidia.com/gpu"] == "8"


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        pytest.param(Request(gpus=2), {"nvidia.com/gpu": "2"}, id="whole cards"),
        pytest.param(Request(portion=250, devices=2), {"nvidia.com/gpu": "500m"}, id="shares of two cards"),
        pytest.param(Request(gpu_memory_mib=4000), {"run.ai/gpu.memory": "4000Mi"}, id="memory of a card"),
        pytest.param(Request(mig=(("1g.10gb", 2),)), {"nvidia.com/mig-1g.10gb": "2"}, id="MIG instances"),
        pytest.param(Request(dra_gpus=1), {"nvidia.com/gpu": "1"}, id="a claim's devices"),
        pytest.param(Request(other=(("rdma/hca", 1),)), {"rdma/hca": "1"}, id="other resources"),
        pytest.param(Request(cpu_milli=1500), {"cpu": "1500m"}, id="a core and a half"),
        pytest.param(Request(cpu_milli=2000, memory_bytes=5), {"cpu": "2", "memory": "5"}, id="whole cores"),
    ],
)
def test_requests_as_quantities(asked: Request, written: dict[str, str]) -> None:
    """What nobody asks for is left out."""
    assert resource_lists.of_requests([asked]) == written


@pytest.mark.parametrize(
    ("minutes", "noted"),
    [
        pytest.param(1, True, id="groups are made when there is time"),
        pytest.param(11, False, id="but not so late"),
    ],
)
def test_a_start_is_kept_until_its_group_is_there(minutes: int, noted: bool) -> None:
    """For ten minutes."""
    stage = Stage()
    stage.queue()
    stage.cycle(plan=Plan(started=("team/later",)))
    stage.round()
    stage.round(after_s=minutes * 60.0)
    stage.group("later", 2)
    stage.pod("later-0", "later", on="n1")
    stage.pod("later-1", "later", on="n1")
    stage.cycle()
    stage.round()
    assert (LAST_START in notes(stage, "later")) is noted
