"""Do the PodDisruptionBudgets let a whole set of victims go? Shell: they are read right before the set leaves.

The Eviction API answers for one pod, and a dry run uses nothing up: of two victims under a budget that allows one, both are
allowed, the first leaves, and the second is refused, so that the first has left for nothing. Counting comes before it; what
the server answers for each victim still holds.

Rules: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go. Pods that wait, have ended or end are evicted whatever
a budget says; one that is not Ready is too, where the policy is AlwaysAllow or the budget is met without it; a status older
than its spec allows none. A pod under several budgets is never evicted, and the server says so when it is asked about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from controller.outcome import Result, result_of
from controller.scheduler.node_terms import selector_holds
from controller.scheduler.selectors import selector_of
from controller.scheduler.shell.effects import Answer
from controller.scheduler.shell.orders import VictimSet
from kube import paths
from kube.api import Api, ApiError
from kube.disruption import PodDisruptionBudget, UnhealthyPodEvictionPolicy
from kube.store import Store, key_of
from kube.types import Pod
from kube.watch import Page

log = structlog.get_logger(__name__)

_PAGE: Final = "500"
_UNGUARDED: Final = frozenset({"Pending", "Succeeded", "Failed"})


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a victim stays. `siblings`: pods that are in no set, and that the same budget holds then, too."""

    answer: Answer
    siblings: tuple[str, ...] = ()


class Budgets:
    """Used from any thread. A set holds its namespaces alone meanwhile (`eviction_line`), so that no other uses up what it
    counts on."""

    def __init__(self, api: Api, pods: Store[Pod]) -> None:
        self._api = api
        self._pods = pods

    def refusals(self, one: VictimSet) -> Mapping[str, Refusal]:
        """Say which victims may not leave together with the others of their set; each namespace's budgets are read once."""
        by_namespace: dict[str, list[Pod]] = {}
        for victim in one.victims:
            pod = self._pods.get(victim.evict.task)
            if pod is not None and pod.metadata.uid == victim.uid:
                by_namespace.setdefault(pod.metadata.namespace, []).append(pod)
        found: dict[str, Refusal] = {}
        for namespace, victims in by_namespace.items():
            if len(victims) < 2:
                continue  # what the server answers about it is the whole truth
            try:
                budgets = self._read(namespace)
            except (ApiError, msgspec.MsgspecError) as error:
                log.warning("budgets.unread", namespace=namespace, error=str(error))
                unread = Refusal(answer=_unread(error))
                found.update((key_of(pod.metadata), unread) for pod in victims)
            else:
                found.update(beyond(budgets, victims, self._pods.values()))
        return found

    def _read(self, namespace: str) -> list[PodDisruptionBudget]:
        path = paths.collection("policy", "v1", "poddisruptionbudgets", namespace)
        query = {"limit": _PAGE}
        found: list[PodDisruptionBudget] = []
        while True:
            page = msgspec.json.decode(self._api.get(path, query), type=Page)
            found += [msgspec.json.decode(item, type=PodDisruptionBudget) for item in page.items or ()]
            if not page.metadata.continue_:
                return found
            query["continue"] = page.metadata.continue_


def beyond(
    budgets: Sequence[PodDisruptionBudget], victims: Sequence[Pod], pods: Iterable[Pod]
) -> Mapping[str, Refusal]:
    """Give the victims that are more than their budget allows; the first in line may leave. `pods`: all there are."""
    found: dict[str, Refusal] = {}
    for budget in budgets:
        guarded = [pod for pod in victims if _guards(budget, pod) and _is_alone(budget, pod, budgets)]
        allowed = allowed_by(budget)
        if len(guarded) < 2 or len(guarded) <= allowed:
            continue
        names = {key_of(pod.metadata) for pod in guarded}
        siblings = tuple(
            key
            for pod in pods
            if pod.spec.node_name and (key := key_of(pod.metadata)) not in names and _guards(budget, pod)
        )
        why = f"PodDisruptionBudget {budget.metadata.name} allows {_count(allowed)} now"
        why += f", and {len(guarded)} of its pods would have to leave together" if allowed else ""
        for number, pod in enumerate(guarded[allowed:]):
            answer = Answer(result=Result.BLOCKED, why=why)
            found[key_of(pod.metadata)] = Refusal(answer=answer, siblings=() if number else siblings)
    return found


def allowed_by(budget: PodDisruptionBudget) -> int:
    """Give how many evictions a budget allows now, as the server counts."""
    status = budget.status
    is_old = status.observed_generation < budget.metadata.generation
    return 0 if is_old else max(0, status.disruptions_allowed)


def _guards(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether evicting a pod uses up one of the budget's evictions."""
    if not _selects(budget, pod) or pod.status.phase in _UNGUARDED or pod.metadata.deletion_timestamp:
        return False
    if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions):
        return True
    if budget.spec.unhealthy_pod_eviction_policy == UnhealthyPodEvictionPolicy.ALWAYS_ALLOW:
        return False
    status = budget.status
    return not 0 < status.desired_healthy <= status.current_healthy


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return budget.metadata.namespace == pod.metadata.namespace and selector_holds(
        selector_of(budget.spec.selector), pod.metadata.labels
    )


def _is_alone(budget: PodDisruptionBudget, pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> bool:
    return not any(other is not budget and _selects(other, pod) for other in budgets)


def _count(allowed: int) -> str:
    return "no eviction" if not allowed else f"{allowed} eviction{'s' if allowed > 1 else ''}"


def _unread(error: ApiError | msgspec.MsgspecError) -> Answer:
    """Nobody knows what they allow: then nobody is evicted."""
    why = f"the PodDisruptionBudgets could not be read: {error}"
    if isinstance(error, ApiError):
        return Answer(result=result_of(error), why=why, wait_s=error.retry_after_s)
    return Answer(result=Result.INVALID, why=why)
