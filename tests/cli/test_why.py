"""`why POD`: the answer for each way to wait and to run, and what it rests on."""

from typing import Any

import pytest

from kube import paths
from kube.api import Forbidden
from tests.cli.scheduling_words import (
    JOBS,
    Pool,
    fault,
    group,
    health,
    lab,
    node,
    owner,
    pod,
    queue,
    running,
)
from tests.fakes import request_to

BETA = {"kai.scheduler/queue": "beta"}
ALPHA = {"kai.scheduler/queue": "alpha"}


def filled() -> tuple[list[Any], list[Any]]:
    """Give pods of beta that hold all eight GPUs, none of which may be evicted."""
    made = [running(f"busy{n}", "beta", 4, f"n{n}") for n in (1, 2)]
    groups = [{**its, "spec": {**its["spec"], "preemptibility": "non-preemptible"}} for _, its in made]
    return [one for one, _ in made], groups


def test_a_pod_that_fits_is_bound_next() -> None:
    """Nothing stands in its way, and nobody has made its group yet."""
    answer = lab(pod("new", 1, labels=BETA)).typed("why", "team/new")
    assert (answer.code, answer.err) == (0, "")
    assert (
        answer.row("Why: ") == "Why: nothing stands in its way: the next cycle would bind it to n1 (GPU-n1-0)"
    )
    assert answer.row("Group: ") == "Group: team/pg-new-uid-new: 1 pod, not created yet"
    assert answer.row("Asks for: ") == "Asks for: 1 GPU, CPU 1, Memory 1.073 GB"
    assert answer.row("Queue: ") == "Queue: beta; priority 50, preemptible"


WAITS = [
    pytest.param(
        {"labels": {"kai.scheduler/queue": "nowhere"}},
        "QueueDoesNotExist: queue nowhere does not exist",
        id="its queue does not exist",
    ),
    pytest.param(
        {"labels": {"kai.scheduler/queue": "research"}},
        "QueueDoesNotExist: queue research has queues below it and takes no jobs",
        id="its queue has queues below it",
    ),
    pytest.param(
        {"labels": ALPHA, "gpus": 7},
        "OverLimit: queue alpha has a GPU limit of 6, holds 0 and would need 7 more",
        id="its queue's limit",
    ),
    pytest.param(
        {"labels": {**ALPHA, "kai.scheduler/preemptibility": "non-preemptible"}, "gpus": 5},
        "NonPreemptibleOverQuota: queue alpha has a GPU quota for non-preemptible jobs of 4, holds 0 and would need 5 more",
        id="its queue's quota for what is not preemptible",
    ),
    pytest.param(
        {"labels": BETA, "gpus": 5},
        "PodSchedulingErrors: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
        id="no node is large enough",
    ),
    pytest.param(
        {"labels": BETA, "spec": {"schedulingGates": [{"name": "wait"}]}},
        "NotReady: 1 of 1 pods have scheduling gates",
        id="it has a gate",
    ),
    pytest.param(
        {"labels": BETA, "group_name": "gone"},
        "its annotation pod-group-name names the PodGroup team/gone, which is not there:"
        " the scheduler makes it again if it made it, else somebody must",
        id="its group does not exist",
    ),
    pytest.param(
        {"labels": BETA, "annotations": {"kai.scheduler/skip-podgrouper": ""}},
        "it belongs to no pod group: team/new: pod-group-name is not set, but must be written by its owner,"
        " which groups it itself",
        id="its owner groups it",
    ),
]


@pytest.mark.parametrize(("fields", "why"), WAITS)
def test_why_it_waits(fields: dict[str, Any], why: str) -> None:
    """Each reason is one sentence, with the code that is written to the PodGroup."""
    assert lab(pod("new", **fields)).typed("why", "team/new").row("Why: ") == f"Why: {why}"


