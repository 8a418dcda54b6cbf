"""What the bare loop sends: the controller's own requests for one incident, written again for other nodes. Pure.

The bodies are the product's: made with the code that made them (controller.apply, controller.node_patch) from the objects
that the controller left behind, with names and UIDs of the new node in place of the old ones. How many of each kind are sent
is what the API server's audit record counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bench.audit import Asked, Kind
from controller import node_patch
from controller.apply import FIELD_MANAGER, replacing, without_nulls
from controller.steps import Quarantine
from kube import paths
from kube.api import PatchType
from kube.nodehealth import GROUP, VERSION
from kube.remediation import Remediation
from kube.types import Node

CREATE = Kind("create", "remediations")
STATUS = Kind("patch", "remediations/status")
NODE = Kind("patch", "nodes")
EVENT = Kind("create", "events")
KINDS = (CREATE, STATUS, NODE, EVENT)

VERSION_HERE = b'"resourceVersion":"@"'
_QUERY = "&".join(f"{name}={value}" for name, value in FIELD_MANAGER.items())
_JSON = "application/json"


class Send(msgspec.Struct, frozen=True):
    """One request. A body that holds VERSION_HERE gets the version of the Remediation as last answered."""

    method: str
    path: str
    content_type: str
    body: bytes
    keep_version: bool = False


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One incident as the controller told it: its node, its Remediation after each write, and one of its Events."""

    node: Node
    story: tuple[Remediation, ...]
    event: Mapping[str, Any] | None = None


class Bare(msgspec.Struct, frozen=True, kw_only=True):
    """What is handed to the bare loop's process. `sequences` holds one a node: its requests, one after the other."""

    server: str
    ca_file: str
    token: str
    connections: int
    sequences: tuple[tuple[Send, ...], ...]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What the bare loop's process gives back. Times are this machine's monotonic clock, in seconds."""

    began: float
    ended: float
    answered: int
    refused: dict[str, int]


def sequences(
    template: Template, nodes: Sequence[Node], wanted: Asked, *, first: int = 0
) -> tuple[tuple[Send, ...], ...]:
    """Write one sequence a node, so that all together hold as many of each kind as `wanted`, in the order of an incident.

    `first` numbers the first incident.
    What the controller sent beside its incidents (its policy's status, a repair's Job) counts as one more status patch, so
    that the number of requests is the same. Raises ValueError where the template holds no incident, or where more incidents
    are wanted than there are nodes: one is open on a node at a time.
    """
    counts = dict(wanted.done)
    if counts.get(CREATE, 0) > len(nodes):
        raise ValueError(f"{counts[CREATE]} incidents on {len(nodes)} fresh nodes: give as many nodes")
    others = sum(count for kind, count in counts.items() if kind not in KINDS)
    statuses = _dealt(counts.get(STATUS, 0) + others, len(nodes))
    events = _dealt(counts.get(EVENT, 0) if template.event is not None else 0, len(nodes))
    creates, patches = _dealt(counts.get(CREATE, 0), len(nodes)), _dealt(counts.get(NODE, 0), len(nodes))
    return tuple(
        _sequence(
            template,
            node,
            first + number,
            creates[number],
            statuses[number],
            patches[number],
            events[number],
        )
        for number, node in enumerate(nodes)
    )


def one_quarantine(template: Template, node: Node, number: int) -> tuple[Send, ...]:
    """Write the least that quarantines one node: Remediation, its status, the Node."""
    return _sequence(template, node, number, 1, 1, 1, 0)


def incident_name(number: int) -> str:
    """Name a bare incident, as long as the controller's own names are."""
    return f"inc-{number:012x}"


def _sequence(
    template: Template, node: Node, number: int, creates: int, statuses: int, patches: int, events: int
) -> tuple[Send, ...]:
    if not template.story:
        raise ValueError("the template holds no incident")
    name = incident_name(number)
    swap = _Swap(template, node, name)
    path = f"{paths.remediation_status(name)}?{_QUERY}"
    sends = []
    if creates:
        body = swap.written(_created(template.story[0], name))
        sends.append(Send("POST", f"{paths.remediations()}?{_QUERY}", _JSON, body, keep_version=True))
    saved = [
        Send("PATCH", path, PatchType.MERGE.value, swap.written(_status(one)), keep_version=True)
        for one in (template.story[min(at + 1, len(template.story) - 1)] for at in range(statuses))
    ]
    sends += saved[:1]
    sends += [
        Send("PATCH", f"{paths.node(node.metadata.name)}?{_QUERY}", PatchType.JSON.value, swap.quarantine())
    ] * patches
    sends += saved[1:]
    sends += [_event(template, swap, number, at) for at in range(events)]
    return tuple(sends)


class _Swap:
    """Writes a body for another node: same length but for the names."""

    def __init__(self, template: Template, node: Node, name: str) -> None:
        old, self._before = template.node.metadata, template.story[-1].status.before
        first = template.story[0].metadata.name
        self._pairs = [
            (old.name.encode(), node.metadata.name.encode()),
            (old.uid.encode(), node.metadata.uid.encode()),
            (first.encode(), name.encode()),
        ]
        self._node = node
        self._name = name

    def written(self, body: Mapping[str, Any]) -> bytes:
        raw = msgspec.json.encode(body)
        for old, new in self._pairs:
            raw = raw.replace(old, new)
        return raw

    def quarantine(self) -> bytes:
        if self._before is None:
            raise ValueError("the template's incident never quarantined its node")
        step = Quarantine(
            node=self._node.metadata.name,
            node_uid=self._node.metadata.uid,
            resource_version=self._node.metadata.resource_version,
            incident=self._name,
            before=self._before,
        )
        return msgspec.json.encode(node_patch.quarantine(step, self._node))


def _created(remediation: Remediation, name: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Remediation",
        "metadata": {"name": name, "labels": remediation.metadata.labels},
        "spec": without_nulls(msgspec.to_builtins(remediation.spec)),
    }


def _status(remediation: Remediation) -> dict[str, Any]:
    return {
        "metadata": {"resourceVersion": "@"},
        "status": replacing(msgspec.to_builtins(remediation.status)),
    }


def _event(template: Template, swap: _Swap, number: int, at: int) -> Send:
    event = dict(template.event or {})
    event["metadata"] = {"name": f"{incident_name(number)}.{at:016x}", "namespace": "default"}
    return Send("POST", paths.events("default"), _JSON, swap.written(event))


def _dealt(count: int, nodes: int) -> list[int]:
    """Deal out a number in turn."""
    each, more = divmod(count, nodes)
    return [each + (number < more) for number in range(nodes)]
