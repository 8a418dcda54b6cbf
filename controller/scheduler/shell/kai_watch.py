"""Looks whether KAI Scheduler is in the cluster, for a scheduler that is to serve its name. Shell, a thread of its own.

Until it was seen that nothing of KAI's is there, nothing is planned or written; a look that fails says nothing, and that
holds too. It goes on while we lead: where KAI comes back we stop, say who came, and leave the field to it. Pods come from
the scheduler's own copy, every few seconds; Deployments and webhooks are listed once a minute, sooner while something is in
the way, so that a migration need not wait.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import structlog

from controller.scheduler.shell.config import KAI_NAME
from controller.scheduler.shell.kai_presence import found
from kube import paths
from kube.api import Api, ApiError
from kube.clock import Clock
from kube.installations import Deployment, WebhookConfiguration
from kube.store import Store, Stored
from kube.types import Pod
from kube.watch import Page

LOOK_S: Final = 5.0
CLEAR_S: Final = 60.0
HELD_S: Final = 15.0
OLDEST_S: Final = 180.0
"""A thread that hangs in a read must not leave us sure of what nobody saw for so long."""
SHOWN: Final = 5
_PAGE: Final = 500
_PAGES: Final = 200

T = TypeVar("T", bound=Stored)
Webhooks = dict[str, tuple[WebhookConfiguration, ...]]

log = structlog.get_logger(__name__)


class KaiWatch:
    """`why_not` may be asked from any thread; `wake` is called when its answer changed."""

    def __init__(self, api: Api, pods: Store[Pod], clock: Clock, wake: Callable[[], None]) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._again = threading.Event()
        self._deployments: tuple[Deployment, ...] = ()
        self._webhooks: Webhooks = {}
        self._read_at = float("-inf")
        self._looked_at = float("-inf")
        self._why: str | None = "it was not looked yet whether KAI Scheduler is there"

    def why_not(self) -> str | None:
        """Say why pods that name KAI's scheduler may not be touched now; None = nothing of KAI's is there."""
        why, age = self._why, self._clock.monotonic() - self._looked_at
        if why is None and age > OLDEST_S:
            why = f"cannot say whether KAI Scheduler is there: it was not looked for {age:.0f} s"
        return f"scheduler_name {KAI_NAME!r}: {why}" if why else None

    def look_again(self) -> None:
        """Trust nothing that was seen before now: whoever begins to lead looks first."""
        with self._lock:
            self._again.set()
            self._why = "it is being looked whether KAI Scheduler is there"

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while not stop.is_set():
            if self._again.is_set():
                self._again.clear()
                self._read_at = float("-inf")
            self.look()
            self._again.wait(LOOK_S)

    def end(self) -> None:
        """Let `run` see its `stop` at once."""
        self._again.set()

    def look(self) -> None:
        """Look once: at the pods that are known, and at the rest where the last list is too old."""
        now = self._clock.monotonic()
        if now - self._read_at >= (CLEAR_S if self._why is None else HELD_S):
            try:
                self._read()
            except ApiError as error:
                self._tell(f"cannot say whether KAI Scheduler is there: {error}")
                return
            except msgspec.DecodeError as error:
                self._tell(
                    f"cannot say whether KAI Scheduler is there: an answer that cannot be read: {error}"
                )
                return
            self._read_at = now
        if not self._pods.synced:
            self._tell("cannot say whether KAI Scheduler is there: the pods were not read yet")
            return
        standing = found(self._deployments, self._pods.values(), self._webhooks)
        self._looked_at = now
        self._tell(_words(standing) if standing else None)

    def _read(self) -> None:
        self._deployments = self._all(paths.collection("apps", "v1", "deployments"), Deployment)
        self._webhooks = {
            kind: self._all(
                paths.collection("admissionregistration.k8s.io", "v1", f"{kind.lower()}s"),
                WebhookConfiguration,
            )
            for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        }

    def _all(self, path: str, type_: type[T]) -> tuple[T, ...]:
        """List all of a kind. Raises ApiError, msgspec.DecodeError."""
        query: dict[str, str] = {"limit": str(_PAGE)}
        decode: Callable[[Any], T] = msgspec.json.Decoder(type_).decode
        items: list[T] = []
        for _ in range(_PAGES):
            page = msgspec.json.decode(self._api.get(path, query), type=Page)
            items += [decode(raw) for raw in page.items or ()]
            if not page.metadata.continue_:
                return tuple(items)
            query["continue"] = page.metadata.continue_
        raise ApiError(f"{path} has more than {_PAGE * _PAGES} objects")

    def _tell(self, why: str | None) -> None:
        with self._lock:
            if self._again.is_set() or why == self._why:
                return  # what was read before somebody asked to look again says nothing
            self._why = why
        if why is None:
            log.info("kai.gone", scheduler_name=KAI_NAME)
        else:
            log.warning("kai.held", scheduler_name=KAI_NAME, reason=why)
        self._wake()


def _words(standing: tuple[str, ...]) -> str:
    rest = f", and {len(standing) - SHOWN} more" if len(standing) > SHOWN else ""
    return (
        f"KAI Scheduler is there: {', '.join(standing[:SHOWN])}{rest}; scale its Deployments to 0 and delete its webhook "
        "configurations in the order of docs/migration-kai.md, or take scheduler_name nodemend-scheduler"
    )
