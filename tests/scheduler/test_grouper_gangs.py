"""Kinds whose groups have subgroups: how many pods each needs, how they hang together, where a pod goes."""

from typing import Any

import pytest

from controller.scheduler.grouper.fields import GrouperError
from tests.scheduler.grouper_words import (
    JOBSET,
    WORKER,
    Raw,
    clique,
    cut,
    grouped,
    grove,
    jobset,
    leaf,
    leaves,
    lws,
    member,
    pack,
    pod,
    ray_parts,
    template,
    thing,
    training,
    wants,
    workers,
)

PYTORCH: dict[str, tuple[Raw, Raw, int, dict[str, Any]]] = {
    "master and workers are two subgroups": (
        training("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=4),
        {},
        5,
        {"master": ("", 1, None), "worker": ("", 4, None)},
    ),
    "an elastic job needs its minimum only": (
        training(
            "PyTorchJob", "pytorchReplicaSpecs", {"elasticPolicy": {"minReplicas": 3}}, Master=1, Worker=8
        ),
        {},
        3,
        {"master": ("", 1, None), "worker": ("", 2, None)},
    ),
    "a policy goes before elasticity": (
        training(
            "PyTorchJob", "pytorchReplicaSpecs", {"elasticPolicy": {"minReplicas": 3}} | wants(5), Worker=8
        ),
        {},
        5,
        {"worker": ("", 5, None)},
    ),
    "segments divide the workers": (
        training("PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=5),
        {"kai.scheduler/segment-size": "2"},
        6,
        {
            "master": ("", 1, None),
            "worker": ("", 0, 3),
            "worker-0": ("worker", 2, None),
            "worker-1": ("worker", 2, None),
            "worker-2": ("worker", 1, None),
        },
    ),
    "segments beyond an elastic minimum need nobody": (
        training("PyTorchJob", "pytorchReplicaSpecs", {"elasticPolicy": {"minReplicas": 3}}, Worker=6),
        {"kai.scheduler/segment-size": "2"},
        3,
        {
            "worker": ("", 0, 3),
            "worker-0": ("worker", 2, None),
            "worker-1": ("worker", 1, None),
            "worker-2": ("worker", 0, None),
        },
    ),
}


@pytest.mark.parametrize(("owner", "notes", "minimum", "groups"), PYTORCH.values(), ids=PYTORCH)
def test_pytorch(owner: Raw, notes: Raw, minimum: int, groups: dict[str, Any]) -> None:
    """Subgroups of a PyTorchJob, and where its fourth worker goes."""
    spec = grouped(pod("job-worker-3", labels=WORKER, notes=notes), owner)
    assert (spec.min_available, leaves(spec)) == (minimum, groups)
    assert spec.sub_group_of("job-worker-3") == ("worker-1" if "worker-1" in groups else "worker")
    assert spec.sub_group_of("somebody") == ""


def test_a_segments_topology_may_stand_in_the_template() -> None:
    """Size and level from the worker's template, the topology from the job."""
    worker = {
        "replicas": 4,
        "template": template(segment_size="2", segment_topology_required_placement="rack"),
    }
    owner = thing(
        "kubeflow.org/v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {"Worker": worker}},
        notes={"kai.scheduler/topology": "dc"},
    )
    topology = leaf(grouped(pod(labels=WORKER), owner), "worker-1").topology
    assert topology is not None
    assert (topology.topology, topology.required, topology.preferred) == ("dc", "rack", "")


def test_an_mpi_launcher_that_comes_late_is_no_member_yet() -> None:
    """Only a launcher that lives counts, and only where the job says that it waits."""
    waits = training(
        "MPIJob", "mpiReplicaSpecs", {"launcherCreationPolicy": "WaitForWorkersReady"}, Launcher=1, Worker=4
    )
    role = {"training.kubeflow.org/job-name": "w", "training.kubeflow.org/job-role": "launcher"}
    going = pod("l", labels=role)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert grouped(pod(), waits).min_available == 4
    assert grouped(pod(), waits, around=(going,)).min_available == 4
    assert grouped(pod(), waits, around=(pod("l", labels=role),)).min_available == 5


JOBSETS: dict[str, tuple[Raw, int]] = {
    "all replicated jobs start together": (jobset(), 2),
    "in order, one is enough": (jobset("InOrder"), 1),
    "a minimum is taken at its word": (jobset("InOrder", {"kai.scheduler/batch-min-member": "2"}), 2),
    "a minimum above what there is, is all": (jobset(notes={"kai.scheduler/batch-min-member": "9"}), 2),
}


@pytest.mark.parametrize(("owner", "minimum"), JOBSETS.values(), ids=JOBSETS)
def test_jobset(owner: Raw, minimum: int) -> None:
    """A parent for each replicated job, a leaf for each replica."""
    spec = grouped(pod(labels=JOBSET), owner)
    assert (spec.min_available, spec.min_sub_group) == (0, minimum)
    assert leaves(spec) == {
        "driver": ("", 0, 1),
        "driver-replica-0": ("driver", 1, None),
        "sim": ("", 0, 2),
        "sim-replica-0": ("sim", 3, None),
        "sim-replica-1": ("sim", 3, None),
    }
    assert spec.sub_group_of("p") == "sim-replica-1"


def test_a_replicas_members_and_topology_may_stand_in_its_template() -> None:
    """And a topology without a level asks for nothing."""
    notes = template(batch_min_member="2", topology="dc", topology_preferred_placement="rack")
    found = leaf(grouped(pod(labels=JOBSET), jobset(template=notes)), "sim-replica-0")
    assert (found.min_available, found.topology and found.topology.preferred) == (2, "rack")
    bare = leaf(grouped(pod(labels=JOBSET), jobset(template=template(topology="dc"))), "sim-replica-0")
    assert bare.topology is None


def test_a_flat_jobset_group_stays_flat() -> None:
    """In order there was one for each replicated job."""
    flat = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-w-u-driver")
    spec = grouped(pod(labels=JOBSET), jobset("InOrder"), around=(flat,))
    assert (spec.name, spec.min_available, spec.min_sub_group, spec.sub_groups) == ("pg-w-u-sim", 1, None, ())


LWS: dict[str, tuple[Raw, int, int, dict[str, Any], str]] = {
    "leader and workers": (lws(4), 1, 4, {"leader": ("", 1, None), "workers": ("", 3, None)}, "workers"),
    "a leader alone": (lws(1), 0, 1, {"leader": ("", 1, None)}, "leader"),
    "a leader that goes first needs nobody": (
        lws(4, "LeaderReady"),
        0,
        1,
        {"leader": ("", 1, None)},
        "leader",
    ),
    "its workers come after it": (
        lws(4, "LeaderReady"),
        2,
        4,
        {"leader": ("", 1, None), "workers": ("", 3, None)},
        "workers",
    ),
    "even segments take the leader in besides": (
        lws(5, subGroupPolicy=cut(2)),
        4,
        5,
        {
            "segment-0": ("", 0, 2),
            "segment-1": ("", 2, None),
            "leader": ("segment-0", 1, None),
            "workers": ("segment-0", 2, None),
        },
        "segment-1",
    ),
    "uneven segments count the leader": (
        lws(5, subGroupPolicy=cut(3)),
        3,
        5,
        {
            "segment-0": ("", 0, 2),
            "segment-1": ("", 2, None),
            "leader": ("segment-0", 1, None),
            "workers": ("segment-0", 2, None),
        },
        "segment-1",
    ),
    "one segment holds all": (
        lws(5, subGroupPolicy=cut(4)),
        4,
        5,
        {"segment-0": ("", 0, 2), "leader": ("segment-0", 1, None), "workers": ("segment-0", 4, None)},
        "workers",
    ),
    "a leader left out stands before the segments": (
        lws(5, subGroupPolicy=cut(2, "LeaderExcluded")),
        2,
        5,
        {"leader": ("", 1, None), "segment-0": ("", 2, None), "segment-1": ("", 2, None)},
        "segment-0",
    ),
}


@pytest.mark.parametrize(("owner", "index", "minimum", "groups", "mine"), LWS.values(), ids=LWS)
def test_leader_worker_set(owner: Raw, index: int, minimum: int, groups: dict[str, Any], mine: str) -> None:
    """One group for each replica; every pod has its place, and the places add up to the size."""
    spec = grouped(pod(labels=member(index)), owner)
    assert (spec.name, spec.min_available, leaves(spec)) == ("pg-w-u-group-2", minimum, groups)
    assert spec.sub_group_of("p") == mine
    assert sum(group.min_available for group in spec.sub_groups) == minimum


def test_ray_cluster() -> None:
    """Head, and the workers that it starts with; a suspended group has none, an autoscaled one may start with none."""
    spec = ray_parts(
        {"groupName": "gpu", "replicas": 4, "minReplicas": 2, "numOfHosts": 2},
        {"replicas": 3},
        {"groupName": "off", "replicas": 3, "suspended": True},
        {"groupName": "none", "replicas": 0},
    )
    assert leaves(spec) == {"headgroup": ("", 1, None), "gpu": ("", 4, None), "worker-group-1": ("", 3, None)}
    assert (spec.min_available, spec.sub_group_of("p")) == (8, "gpu")
    assert ray_parts({"groupName": "gpu", "replicas": 4}, autoscaling=True).min_available == 1


def test_ray_jobs_and_services_wait_for_their_cluster() -> None:
    """Ray's own priority label goes before ours; a service's active cluster before its pending one."""
    cluster = thing("ray.io/v1", "RayCluster", workers({"replicas": 2}), name="rc")
    job = thing(
        "ray.io/v1", "RayJob", labels={"ray.io/priority-class-name": "gold"}, status={"rayClusterName": "rc"}
    )
    assert grouped(pod(), job, around=(cluster,)).priority_class == "gold"
    pending = {"activeServiceStatus": {}, "pendingServiceStatus": {"rayClusterName": "rc"}}
    assert (
        grouped(pod(), thing("ray.io/v1", "RayService", status=pending), around=(cluster,)).min_available == 3
    )
    for owner in (thing("ray.io/v1", "RayJob"), job):
        with pytest.raises(GrouperError) as caught:
            grouped(pod(), owner)
        assert caught.value.missing


def test_a_flat_ray_group_stays_flat() -> None:
    """What an older version made keeps its shape while it runs."""
    flat = thing("scheduling.run.ai/v2alpha2", "PodGroup", name="pg-w-u")
    spec = grouped(pod(), thing("ray.io/v1", "RayCluster", workers({"replicas": 2})), around=(flat,))
    assert (spec.min_available, spec.sub_groups) == (3, ())


def test_grove() -> None:
    """Cliques are leaves, topology groups their parents; a group without members is none."""
    groups = [
        {"name": "near", "podGroupNames": ["prefill", "decode"]} | pack(required="rack"),
        {"name": "empty"},
    ]
    spec = grove(
        {
            "podgroups": [
                clique("prefill", 2),
                clique("decode", 4),
                clique("router", 1, **pack(preferred="host")),
            ],
            "topologyConstraintGroupConfigs": groups,
            "priorityClassName": "gold",
        }
        | pack(required="zone"),
        {"grove.io/topology-name": "dc"},
    )
    assert (spec.name, spec.min_available, spec.priority_class) == ("pg-gang-gu", 7, "gold")
    assert leaves(spec) == {
        "near": ("", 0, 2),
        "prefill": ("near", 2, None),
        "decode": ("near", 4, None),
        "router": ("", 1, None),
    }
    assert spec.sub_group_of("decode-0") == "decode"
    assert [group.topology and group.topology.required for group in spec.sub_groups] == [
        "rack",
        None,
        None,
        "",
    ]
    assert spec.topology is not None
    assert (spec.topology.topology, spec.topology.required) == ("dc", "zone")


def test_groves_owner_fills_what_the_gang_lacks() -> None:
    """Labels and annotations that stand on the set only: class, preemptibility, topology."""
    owner = thing(
        "grove.io/v1alpha1",
        "PodCliqueSet",
        labels={"priorityClassName": "silver", "kai.scheduler/preemptibility": "non-preemptible"},
        notes={"kai.scheduler/topology": "dc", "kai.scheduler/topology-required-placement": "rack"},
    )
    spec = grove({"podgroups": [clique("a", 1)]}, owner=owner)
    assert (spec.priority_class, spec.preemptibility) == ("silver", "non-preemptible")
    assert spec.topology is not None
    assert spec.topology.required == "rack"
