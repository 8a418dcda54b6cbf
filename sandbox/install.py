"""Applies nodemend's own manifests to a sandbox, as a user would: CRDs first, then an overlay, both by kubectl.

Only this differs from a cluster's installation: the controller's Deployment stands at 0 replicas, since the sandbox runs the
controller as a process (`sandbox.actors`) and has no node without GPUs; agents and repairs run the image `IMAGE`; and the
policy may be patched for what is tried. `install` returns when the admission policies are in force.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kube.nodehealth import GROUP, VERSION
from sandbox.cluster import KubectlError

MANIFESTS = Path(__file__).parents[1] / "manifests"
OVERLAYS = ("observe", "enforce")
IMAGE = "nodemend:sandbox"
_CRDS = ("nodehealths", "remediations", "remediationpolicies")
_ENFORCED_WITHIN_S = 60.0  # about 2 s: the API server looks for new policies once a second
_LOOK_S = 0.2
_PROBE = "nodemend-install-probe"


class ManifestsMissing(Exception):
    """The manifests are not there: they are in the repository, not in the wheel."""


class NotEnforced(Exception):
    """The admission policies were applied and are not in force; the message holds what the API server last said."""


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

    Raises ManifestsMissing, ValueError for an unknown overlay, NotEnforced, or KubectlError with kubectl's words.
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
    _await_enforced(sandbox)


def _await_enforced(sandbox: Cluster) -> None:
    """Wait until each policy refuses what it must, and a repair's Job passes all of them. Nothing is created: dry runs."""
    deadline = time.monotonic() + _ENFORCED_WITHIN_S
    while said := _why_not_enforced(sandbox):
        if time.monotonic() > deadline:
            raise NotEnforced(f"admission policies are not in force after {_ENFORCED_WITHIN_S:g} s: {said}")
        time.sleep(_LOOK_S)


def _why_not_enforced(sandbox: Cluster) -> str | None:
    wrong = [_named("v1", "Node"), _named(f"{GROUP}/{VERSION}", "NodeHealth"), _lease(), _job(IMAGE)]
    refused = _dry_run(sandbox, "nodemend-agent", *wrong)
    expected = (
        "nodemend-agent-node",
        "nodemend-agent-node-health",
        "nodemend-agent-lease",
        "nodemend-repairs-jobs",
    )
    if missing := [name for name in expected if f"'{name}'" not in refused]:
        return f"{', '.join(missing)} refused nothing: {refused}"
    refused = _dry_run(sandbox, "nodemend-controller", _job("another:1"), _job(IMAGE))
    if refused.count("Error from server") != 1 or "'nodemend-repairs-image'" not in refused:
        return f"of two Jobs, that with the image {IMAGE} must pass: {refused or 'none was refused'}"
    return None


def _dry_run(sandbox: Cluster, account: str, *objects: dict[str, Any]) -> str:
    """Create nothing, as an account that RBAC hinders nowhere; give the refusals, empty where there was none."""
    who = (f"--as=system:serviceaccount:nodemend-system:{account}", "--as-group=system:masters")
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    try:
        sandbox.kubectl(
            "create", "--dry-run=server", "--validate=false", "-f", "-", *who, stdin=json.dumps(listed)
        )
    except KubectlError as error:
        return str(error)
    return ""


def _named(version: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": _PROBE}, **more}


def _lease() -> dict[str, Any]:
    lease = _named("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": _PROBE})
    lease["metadata"]["namespace"] = "nodemend-system"
    return lease


def _job(image: str) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "serviceAccountName": "nodemend-repair",
        "automountServiceAccountToken": False,
        "containers": [{"name": "probe", "image": image}],
    }
    job = _named("batch/v1", "Job", spec={"backoffLimit": 0, "template": {"spec": pod}})
    job["metadata"]["namespace"] = "nodemend-repairs"
    return job


def _kustomization(folder: Path, overlay: Path, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the overlay with the sandbox's differences (JSON, which every YAML reader takes)."""
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nodemend-repair-settings", "namespace": "nodemend-system"},
        "data": {"controller.toml": f'[jobs]\nimage = "{IMAGE}"\n'},
    }
    patches = [settings]
    adapted: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [
            os.path.relpath(overlay.resolve(), folder.resolve())
        ],  # kustomize takes no absolute paths
        "replicas": [{"name": "nodemend-controller", "count": 0}],
        "images": [{"name": "nodemend", "newTag": IMAGE.partition(":")[2]}],
    }
    if policy:
        patches.append(
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "RemediationPolicy",
                "metadata": {"name": "default"},
                "spec": dict(policy),
            }
        )
    adapted["patches"] = [{"patch": json.dumps(patch)} for patch in patches]
    return adapted
