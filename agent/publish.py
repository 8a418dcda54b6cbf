"""Writing the Node's conditions: soon, at a bounded rate, put back when somebody changes them, and never anybody else's.

All our conditions go into one strategic merge patch on nodes/status, so the newest state always wins and a wait for the
rate limit loses nothing. The Node's UID travels in the patch: the server refuses it for another Node of the same name.
The Publisher belongs to one thread; it learns of the Node from whoever reads it, and from the answers to its own patches.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import structlog

from agent.config import PublishSection
from agent.metrics import Metrics
from agent.pacing import Backoff, TokenBucket, stretched
from checks.condition import Condition, Status
from kube import paths
from kube.api import Api, ApiError, Conflict, Invalid, NotFound, PatchType, Unavailable
from kube.clock import Clock
from kube.timestamps import rfc3339
from kube.types import Node

# What putting back and re-asserting leave over: an endless quarrel over a condition must not delay a new fault.
RESERVED_FOR_NEWS = 2
# How long patches may fail before the agent stops to vouch for the Node: an outage of a minute is nobody's silence.
UNDELIVERED_S = 60.0


def differences(wanted: Sequence[Condition], removable: Collection[str], node: Node) -> tuple[str, ...]:
    """Say how the Node's conditions differ from ours, one word group each; times do not count."""
    found = []
    for condition in wanted:
        held = node.condition(condition.type)
        if held is None:
            found.append(f"{condition.type} is missing")
        elif (held.status, held.reason, held.message) != (
            condition.status,
            condition.reason,
            condition.message,
        ):
            found.append(f"{condition.type} is {held.status} ({held.reason})")
    found += [f"{name} no longer applies" for name in sorted(removable) if node.condition(name) is not None]
    return tuple(found)


def standing(node: Node, condition_type: str) -> Condition | None:
    """Read a condition back as it stands on the Node; one in words that we do not know does not count."""
    held = node.condition(condition_type)
    if held is None or held.last_transition_time is None or held.status not in list(Status):
        return None
    return Condition(
        type=held.type,
        status=Status(held.status),
        reason=held.reason,
        message=held.message,
        last_transition=held.last_transition_time,
    )


