"""The default rule: what a pod group is called, whose it is, its queue, class, preemptibility and topology. Pure.

Source: KAI Scheduler's default grouper (v0.17). Where labels disagree the owner's word goes before the pod's.
"""

import json
import re
from collections.abc import Sequence

from controller.scheduler.grouper.durations import seconds
from controller.scheduler.grouper.fields import Reader, Thing
from controller.scheduler.grouper.spec import Cluster, Owner, PodGroupSpec, TypeDefault
from controller.scheduler.model import TopologyConstraint

PRIORITY_LABEL = "priorityClassName"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
PROJECT_LABEL = "project"
USER_MARK = "user"
TOP_OWNER = "kai.scheduler/top-owner-metadata"
TOPOLOGY = "kai.scheduler/topology"
TOPOLOGY_REQUIRED = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED = "kai.scheduler/topology-preferred-placement"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS_GRACE = "kai.scheduler/staleness-grace-period"

PREEMPTIBILITIES = ("preemptible", "non-preemptible")

_PLAIN = re.compile(r"[A-Za-z0-9/._][A-Za-z0-9/._+-]*")
_NUMBER = re.compile(
    r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*|(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?)|[-+]?\.(inf|nan)",
    re.IGNORECASE,
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_WORDS = frozenset({"", "~", "null", "true", "false", "y", "n", "yes", "no", "on", "off"})


def group_name(name: str, uid: str) -> str:
    """Name a pod group after an object."""
    return f"pg-{name}-{uid}"


def owner_of(thing: Thing) -> Owner:
    """Return the reference to an object as owner."""
    return Owner(api_version=thing.api_version, kind=thing.kind, name=thing.name, uid=thing.uid)


def default_spec(
    pod: Thing, owner: Thing, owners: Sequence[Thing], cluster: Cluster, default_class: str
) -> PodGroupSpec:
    """Group a pod by the default rule: one group for its owner, minimum 1. `owners`: whose labels count, nearest first."""
    return PodGroupSpec(
        name=group_name(owner.name, owner.uid),
        namespace=pod.namespace,
        owner=owner_of(owner),
        queue=queue_of(pod, owner, cluster),
        priority_class=priority_class_of(pod, owners, cluster, default_class),
        preemptibility=preemptibility_of(pod, owners, cluster),
        topology=topology_of(owner.annotations),
        preemption_delay_s=_span(PREEMPTION_DELAY, pod, owners, negative=False),
        staleness_grace_s=_span(STALENESS_GRACE, pod, owners, negative=True),
        labels=labels_of(pod, owner),
        annotations=annotations_of(pod, owner),
    )


def queue_of(pod: Thing, owner: Thing, cluster: Cluster) -> str:
    """Say which queue: the queue label, else Run:ai's project with the node pool, else the default queue."""
    terms = cluster.terms
    for thing in (owner, pod):
        if terms.queue_label in thing.labels:
            return thing.labels[terms.queue_label]
    project = owner.labels.get(PROJECT_LABEL, pod.labels.get(PROJECT_LABEL, ""))
    if not project:
        return terms.default_queue
    pool = pod.labels.get(terms.node_pool_label)
    return project if pool is None else f"{project}-{pool}"


def priority_class_of(pod: Thing, owners: Sequence[Thing], cluster: Cluster, default_class: str) -> str:
    """Say which priority class: an existing one that owners or pod name, else the cluster's for the kind, else its own."""
    in_spec = pod.read.raw.get("spec")
    on_pod = in_spec.get("priorityClassName") if isinstance(in_spec, dict) else ""
    for owner in owners:
        named = owner.labels.get(PRIORITY_LABEL, pod.labels.get(PRIORITY_LABEL, on_pod))
        if isinstance(named, str) and cluster.has_class(named):
            return named
    for owner in owners:
        default = type_default(owner, cluster)
        if default is not None and cluster.has_class(default.priority_class):
            return default.priority_class
    return default_class


def preemptibility_of(pod: Thing, owners: Sequence[Thing], cluster: Cluster) -> str:
    """Say whether it may be preempted, where labels or the cluster's default for the kind do. Odd words are passed by."""
    for thing in (*owners, pod):
        said = thing.labels.get(PREEMPTIBILITY_LABEL, "")
        if said in PREEMPTIBILITIES:
            return said
    for owner in owners:
        default = type_default(owner, cluster)
        if default is not None and default.preemptibility.lower() in PREEMPTIBILITIES:
            return default.preemptibility.lower()
    return ""


def type_default(owner: Thing, cluster: Cluster) -> TypeDefault | None:
    """Return the cluster's default for an owner's kind: that of its group goes before that of any group."""
    if not owner.kind:
        return None
    anywhere = None
    for default in cluster.terms.type_defaults:
        if default.kind == owner.kind and default.group == owner.group:
            return default
        if default.kind == owner.kind and not default.group:
            anywhere = default
    return anywhere


def topology_of(annotations: dict[str, str]) -> TopologyConstraint | None:
    """Return the topology that annotations ask for, or None."""
    asked = TopologyConstraint(
        topology=annotations.get(TOPOLOGY, ""),
        required=annotations.get(TOPOLOGY_REQUIRED, ""),
        preferred=annotations.get(TOPOLOGY_PREFERRED, ""),
    )
    return asked if asked.topology or asked.required or asked.preferred else None


def template_topology(part: Reader) -> TopologyConstraint | None:
    """Return the topology that a template's annotations ask for: it counts only with a topology and a level."""
    asked = TopologyConstraint(
        topology=part.annotation("template.metadata", TOPOLOGY),
        required=part.annotation("template.metadata", TOPOLOGY_REQUIRED),
        preferred=part.annotation("template.metadata", TOPOLOGY_PREFERRED),
    )
    return asked if asked.topology and (asked.required or asked.preferred) else None


def labels_of(pod: Thing, owner: Thing) -> dict[str, str]:
    """Return the group's labels: the owner's, and the pod's user where the owner names none."""
    user = pod.labels.get(USER_MARK)
    return ({} if user is None else {USER_MARK: user}) | owner.labels


def annotations_of(pod: Thing, owner: Thing) -> dict[str, str]:
    """Return the group's annotations: the owner's, the pod's user, and who the owner is (YAML, read by Run:ai)."""
    marks = {TOP_OWNER: _top_owner(owner)}
    if USER_MARK in pod.annotations:
        marks[USER_MARK] = pod.annotations[USER_MARK]
    return marks | owner.annotations


def _top_owner(owner: Thing) -> str:
    fields = {
        "name": owner.name,
        "uid": owner.uid,
        "group": owner.group,
        "version": owner.version,
        "kind": owner.kind,
    }
    return "".join(f"{key}: {_scalar(text)}\n" for key, text in fields.items())


def _scalar(text: str) -> str:
    """Write a string as YAML: plain, unless it would be read as something else."""
    is_word = text.lower() in _WORDS or _NUMBER.fullmatch(text) or _DATE.fullmatch(text)
    return json.dumps(text) if is_word or not _PLAIN.fullmatch(text) else text


def _span(key: str, pod: Thing, owners: Sequence[Thing], *, negative: bool) -> int | None:
    for thing in (*owners, pod):
        span = seconds(thing.annotations[key]) if key in thing.annotations else None
        if span is not None and (negative or span >= 0):
            return span
    return None
