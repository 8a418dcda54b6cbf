"""Objects of any shape: the grouper raises nothing but its own error."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.grouper.fields import GrouperError
from controller.scheduler.grouper.grouping import group_of
from controller.scheduler.grouper.kinds import KINDS
from controller.scheduler.grouper.spec import Cluster, PodGroupSpec
from tests.scheduler.grouper_words import Raw, pod

WORDS = sorted(
    {part for kind in KINDS for path in (*kind.minimum, kind.replicas) for part in path.split(".") if part}
    | {
        "spec",
        "status",
        "metadata",
        "labels",
        "annotations",
        "replicas",
        "size",
        "name",
        "template",
        "replicatedJobs",
    }
    | {
        "leaderWorkerTemplate",
        "subGroupPolicy",
        "subGroupSize",
        "workerGroupSpecs",
        "podgroups",
        "rayClusterName",
    }
    | {
        "workloadRef",
        "schedulingGroup",
        "podGroupName",
        "ownerReferences",
        "kai.scheduler/segment-size",
        "Worker",
    }
    | {
        "parallelism",
        "Master",
        "topologyConstraint",
        "kai.scheduler/batch-min-member",
        "nodeName",
        "startupPolicy",
    }
)
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(["2", "p"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=25,
)
MARKS = (
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "grove.io/podgang",
    "serving.knative.dev/revision",
    "kai.scheduler/segment-size",
)


@st.composite
def odd_objects(draw: Callable[[Any], Any]) -> tuple[Any, list[Any], list[Any]]:
    """A pod, owners and surroundings in which nothing is sure but the kinds."""
    marks = draw(
        st.dictionaries(st.sampled_from(MARKS), st.sampled_from(["worker", "0", "1", "-1", "p", ""]))
    )
    metadata = {"name": "p", "namespace": "team", "uid": "u", "labels": marks, "annotations": marks}

    def odd(api_version: str, kind: str) -> Raw:
        raw: Raw = {"apiVersion": api_version, "kind": kind, "metadata": draw(st.just(metadata) | ODD)}
        return raw | {"spec": draw(ODD), "status": draw(ODD)}

    kind = draw(st.sampled_from(KINDS))
    owner = odd(f"{kind.group}/{kind.version.replace('*', 'v1')}".lstrip("/"), kind.kind)
    around = [
        odd(api_version, name)
        for api_version, name in (
            ("scheduler.grove.io/v1alpha1", "PodGang"),
            ("serving.knative.dev/v1", "Revision"),
            ("ray.io/v1", "RayCluster"),
            ("scheduling.run.ai/v2alpha2", "PodGroup"),
            ("scheduling.k8s.io/v1alpha1", "Workload"),
            ("run.ai/v1alpha1", "Karta"),
        )
    ]
    asked = draw(st.just(pod() | {"metadata": metadata}) | st.just(odd("v1", "Pod")) | ODD)
    return asked, [draw(st.just(owner) | ODD), owner], [*around, draw(ODD)]


@settings(max_examples=60, deadline=None)
@given(odd_objects())
def test_whatever_the_objects_hold_only_the_groupers_own_error_is_raised(
    odd: tuple[Any, list[Any], list[Any]],
) -> None:
    """And what comes out is a group whose leaves hang below something that is there."""
    asked, owners, around = odd
    try:
        spec = group_of(asked, owners, Cluster(around))
    except GrouperError:
        return
    assert isinstance(spec, PodGroupSpec)
    assert {group.parent for group in spec.sub_groups} <= {"", *(group.name for group in spec.sub_groups)}
    assert spec.min_available >= 0
    assert group_of(json.loads(json.dumps(asked)), owners, Cluster(reversed(around))) == spec
