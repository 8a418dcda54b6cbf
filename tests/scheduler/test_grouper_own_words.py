"""Groups that pods and clusters describe themselves: Kubernetes' own Workload and PodGroup, and Karta."""

from typing import Any

import pytest

from controller.scheduler.grouper.fields import GrouperError
from tests.scheduler.grouper_words import Raw, grouped, leaves, plain, pod, thing


def workload(policy: Raw, **marks: Any) -> Raw:
    groups = {"podGroups": [{"name": "ranks", "policy": policy}]}
    return thing("scheduling.k8s.io/v1alpha1", "Workload", groups, name="wl", **marks)


def ranked(replica: str = "", group: str = "ranks") -> Raw:
    return pod(workloadRef={"name": "wl", "podGroup": group, "podGroupReplicaKey": replica})


def test_a_kubernetes_workload_goes_before_the_owner() -> None:
    """Its pod group's policy is the minimum; each replica key is a gang of its own."""
    owner = thing("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 8}}})
    gang = workload(
        {"gang": {"minCount": 4}},
        labels={"kai.scheduler/queue": "blue"},
        notes={"kai.scheduler/topology": "dc"},
    )
    spec = grouped(ranked("r1"), owner, around=(gang,))
    assert (spec.name, spec.min_available, spec.sub_groups, spec.queue) == ("wl-ranks-r1", 4, (), "blue")
    assert spec.topology is not None
    basic = grouped(ranked("r1"), owner, around=(workload({"basic": {}}),))
    assert (basic.name, basic.min_available) == ("wl-ranks", 1)


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    """Kubernetes takes 253 characters."""
    names = {
        grouped(ranked("k" * 260 + end), around=(workload({"gang": {"minCount": 1}}),)).name for end in "ab"
    }
    assert {len(name) for name in names} == {253}
    assert len(names) == 2


def kube_group(spec: Raw, **marks: Any) -> Raw:
    return thing("scheduling.k8s.io/v1alpha2", "PodGroup", spec, name="pg", **marks)


def test_a_kubernetes_pod_group_goes_before_the_owner() -> None:
    """The object of 1.36 and later: policy, class and topology."""
    group = kube_group(
        {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "priorityClassName": "gold",
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        }
    )
    spec = grouped(pod(schedulingGroup={"podGroupName": "pg"}), plain(), around=(group,))
    assert (spec.name, spec.min_available, spec.priority_class) == ("pg", 3, "gold")
    assert spec.topology is not None
    assert spec.topology.required == "rack"


BAD_WORKLOADS: dict[str, tuple[Raw, Raw, str, bool]] = {
    "a Workload that is not there": (ranked(), plain(), "spec.workloadRef.name is 'wl'", True),
    "a pod group that it has not": (
        ranked(group="x"),
        workload({"basic": {}}),
        "spec.workloadRef.podGroup is 'x'",
        False,
    ),
    "a policy of neither sort": (ranked(), workload({}), "spec.podGroups[0].policy is {}", False),
    "a gang of nobody": (ranked(), workload({"gang": {"minCount": 0}}), "policy.gang.minCount is 0", False),
    "a PodGroup that is not there": (
        pod(schedulingGroup={"podGroupName": "pg"}),
        plain(),
        "spec.schedulingGroup.podGroupName is 'pg'",
        True,
    ),
}


@pytest.mark.parametrize(("asked", "around", "said", "missing"), BAD_WORKLOADS.values(), ids=BAD_WORKLOADS)
def test_a_workload_that_cannot_be_followed(asked: Raw, around: Raw, said: str, missing: bool) -> None:
    """Named, and told from what may still come."""
    with pytest.raises(GrouperError) as caught:
        grouped(asked, around=(around,))
    assert said in str(caught.value)
    assert caught.value.missing is missing


def component(name: str, owner: str = "flow") -> Raw:
    return {
        "name": name,
        "ownerRef": owner,
        "scaleDefinition": {"replicasPath": f".spec.{name}.count"},
        "podSelector": {"componentTypeSelector": {"keyPath": '.metadata.labels["part"]', "value": name}},
    }


def karta(gang: Raw, *components: Raw) -> Raw:
    definition = thing("run.ai/v1alpha1", "Karta", name="flow")
    definition["metadata"]["namespace"] = ""
    definition["spec"] = {
        "structureDefinition": {
            "rootComponent": {
                "name": "flow",
                "kind": {"group": "example.org", "version": "v1", "kind": "Flow"},
            },
            "childComponents": list(components or (component("head"), component("tail"))),
        },
        "instructions": {"gangScheduling": gang},
    }
    return definition


FLOW = thing("example.org/v1", "Flow", {"head": {"count": 1}, "tail": {"count": 3}})


def test_a_cluster_may_define_kinds_of_its_own() -> None:
    """Karta's two ways: one group with subgroups, and groups by keys of the pod."""
    tail = pod(labels={"part": "tail", "step": "s1"})
    topology = {"topologyName": "dc", "requiredTopologyLevel": "rack"}
    parts = [{"componentName": "head"}, {"componentName": "tail", "topology": topology}]
    spec = grouped(tail, FLOW, around=(karta({"podGroup": {"name": "all", "subGroups": parts}}),))
    assert (spec.name, spec.min_sub_group, leaves(spec)) == (
        "pg-u-all",
        2,
        {"head": ("", 1, None), "tail": ("", 3, None)},
    )
    assert spec.sub_group_of("p") == "tail"
    whole = grouped(tail, FLOW, around=(karta({"podGroup": {"name": "all"}}),))
    assert (whole.min_available, whole.min_sub_group) == (4, None)
    members = [{"componentName": "tail", "groupByKeyPaths": ['.metadata.labels["step"]']}]
    keyed = grouped(tail, FLOW, around=(karta({"podGroups": [{"name": "steps", "members": members}]}),))
    assert (keyed.name, keyed.min_available) == ("pg-u-s1", 3)


BAD_KARTAS: dict[str, tuple[Raw, str]] = {
    "a component nobody defined": (
        karta({"podGroup": {"name": "a", "subGroups": [{"componentName": "x"}]}}),
        "'x'",
    ),
    "a topology without a level": (
        karta({"podGroup": {"name": "a", "topology": {"topologyName": "dc"}}}),
        "requiredTopologyLevel",
    ),
    "a pod of no group": (karta({"podGroups": []}), "its component"),
    "a key that makes no name": (
        karta(
            {
                "podGroups": [
                    {
                        "name": "a",
                        "members": [{"componentName": "flow", "groupByKeyPaths": [".metadata.labels.odd"]}],
                    }
                ]
            }
        ),
        "DNS",
    ),
    "a component twice": (karta({"podGroup": {"name": "a"}}, component("head"), component("head")), "'head'"),
    "a count that is none": (
        karta({"podGroup": {"name": "a"}}, component("middle")),
        ".spec.middle.count is not set",
    ),
}


@pytest.mark.parametrize(("definition", "said"), BAD_KARTAS.values(), ids=BAD_KARTAS)
def test_a_definition_that_does_not_fit(definition: Raw, said: str) -> None:
    """Named like everything else."""
    with pytest.raises(GrouperError) as caught:
        grouped(pod(labels={"part": "head", "odd": "Not A Name"}), FLOW, around=(definition,))
    assert said in str(caught.value)
