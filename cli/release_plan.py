"""What of nodemend's is on a Node, and what takes it off again. Pure; the Node itself says nearly all that is needed.

- Cordon, taint, annotation: the annotation `nodemend.dev/quarantine` tells what the Node was like before. A cordon is taken
  off only where it says that nodemend set it, on this very Node object, and that there was none before. A cordon without our
  annotation is never ours.
- Conditions: those that NodeHealth records as published by the agent, and those that the Node's own managedFields show as
  written by our programs and by nobody else. One that only has a name of ours is doubtful: it goes by the user's word alone.
- Labels of GPU clients: those that carry the word that only a reset of ours writes there.
- A Node in the hands of another automation keeps all but its conditions for now, as the controller would leave it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from controller import node_patch
from controller.assess import CONDITION_TYPES, KUBERNETES_TYPES, SCHEDULER_TYPES
from controller.gpu_clients import OFF
from controller.incident import BadMark, Mark, read_mark
from controller.ownership import why_not_act
from kube.nodehealth import NodeHealth
from kube.remediation import QUARANTINE
from kube.types import Node, ObjectMeta, Struct

# The field managers under which our programs write conditions: the API server takes them from the user agent.
_WRITERS = frozenset({"nodemend-agent", "nodemend-controller", "nodemend-scheduler"})
_OURS = CONDITION_TYPES | SCHEDULER_TYPES


class ManagedFields(Struct, frozen=True, kw_only=True):
    """Who wrote which fields, as the API server keeps books on it (metadata.managedFields)."""

    manager: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class OwnedMeta(ObjectMeta, frozen=True, kw_only=True):
    managed_fields: tuple[ManagedFields, ...] = ()


class OwnedNode(Node, frozen=True, kw_only=True):
    """A Node with the books on who wrote what."""

    metadata: OwnedMeta


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants done. `conditions` is off while agents still publish them.

    `by_name` is the word that conditions go for their name alone, `force` that another automation's mark stops nothing.
    """

    conditions: bool = True
    by_name: bool = False
    force: bool = False


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What of nodemend's is on one Node. `conditions` go; `doubtful` ones stay, since nothing says who wrote them.

    `clients` are the labels of GPU clients that a reset switched off, `shared` those to which a driver upgrade added a word:
    not ours to change until it takes that off. `held` says why everything but conditions stays for now; `cordon_stays` why
    the Node stays cordoned once they are gone.
    """

    node: str
    conditions: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    incident: str = ""
    taints: int = 0
    annotation: bool = False
    clients: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    uncordon: bool = False
    cordon_stays: str = ""
    held: str = ""

    @property
    def marked(self) -> bool:
        return self.annotation or self.taints > 0 or bool(self.clients)

    @property
    def goes(self) -> bool:
        """Tell whether there is anything to take off now."""
        return bool(self.conditions) or (self.marked and not self.held)


def trace(node: OwnedNode, health: NodeHealth | None, wanted: Wanted) -> Trace:
    """Look at one Node. `health` is its NodeHealth, where there (still) is one. One that is being deleted is left alone."""
    if node.metadata.deletion_timestamp is not None:
        return Trace(node=node.metadata.name)
    mark = read_mark(node)
    taints = sum(1 for taint in node.spec.taints if taint.key == QUARANTINE)
    conditions, doubtful = _conditions(node, health, wanted)
    found = Trace(
        node=node.metadata.name,
        conditions=conditions,
        doubtful=doubtful,
        incident=mark.incident if isinstance(mark, Mark) else "",
        taints=taints,
        annotation=mark is not None,
        clients=tuple(key for key, value in node.metadata.labels.items() if value == OFF),
        shared=tuple(key for key, value in node.metadata.labels.items() if OFF in value and value != OFF),
    )
    if not found.marked:
        return found
    stays = why_not_uncordon(node, mark)
    return msgspec.structs.replace(
        found,
        uncordon=node.spec.unschedulable and stays is None,
        cordon_stays=(stays or "") if node.spec.unschedulable else "",
        held="" if wanted.force else why_not_act(node) or "",
    )


def why_not_uncordon(node: Node, mark: Mark | BadMark | None) -> str | None:
    """Say why the cordon of a Node is not ours to take off, or None."""
    match mark:
        case None:
            return "no annotation says that nodemend cordoned it"
        case BadMark():
            return f"{mark.why}, so who cordoned it is not known"
        case Mark(node_uid=uid) if uid != node.metadata.uid:
            return f"its annotation was written for another Node object of this name (UID {uid})"
        case Mark(unschedulable_before=True):
            return "it was cordoned before nodemend came"
        case Mark(cordoned=False):
            return "nodemend did not cordon it"
    return None


def node_operations(node: OwnedNode, found: Trace) -> node_patch.Operations:
    """Write the JSON patch that takes cordon, taint and annotation off; empty where nothing is to be."""
    return [] if found.held else node_patch.release(node, uncordon=found.uncordon)


def condition_body(node: OwnedNode, found: Trace) -> dict[str, Any]:
    """Write the strategic merge patch of the status that takes the conditions off; empty where none is to be."""
    if not found.conditions:
        return {}
    gone = [{"type": kind, "$patch": "delete"} for kind in found.conditions]
    expected = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": expected, "status": {"conditions": gone}}


def trace_lines(traces: Iterable[Trace]) -> list[str]:
    """Say what will be done, the many conditions summed up, the few quarantined nodes one by one."""
    traces = list(traces)
    lines = []
    if types := Counter(kind for one in traces for kind in one.conditions):
        lines.append(f"conditions are removed: {_counted(types)}")
    lines += [f"{one.node}: {_mark_words(one)}" for one in traces if one.marked]
    return lines + doubt_lines(traces)


def doubt_lines(traces: Iterable[Trace]) -> list[str]:
    """Say which conditions stay, since only their names are ours."""
    types = Counter(kind for one in traces for kind in one.doubtful)
    if not types:
        return []
    return [f"conditions stay, since nothing says who wrote them: {_counted(types)} (--conditions-by-name)"]


def left_words(found: Trace) -> str:
    """Say what is still on a Node, but for doubtful conditions (`doubt_lines`); empty where nothing is."""
    words = [f"condition {kind}" for kind in found.conditions]
    words += [f"taint {QUARANTINE}"] if found.taints else []
    words += [f"annotation {QUARANTINE}"] if found.annotation else []
    words += [f"label {key} ({OFF})" for key in (*found.clients, *found.shared)]
    because = f" ({found.held})" if found.held else ""
    return f"node {found.node}: {', '.join(words)}{because}" if words else ""


def _conditions(
    node: OwnedNode, health: NodeHealth | None, wanted: Wanted
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not wanted.conditions:
        return (), ()
    held = [c.type for c in node.status.conditions if c.type not in KUBERNETES_TYPES]
    proven = _published(node, health) | _written_by_us(node.metadata.managed_fields)
    if wanted.by_name:
        proven |= _OURS
    doubtful = tuple(kind for kind in held if kind in _OURS and kind not in proven)
    return tuple(kind for kind in held if kind in proven), doubtful


def _published(node: Node, health: NodeHealth | None) -> frozenset[str]:
    """Give what our agent published on this very Node object: one that was made anew starts without a past."""
    if health is None or health.status.node_uid != node.metadata.uid:
        return frozenset()
    return frozenset(health.status.published_conditions)


def _written_by_us(books: Sequence[ManagedFields]) -> frozenset[str]:
    ours = {kind for entry in books if entry.manager in _WRITERS for kind in _types(entry.fields_v1)}
    theirs = {kind for entry in books if entry.manager not in _WRITERS for kind in _types(entry.fields_v1)}
    return frozenset(ours - theirs)


def _types(fields: Mapping[str, Any]) -> Collection[str]:
    """Read the types out of keys like `k:{"type":"Ready"}`."""
    found = []
    for key in (fields.get("f:status") or {}).get("f:conditions") or {}:
        if key.startswith("k:"):
            try:
                found.append(str(msgspec.json.decode(key[2:])["type"]))
            except (msgspec.DecodeError, KeyError, TypeError):
                continue
    return found


def _mark_words(found: Trace) -> str:
    whose = f" of {found.incident}" if found.incident else ""
    if found.held:
        return f"left as it is for now: {found.held}"
    parts = {"cordon": found.uncordon, "taint": found.taints > 0, "annotation": found.annotation}
    things = ", ".join(name for name, there in parts.items() if there)
    words = [f"{things}{whose} removed"] if things else []
    words += [f"{len(found.clients)} GPU clients switched on again"] if found.clients else []
    words += [f"it stays cordoned: {found.cordon_stays}"] if found.cordon_stays else []
    return "; ".join(words)


def _counted(types: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} on {count}" for kind, count in sorted(types.items()))
