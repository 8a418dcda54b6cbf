"""What holds for every kind: queue, class, preemptibility, marks, spans, owners, and what a group keeps."""

import pytest

from controller.scheduler.grouper.durations import seconds
from controller.scheduler.grouper.fields import GrouperError
from controller.scheduler.grouper.owners import is_left_alone, kept, owner_chain
from controller.scheduler.grouper.spec import Cluster, Terms, TypeDefault
from tests.scheduler.grouper_words import Raw, grouped, plain, pod, thing

TOP = "kai.scheduler/top-owner-metadata"


QUEUES: dict[str, tuple[Raw, Raw, str]] = {
    "the owner's label": ({"kai.scheduler/queue": "a", "project": "x"}, {"kai.scheduler/queue": "b"}, "a"),
    "else the pod's": ({"project": "x"}, {"kai.scheduler/queue": "b"}, "b"),
    "else the owner's project": ({"project": "x"}, {"project": "y"}, "x"),
    "else the pod's, in its node pool": ({}, {"project": "y", "kai.scheduler/node-pool": "h100"}, "y-h100"),
    "else the default": ({}, {"kai.scheduler/node-pool": "h100"}, "default-queue"),
}


@pytest.mark.parametrize(("on_owner", "on_pod", "queue"), QUEUES.values(), ids=QUEUES)
def test_queue(on_owner: Raw, on_pod: Raw, queue: str) -> None:
    """Which queue a pod's group is in."""
    assert grouped(pod(labels=on_pod), plain(labels=on_owner)).queue == queue


CLASSES = frozenset({"gold", "silver", "build"})
DEFAULTS = (
    TypeDefault(kind="Thing", priority_class="silver", preemptibility="Preemptible"),
    TypeDefault(kind="Thing", group="other.org", priority_class="iron"),
)
PRIORITIES: dict[str, tuple[Raw, Raw, str, str]] = {
    "the owner's label": ({"priorityClassName": "gold"}, {"priorityClassName": "silver"}, "", "gold"),
    "else the pod's": ({}, {"priorityClassName": "gold"}, "silver", "gold"),
    "else what the pod's spec names": ({}, {}, "gold", "gold"),
    "a class that is not there is none": ({"priorityClassName": "lead"}, {}, "gold", "silver"),
    "else the cluster's for the kind": ({}, {}, "", "silver"),
}


@pytest.mark.parametrize(("on_owner", "on_pod", "in_spec", "cls"), PRIORITIES.values(), ids=PRIORITIES)
def test_priority_class(on_owner: Raw, on_pod: Raw, in_spec: str, cls: str) -> None:
    """Which class a pod's group has, where only some exist."""
    cluster = Cluster((), CLASSES, Terms(type_defaults=DEFAULTS))
    spec = grouped(pod(labels=on_pod, priorityClassName=in_spec), plain(labels=on_owner), cluster=cluster)
    assert (spec.priority_class, spec.preemptibility) == (cls, "preemptible")


def test_a_default_for_the_group_goes_before_that_of_any() -> None:
    """Even where its class does not exist: then the kind's own stands."""
    cluster = Cluster((), CLASSES, Terms(type_defaults=DEFAULTS))
    assert grouped(pod(), thing("other.org/v1", "Thing"), cluster=cluster).priority_class == "train"


def test_labels_of_every_owner_count_for_a_plain_kind() -> None:
    """The nearest goes first."""
    near = plain(labels={"priorityClassName": "gold", "kai.scheduler/preemptibility": "non-preemptible"})
    spec = grouped(pod(), near, plain(labels={"priorityClassName": "silver"}))
    assert (spec.priority_class, spec.preemptibility) == ("gold", "non-preemptible")


def test_preemptibility_passes_by_odd_words() -> None:
    """From the owner to the pod."""
    owner = plain(labels={"kai.scheduler/preemptibility": "sometimes"})
    assert grouped(pod(), owner).preemptibility == ""
    assert (
        grouped(pod(labels={"kai.scheduler/preemptibility": "preemptible"}), owner).preemptibility
        == "preemptible"
    )


