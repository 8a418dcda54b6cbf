"""Where a pod may go, from its spec and the objects that it names. Pure."""

from collections.abc import Iterator, Mapping
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
from controller.scheduler.selectors import node_term_of, node_terms_of, selector_of
from controller.scheduler.volume_match import NO_VOLUMES, FreeVolumes, candidates, free_of, places_of
from kube.placement import PodAffinityTerm, TopologySpreadConstraint
from kube.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kube.types import ConfigMapVolume, Pod, Volume

NOWHERE: Final = ("",)
"""A namespace that does not exist."""
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What pods name. `volume_claims` by namespace/name, the others by name; `config_maps` None = nobody looked.

    `namespaces`: their labels, by name. `free`: made of `volumes`, once for all pods.
    """

    namespaces: Mapping[str, Mapping[str, str]] = {}
    volume_claims: Mapping[str, PersistentVolumeClaim] = {}
    volumes: Mapping[str, PersistentVolume] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    config_maps: frozenset[str] | None = None
    free: FreeVolumes = NO_VOLUMES

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "free", free_of(self.volumes.values()))


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
        required = () if wanted is None else node_terms_of(wanted.node_selector_terms)
        preferred = tuple(
            PreferredNodeTerm(weight=wish.weight, term=node_term_of(wish.preference))
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
        name = volume_claim_of(pod, volume)
        if name:
            terms, lack = _claimed(name, around.volume_claims.get(f"{namespace}/{name}"), around)
            places += [terms] if terms else []
            missing += [lack] if lack else []
    return tuple(places), tuple(sorted(set(missing)))


def _is_there(wanted: ConfigMapVolume | None, namespace: str, known: frozenset[str] | None) -> bool:
    return wanted is None or wanted.optional or known is None or f"{namespace}/{wanted.name}" in known


def volume_claim_of(pod: Pod, volume: Volume) -> str:
    """Name the claim that one of a pod's volumes comes from, in the pod's namespace; "" = it comes from none."""
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
        return places_of(volume), ""
    kind = class_of(claim, around.storage_classes)
    if kind is None or kind.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return (), f'volume of persistentvolumeclaim "{name}"'
    return _delayed(name, claim, kind, around.free)


def _delayed(
    name: str, claim: PersistentVolumeClaim, kind: StorageClass, free: FreeVolumes
) -> tuple[tuple[NodeTerm, ...], str]:
    """Give where a claim may go whose volume waits for its pod; where it is being made already, only there."""
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if chosen:
        return (NodeTerm(fields=(Expression(key="metadata.name", operator="In", values=(chosen,)),)),), ""
    ready = candidates(claim, kind.metadata.name, free)
    places = [places_of(volume) for volume in ready]
    there = () if () in places else tuple(sorted({term for terms in places for term in terms}, key=repr))
    if kind.provisioner == NO_PROVISIONER:
        return there, "" if ready else f'free volume for persistentvolumeclaim "{name}"'
    allowed = tuple(
        NodeTerm(
            expressions=tuple(
                Expression(key=label.key, operator="In", values=tuple(sorted(label.values)))
                for label in term.match_label_expressions
            )
        )
        for term in kind.allowed_topologies
    )
    return (() if () in places or not allowed else (*allowed, *there)), ""


def class_of(claim: PersistentVolumeClaim, classes: Mapping[str, StorageClass]) -> StorageClass | None:
    """Give a claim's storage class, which is the cluster's default where it names none."""
    name = claim.spec.storage_class_name
    if name is not None:
        return classes.get(name)
    defaults = (
        kind for _, kind in sorted(classes.items()) if kind.metadata.annotations.get(DEFAULT_CLASS) == "true"
    )
    return next(defaults, None)
