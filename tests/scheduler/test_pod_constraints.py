"""Where a pod may go, from its spec and the objects that it names."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.pod_constraints import NOWHERE, Surroundings, constraints_of
from controller.scheduler.requests import (
    ANYWHERE,
    Constraints,
    Expression,
    NodeTerm,
    PodTerm,
    Spread,
    Toleration,
)
from controller.scheduler.selectors import NOBODY
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.scheduler.kube_words import pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = Expression(key="zone", operator="In", values=("a", "b"))
IN_ZONE = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "a"]}]}]
}
APP = Expression(key="app", operator="In", values=("db",))
TERM = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}


def affinity(**kinds: Any) -> dict[str, Any]:
    """Give a spec with affinity of these kinds."""
    return {"affinity": kinds}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        pytest.param({}, ANYWHERE, id="a pod that wants nothing goes anywhere"),
        pytest.param(
            {"nodeSelector": {"b": "2", "a": "1"}},
            Constraints(node_selector=(("a", "1"), ("b", "2"))),
            id="labels",
        ),
        pytest.param(
            affinity(nodeAffinity={REQUIRED: IN_ZONE}),
            Constraints(required=(NodeTerm(expressions=(ZONE,)),)),
            id="node affinity, its values in order",
        ),
        pytest.param(
            affinity(nodeAffinity={REQUIRED: {"nodeSelectorTerms": [{}]}}),
            Constraints(required=(NodeTerm(expressions=NOBODY),)),
            id="an empty term matches no node",
        ),
        pytest.param(
            affinity(
                podAffinity={REQUIRED: [TERM]},
                podAntiAffinity={PREFERRED: [{"weight": 7, "podAffinityTerm": TERM}]},
            ),
            Constraints(
                pod_affinity=(PodTerm(selector=(APP,), topology_key="zone"),),
                pod_anti_affinity=(PodTerm(selector=(APP,), topology_key="zone", weight=7),),
            ),
            id="pods beside and apart",
        ),
        pytest.param(
            affinity(podAffinity={REQUIRED: [{"topologyKey": "zone"}]}),
            Constraints(pod_affinity=(PodTerm(selector=NOBODY, topology_key="zone"),)),
            id="a term without a selector is about nobody",
        ),
        pytest.param(
            affinity(podAffinity={REQUIRED: [{**TERM, "namespaceSelector": {}}]}),
            Constraints(pod_affinity=(PodTerm(selector=(APP,), topology_key="zone", all_namespaces=True),)),
            id="an empty namespace selector is about all of them",
        ),
        pytest.param(
            affinity(
                podAffinity={REQUIRED: [{**TERM, "namespaceSelector": {"matchLabels": {"kind": "data"}}}]}
            ),
            Constraints(pod_affinity=(PodTerm(selector=(APP,), topology_key="zone", namespaces=("store",)),)),
            id="a namespace selector chooses by labels",
        ),
        pytest.param(
            affinity(
                podAffinity={REQUIRED: [{**TERM, "namespaceSelector": {"matchLabels": {"kind": "none"}}}]}
            ),
            Constraints(pod_affinity=(PodTerm(selector=(APP,), topology_key="zone", namespaces=NOWHERE),)),
            id="one that chooses none is not one of the pod's own",
        ),
        pytest.param(
            {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]},
            Constraints(tolerations=(Toleration(key="gpu", operator="Exists", effect="NoSchedule"),)),
            id="tolerations",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{**TERM, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}]},
            Constraints(spread=(Spread(max_skew=2, topology_key="zone", hard=False, selector=(APP,)),)),
            id="topology spread",
        ),
        pytest.param(
            {"containers": [{"ports": [{"hostPort": 80}, {"containerPort": 81}]}]},
            Constraints(ports=(("0.0.0.0", "TCP", 80),)),  # noqa: S104 - every address of the host
            id="ports of the host",
        ),
        pytest.param(
            {
                "initContainers": [
                    {"ports": [{"hostPort": 79}]},
                    {"ports": [{"hostPort": 80}], "restartPolicy": "Always"},
                ]
            },
            Constraints(ports=(("0.0.0.0", "TCP", 80),)),  # noqa: S104 - every address of the host
            id="of a sidecar too, but not of what has ended before",
        ),
    ],
)
def test_spec(spec: dict[str, Any], wanted: Constraints) -> None:
    """What the spec says, as values that equal pods share."""
    around = Surroundings(namespaces={"store": {"kind": "data"}, "team": {}})
    assert constraints_of(pod(spec=spec), around) == wanted


def test_spread_by_the_pods_own_labels() -> None:
    """matchLabelKeys counts only pods with the same value, of one revision say."""
    constraint = {**TERM, "matchLabelKeys": ["revision", "absent"]}
    found = constraints_of(
        pod(meta={"labels": {"revision": "3"}}, spec={"topologySpreadConstraints": [constraint]}),
        Surroundings(),
    )
    assert found.spread[0].selector == (APP, Expression(key="revision", operator="In", values=("3",)))


def around() -> Surroundings:
    """Give storage: a bound claim, one that waits for its pod, one that nobody serves, and a volume that is gone."""
    claims = {
        "bound": {"volumeName": "v1"},
        "lost": {"volumeName": "v2"},
        "late": {"storageClassName": "local"},
        "odd": {},
    }
    return Surroundings(
        volume_claims={
            f"team/{name}": msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolumeClaim)
            for name, spec in claims.items()
        },
        volumes={
            "v1": msgspec.convert(
                {"metadata": {"name": "v1"}, "spec": {"nodeAffinity": {"required": IN_ZONE}}},
                PersistentVolume,
            )
        },
        storage_classes={
            "local": msgspec.convert(
                {
                    "metadata": {"name": "local"},
                    "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["b", "a"]}]}],
                },
                StorageClass,
            )
        },
        config_maps=frozenset({"team/settings"}),
    )


HERE = ((NodeTerm(expressions=(ZONE,)),),)


@pytest.mark.parametrize(
    ("volume", "places", "missing"),
    [
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "bound"}}, HERE, (), id="a bound volume is where it is"
        ),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "late"}}, HERE, (), id="one to be made goes where it may"
        ),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "lost"}},
            (),
            ('persistentvolume "v2"',),
            id="a volume that is gone",
        ),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "odd"}},
            (),
            ('volume of persistentvolumeclaim "odd"',),
            id="a claim that nobody serves yet",
        ),
        pytest.param(
            {"persistentVolumeClaim": {"claimName": "no"}},
            (),
            ('persistentvolumeclaim "no"',),
            id="no such claim",
        ),
        pytest.param(
            {"ephemeral": {}},
            (),
            ('persistentvolumeclaim "p1-data"',),
            id="an ephemeral one is named for the pod",
        ),
        pytest.param({"configMap": {"name": "settings"}}, (), (), id="a config map that is there"),
        pytest.param({"configMap": {"name": "no"}}, (), ('configmap "no"',), id="a config map that is not"),
        pytest.param({"configMap": {"name": "no", "optional": True}}, (), (), id="one that need not be"),
    ],
)
def test_volumes(
    volume: dict[str, Any], places: tuple[tuple[NodeTerm, ...], ...], missing: tuple[str, ...]
) -> None:
    """Volumes bind a pod to their nodes; what is not there keeps it waiting."""
    found = constraints_of(pod(spec={"volumes": [{"name": "data", **volume}]}), around())
    assert (found.volumes, found.missing) == (places, missing)


AT_N1 = NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=("n1",)),))


def waiting(
    provisioner: str, *volumes: dict[str, Any], node: str = "", zones: tuple[str, ...] = ()
) -> Surroundings:
    """Give a claim that waits for its first consumer, and the free volumes of its class."""
    annotations = {"volume.kubernetes.io/selected-node": node} if node else {}
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": zones}]}] if zones else []
    made = {
        "metadata": {"name": "local"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": terms,
    }
    meta = {"name": "late", "namespace": "team", "uid": "1", "annotations": annotations}
    claim = {"metadata": meta, "spec": {"storageClassName": "local"}}
    return Surroundings(
        volume_claims={"team/late": msgspec.convert(claim, PersistentVolumeClaim)},
        storage_classes={"local": msgspec.convert(made, StorageClass)},
        volumes={
            str(index): msgspec.convert(
                {
                    "metadata": {"name": str(index)},
                    "spec": {"storageClassName": "local", **spec},
                    "status": {"phase": "Available"},
                },
                PersistentVolume,
            )
            for index, spec in enumerate(volumes)
        },
    )


NO = "kubernetes.io/no-provisioner"
IN_A = {"nodeAffinity": {"required": IN_ZONE}}
C_ONLY = NodeTerm(expressions=(Expression(key="zone", operator="In", values=("c",)),))


@pytest.mark.parametrize(
    ("around", "places", "missing"),
    [
        pytest.param(
            waiting(NO),
            (),
            ('free volume for persistentvolumeclaim "late"',),
            id="no volume, nobody makes one",
        ),
        pytest.param(waiting(NO, IN_A, IN_A), HERE, (), id="where the free volumes are"),
        pytest.param(waiting(NO, IN_A, {}), (), (), id="a free volume that is reached from everywhere"),
        pytest.param(
            waiting(NO, {**IN_A, "claimRef": {"namespace": "team", "name": "late", "uid": "1"}}),
            HERE,
            (),
            id="where the volume is that was reserved for it",
        ),
        pytest.param(waiting("disk.example.com", IN_A), (), (), id="made anywhere"),
        pytest.param(
            waiting("disk.example.com", IN_A, zones=("c",)),
            ((C_ONLY, *HERE[0]),),
            (),
            id="made where it may be, or where one is",
        ),
        pytest.param(
            waiting("disk.example.com", IN_A, node="n1"), ((AT_N1,),), (), id="being made for a node already"
        ),
    ],
)
def test_volumes_that_wait_for_their_pod(
    around: Surroundings, places: tuple[tuple[NodeTerm, ...], ...], missing: tuple[str, ...]
) -> None:
    """A claim that waits for its first consumer sends the pod to where its volume can be."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "late"}}
    found = constraints_of(pod(spec={"volumes": [volume]}), around)
    assert (found.volumes, found.missing) == (places, missing)
