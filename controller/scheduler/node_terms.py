"""Which node a pod's own words allow: selectors, node affinity, volumes, taints. Pure.

Semantics: Kubernetes, "Assigning Pods to Nodes", "Taints and Tolerations", and the API reference of NodeSelectorTerm.
Nothing here depends on other pods, so an answer holds for a whole cycle.
"""

from collections.abc import Mapping

from controller.scheduler.nodes import Node
from controller.scheduler.requests import Constraints, Expression, NodeTerm, Taint, Toleration

UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
AFFINITY_REFUSED = "node(s) didn't match Pod's node affinity/selector"
VOLUME_REFUSED = "node(s) had volume node affinity conflict"
UNSCHEDULABLE = "node(s) were unschedulable"
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
CONDITION_TAINTS = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
"""Taints by which Kubernetes' node controllers say a condition over again: the condition decides what the node is worth."""


def _whole_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _compares(found: str, operator: str, values: tuple[str, ...]) -> bool:
    """Tell whether a label is greater or lower than the one number given; words that are no numbers never are."""
    left = _whole_number(found)
    right = _whole_number(values[0]) if len(values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def expression_holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Tell whether one requirement holds. A label that is not there satisfies NotIn; an unknown operator nothing."""
    found = labels.get(expression.key)
    match expression.operator:
        case "In":
            return found is not None and found in expression.values
        case "NotIn":
            return found is None or found not in expression.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return found is not None and _compares(found, expression.operator, expression.values)
    return False


def selector_holds(selector: tuple[Expression, ...], labels: Mapping[str, str]) -> bool:
    """Tell whether all requirements of a label selector hold; an empty one holds for everything."""
    return all(expression_holds(expression, labels) for expression in selector)


def term_holds(term: NodeTerm, node: Node) -> bool:
    """Tell whether a node satisfies a term. An empty term matches no node (API reference of NodeSelectorTerm)."""
    if not term.expressions and not term.fields:
        return False
    if not all(field.key == "metadata.name" for field in term.fields):
        return False
    return selector_holds(term.expressions, node.labels) and selector_holds(
        term.fields, {"metadata.name": node.name}
    )


def _any_holds(terms: tuple[NodeTerm, ...], node: Node) -> bool:
    return any(term_holds(term, node) for term in terms)


def why_not_affinity(constraints: Constraints, node: Node) -> str | None:
    """Say why the pod's nodeSelector or required node affinity refuses a node."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in constraints.node_selector):
        return AFFINITY_REFUSED
    if constraints.required and not _any_holds(constraints.required, node):
        return AFFINITY_REFUSED
    return None


def why_not_volumes(constraints: Constraints, node: Node) -> str | None:
    """Say why a bound volume, or the topology of a storage class, cannot be reached from a node."""
    if all(_any_holds(alternatives, node) for alternatives in constraints.volumes):
        return None
    return VOLUME_REFUSED


def tolerates(tolerations: tuple[Toleration, ...], key: str, value: str, effect: str) -> bool:
    """Tell whether any toleration covers a taint; an empty key with Exists covers all, an empty effect every effect."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != effect:
            continue
        if toleration.operator == "Exists":
            if not toleration.key or toleration.key == key:
                return True
        elif toleration.key == key and toleration.value == value:
            return True
    return False


def why_not_taints(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> str | None:
    """Say which taint keeps a pod off."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not tolerates(tolerations, taint.key, taint.value, taint.effect):
            words = f"{taint.key}: {taint.value}" if taint.value else taint.key
            return f"node(s) had untolerated taint {{{words}}}"
    return None


def why_not_cordon(tolerations: tuple[Toleration, ...], node: Node, may_tolerate: bool) -> str | None:
    """Say that a node is cordoned. `may_tolerate`: rule tolerate_cordon; KAI lets nobody pass (its issue 1933)."""
    if not node.cordoned:
        return None
    if may_tolerate and tolerates(tolerations, UNSCHEDULABLE_TAINT, "", "NoSchedule"):
        return None
    return UNSCHEDULABLE


def preference(constraints: Constraints, node: Node) -> int:
    """Weigh what a pod would rather have: preferred node affinity, less one for each soft taint it does not tolerate."""
    liked = sum(each.weight for each in constraints.preferred if term_holds(each.term, node))
    disliked = sum(
        taint.effect == "PreferNoSchedule"
        and not tolerates(constraints.tolerations, taint.key, taint.value, taint.effect)
        for taint in node.taints
    )
    return liked - disliked
