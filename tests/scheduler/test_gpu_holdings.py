"""Which cards the pods of a node hold: what the agent heard from kubelet is by name, and names are given again."""

from datetime import timedelta

import msgspec
import pytest

from tests.scheduler.kube_words import NOW, fault, health, node, pod, uuid
from tests.scheduler.object_words import GROUP, ONE_GPU, RUNNING, built, only, queue
from tests.scheduler.words import bound, decide

HALF_A_SECOND = timedelta(milliseconds=500)


@pytest.mark.parametrize(
    ("told_after_s", "is_it"),
    [(60, True), (1, True), (0, False), (-60, False)],
    ids=[
        "the agent spoke of this pod",
        "it spoke a second after the pod was created",
        "in the same second it may have been an earlier one",
        "it spoke of an earlier pod of that name",
    ],
)
def test_a_holder_is_meant_by_its_name_only_if_it_was_there(told_after_s: int, is_it: bool) -> None:
    """A StatefulSet's pod that left a sick card comes again under its name: it is not on that card."""
    known = health(gpu3={"held": True, "held_by": "team/p1"})
    told = NOW + timedelta(seconds=told_after_s) + HALF_A_SECOND
    known = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, observed_at=told))
    meta = {**GROUP, "creationTimestamp": NOW.isoformat()}
    running = pod(meta=meta, spec={**ONE_GPU, "nodeName": "n1"}, status=RUNNING)
    assert [task.gpus for task in only(built(running, health=(known,))).tasks] == [
        (uuid(3),) if is_it else ()
    ]


@pytest.mark.parametrize(
    ("told_after_s", "takes"),
    [(30, {"team/p4": "n1"}), (-30, {})],
    ids=[
        "p1 has the sick card, so a good one is free",
        "p1 has a good one, though its forerunner had the sick one",
    ],
)
def test_a_node_gives_no_more_good_cards_than_it_has(told_after_s: int, takes: dict[str, str]) -> None:
    """Three of its four are good, p2 and p3 have two of them: kubelet would refuse what is bound beyond that."""
    known = health(
        fault("part-out", gpu=3),
        gpu0={"held": True, "held_by": "team/p2"},
        gpu1={"held": True, "held_by": "team/p3"},
        gpu3={"held": True, "held_by": "team/p1", "offered": False},
    )
    told = NOW + timedelta(seconds=told_after_s)
    known = msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, observed_at=told))
    created = {**GROUP, "creationTimestamp": NOW.isoformat()}
    held = {**ONE_GPU, "nodeName": "n1"}
    pods = [
        pod("p1", meta=created, spec=held, status=RUNNING),
        *(pod(name, meta=GROUP, spec=held, status=RUNNING) for name in ("p2", "p3")),
        pod("p4", meta=GROUP, spec=ONE_GPU),
    ]
    free = {name: {"quota": -1, "limit": -1} for name in ("gpu", "cpu", "memory")}
    snapshot = built(*pods, nodes=(node(offered=3),), queues=(queue(resources=free),), health=(known,))
    assert bound(decide(snapshot)) == takes
