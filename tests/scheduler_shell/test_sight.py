"""What a cycle is told besides the stores: groups that are not written yet, who must wait and why, whose queue it is."""

import msgspec
import pytest

from controller.scheduler.model import Job, TaskStatus
from controller.scheduler.plan import Promise
from controller.scheduler.requests import Request
from controller.scheduler.shell.config import Config
from controller.scheduler.shell.grouping import Grouped, GroupView
from controller.scheduler.shell.health_watch import Verdict
from controller.scheduler.shell.sight import (
    FRACTIONS_ARE_OFF,
    QUEUES,
    WOULD_NOT_COME_BACK,
    Known,
    Members,
    Sight,
    hold_back,
    not_their_queues,
)
from controller.scheduler.shell.stores import Stores
from kube.types import Namespace, ObjectMeta
from tests.fakes import EPOCH, FakeClock
from tests.scheduler.words import cluster, decide, job, node, queue
from tests.scheduler_shell.shell_words import OURS, keyed, waiting_pod

HALF = Request(portion=500)


OTHER = Promise(job="ns/other", nodes=("b",))


class Decided:
    """Groups of which one is decided: p's."""

    def view(self) -> GroupView:
        return view()


def view(uid: str = "uid-p", sub_group: str = "") -> GroupView:
    return GroupView(
        members={"ns/p": Grouped(uid=uid, group="ns/g", sub_group=sub_group)}, made={}, problems={}
    )


def test_a_pod_carries_its_group_before_the_server_knows() -> None:
    """The same object as long as nothing changed, so that what was made of it can be kept."""
    members, pods = Members(), keyed([waiting_pod("p")])
    (first,) = members.grouped(pods, view(sub_group="workers"), OURS)
    assert first.metadata.annotations["pod-group-name"] == "g"
    assert first.metadata.labels["kai.scheduler/subgroup-name"] == "workers"
    (second,) = members.grouped(pods, view(sub_group="workers"), OURS)
    assert second is first
    (third,) = members.grouped(keyed([waiting_pod("p")]), view(sub_group="workers"), OURS)
    assert third is not first


@pytest.mark.parametrize("told", [view(uid="another"), GroupView(members={}, made={}, problems={})])
def test_what_was_said_of_another_pod_of_that_name_does_not_count(told: GroupView) -> None:
    """Nor is anything made up."""
    (pod,) = Members().grouped(keyed([waiting_pod("p")]), told, OURS)
    assert pod.metadata.annotations == {}


def test_a_pods_own_word_stays() -> None:
    """An annotation that is there already is not written over."""
    pod = waiting_pod("p")
    meta = msgspec.structs.replace(pod.metadata, annotations={"pod-group-name": "own"})
    (found,) = Members().grouped(keyed([msgspec.structs.replace(pod, metadata=meta)]), view(), OURS)
    assert found.metadata.annotations["pod-group-name"] == "own"


def test_pods_of_other_schedulers_are_left_as_they_are() -> None:
    """Whatever was said of one of that name."""
    pod = waiting_pod("p")
    theirs = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name="other"))
    (found,) = Members().grouped(keyed([theirs]), view(), OURS)
    assert found is theirs


@pytest.mark.parametrize(
    ("known", "promised"),
    [
        pytest.param(None, (Promise(job="ns/g", nodes=("a",)),), id="it planned nothing yet"),
        pytest.param((), (), id="the last plan promised nothing"),
        pytest.param((OTHER,), (OTHER,), id="the last plan's promises"),
    ],
)
def test_who_begins_believes_what_pods_show(
    known: tuple[Promise, ...] | None, promised: tuple[Promise, ...]
) -> None:
    """In the first cycle only, and by the groups that the grouper decided."""
    pod = waiting_pod("p")
    status = msgspec.structs.replace(pod.status, nominated_node_name="a")
    stores = Stores(lambda: None, OURS)
    stores.pods.replace([msgspec.structs.replace(pod, status=status)], "1", 0.0)
    sight = Sight(stores, Decided(), Config(), FakeClock().clock)
    assert sight.look(EPOCH, Known(promises=known), Verdict()).snapshot.promises == promised


