"""From Kubernetes objects to a snapshot: every pod where it stands, with the cards that it holds."""

from datetime import datetime, timedelta

import msgspec
import pytest

from controller.scheduler.model import TaskStatus
from controller.scheduler.nodes import PartHealth
from controller.scheduler.pod_tasks import Binding
from controller.scheduler.rules import COMPATIBLE
from controller.scheduler.snapshot import Options
from kube.types import Pod
from tests.scheduler.kube_words import NOW, fault, health, node, pod, uuid
from tests.scheduler.object_words import GROUP, HALF, ONE_GPU, RUNNING, built, group, only, reservation

AGO, LONG_AGO = NOW - timedelta(seconds=30), NOW - timedelta(seconds=120)


@pytest.mark.parametrize(
    ("given_pod", "status"),
    [
        pytest.param(pod(meta=GROUP), TaskStatus.PENDING, id="it waits"),
        pytest.param(
            pod(meta=GROUP, spec={"schedulingGates": [{"name": "g"}]}), TaskStatus.GATED, id="it is gated"
        ),
        pytest.param(
            pod(meta=GROUP, spec={"nodeName": "n1"}),
            TaskStatus.BOUND,
            id="it has a node and does not run yet",
        ),
        pytest.param(
            pod(meta=GROUP, spec={"nodeName": "n1"}, status={"phase": "Running"}),
            TaskStatus.RUNNING,
            id="it runs",
        ),
        pytest.param(
            pod(meta=GROUP, spec={"nodeName": "n1"}, status={"phase": "Unknown"}),
            TaskStatus.RUNNING,
            id="nobody knows whether it runs, so its GPU is not free",
        ),
        pytest.param(
            pod(
                meta={**GROUP, "deletionTimestamp": AGO}, spec={"nodeName": "n1"}, status={"phase": "Running"}
            ),
            TaskStatus.RELEASING,
            id="it is told to end",
        ),
        pytest.param(
            pod(
                meta={**GROUP, "deletionTimestamp": LONG_AGO},
                spec={"nodeName": "n1"},
                status={"phase": "Running"},
            ),
            TaskStatus.STUCK,
            id="it should have ended two minutes ago",
        ),
        pytest.param(
            pod(meta={**GROUP, "deletionTimestamp": LONG_AGO}, spec={"nodeName": "n1"}),
            TaskStatus.STUCK,
            id="it should have ended two minutes ago, and never came to run",
        ),
        pytest.param(
            pod(meta={**GROUP, "deletionTimestamp": AGO}),
            TaskStatus.FAILED,
            id="it ends before it had a node",
        ),
        pytest.param(pod(meta=GROUP, status={"phase": "Succeeded"}), TaskStatus.SUCCEEDED, id="it is done"),
        pytest.param(
            pod(meta={**GROUP, "deletionTimestamp": AGO}, status={"phase": "Succeeded"}),
            TaskStatus.FAILED,
            id="it was evicted, and ended in good order",
        ),
    ],
)
def test_where_a_pod_stands(given_pod: Pod, status: TaskStatus) -> None:
    """By phase, node, gates and deletion."""
    assert [task.status for task in only(built(given_pod)).tasks] == [status]


def test_kai_takes_a_deleted_pod_that_succeeded_for_done() -> None:
    """By its phase alone: in compatible mode such a gang is not stale."""
    done = pod(meta={**GROUP, "deletionTimestamp": AGO}, status={"phase": "Succeeded"})
    assert [task.status for task in only(built(done, rules=COMPATIBLE)).tasks] == [TaskStatus.SUCCEEDED]


def test_a_bind_that_does_not_show_yet() -> None:
    """What was decided holds its place until the API shows it."""
    options = Options(binding={"team/p1": Binding(node="n1", gpus=(uuid(2),))})
    (task,) = only(built(pod(meta=GROUP, spec=ONE_GPU), options=options)).tasks
    assert (task.status, task.node, task.gpus) == (TaskStatus.BINDING, "n1", (uuid(2),))