def test_no_node_is_blamed_where_none_was_asked() -> None:
    """Without a queue the nodes have no part in it."""
    answer = lab(pod("new", labels={"kai.scheduler/queue": "nowhere"})).typed("why", "team/new")
    assert "NODES" not in answer.out


def test_quota_and_limit_are_told_at_every_level() -> None:
    """From the department down, with what the pod would make of it."""
    one, its = running("one", "alpha", 4)
    answer = lab(one, pod("new", 3, labels=ALPHA), groups=[its]).typed("why", "new", "-n", "team")
    assert answer.row("  research") == "research GPU 6 unlimited 7 4 3 over quota by 1, within fair share"
    assert answer.row("  alpha") == "alpha GPU 4 6 6 4 3 over its limit by 1"


def test_nodes_are_named_by_reason() -> None:
    """The most frequent reason first; a node whose sick card would be enough is counted under that."""
    nodes = [node("n1"), node("n2", spec={"unschedulable": True}), node("n3", 1)]
    healths = [health("n1", fault(3), gpu3={"offered": False}), health("n2"), health("n3", gpus=1)]
    answer = lab(pod("new", 4, labels=BETA), nodes=nodes, healths=healths).typed("why", "team/new")
    found = [" ".join(line.split()) for line in answer.out.splitlines()]
    start = found.index("NODES")
    assert sorted(found[start + 1 : start + 4]) == [
        "1 Insufficient nvidia.com/gpu: n3",
        "1 node(s) had a sick GPU: Xid48DoubleBitEcc: n1",
        "1 node(s) were unschedulable: n2",
    ]
    assert answer.row("  n1: GPU 3") == "n1: GPU 3 GPU-n1-3 is Sick: Xid48DoubleBitEcc, fenced"
    assert answer.row("  n2: takes no new pod") == "n2: takes no new pod with a GPU (4 GPUs): cordoned"


def test_who_would_have_to_go() -> None:
    """Whom the next cycle would evict for it, why that one, and for whom the room is kept."""
    one, its = running("one", "alpha", 4, "n1")
    two, theirs = running("two", "alpha", 4, "n2")
    answer = lab(one, two, pod("new", 2, labels=BETA), groups=[its, theirs]).typed("why", "team/new")
    assert "on n" in answer.row("  team/")
    assert "(reclaim): reclaimed for job team/pg-new-uid-new of queue beta" in answer.row("  team/")
    assert answer.row("Why: ").startswith(
        "Why: Pipelined: the next cycle would evict 1 pod for its job: 1 pods have a place"
    )
    assert answer.row("  room is kept") == "room is kept for its job, which waits longest"


def test_why_nobody_has_to_go() -> None:
    """It may take nothing back where its queue would be above its share."""
    pods, groups = filled()
    answer = lab(*pods, pod("new", 1, labels=BETA), groups=groups).typed("why", "team/new")
    assert "with it queue beta would be above its fair share (GPU 9 of 8)" in answer.row(
        "  it may take nothing back"
    )
    assert "no job of lower priority that may be evicted runs in its queue" in answer.out


def test_what_the_scheduler_wrote_is_shown_beside_it() -> None:
    """The condition of the PodGroup, word for word."""
    written = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "status": "True",
        "reason": "OverLimit",
        "message": "it said so",
    }
    its = group("pg-new", "alpha", status={"schedulingConditions": [written]})
    answer = lab(pod("new", 7, group_name="pg-new"), groups=[its]).typed("why", "team/new")
    assert answer.row("  Unschedulable") == "UnschedulableOnNodePool on pool default: OverLimit: it said so"


def test_its_place_in_line() -> None:
    """Older jobs of the same priority come first."""
    pods, groups = filled()
    waits = [pod(f"w{n}", 1, labels=ALPHA, created=f"2026-11-29T02:0{n}:00Z") for n in range(3)]
    answer = lab(*pods, *waits, groups=groups).typed("why", "team/w1")
    assert answer.row("In line: ") == "In line: 2 of 3 jobs that wait in queue alpha, 2 of 3 in all"