def test_a_fraction_waits_with_that_reason_unless_fractions_are_on() -> None:
    """Whole GPUs go on, and a fraction that runs already too."""
    jobs = [
        job("half", "q", request=HALF),
        job("runs", "q", request=HALF, on=[("a", [0])]),
        job("whole", "q"),
    ]
    snapshot = cluster([node("a")], [queue("q")], jobs)
    held, extra = hold_back(snapshot, {}, {}, fractions=False)
    assert extra == {"half": FRACTIONS_ARE_OFF}
    assert [one.id for one in held.jobs if not one.ready] == ["half"]
    assert hold_back(snapshot, {}, {}, fractions=True) == (snapshot, {})


def test_who_shares_a_card_already_is_no_victim_while_fractions_are_off() -> None:
    """It would find no place again: moving it, to make room for another, would end it."""
    pieces = [
        job("half", "q", request=HALF, on=[("a", [0])]),
        job("whole", "q", on=[("a", [2])]),
        job("other-half", "q", request=HALF, on=[("a", [1])]),
    ]
    snapshot = cluster([node("a", 3)], [queue("q", 3)], [*pieces, job("waits", "q")])
    assert len(decide(snapshot).evictions) == 1, "one half moves to the other's card"
    held, _ = hold_back(snapshot, {}, {}, fractions=False)
    assert decide(held).evictions == ()
    assert {one.id: one.tasks[0].protected for one in held.jobs} == {
        "half": WOULD_NOT_COME_BACK,
        "whole": "",
        "other-half": WOULD_NOT_COME_BACK,
        "waits": "",
    }


def test_a_job_that_failed_waits_with_the_reason_and_one_that_runs_is_not_touched() -> None:
    """Only who has something to place can be held back."""
    snapshot = cluster([node("a")], [queue("q")], [job("waits", "q"), job("runs", "q", on=[("a", [0])])])
    held, extra = hold_back(snapshot, {"waits": "refused", "runs": "refused"}, {}, fractions=False)
    assert extra == {"waits": "refused"}
    assert {one.id: one.ready for one in held.jobs} == {"waits": False, "runs": True}


@pytest.mark.parametrize(
    ("made", "refused", "gated", "waits"),
    [
        (job("loose", "q", pods=3, least=1), {"loose-1"}, {"loose-1"}, {}),
        (job("grows", "q", pods=4, least=1, on=[("a", [0])]), {"grows-2"}, {"grows-2"}, {}),
        (job("loose", "q", pods=2, least=1), {"loose-0", "loose-1"}, set(), {"loose": "refused"}),
        (job("lone", "q"), {"lone-0"}, set(), {"lone": "refused"}),
        (job("gang", "q", pods=3), {"gang-1"}, set(), {}),
        (job("runs", "q", pods=2, least=1, on=[("a", [0]), ("a", [1])]), {"runs-0"}, set(), {}),
    ],
    ids=[
        "its siblings go on",
        "those of a job that runs, too",
        "where all of them failed the job waits, and says why",
        "so does a single pod",
        "a gang needs it, and pauses as a job or not at all",
        "whoever runs is not touched",
    ],
)
def test_a_pod_that_failed_waits_by_itself(
    made: Job, refused: set[str], gated: set[str], waits: dict[str, str]
) -> None:
    """One that is refused for ever must not hold back the others of its job."""
    snapshot = cluster([node("a")], [queue("q")], [made])
    held, extra = hold_back(snapshot, {}, dict.fromkeys(refused, "refused"), fractions=True)
    (found,) = held.jobs
    assert {task.id for task in found.tasks if task.status is TaskStatus.GATED} == gated
    assert (extra, found.ready) == (waits, not waits)
    placed = {bind.task for bind in decide(held).binds}
    expected = {task.id for task in made.tasks if task.status is TaskStatus.PENDING} - gated
    assert placed == (set() if waits else expected)


def test_a_namespace_may_be_kept_to_its_queues() -> None:
    """Where its annotation says nothing, every queue may be used; an empty one means none."""

    def namespace(name: str, queues: str | None) -> Namespace:
        annotations = {} if queues is None else {QUEUES: queues}
        return Namespace(metadata=ObjectMeta(name=name, annotations=annotations))

    namespaces = {
        one.metadata.name: one
        for one in (namespace("kept", "a, b"), namespace("none", ""), namespace("free", None))
    }
    jobs = [job(f"{ns}-{of}", of, namespace=ns) for ns in namespaces for of in ("a", "c")]
    found = not_their_queues(jobs, namespaces)
    assert sorted(found) == ["kept-c", "none-a", "none-c"]
    assert found["kept-c"] == (
        "namespace kept may not use queue c: its annotation nodemend.dev/queues names a, b"
    )