@pytest.mark.parametrize(
    ("written", "made", "since"),
    [
        pytest.param(LONG_AGO, AGO, LONG_AGO, id="a group before its pods, as of those made anew"),
        pytest.param(
            AGO, LONG_AGO, LONG_AGO, id="a group after its pod, which does not lose its turn by that"
        ),
        pytest.param(AGO, None, AGO, id="a pod that does not say"),
    ],
)
def test_how_old_a_job_is(written: datetime, made: datetime | None, since: datetime) -> None:
    """As its group or its oldest pod: the group of a single pod may be written long after it."""
    train = group()
    train = msgspec.structs.replace(
        train, metadata=msgspec.structs.replace(train.metadata, creation_timestamp=written)
    )
    meta = GROUP if made is None else {**GROUP, "creationTimestamp": made}
    assert only(built(pod(meta=meta), pod_groups=(train,))).created_at == since


def test_cards_that_kubelet_named() -> None:
    """A pod holds the card that the agent heard of; one that nobody named holds none by name."""
    known = health(gpu3={"held": True, "held_by": "team/p1"})
    spec = {**ONE_GPU, "nodeName": "n1"}
    snapshot = built(
        pod(meta=GROUP, spec=spec, status=RUNNING), pod("p2", meta=GROUP, spec=spec), health=(known,)
    )
    assert [task.gpus for task in only(snapshot).tasks] == [(uuid(3),), ()]


@pytest.mark.parametrize(("uid", "sick"), [("new", 0), ("old", 1), ("", 1)])
def test_what_an_agent_said_of_another_machine_of_that_name(uid: str, sick: int) -> None:
    """It is not said of this one."""
    known = health(fault("part-out", gpu=0), gpu3={"held": True, "held_by": "team/p1"})
    status = msgspec.structs.replace(known.status, node_uid="old")
    kube = node()
    kube = msgspec.structs.replace(kube, metadata=msgspec.structs.replace(kube.metadata, uid=uid))
    running = pod(meta=GROUP, spec={**ONE_GPU, "nodeName": "n1"}, status=RUNNING)
    snapshot = built(running, nodes=(kube,), health=(msgspec.structs.replace(known, status=status),))
    assert [task.gpus for task in only(snapshot).tasks] == [(uuid(3),) if sick else ()]
    assert [gpu.health for gpu in snapshot.nodes[0].gpus].count(PartHealth.SICK) == sick


def test_pods_of_one_group_share_the_card_of_its_reservation() -> None:
    """The reservation pod knows the card, and is itself no load."""
    halves = [pod(name, meta=HALF, spec={"nodeName": "n1"}, status=RUNNING) for name in ("p1", "p2")]
    snapshot = built(reservation(), *halves, health=(health(),))
    assert [task.gpus for task in only(snapshot).tasks] == [(uuid(1),), (uuid(1),)]
    assert snapshot.others == ()


def test_a_group_whose_card_nobody_knows() -> None:
    """Its pods still share one, and not one that is known to be another's."""
    known = health(gpu0={"held": True, "held_by": "other/p9"})
    halves = [pod(name, meta=HALF, spec={"nodeName": "n1"}, status=RUNNING) for name in ("p1", "p2")]
    assert {task.gpus for task in only(built(*halves, health=(known,))).tasks} == {(uuid(1),)}


def test_a_group_whose_card_no_agent_reported() -> None:
    """Its reservation names a card that is none of the node's known ones: they hold one card, not one each."""
    halves = [pod(name, meta=HALF, spec={"nodeName": "n1"}, status=RUNNING) for name in ("p1", "p2")]
    snapshot = built(reservation(), *halves)
    first = snapshot.nodes[0].gpus[0].uuid
    assert [task.gpus for task in only(snapshot).tasks] == [(first,), (first,)]
    assert uuid(1) not in {gpu.uuid for gpu in snapshot.nodes[0].gpus}


def test_pods_of_other_schedulers() -> None:
    """They hold what they hold, and belong to no job; done or placed nowhere, they are nothing."""
    spec = {**ONE_GPU, "schedulerName": "default-scheduler"}
    snapshot = built(
        pod("p1", spec={**spec, "nodeName": "n1"}, status=RUNNING),
        pod("p2", spec={**spec, "nodeName": "n1"}, status={"phase": "Failed"}),
        pod("p3", spec=spec),
    )
    assert [(task.id, task.job, task.request.gpus) for task in snapshot.others] == [("team/p1", "", 1)]
