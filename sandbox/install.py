"""Applies nodemend's own manifests to a sandbox, as a user would: CRDs first, then an overlay, both by kubectl.

Only this differs from a cluster's installation: the controller's Deployment stands at 0 replicas, since the sandbox runs the
controller as a process (`sandbox.actors`) and has no node without GPUs; and the policy may be patched for what is tried.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

MANIFESTS = Path(__file__).parents[1] / "manifests"
OVERLAYS = ("observe", "enforce")
_CRDS = ("nodehealths", "remediations", "remediationpolicies")


class ManifestsMissing(Exception):
    """The manifests are not there: they are in the repository, not in the wheel."""


class Cluster(Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    @property
    def state_dir(self) -> Path: ...

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60.0) -> str: ...


def install(
    sandbox: Cluster,
    overlay: str = "enforce",
    *,
    policy: Mapping[str, Any] | None = None,
    manifests: Path = MANIFESTS,
) -> None:
    """Apply an overlay; `policy` is merged into the spec of its RemediationPolicy `default`. May be called again.

    Raises ManifestsMissing, ValueError for an unknown overlay, or KubectlError with kubectl's words.
    """
    if overlay not in OVERLAYS:
        raise ValueError(f"overlay {overlay!r}: there are {', '.join(OVERLAYS)}")
    if not (manifests / "overlays" / overlay / "kustomization.yaml").is_file():
        raise ManifestsMissing(f"{manifests}: no manifests there; run from a clone of the repository")
    sandbox.kubectl("apply", "--server-side", "-k", str(manifests / "crds"))
    definitions = [f"crd/{name}.nodemend.dev" for name in _CRDS]
    sandbox.kubectl("wait", "--for=condition=Established", "--timeout=60s", *definitions)
    folder = sandbox.state_dir / "install" / overlay
    folder.mkdir(parents=True, exist_ok=True)
    adapted = _kustomization(folder, manifests / "overlays" / overlay, policy or {})
    (folder / "kustomization.yaml").write_text(json.dumps(adapted, indent=1))
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))


def _kustomization(folder: Path, overlay: Path, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the overlay with the sandbox's differences (JSON, which every YAML reader takes)."""
    adapted: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [
            os.path.relpath(overlay.resolve(), folder.resolve())
        ],  # kustomize takes no absolute paths
        "replicas": [{"name": "nodemend-controller", "count": 0}],
    }
    if policy:
        patch = {
            "apiVersion": "nodemend.dev/v1alpha1",
            "kind": "RemediationPolicy",
            "metadata": {"name": "default"},
            "spec": dict(policy),
        }
        adapted["patches"] = [{"patch": json.dumps(patch)}]
    return adapted
