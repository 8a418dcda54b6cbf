"""What a pod grouper's record leaves out, read off its recorded outcome: the cluster that must have been there. Pure.

The suite's records hold the workload, the pod and what was fetched, but not all of the cluster behind them: one and the same
workload has several outcomes there. Its README tells two things that may be taken from the outcome: whether a
PriorityClass that the workload names existed, and whether a PodGroup of an older shape did. The rest that is left out (the
cluster's defaults for kinds, a launcher pod, Karta definitions: `untold`) can be made up so that the outcome comes, which
proves no more than that nothing contradicts it.
"""

from typing import Any

from controller.scheduler.grouper.defaults import PREEMPTIBILITY_LABEL, PRIORITY_LABEL, group_name
from controller.scheduler.grouper.fields import Thing
from controller.scheduler.grouper.kubeflow import JOB_NAME, JOB_ROLE
from controller.scheduler.grouper.spec import Cluster, Terms, TypeDefault

_WITH_SUB_GROUPS = frozenset({"JobSetGrouper", "RayClusterGrouper", "RayJobGrouper", "RayServiceGrouper"})


def cluster_of(
    given: dict[str, Any], output: dict[str, Any] | None, default_class: str, *, untold: bool
) -> Cluster:
    """Return the cluster behind a record, with what the suite does not tell of it where `untold`.

    `output` None = the outcome is not known: every class that is named exists.
    """
    fetched = list(given.get("fetched", []))
    owner = Thing(given.get("owner"))
    if output is None:
        return Cluster(fetched)
    told = [] if output.get("error") is not False else _older_group(given, output, owner)
    classes = frozenset({output.get("priority_class", "")})
    if not untold:
        return Cluster([*fetched, *told], classes)
    if output.get("error") is not False:
        return Cluster([*fetched, *_karta(given, output, owner)])
    behind = [*told, *_launcher(given, output, owner), *_karta(given, output, owner)]
    default = _type_default(given, output, default_class)
    return Cluster([*fetched, *behind], classes, Terms(type_defaults=() if default is None else (default,)))


def _type_default(given: dict[str, Any], output: dict[str, Any], default_class: str) -> TypeDefault | None:
    """Return the cluster's default for the kind: where neither the workload nor the kind itself explains what came out."""
    pod, owner = Thing(given["pod"]), Thing(given.get("owner"))
    things = [pod, owner, *(Thing(raw) for raw in given.get("fetched", []))]
    named = {thing.labels.get(PRIORITY_LABEL) for thing in things} | {pod.read.text("spec.priorityClassName")}
    recorded = output["priority_class"]
    is_said = any(PREEMPTIBILITY_LABEL in thing.labels for thing in things)
    default = TypeDefault(
        kind=owner.kind,
        group=owner.group,
        priority_class="" if recorded in named or recorded == default_class else recorded,
        preemptibility="" if is_said else output["preemptibility"],
    )
    return default if default.priority_class or default.preemptibility else None


def _older_group(given: dict[str, Any], output: dict[str, Any], owner: Thing) -> list[dict[str, Any]]:
    """Return the PodGroup of an older version: one without subgroups where the kind has them now, or named for its pod."""
    if given["grouper"] in _WITH_SUB_GROUPS:
        is_older = "sub_groups" not in output
    else:
        is_older = given["grouper"] == "K8sJobGrouper" and output["name"] != group_name(owner.name, owner.uid)
    namespace = owner.namespace if given["grouper"] == "JobSetGrouper" else output["namespace"]
    return [_thing("scheduling.run.ai/v2alpha2", "PodGroup", output["name"], namespace)] if is_older else []


def _launcher(given: dict[str, Any], output: dict[str, Any], owner: Thing) -> list[dict[str, Any]]:
    """Return the launcher pod that must have been there where an MPIJob's recorded minimum counts it."""
    if given["grouper"] != "MpiGrouper":
        return []
    types = owner.read.mapping("spec.mpiReplicaSpecs") or {}
    if output["min_available"] != sum(kind.get("replicas", 0) for kind in types.values()):
        return []
    return [_thing("v1", "Pod", "launcher", owner.namespace, {JOB_ROLE: "launcher", JOB_NAME: owner.name})]


def _karta(given: dict[str, Any], output: dict[str, Any], owner: Thing) -> list[dict[str, Any]]:
    """Return a Karta with a component for each part of the workload that has replicas, told apart by the pods' role.

    It groups by the name that the outcome shows, or, where there is none, by the job that the pod's label names.
    """
    if given["grouper"] != "KartaGrouper":
        return []
    parts = [name for name, part in (owner.read.mapping("spec") or {}).items() if isinstance(part, dict)]
    gang: dict[str, Any] = {
        "podGroups": [
            {
                "name": "all",
                "members": [{"componentName": "root", "groupByKeyPaths": ['.metadata.labels["job-name"]']}],
            }
        ]
    }
    if "name" in output:
        inner = [
            {"componentName": group["name"]} | _karta_topology(group)
            for group in output.get("sub_groups", [])
        ]
        name = output["name"].removeprefix(f"pg-{owner.uid}-")
        gang = {"podGroup": {"name": name, "subGroups": inner} | _karta_topology(output)}
    definition = _thing("run.ai/v1alpha1", "Karta", "recorded", "")
    definition["spec"] = {
        "structureDefinition": {
            "rootComponent": {
                "name": "root",
                "kind": {"group": owner.group, "version": owner.version, "kind": owner.kind},
            },
            "childComponents": [_component(part) for part in parts],
        },
        "instructions": {"gangScheduling": gang},
    }
    return [definition]


def _component(part: str) -> dict[str, Any]:
    return {
        "name": part,
        "ownerRef": "root",
        "scaleDefinition": {"replicasPath": f".spec.{part}.replicas"},
        "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": part}},
    }


def _karta_topology(recorded: dict[str, Any]) -> dict[str, Any]:
    if "topology" not in recorded:
        return {}
    asked = recorded["topology"]
    return {
        "topology": {
            "topologyName": asked["topology"],
            "requiredTopologyLevel": asked["required"],
            "preferredTopologyLevel": asked["preferred"],
        }
    }


def _thing(
    api_version: str, kind: str, name: str, namespace: str, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