def job(name: str, minimum: int) -> dict[str, Any]:
    marks = {"kai.scheduler/batch-min-member": str(minimum)}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": marks, "labels": BETA},
        "spec": {},
    }


def gang(size: int) -> list[Any]:
    return [pod(f"train-{n}", 4, owners=[owner("Job", "train")]) for n in range(size)]


def test_a_gang_is_put_together_by_its_owner() -> None:
    """The Job says how many start together, and its queue; nobody has written it on the pods."""
    pool = lab(*gang(3))
    pool.api.add(JOBS, job("train", 3))
    answer = pool.typed("why", "team/train-1")
    assert answer.row("Group: ").startswith(
        "Group: team/pg-train-uid-train: 3 pods, 3 needed together, 0 have a place, 3 wait"
    )
    assert "2 pods found a node where the group needs 3 together" in answer.row("Why: ")


def test_many_owners_of_a_kind_are_read_as_one_list() -> None:
    """Thirty Jobs cost one request."""
    pods = [pod(f"p{n}", 1, owners=[owner("Job", f"j{n}")]) for n in range(30)]
    pool = lab(*pods)
    for n in range(30):
        pool.api.add(JOBS, job(f"j{n}", 1))
    assert pool.typed("why", "team/p7").row("Queue: ") == "Queue: beta; priority 50, preemptible"
    assert sum("/jobs" in request.path for request in pool.api.requests) == 1


def test_an_owner_that_may_not_be_read_is_replaced_by_its_group() -> None:
    """The PodGroup that the same Job owns stands in for it; without one the pod says what could not be read."""
    forbidden = Forbidden("jobs is forbidden", code=403)
    its = group("pg-train-uid-train", "alpha", 3, metadata={"ownerReferences": [owner("Job", "train")]})
    pool = lab(*gang(3), groups=[its])
    pool.api.fail_next(request_to("*", "/jobs"), forbidden, times=None)
    assert "3 needed together" in pool.typed("why", "team/train-0").row("Group: ")
    pool = lab(*gang(3))
    pool.api.fail_next(request_to("*", "/jobs"), forbidden, times=None)
    assert "(Job team/train could not be read: jobs is forbidden)" in pool.typed("why", "team/train-0").row(
        "Why: "
    )


def test_an_owner_of_an_unknown_kind_need_not_be_read() -> None:
    """The default rule asks for no more than the reference says."""
    made = pod("one", 1, labels=BETA, owners=[owner("Widget", "w", "example.com/v1")])
    answer = lab(made).typed("why", "team/one")
    assert answer.row("Group: ") == "Group: team/pg-w-uid-w: 1 pod, not created yet"


def test_a_running_pod() -> None:
    """Its cards, what is found on them, and whether it could be taken away."""
    one, its = running("one", "alpha", 2)
    held = {"held": True, "heldBy": "team/one"}
    healths = [
        health(
            "n1", fault(1, "prefer-not", "Xid63RowRemapPending"), fault(3, "prefer-not"), gpu0=held, gpu1=held
        )
    ]
    answer = lab(one, groups=[its], healths=[*healths, health("n2")]).typed("why", "team/one")
    assert answer.row("Why: ") == "Why: it runs on n1"
    assert answer.row("State: ") == "State: Running for 30m on n1"
    assert answer.row("  GPU 0") == "GPU 0 GPU-n1-0 NVIDIA-H200: Healthy"
    assert answer.row("    Fault Xid63") == "Fault Xid63RowRemapPending on GPU 1 GPU-n1-1, effect prefer-not"
    assert answer.row("  Fault Xid48") == "Fault Xid48DoubleBitEcc on GPU 3 GPU-n1-3, effect prefer-not"
    assert (
        answer.row("  every queue")
        == "every queue on its way is within its quota: other queues may not reclaim it"
    )


