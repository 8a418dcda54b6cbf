"""PodDisruptionBudget (policy/v1): how many of the pods that it selects may be evicted now."""

from enum import StrEnum

from kube.placement import LabelSelector
from kube.types import ObjectMeta, Struct


class UnhealthyPodEvictionPolicy(StrEnum):
    """What of pods that are not Ready; without a word as IfHealthyBudget."""

    IF_HEALTHY_BUDGET = "IfHealthyBudget"
    ALWAYS_ALLOW = "AlwaysAllow"


class PodDisruptionBudgetSpec(Struct, frozen=True, kw_only=True):
    """`selector` None matches no pod, an empty one every pod of its namespace. The policy is text: a newer one is none."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Struct, frozen=True, kw_only=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class PodDisruptionBudget(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
