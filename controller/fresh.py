"""Read once more what an eviction or a repair depends on, from the API server and not from the stores, right before it.

Between the plan and the request a person may have uncordoned the node, the evidence may have gone, a pod may have come, or
the name may belong to another machine (NVSentinel#141, draino#50). All reads are quorum reads: no resourceVersion is given.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

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
    """Everything about one node and one incident, as the server had it a moment ago."""

    node: Node
    health: NodeHealth
    remediation: Remediation
    policy: RemediationPolicy
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
            return f"the node runs boot {self.node.status.node_info.boot_id or 'unknown'}, not the one to end"
        return None

    def deadline_of(self, step: RunRepair) -> datetime:
        """Give the deadline of the step's attempt. Raises LookupError where `why_not_attempt` would have refused."""
        attempt = self._attempt(step)
        if attempt is None:
            raise LookupError(step.job)
        return attempt.deadline

    def objects(self) -> tuple[Stored, ...]:
        """Give what was read, for the stores: it is newer than what they hold."""
        return (self.node, self.health, self.remediation, self.policy)

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


class _PodList(Struct, frozen=True, kw_only=True):
    metadata: "_ListMeta"
    items: tuple[Pod, ...] = ()


class _ListMeta(Struct, frozen=True, kw_only=True):
    continue_: str = msgspec.field(name="continue", default="")


def reread(api: Api, *, node: str, incident: str) -> Reread:
    """Read it all. Raises ApiError where any of it cannot be had: then nothing is known and nothing is started."""
    remediation = _get(api, paths.remediation(incident), Remediation)
    return Reread(
        node=_get(api, paths.node(node), Node),
        health=_get(api, paths.node_health(node), NodeHealth),
        remediation=remediation,
        policy=_get(api, paths.policy(remediation.spec.policy), RemediationPolicy),
        pods=_pods_on(api, node),
    )


def glance(api: Api, *, node: str, incident: str) -> Glance:
    """Read the two. Raises ApiError where either cannot be had: then nothing is known and nothing is evicted."""
    return Glance(
        remediation=_get(api, paths.remediation(incident), Remediation),
        node=_get(api, paths.node(node), Node),
    )


def _pods_on(api: Api, node: str) -> tuple[Pod, ...]:
    query: Mapping[str, str] = {"fieldSelector": f"spec.nodeName={node}", "limit": _PAGE}
    pods: list[Pod] = []
    for _ in range(_MOST_PAGES):
        page = msgspec.json.decode(api.get(paths.pods(), query), type=_PodList)
        pods += page.items
        if not page.metadata.continue_:
            return tuple(pods)
        query = {**query, "continue": page.metadata.continue_}
    raise ApiError(f"more than {_MOST_PAGES} pages of pods on {node}")


def _get(api: Api, path: str, kind: type[T]) -> T:
    return msgspec.json.decode(api.get(path), type=kind)