TAKEN = [
    pytest.param(6, "", "queue alpha holds GPU 6, 2 above its quota", id="over quota it may be reclaimed"),
    pytest.param(6, "non-preemptible", "its job is not preemptible", id="what is not preemptible stays"),
]


@pytest.mark.parametrize(("gpus", "kind", "words"), TAKEN)
def test_whether_it_could_be_taken_away(gpus: int, kind: str, words: str) -> None:
    """Over its quota it may; never where its job is not preemptible."""
    one, its = running("one", "alpha", gpus, "big")
    its["spec"]["preemptibility"] = kind
    answer = lab(one, groups=[its], nodes=[node("big", 8)], healths=[]).typed("why", "team/one")
    assert words in answer.out.split("COULD IT BE TAKEN AWAY")[1]


def test_a_pod_of_another_scheduler() -> None:
    """It is said plainly, with the cards that it holds, and needs no queues at all."""
    theirs = pod("theirs", 1, on="n1", scheduler="default-scheduler")
    pool = lab(theirs, healths=[health("n1", gpu2={"held": True, "heldBy": "team/theirs"})]).without(
        "queues", "podgroups"
    )
    answer = pool.typed("why", "team/theirs")
    assert answer.code == 0
    assert answer.row("Why: ").startswith(
        "Why: scheduler default-scheduler places it, not nodemend-scheduler"
    )
    assert answer.row("  GPU 2").startswith("GPU 2 GPU-n1-2")


def test_a_pod_of_another_pool() -> None:
    """Its group carries the pool's label, which is not the one that is looked at."""
    its = group("pg-new", "alpha", metadata={"labels": {"kai.scheduler/node-pool": "west"}})
    answer = lab(pod("new", group_name="pg-new"), groups=[its]).typed("why", "team/new")
    assert "is of another node pool (--pool" in answer.row("Why: ")


def test_a_part_of_a_gpu_says_what_it_depends_on() -> None:
    """Whether the running scheduler gives parts at all is not known here."""
    half = pod("half", 0, labels=BETA, annotations={"gpu-fraction": "0.5"})
    answer = lab(half).typed("why", "team/half")
    assert answer.row("Asks for: ").startswith("Asks for: 0.5 of 1 GPU")
    assert "--enable-fractions" in answer.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("why", "team/nev"), "no pod is named nev in namespace team (is it new", id="an unknown pod"
        ),
        pytest.param(("why", "team/"), "'team/' is no pod", id="no name"),
        pytest.param(("why", "team/new", "-n", "other"), "'team/new' is no pod", id="two namespaces"),
    ],
)
def test_bad_use(words: tuple[str, ...], said: str) -> None:
    """One sentence, exit code 2."""
    answer = lab(pod("new")).typed(*words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_json_names_every_part() -> None:
    """The fields are those of the story."""
    told = lab(pod("new", 5, labels=BETA)).typed("why", "team/new", "-o", "json").json()
    assert (told["code"], told["group"]["queue"]) == ("PodSchedulingErrors", "beta")
    assert told["reasons"] == [{"text": "Insufficient nvidia.com/gpu", "count": 2, "nodes": ["n1", "n2"]}]
    assert [row["queue"] for row in told["levels"]] == ["research", "beta"]


def test_queues_are_not_installed() -> None:
    """A pod of ours cannot be explained without them: exit code 3, with the command."""
    answer = lab(pod("new")).without("queues").typed("why", "team/new")
    assert answer.code == 3
    assert "kubectl create -k manifests/crds-kai" in answer.err


def test_the_pod_may_not_be_read() -> None:
    """The verb and the role are named."""
    pool = Pool().put(queues=[queue("q")])
    pool.api.fail_next(request_to("GET", paths.pod("team", "new")), Forbidden("pods is forbidden", code=403))
    answer = pool.typed("why", "team/new")
    assert (answer.code, "not allowed to get pod team/new" in answer.err) == (3, True)
