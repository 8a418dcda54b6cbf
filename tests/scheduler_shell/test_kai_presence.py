"""What of KAI Scheduler counts as being there, and what does not."""

import pytest

from controller.scheduler.shell.kai_presence import (
    found,
    is_kais_webhook,
    role_of_deployment,
    role_of_pod,
)
from kube.installations import Deployment, WebhookConfiguration
from kube.types import Pod
from tests.scheduler_shell.kai_words import (
    BINDER_FLAGS,
    FOR_KAI,
    MUTATING,
    REGISTRY,
    SHARD_FLAGS,
    VALIDATING,
    binder,
    deployment,
    entry,
    pod,
    shard,
    webhooks,
)

MIRROR = "mirror.example.com/gpu"

DEPLOYMENTS: list[tuple[str, Deployment, str]] = [
    ("the default shard", shard(), "scheduler"),
    ("another shard", shard("gold"), "scheduler"),
    ("the binder", binder(), "binder"),
    (
        "the operator, which its chart installs",
        deployment("kai-operator", f"{REGISTRY}/operator:v0.17.0", managed=False),
        "operator",
    ),
    ("the pod grouper", deployment("pod-grouper", f"{REGISTRY}/podgrouper:v0.17.0"), "pod grouper"),
    (
        "the podgroup controller",
        deployment("podgroup-controller", f"{REGISTRY}/podgroupcontroller:v0.17.0"),
        "podgroup controller",
    ),
    (
        "the queue controller",
        deployment("queue-controller", f"{REGISTRY}/queuecontroller:v0.17.0"),
        "queue controller",
    ),
    (
        "a scheduler of the first charts, without an operator",
        deployment(
            "scheduler",
            "nvcr.io/nvidia/k8s/kai-scheduler/scheduler:v0.4.0",
            managed=False,
            namespace="elsewhere",
        ),
        "scheduler",
    ),
    (
        "an image by its digest",
        deployment("b", f"{REGISTRY}/binder@sha256:0a", namespace="x", managed=False),
        "binder",
    ),
    (
        "a shard of a scheduler with a name of its own, from a mirror",
        deployment("team-sched-default", f"{MIRROR}/sched:1"),
        "scheduler",
    ),
    (
        "a binder from a mirror that no operator made, by its flags",
        deployment("binder", f"{MIRROR}/b:1", args=BINDER_FLAGS, namespace="gpu", managed=False),
        "binder",
    ),
    (
        "a shard from a mirror that no operator made, by its name",
        deployment("kai-scheduler-default", f"{MIRROR}/s:1", namespace="gpu", managed=False),
        "scheduler",
    ),
    (
        "the admission service: its webhooks count",
        deployment("admission", f"{REGISTRY}/admission:v0.17.0"),
        "",
    ),
    (
        "the node scale adjuster",
        deployment("node-scale-adjuster", f"{REGISTRY}/nodescaleadjuster:v0.17.0"),
        "",
    ),
    (
        "somebody's binder",
        deployment("binder", "quay.io/jupyter/binder:1", namespace="hub", managed=False),
        "",
    ),
    (
        "somebody's scheduler with a config",
        deployment("scheduler", "registry.k8s.io/kube-scheduler:v1.37.0", namespace="x", managed=False),
        "",
    ),
    (
        "Volcano, whose flag is written the same",
        deployment(
            "volcano-scheduler",
            "docker.io/volcanosh/vc-scheduler:v1.12.0",
            args=("--scheduler-conf=/volcano.scheduler/config",),
            namespace="volcano-system",
            managed=False,
        ),
        "",
    ),
    (
        "ourselves",
        deployment("nodemend-scheduler", "nodemend:1", namespace="nodemend-system", managed=False),
        "",
    ),
]

