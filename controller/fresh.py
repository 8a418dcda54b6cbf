"""Read once more what an eviction or a repair depends on, from the API server and not from the stores, right before it.

Between the plan and the request a person may have uncordoned the node, the evidence may have gone, a pod may have come, or
the name may belong to another machine (NVSentinel#141, draino#50). All reads are quorum reads: no resourceVersion is given.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Generic, TypeVar

import msgspec

from controller.steps import RunRepair
from kube import paths
from kube.api import Api, ApiError
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import CLOSED, Attempt, Remediation
from kube.store import Stored
from kube.types import Node, Pod, Struct

_PAGE = "500"
_MOST_PAGES = 20  # 10,000 pods on one node: more is not a node

T = TypeVar("T")


class Reread(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one node and one incident, as the server had it a moment ago.

    `policies` are all of them: which one is in force now need not be the one under which the incident opened.
    """

    node: Node
    health: NodeHealth
    remediation: Remediation
    policies: tuple[RemediationPolicy, ...]
    pods: tuple[Pod, ...]

    def why_not_attempt(self, step: RunRepair) -> str | None:
        """Say why the attempt that the step names is not the one that is now to be started."""
        if self.remediation.status.phase in CLOSED:
            return f"the incident is closed: {self.remediation.status.phase}"
        if self.remediation.spec.node_uid != self.node.metadata.uid:
            return "the Node is another one than the incident's"
        attempt = self._attempt(step)
        if attempt is None or attempt.result:
            return f"attempt {step.attempt} is not open any more"
        if self.node.status.node_info.boot_id != step.boot_id:
            return f"the node runs boot {self.node.status.node_info.boot_id or 'unknown'}, not the attempt's"
        return None

    def deadline_of(self, step: RunRepair) -> datetime:
        """Give the deadline of the step's attempt. Raises LookupError where `why_not_attempt` would have refused."""
        attempt = self._attempt(step)
        if attempt is None:
            raise LookupError(step.job)
        return attempt.deadline

    def targets_of(self, step: RunRepair) -> tuple[str, ...]:
        """Give the UUIDs of the GPUs that the step's attempt is about, as they are persisted."""
        attempt = self._attempt(step)
        return tuple(target.uuid for target in attempt.targets) if attempt is not None else ()

    def objects(self) -> tuple[Stored, ...]:
        """Give what was read, for the stores: it is newer than what they hold."""
        return (self.node, self.health, self.remediation, *self.policies)

    def _attempt(self, step: RunRepair) -> Attempt | None:
        return next(
            (attempt for attempt in self.remediation.status.attempts if attempt.job == step.job), None
        )


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """What can forbid an eviction from one moment to the next: a person's uncordon, a person's word, the phase."""

    node: Node
    remediation: Remediation

    def objects(self) -> tuple[Stored, ...]:
        """Give what was read, for the stores: it is newer than what they hold."""
        return (self.node, self.remediation)


class _ListMeta(Struct, frozen=True, kw_only=True):
    continue_: str = msgspec.field(name="continue", default="")


class _List(Struct, Generic[T], frozen=True, kw_only=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[T, ...] = ()


def reread(api: Api, *, node: str, incident: str) -> Reread:
    """Read it all. Raises ApiError where any of it cannot be had: then nothing is known and nothing is started."""
    return Reread(
        node=_get(api, paths.node(node), Node),
        health=_get(api, paths.node_health(node), NodeHealth),
        remediation=_get(api, paths.remediation(incident), Remediation),
        policies=_all(api, paths.policies(), _List[RemediationPolicy], {}),
        pods=_all(api, paths.pods(), _List[Pod], {"fieldSelector": f"spec.nodeName={node}"}),
    )


def glance(api: Api, *, node: str, incident: str) -> Glance:
    """Read the two. Raises ApiError where either cannot be had: then nothing is known and nothing is evicted."""
    return Glance(
        remediation=_get(api, paths.remediation(incident), Remediation),
        node=_get(api, paths.node(node), Node),
    )


def _all(api: Api, path: str, kind: type[_List[T]], selectors: Mapping[str, str]) -> tuple[T, ...]:
    query = {**selectors, "limit": _PAGE}
    found: list[T] = []
    for _ in range(_MOST_PAGES):
        page = msgspec.json.decode(api.get(path, query), type=kind)
        found += page.items
        if not page.metadata.continue_:
            return tuple(found)
        query["continue"] = page.metadata.continue_
    raise ApiError(f"GET {path}: more than {_MOST_PAGES} pages")


def _get(api: Api, path: str, kind: type[T]) -> T:
    return msgspec.json.decode(api.get(path), type=kind)