def test_marks() -> None:
    """The owner's labels and annotations, the pod's user, and who the top owner is, in YAML that reads back as strings."""
    owner = thing("v1", "Thing", name="true", uid="12", labels={"l": "1"}, notes={"n": "2"})
    spec = grouped(pod(labels={"user": "ann"}, notes={"user": "bob"}), owner)
    assert spec.labels == {"l": "1", "user": "ann"}
    assert spec.annotations == {
        "n": "2",
        "user": "bob",
        TOP: 'name: "true"\nuid: "12"\ngroup: ""\nversion: v1\nkind: Thing\n',
    }


SPANS: dict[str, tuple[str, int | None]] = {
    "hours and minutes": ("1h30m", 5400),
    "parts of a second round up": ("1500ms", 2),
    "decimals": (".5m", 30),
    "negative": ("-1ms", -1),
    "nothing": ("0", 0),
    "no unit": ("5", None),
    "no number": ("s", None),
    "a unit too many": ("1s2", None),
    "empty": ("", None),
    "a sign alone": ("-", None),
}


@pytest.mark.parametrize(("text", "span"), SPANS.values(), ids=SPANS)
def test_durations(text: str, span: int | None) -> None:
    """Go's durations, in whole seconds."""
    assert seconds(text) == span


def test_a_negative_delay_is_passed_by_and_a_negative_grace_means_never() -> None:
    """The first valid word counts, from owners to pod."""
    owner = plain(
        notes={"kai.scheduler/preemption-delay": "-5s", "kai.scheduler/staleness-grace-period": "-1s"}
    )
    spec = grouped(pod(notes={"kai.scheduler/preemption-delay": "90s"}), owner)
    assert (spec.preemption_delay_s, spec.staleness_grace_s) == (90, -1)
    assert grouped(pod(), plain()).staleness_grace_s is None


def owned(raw: Raw, *owners: Raw) -> Raw:
    references = [
        {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        | {key: owner["metadata"][key] for key in ("name", "uid")}
        for owner in owners
    ]
    return raw | {"metadata": raw["metadata"] | {"ownerReferences": references}}


def test_owners_up_to_the_top() -> None:
    """In the order that grouping takes them."""
    deployment = thing("apps/v1", "Deployment", name="d", uid="du")
    replica_set = owned(thing("apps/v1", "ReplicaSet", name="rs", uid="ru"), deployment)
    chain = owner_chain(owned(pod(), replica_set), Cluster((deployment, replica_set)))
    assert [owner["kind"] for owner in chain] == ["ReplicaSet", "Deployment"]
    assert owner_chain(pod(), Cluster()) == []


def test_owners_that_lead_nowhere() -> None:
    """One that is gone or was made anew may come; several, or a circle, are wrong."""
    one, other = (thing("apps/v1", "ReplicaSet", name=name, uid=name) for name in ("one", "other"))
    for around in ((), (one | {"metadata": one["metadata"] | {"uid": "new"}},)):
        with pytest.raises(GrouperError) as caught:
            owner_chain(owned(pod(), one), Cluster(around))
        assert caught.value.missing
    with pytest.raises(GrouperError, match="one owner at most"):
        owner_chain(owned(pod(), one), Cluster((owned(one, other, other), other)))
    with pytest.raises(GrouperError, match="circle"):
        owner_chain(owned(pod(), one), Cluster((owned(one, other), owned(other, one))))


def test_a_group_that_is_there_keeps_queue_and_topology() -> None:
    """An administrator may have moved it; a workload that asks for a topology itself is heard."""
    there = thing(
        "scheduling.run.ai/v2alpha2", "PodGroup", {"queue": "moved", "topologyConstraint": {"topology": "dc"}}
    )
    spec = kept(grouped(pod(), plain()), there)
    assert (spec.queue, spec.topology and spec.topology.topology) == ("moved", "dc")
    own = kept(grouped(pod(), plain(notes={"kai.scheduler/topology": "own"})), there)
    assert own.topology is not None
    assert own.topology.topology == "own"


def test_pods_that_are_left_alone() -> None:
    """Whoever groups by himself says so."""
    assert is_left_alone(pod(notes={"kai.scheduler/skip-podgrouper": "true"}))
    assert not is_left_alone(pod())
