"""A node under narrow containment: which pods have which of its GPUs, and which of these kubelet still offers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from checks.finding import Effect
from controller.steps import Step
from controller.view import Fleet
from kube.nodehealth import HealthFinding, NodeHealth
from kube.policy import Containment, RemediationPolicy
from kube.remediation import DrainRecord, Phase
from kube.types import Node, Pod
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.gpu_node import DAEMONSETS, follow, gpu_node, operate
from tests.controller.core.stage import stage
from tests.controller.core.world import World

OURS = "nodemend-scheduler"
SICK = "GPU-3"
UNTIL = NOW + timedelta(hours=1)
WAITS = DrainRecord(started_at=SEEN, deadline=UNTIL, urgency="when-idle", parts=(SICK,))
EVICTS = DrainRecord(started_at=SEEN, deadline=UNTIL, urgency="now", parts=(SICK,))
Cards = Mapping[str, Sequence[Pod]]


def narrow_policy(**spec: Any) -> RemediationPolicy:
    """Build a policy for narrow containment; without a grace for the fence, which is a story of its own."""
    return make.policy(**{"containment": Containment.NARROW, "fence_grace": "0s", **spec})


def work(name: str = "train-0", *, scheduler: str = OURS, gpus: int = 1, **given: Any) -> Pod:
    """Build a pod with GPUs that a scheduler placed on gpu-1."""
    pod = make.pod(name, gpus=gpus, **given)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=scheduler))


def degraded(effect: str = Effect.PREFER_NOT, **changes: Any) -> HealthFinding:
    """Build a finding that a reset of its GPU ends once it is idle."""
    return make.reset_finding(
        **{"reason": "Xid63RowRemapPending", "effect": effect, "urgency": "when-idle", **changes}
    )


def laid(
    health: NodeHealth, cards: Cards, withheld: Iterable[str] = (), unknown: Iterable[str] = ()
) -> NodeHealth:
    """Say in a NodeHealth who has which GPU, which ones kubelet withholds, and of which it says nothing."""
    held = {
        gpu: ", ".join(f"{p.metadata.namespace}/{p.metadata.name}" for p in on) for gpu, on in cards.items()
    }
    parts = tuple(
        msgspec.structs.replace(
            part,
            offered=None if part.uuid in unknown else part.uuid not in withheld,
            held=None if part.uuid in unknown else bool(held.get(part.uuid)),
            held_by="" if part.uuid in unknown else held.get(part.uuid, ""),
        )
        for part in health.status.parts
    )
    return msgspec.structs.replace(health, status=msgspec.structs.replace(health.status, parts=parts))


def narrow(
    phase: Phase,
    evidence: Sequence[HealthFinding],
    *,
    cards: Cards | None = None,
    withheld: Iterable[str] = (),
    unknown: Iterable[str] = (),
    pods: Iterable[Pod] = (),
    **given: Any,
) -> Fleet:
    """Build the fleet around an incident whose node is open; `cards` are the pods by GPU, `pods` run beside them."""
    cards = cards or {}
    running = {pod.metadata.uid: pod for on in cards.values() for pod in on} | {
        p.metadata.uid: p for p in pods
    }
    fleet = stage(
        phase,
        evidence=evidence,
        **{"policy": narrow_policy(), "marked": False, "before": None, "pods": running.values(), **given},
    )
    health = laid(fleet.healths["gpu-1"], cards, withheld, unknown)
    return msgspec.structs.replace(fleet, healths={**fleet.healths, "gpu-1": health})


class OpenWorld(World):
    """A node whose kubelet says who has which GPU. `cards` maps a pod's UID to its GPU, `withheld` are the fenced ones."""

    def __init__(self, *others: Node, policy: RemediationPolicy | None = None) -> None:
        self.cards: dict[str, str] = {}
        self.withheld: set[str] = set()
        super().__init__(gpu_node(), *others, policies=[narrow_policy() if policy is None else policy])
        self.daemonsets = list(DAEMONSETS)
        operate(self)
        self.kubelet()

    def run(self, gpu: str, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.cards[pod.metadata.uid] = gpu
        self.kubelet()

    def kubelet(self, name: str = "gpu-1") -> None:
        """The agent hears from kubelet."""
        cards: dict[str, list[Pod]] = {}
        for uid, gpu in self.cards.items():
            if uid in self.pods:
                cards.setdefault(gpu, []).append(self.pods[uid])
        self.healths[name] = laid(self.healths[name], cards, self.withheld)

    def _report(self, name: str, findings: Sequence[HealthFinding], published: Sequence[str]) -> None:
        super()._report(name, findings, published)
        if name == "gpu-1":
            self.kubelet()

    def apply(self, step: Step) -> bool:
        applied = super().apply(step)
        self.kubelet()
        return applied

    def ill(self, *findings: HealthFinding) -> None:
        """The agent finds these now."""
        boot = self.nodes["gpu-1"].status.node_info.boot_id
        self.fault(
            "gpu-1",
            *(
                msgspec.structs.replace(one, first_seen=self.now, last_seen=self.now, boot_id=boot)
                for one in findings
            ),
        )

    def help_along(self) -> None:
        """GPU Operator, the agent, Jobs and the machine do what they are asked."""
        from tests.controller.core.gpu_node import finish_reset

        operate(self)
        follow(self)
        for job in [name for name, one in self.jobs.items() if not one.status.conditions]:
            if job.startswith("reset-gpu"):
                finish_reset(self, job)
                self.withheld.clear()  # its plugin comes up anew, and finds the card well
            else:
                self.finish(job)
                if job.startswith("reboot"):
                    self.withheld.clear()
                    self.reboot()
        self.kubelet()
