"""Where a pod may go, from its spec and the objects that it names. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from controller.scheduler.node_terms import selector_holds
from controller.scheduler.requests import (
    Constraints,
    Expression,
    NodeTerm,
    PodTerm,
    PreferredNodeTerm,
    Spread,
    Toleration,
)
from kube.placement import (
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    SelectorRequirement,
    TopologySpreadConstraint,
)
from kube.storage import WAIT_FOR_FIRST_CONSUMER, PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.types import ConfigMapVolume, Pod, Volume

NOBODY: Final = (Expression(key="", operator="In"),)
"""A selector that no pod matches: no value is among none."""
NOWHERE: Final = ("",)
"""A namespace that does not exist."""
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What pods name. `volume_claims` by namespace/name, the others by name; `config_maps` None = nobody looked.

    `namespaces`: their labels, by name.
    """

    namespaces: Mapping[str, Mapping[str, str]] = {}
    volume_claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    config_maps: frozenset[str] | None = None


def constraints_of(pod: Pod, around: Surroundings) -> Constraints:
    """Give the constraints of a pod; equal ones are equal values, whatever order the spec has them in."""
    spec = pod.spec
    affinity = spec.affinity
    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[PreferredNodeTerm, ...] = ()
    together: list[PodTerm] = []
    apart: list[PodTerm] = []
    if affinity is not None:
        wanted = affinity.node_affinity.required
        required = () if wanted is None else _node_terms(wanted.node_selector_terms)
        preferred = tuple(
            PreferredNodeTerm(weight=wish.weight, term=_node_term(wish.preference))
            for wish in affinity.node_affinity.preferred
        )
        for terms, source in ((together, affinity.pod_affinity), (apart, affinity.pod_anti_affinity)):
            terms += [_pod_term(term, around) for term in source.required]
            terms += [_pod_term(wish.pod_affinity_term, around, wish.weight) for wish in source.preferred]
    volumes, missing = _volumes(pod, around)
    return Constraints(
        node_selector=tuple(sorted(spec.node_selector.items())),
        required=required,
        preferred=preferred,
        tolerations=tuple(
            Toleration(key=one.key, operator=one.operator or "Equal", value=one.value, effect=one.effect)
            for one in spec.tolerations
        ),
        pod_affinity=tuple(together),
        pod_anti_affinity=tuple(apart),
        spread=tuple(_spread(one, pod) for one in spec.topology_spread_constraints),
        ports=tuple(sorted(set(_ports(pod)))),
        volumes=volumes,
        missing=missing,
    )


def _node_terms(terms: Sequence[NodeSelectorTerm]) -> tuple[NodeTerm, ...]:
    return tuple(map(_node_term, terms))


def _node_term(term: NodeSelectorTerm) -> NodeTerm:
    """An empty term matches no node, as in Kubernetes."""
    if not term.match_expressions and not term.match_fields:
        return NodeTerm(expressions=NOBODY)
    return NodeTerm(expressions=_expressions(term.match_expressions), fields=_expressions(term.match_fields))


def _expressions(requirements: Sequence[SelectorRequirement]) -> tuple[Expression, ...]:
    return tuple(
        Expression(key=one.key, operator=one.operator, values=tuple(sorted(one.values)))
        for one in requirements
    )


def selector_of(selector: LabelSelector | None) -> tuple[Expression, ...]:
    """Give a label selector as expressions: none = nobody, empty = everybody."""
    if selector is None:
        return NOBODY
    return (
        *(
            Expression(key=key, operator="In", values=(value,))
            for key, value in sorted(selector.match_labels.items())
        ),
        *_expressions(selector.match_expressions),
    )


def _pod_term(term: PodAffinityTerm, around: Surroundings, weight: int = 0) -> PodTerm:
    namespaces, selector = term.namespaces, term.namespace_selector
    everywhere = selector is not None and not selector.match_labels and not selector.match_expressions
    if selector is not None and not everywhere:
        wanted = selector_of(selector)
        chosen = {name for name, labels in around.namespaces.items() if selector_holds(wanted, labels)}
        namespaces = tuple(sorted(chosen | set(namespaces))) or NOWHERE
    return PodTerm(
        selector=selector_of(term.label_selector),
        topology_key=term.topology_key,
        namespaces=() if everywhere else namespaces,
        all_namespaces=everywhere,
        weight=weight,
    )


def _spread(one: TopologySpreadConstraint, pod: Pod) -> Spread:
    labels = pod.metadata.labels
    same = tuple(
        Expression(key=key, operator="In", values=(labels[key],))
        for key in sorted(one.match_label_keys)
        if key in labels
    )
    return Spread(
        max_skew=one.max_skew,
        topology_key=one.topology_key,
        hard=one.when_unsatisfiable == "DoNotSchedule",
        selector=(*selector_of(one.label_selector), *same),
        min_domains=one.min_domains,
        honor_affinity=one.node_affinity_policy == "Honor",
        honor_taints=one.node_taints_policy == "Honor",
    )


def _ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    """Give the host ports of what runs side by side: init containers but sidecars are gone by then."""
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if port.host_port:
                yield (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 - what it means


# --- volumes ---------------------------------------------------------------------------------------------------------


def _volumes(pod: Pod, around: Surroundings) -> tuple[tuple[tuple[NodeTerm, ...], ...], tuple[str, ...]]:
    """Give the places of a pod's volumes, and what of it is not there."""
    places: list[tuple[NodeTerm, ...]] = []
    missing: list[str] = []
    for volume in pod.spec.volumes:
        namespace = pod.metadata.namespace
        if not _is_there(volume.config_map, namespace, around.config_maps):
            missing.append(f'configmap "{volume.config_map and volume.config_map.name}"')
        name = _claim_name(pod, volume)
        if name:
            terms, lack = _claimed(name, around.volume_claims.get(f"{namespace}/{name}"), around)
            places += [terms] if terms else []
            missing += [lack] if lack else []
    return tuple(places), tuple(sorted(set(missing)))


def _is_there(wanted: ConfigMapVolume | None, namespace: str, known: frozenset[str] | None) -> bool:
    return wanted is None or wanted.optional or known is None or f"{namespace}/{wanted.name}" in known


def _claim_name(pod: Pod, volume: Volume) -> str:
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else ""


def _claimed(
    name: str, claim: PersistentVolumeClaim | None, around: Surroundings
) -> tuple[tuple[NodeTerm, ...], str]:
    if claim is None:
        return (), f'persistentvolumeclaim "{name}"'
    if claim.spec.volume_name:
        volume = around.volumes.get(claim.spec.volume_name)
        if volume is None:
            return (), f'persistentvolume "{claim.spec.volume_name}"'
        wanted = volume.spec.node_affinity.required
        return (() if wanted is None else _node_terms(wanted.node_selector_terms)), ""
    kind = _class_of(claim, around)
    if kind is None or kind.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return (), f'volume of persistentvolumeclaim "{name}"'
    return (
        tuple(
            NodeTerm(
                expressions=tuple(
                    Expression(key=label.key, operator="In", values=tuple(sorted(label.values)))
                    for label in term.match_label_expressions
                )
            )
            for term in kind.allowed_topologies
        ),
        "",
    )


def _class_of(claim: PersistentVolumeClaim, around: Surroundings) -> StorageClass | None:
    name = claim.spec.storage_class_name
    if name is not None:
        return around.storage_classes.get(name)
    defaults = (
        kind
        for _, kind in sorted(around.storage_classes.items())
        if kind.metadata.annotations.get(DEFAULT_CLASS) == "true"
    )
    return next(defaults, None)
