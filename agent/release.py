"""Who needs the driver free of every handle: an open incident, or GPU Operator at work on this node. Pure.

GPU Operator's driver manager unloads the kernel modules, and its MIG manager changes geometry, only while nobody holds a
handle; neither sees ours, since our DaemonSet has none of its labels. They say so by the labels of the Node.
"""

from collections.abc import Mapping

import msgspec

from checks.nvml_word import PASSTHROUGH, WORKLOAD_LABEL
from kube.nodehealth import Release

UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
# k8s-operator-libs, pkg/upgrade: nothing was begun yet, or the driver pod is up to date and ready again, or the operator
# gave up. Every other state, also one that is newer than this list, is an upgrade in progress.
_AT_REST = frozenset(
    {
        "",
        "unknown",
        "upgrade-required",
        "uncordon-required",
        "upgrade-done",
        "upgrade-failed",
        "upgrade-skipped",
    }
)
DEPLOY = "nvidia.com/gpu.deploy."
# The driver manager writes `paused-for-driver-upgrade`, the MIG manager `paused-for-mig-change`, each on every part that
# runs here. `false` is written by people, and by a reset; it counts where it takes away the driver or those who hold it, and
# only where it was seen to be switched: for good it stands where the driver is the host's own or the plugin is another one.
_PAUSED = "paused"
_SWITCHED_OFF = ("client", "device-plugin", "driver", "operands")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """That no handle is held, because of `why`; `by` is the word of NodeHealth.spec.release.by, empty for others."""

    why: str
    by: str = ""


def wanted(
    labels: Mapping[str, str], release: Release | None, settled: frozenset[str] = frozenset()
) -> Wanted | None:
    """Say who needs the driver free, an incident first; None where nobody does. `settled` labels say so for good."""
    if release is not None:
        return Wanted(why=f"asked by {release.by}", by=release.by)
    why = why_not_held(labels, settled)
    return Wanted(why=why) if why is not None else None


def why_not_held(labels: Mapping[str, str], settled: frozenset[str] = frozenset()) -> str | None:
    """Say which label of the Node keeps handles off, or None."""
    if labels.get(WORKLOAD_LABEL) == PASSTHROUGH:
        return f"the GPUs are handed to virtual machines ({WORKLOAD_LABEL}={PASSTHROUGH})"
    state = labels.get(UPGRADE_STATE, "")
    if state not in _AT_REST:
        return f"a driver upgrade is in progress ({UPGRADE_STATE}={state})"
    paused = {name for name, value in labels.items() if name.startswith(DEPLOY) and value.startswith(_PAUSED)}
    for name in sorted(paused | (switched_off(labels) - settled)):
        return f"GPU Operator keeps clients of the driver off this node ({name}={labels[name]})"
    return None


def switched_off(labels: Mapping[str, str]) -> frozenset[str]:
    """Give the labels that say `false` of the driver, or of those who hold it."""
    return frozenset(DEPLOY + part for part in _SWITCHED_OFF if labels.get(DEPLOY + part) == "false")
