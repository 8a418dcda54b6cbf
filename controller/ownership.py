"""Ownership: whose hands a Node is in. Pure.

Kubernetes has one cordon and no owner, so every automation of the field leaves a mark of its own. While such a mark stands
the node is left alone, with the reason. A cordon that disappears beside a mark was that automation's; without one it was a
person's, and a person's word counts.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from controller.incident import has_taint, holds
from kube.remediation import Remediation, RemediationStatus
from kube.types import Node

# How long after another automation's mark went a missing cordon still counts as its doing: they uncordon and unmark in
# two requests, and may be restarted between the two.
RECENT = timedelta(minutes=10)

# Label of the GPU Operator's driver upgrade (k8s-operator-libs, upgrade states): these two do not touch the node yet or
# any more.
_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
_UPGRADE_IDLE = ("", "unknown", "upgrade-required", "upgrade-done")
# Label of NVSentinel's state machine; its succeeded and failed remediations are final and may stay for ever.
_SENTINEL = "dgxc.nvidia.com/nvsentinel-state"
_SENTINEL_IDLE = ("", "remediation-succeeded")
_TAINTS = {
    "medik8s.io/drain": "medik8s node maintenance",
    "karpenter.sh/disrupted": "a Karpenter disruption",
    "karpenter.sh/disruption": "a Karpenter disruption",
    "ToBeDeletedByClusterAutoscaler": "a cluster-autoscaler deletion",
    "node.cloudprovider.kubernetes.io/shutdown": "the cloud provider, which says the machine is shut down",
    "node.kubernetes.io/out-of-service": "whoever fenced it as out of service",
}
_TAINT_PREFIXES = {"remediation.medik8s.io/": "a medik8s remediation"}
_LABELS = {"remediation.medik8s.io/exclude-from-remediation": "medik8s, which excludes it from remediation"}
_ANNOTATIONS = {"weave.works/kured-reboot-in-progress": "a kured reboot"}
# OpenShift's machine-config operator: Done is its resting state.
_MACHINE_CONFIG = "machineconfiguration.openshift.io/state"
_MACHINE_CONFIG_IDLE = ("", "Done")


def why_not_act(node: Node) -> str | None:
    """Say which other automation has the node in hand, or None."""
    if node.metadata.deletion_timestamp is not None:
        return "the Node is being deleted"
    for look in _LOOKS:
        if owner := look(node):
            return f"the node is in the hands of {owner}"
    return None


class Cordon(StrEnum):
    """What became of the cordon that an incident needs."""

    STANDS = "stands"
    NOT_YET = "not yet"
    TAKEN_BY_OTHERS = "taken by another automation"
    TAKEN_BY_PERSON = "taken by a person"
    UNSEEN = "unseen"


def cordon_of(node: Node, remediation: Remediation, now: datetime) -> Cordon:
    """Judge what became of the incident's cordon. A view older than our own write proves nothing (UNSEEN)."""
    before = remediation.status.before
    name = remediation.metadata.name
    marked = holds(node, name) or has_taint(node, name)
    if before is None or (before.applied_at is None and not marked):
        return Cordon.NOT_YET
    if node.spec.unschedulable:
        return Cordon.STANDS
    if older(node.metadata.resource_version, before.applied_version):
        return Cordon.UNSEEN
    if others_were_here(remediation.status, now):
        return Cordon.TAKEN_BY_OTHERS
    return Cordon.TAKEN_BY_PERSON


def others_were_here(status: RemediationStatus, now: datetime) -> bool:
    """Tell whether another automation's mark stands, or stood a short time ago."""
    if status.others_marker:
        return True
    return status.others_seen_at is not None and now - status.others_seen_at < RECENT


def with_marker(status: RemediationStatus, marker: str | None, now: datetime) -> RemediationStatus:
    """Remember another automation's mark while it stands, and when it was seen to go."""
    found = marker or ""
    if found == status.others_marker:
        return status
    gone_at = now if not found else status.others_seen_at
    return msgspec.structs.replace(status, others_marker=found, others_seen_at=gone_at)


def older(version: str, than: str) -> bool:
    """Compare resourceVersions of one object; False where either is missing or no number."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def _label(key: str, idle: tuple[str, ...], owner: str) -> Callable[[Node], str]:
    def look(node: Node) -> str:
        value = node.metadata.labels.get(key, "")
        return "" if value in idle else f"{owner} ({value})"

    return look


def _taints(node: Node) -> str:
    for taint in node.spec.taints:
        if owner := _TAINTS.get(taint.key):
            return owner
        for prefix, owner in _TAINT_PREFIXES.items():
            if taint.key.startswith(prefix):
                return owner
    return ""


def _labels(node: Node) -> str:
    return next((owner for key, owner in _LABELS.items() if key in node.metadata.labels), "")


def _annotations(node: Node) -> str:
    annotations = node.metadata.annotations
    for key, owner in _ANNOTATIONS.items():
        if key in annotations:
            return owner
    state = annotations.get(_MACHINE_CONFIG, "")
    return "" if state in _MACHINE_CONFIG_IDLE else f"the machine-config operator ({state})"


_LOOKS: tuple[Callable[[Node], str], ...] = (
    _label(_UPGRADE, _UPGRADE_IDLE, "the GPU Operator's driver upgrade"),
    _label(_SENTINEL, _SENTINEL_IDLE, "NVSentinel"),
    _taints,
    _labels,
    _annotations,
)