PODS: list[tuple[str, Pod, str]] = [
    (
        "a shard's pod",
        pod("kai-scheduler-default-7d9-x", "kai-scheduler-default", args=SHARD_FLAGS),
        "scheduler",
    ),
    (
        "a shard's pod elsewhere, by its name alone",
        pod("a", "kai-scheduler-gold", namespace="gpu"),
        "scheduler",
    ),
    (
        "the binder's pod elsewhere, by its flags",
        pod("b", "binder", args=BINDER_FLAGS, namespace="gpu"),
        "binder",
    ),
    ("the queue controller's pod, by its namespace", pod("q", "queue-controller"), "queue controller"),
    ("the operator's pod", pod("o", "kai-operator", namespace="gpu"), "operator"),
    ("the admission service's pod", pod("ad", "admission", args=("--scheduler-name", "kai-scheduler")), ""),
    (
        "a reservation pod",
        pod("gpu-reservation-0a", "kai-resource-reservation", namespace="kai-resource-reservation"),
        "",
    ),
    ("somebody's binder", pod("binder-0", "binder", namespace="hub"), ""),
    (
        "a pod that names KAI in a flag and is none of its parts",
        pod("t", "trainer", args=BINDER_FLAGS, namespace="x"),
        "",
    ),
]

WEBHOOKS: list[tuple[str, WebhookConfiguration, bool]] = [
    ("the pods' webhook, by its name", webhooks("mutating-kai-admission"), True),
    ("the queues' webhook, by its prefix", webhooks("kai-queue-validation-v2"), True),
    ("the pod groups' webhook, by its prefix", webhooks("kai-podgroup-validation-v2alpha2"), True),
    ("one of the first charts", webhooks("kai-binder-mutating"), True),
    (
        "one of later charts, by its entry",
        webhooks("admission", entry("admission.run.ai", "/mutate--v1-pod")),
        True,
    ),
    (
        "one that was given another name, by whom it is for",
        webhooks("gpu-pods", entry("a.b.svc", "/mutate--v1-pod", matchConditions=[FOR_KAI])),
        True,
    ),
    (
        "one that was given another name, by its path",
        webhooks("gpu-queues", entry("x.y.z", "/validate-scheduling-run-ai-v2-queue", "queue-controller")),
        True,
    ),
    ("somebody's", webhooks("admission", entry("admission.example.com", "/mutate--v1-pod")), False),
    ("one without entries", webhooks("empty"), False),
    (
        "one by URL",
        webhooks("by-url", {"name": "u.example.com", "clientConfig": {"url": "https://u"}}),
        False,
    ),
]


@pytest.mark.parametrize(("it", "role"), [pytest.param(it, role, id=name) for name, it, role in DEPLOYMENTS])
def test_a_deployment_is_known_by_what_it_runs(it: Deployment, role: str) -> None:
    """Whoever installed it, and from wherever the image comes."""
    assert role_of_deployment(it) == role


@pytest.mark.parametrize(("it", "role"), [pytest.param(it, role, id=name) for name, it, role in PODS])
def test_a_pod_is_known_without_its_image(it: Pod, role: str) -> None:
    """The scheduler's copy of pods holds labels and flags."""
    assert role_of_pod(it) == role


@pytest.mark.parametrize(
    ("it", "is_kais"), [pytest.param(it, is_it, id=name) for name, it, is_it in WEBHOOKS]
)
def test_a_webhook_is_known_under_any_name(it: WebhookConfiguration, is_kais: bool) -> None:
    """KAI's Config gives them names; what they do gives them away."""
    assert is_kais_webhook(it) is is_kais


def test_everything_in_the_way_is_named() -> None:
    """Once each: a pod of a Deployment that is named is not named again."""
    told = found(
        [binder(replicas=2), shard(replicas=None), shard("gold", replicas=0)],
        [pod("binder-1", "binder"), pod("gold-1", "kai-scheduler-gold"), pod("web", "web", namespace="x")],
        {VALIDATING: [webhooks("kai-queue-validation-v2"), webhooks("other")], MUTATING: []},
    )

    assert told == (
        "Deployment kai-scheduler/binder (binder, replicas 2)",
        "Deployment kai-scheduler/kai-scheduler-default (scheduler, replicas 1)",
        "pod kai-scheduler/gold-1 (scheduler)",
        "ValidatingWebhookConfiguration kai-queue-validation-v2",
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_stands_at_zero_and_has_ended_is_in_nobodys_way(phase: str) -> None:
    """So a migration need delete no Deployment, and can go back."""
    ended = pod("binder-1", "binder", args=BINDER_FLAGS, phase=phase)
    assert found([binder(replicas=0), shard(replicas=0)], [ended], {}) == ()