def patch_body(
    wanted: Sequence[Condition], removable: Collection[str], node: Node, now: datetime
) -> dict[str, Any]:
    """Write the strategic merge patch: every wanted condition whole, a delete directive for each that no longer applies."""
    entries: list[dict[str, str]] = [
        {
            "type": condition.type,
            "status": condition.status.value,
            "reason": condition.reason,
            "message": condition.message,
            "lastTransitionTime": rfc3339(_transition(condition, node, now)),
            "lastHeartbeatTime": rfc3339(now),
        }
        for condition in wanted
    ]
    entries += [{"$patch": "delete", "type": name} for name in sorted(removable)]
    return {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": entries}}


def _transition(condition: Condition, node: Node, now: datetime) -> datetime:
    """Move the transition time only where the status that the Node shows changes.

    Somebody else may have changed it (the controller for a silent agent): putting it back is a change as well.
    """
    held = node.condition(condition.type)
    if held is None or held.last_transition_time is None:
        return condition.last_transition
    if held.status == condition.status:
        return held.last_transition_time
    return condition.last_transition if condition.last_transition >= held.last_transition_time else now


class Publisher:
    """Owns the writing of one Node's conditions. `step` sends what is due; nothing else here talks to the API."""

    def __init__(
        self, api: Api, name: str, settings: PublishSection, clock: Clock, random: Random, metrics: Metrics
    ) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._log = structlog.get_logger().bind(node=name)
        self._bucket = TokenBucket(settings.burst, settings.refill.total_seconds())
        self._reserve = min(RESERVED_FOR_NEWS, settings.burst - 1)
        self._reassert_s = settings.reassert.total_seconds()
        self._backoff = Backoff(0.5, 5.0, random)
        self._node: Node | None = None
        self._uid = ""
        self._published: frozenset[str] = frozenset()
        self._wanted: tuple[Condition, ...] | None = None
        self._kept: frozenset[str] = frozenset()
        self._sent: tuple[Condition, ...] | None = None
        self._since: datetime | None = None
        self._retry_at = float("-inf")
        self._reassert_at = float("inf")
        self._delayed = False
        self._failing_since: float | None = None
        self.trouble = ""
        """Why the last patch failed; empty where it did not."""

    @property
    def node(self) -> Node | None:
        """The Node as last seen, or None while it is not known which Node object is ours."""
        return self._node

    @property
    def published(self) -> tuple[str, ...]:
        """The condition types on the Node that we wrote."""
        return tuple(sorted(self._published))

    @property
    def ready(self) -> bool:
        """Whether everything judged by now was published at least once."""
        return self._sent is not None and self._node is not None

    @property
    def failing(self) -> bool:
        """Whether the last patch failed."""
        return bool(self.trouble)

    def why_not_delivered(self) -> str | None:
        """Say why what stands on the Node may be out of date for long; any thread may ask."""
        since = self._failing_since
        failing_s = self._clock.monotonic() - since if since is not None else 0.0
        if failing_s <= UNDELIVERED_S:
            return None
        return f"the conditions could not be published for {failing_s:.0f} s: {self.trouble}"

    def meet(self, node: Node, published: Collection[str]) -> None:
        """Take a Node object as ours, and the condition types that an earlier run recorded as written there."""
        if self._uid != node.metadata.uid:
            self._sent = None
        self._node, self._uid = node, node.metadata.uid
        self._published = frozenset(published) | self._published

    def forget(self) -> None:
        """Drop the Node object: it is gone or another one, and nothing is on it that we wrote."""
        self._node = None
        self._published = frozenset()

    def saw(self, node: Node) -> None:
        """Take a fresh read of the same Node, unless what is held is newer (our own patch answered in between)."""
        held = self._node
        if held is not None and held.metadata.uid == node.metadata.uid and _version(node) > _version(held):
            self._node = node

    def want(self, conditions: Sequence[Condition], kept: Collection[str], since: datetime | None) -> None:
        """Set what should stand. `kept` types stay as they are on the Node; `since` is when the news was read."""
        self._kept = frozenset(kept)
        if tuple(conditions) != self._wanted:
            self._wanted = tuple(conditions)
            self._since = self._since or since

    def step(self) -> float:
        """Send what is due and allowed now; give the seconds until the next call makes sense, inf where only news can."""
        now = self._clock.monotonic()
        if self._node is None or self._wanted is None:
            return float("inf")
        if now < self._retry_at:
            return self._retry_at - now
        removable = self._published - {condition.type for condition in self._wanted} - self._kept
        news = self._sent != self._wanted
        found = differences(self._wanted, removable, self._node)
        if not self._wanted and not found:
            self._sent = None if self._kept else ()
            return float("inf")
        if not news and not found and now < self._reassert_at:
            return self._reassert_at - now
        wait_s = self._bucket.wait_s(now, reserve=0 if news else self._reserve)
        if wait_s > 0:
            self._say_delayed(wait_s)
            return wait_s
        self._send(self._node, self._wanted, removable, () if news else found)
        if self._node is None:
            return float("inf")
        return max(0.0, (self._retry_at if self._backoff.failures else self._reassert_at) - now)

    def _send(
        self,
        node: Node,
        wanted: tuple[Condition, ...],
        removable: frozenset[str],
        put_back: tuple[str, ...],
    ) -> None:
        self._bucket.take(self._clock.monotonic())
        body = patch_body(wanted, removable, node, self._clock.now())
        try:
            answer = self._api.patch(paths.node_status(self._name), body, PatchType.STRATEGIC)
            self._node = msgspec.json.decode(answer, type=Node)
        except (Conflict, Invalid, NotFound) as error:
            # Another Node object of our name, or none: whoever reads the Node introduces the publisher anew.
            self._failed(error)
            self.forget()
        except (ApiError, msgspec.MsgspecError) as error:
            if isinstance(error, Unavailable):
                self._bucket.give_back()
            self._failed(error)
        else:
            self._succeeded(wanted, removable, put_back)

    def _failed(self, error: Exception) -> None:
        wait_s = self._backoff.failed()
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
        self.trouble = f"{type(error).__name__}: {error}"
        if isinstance(error, ApiError) and error.retry_after_s is not None:
            wait_s = max(wait_s, min(error.retry_after_s, 60.0))
        self._retry_at = self._clock.monotonic() + wait_s
        self._metrics.wrote("condition", type(error).__name__)
        if self._backoff.failures == 1:
            self._log.warning("publishing.failed", error=str(error), kind=type(error).__name__)

    def _succeeded(
        self, wanted: tuple[Condition, ...], removable: frozenset[str], put_back: tuple[str, ...]
    ) -> None:
        if self._backoff.failures:
            self._log.info("publishing.recovered", attempts=self._backoff.failures + 1)
        self._backoff.succeeded()
        self._failing_since, self.trouble = None, ""
        self._metrics.wrote("condition", "ok")
        self._say_published(wanted, removable, put_back)
        if self._since is not None:
            self._metrics.published_after((self._clock.now() - self._since).total_seconds())
        self._published = (self._published - removable) | {condition.type for condition in wanted}
        self._sent, self._since, self._delayed = wanted, None, False
        self._retry_at = float("-inf")
        self._reassert_at = self._clock.monotonic() + stretched(self._reassert_s, self._random)

    def _say_published(
        self, wanted: tuple[Condition, ...], removable: frozenset[str], put_back: tuple[str, ...]
    ) -> None:
        before: Mapping[str, Condition] = {condition.type: condition for condition in self._sent or ()}
        for condition in wanted:
            if before.get(condition.type) != condition:
                self._log.info(
                    "condition.published",
                    condition=condition.type,
                    status=condition.status.value,
                    reason=condition.reason,
                    message=condition.message,
                )
        for name in sorted(removable):
            self._log.info("condition.removed", condition=name)
        if put_back:
            self._log.warning("condition.restored", found=list(put_back))

    def _say_delayed(self, wait_s: float) -> None:
        if not self._delayed:
            self._delayed = True
            self._metrics.delayed.inc()
            self._log.warning("publishing.delayed", wait_s=round(wait_s, 1))


def _version(node: Node) -> int:
    return int(node.metadata.resource_version or 0)
