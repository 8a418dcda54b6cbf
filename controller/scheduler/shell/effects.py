"""What the scheduler does to pods, bind one and evict one, and to Nodes. Shell: one request each, every error a value.

A bind carries the UID of the pod that was decided on, so that it never lands on another one of the same name, and the grant
in the Binding's annotations, which the server merges into the pod in the same request (fractions-dra.md section 6). An
eviction goes through the Eviction API alone, which honours PodDisruptionBudgets and sets DisruptionTarget itself; a refusal
is an answer, and nothing is ever deleted instead. `try_evict` asks without doing it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.outcome import Result, eviction_result, result_of
from controller.scheduler.model import Task
from controller.scheduler.numa_objects import PREDICTED, predicted
from controller.scheduler.plan import Bind
from controller.scheduler.snapshot import POD_GROUP
from kube import paths
from kube.api import Api, ApiError, NotFound, PatchType
from kube.types import Node, NodeCondition, Pod

GRANT: Final = "nodemend.dev/gpu-grant"
RECEIVED: Final = "received-resource-type"
FIELD_MANAGER: Final = {"fieldManager": "nodemend-scheduler"}

__all__ = ["GRANT", "RECEIVED", "Answer", "Effects", "annotations_of", "has_left", "is_of_the_server"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the server said. `result` UNAVAILABLE: nobody knows; `wait_s`: its own wish for the next try."""

    result: Result
    why: str = ""
    wait_s: float | None = None


_OF_THE_SERVER: Final = frozenset({Result.THROTTLED, Result.UNAVAILABLE, Result.CONFLICT})
_NO_RIGHT: Final = "cannot create resource"
"""The API server's words (k8s.io/apiserver, endpoints/handlers/responsewriters/errors.go) where RBAC lets us evict nobody;
one that has just started says so too. A webhook or policy that denies one eviction has other words."""


def is_of_the_server(answer: Answer) -> bool:
    """Tell whether an eviction was not taken for a reason that is the server's, and says nothing about its victim."""
    has_no_right = answer.result is Result.FORBIDDEN and _NO_RIGHT in answer.why
    return has_no_right or answer.result in _OF_THE_SERVER


def has_left(answer: Answer) -> bool:
    """Tell whether an eviction was taken, or its pod was gone already."""
    return answer.result in (Result.DONE, Result.ABSENT)


DONE: Final = Answer(result=Result.DONE)


def annotations_of(bind: Bind, task: Task, group: str) -> Mapping[str, str]:
    """Give what a Binding writes onto its pod: the pod group's name, and what the pod gets."""
    found = {POD_GROUP: group} if group else {}
    request = task.request
    if request.mig:
        found[RECEIVED] = "MigInstance"
    elif request.is_shared:
        found[RECEIVED] = "Fraction"
        cards = [{"uuid": uuid, "milli": bind.milli, "memoryMiB": bind.mib} for uuid in bind.gpus]
        found[GRANT] = json.dumps({"gpus": cards}, separators=(",", ":"))
    elif request.gpus:
        found[RECEIVED] = "Regular"
    if bind.zones:
        found[PREDICTED] = predicted(bind.zones)
    return found


class Effects:
    """Used from any thread; holds nothing but its way to the server, whose write guard lets only the leader through."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def bind(self, bind: Bind, uid: str, annotations: Mapping[str, str]) -> Answer:
        """Bind a pod. A conflict means that it is bound already, or gone, or another one."""
        namespace, _, name = bind.task.partition("/")
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": bind.node},
        }
        try:
            self._api.create(paths.binding(namespace, name), body, FIELD_MANAGER)
        except ApiError as error:
            return Answer(result=result_of(error), why=str(error), wait_s=error.retry_after_s)
        return DONE

    def try_evict(self, task: str, uid: str) -> Answer:
        """Ask whether an eviction would be taken; nothing happens."""
        return self._evict(task, uid, {"dryRun": "All"})

    def evict(self, task: str, uid: str) -> Answer:
        """Evict a pod. ABSENT: it is gone already; BLOCKED: a budget, or its namespace's end, forbids it."""
        return self._evict(task, uid, None)

    def _evict(self, task: str, uid: str, query: Mapping[str, str] | None) -> Answer:
        namespace, _, name = task.partition("/")
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if query is not None:
            options["dryRun"] = ["All"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        try:
            self._api.create(paths.eviction(namespace, name), body, query)
        except ApiError as error:
            result, why = eviction_result(error)
            return Answer(result=result, why=why, wait_s=error.retry_after_s)
        return DONE

    def read(self, task: str) -> Pod | None:
        """Read a pod; None = there is none of that name. Raises ApiError."""
        namespace, _, name = task.partition("/")
        try:
            return msgspec.json.decode(self._api.get(paths.pod(namespace, name)), type=Pod)
        except NotFound:
            return None

    def condition(self, node: Node, condition: NodeCondition) -> Answer:
        """Write one condition of a Node; the others stay as they are."""
        body = {
            "metadata": {"uid": node.metadata.uid},
            "status": {"conditions": [msgspec.to_builtins(condition)]},
        }
        try:
            self._api.patch(paths.node_status(node.metadata.name), body, PatchType.STRATEGIC, FIELD_MANAGER)
        except ApiError as error:
            return Answer(result=result_of(error), why=str(error), wait_s=error.retry_after_s)
        return DONE
