"""Applies nodemend's own manifests to a sandbox, as a user would: CRDs first, then an overlay, both by kubectl; the
scheduler by `install_scheduler`, after that.

Only this differs from a cluster's installation: the Deployments stand at 0 replicas, since the sandbox runs controller and
scheduler as processes (`sandbox.actors`) and has no node without GPUs; agents and repairs run the image `IMAGE`; and the
policy may be patched for what is tried. Both return when the admission policies are in force.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kube.nodehealth import GROUP, VERSION
from sandbox.cluster import KubectlError

MANIFESTS = Path(__file__).parents[1] / "manifests"
OVERLAYS = ("observe", "enforce")
IMAGE = "nodemend:sandbox"
COMPONENTS = ("strict", "namespace-queues", "gpu-namespaces")
_CRDS = ("nodehealths", "remediations", "remediationpolicies")
_SHARED_CRDS = ("queues.scheduling.run.ai", "podgroups.scheduling.run.ai", "topologies.kai.scheduler")
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
    _await_enforced(sandbox, _why_not_enforced)


def install_scheduler(
    sandbox: Cluster,
    components: Sequence[str] = (),
    *,
    example_queues: bool = True,
    manifests: Path = MANIFESTS,
) -> None:
    """Make what KAI Scheduler shares with us where it is absent, then apply the scheduler with `components` of its folder.

    After `install`, whose namespace it needs; may be called again. `example_queues`: default-parent-queue and default-queue.
    Raises ManifestsMissing, ValueError for an unknown component, NotEnforced, or KubectlError with kubectl's words.
    """
    if unknown := sorted(set(components) - set(COMPONENTS)):
        raise ValueError(f"component {unknown[0]!r}: there are {', '.join(COMPONENTS)}")
    if not (manifests / "scheduler" / "kustomization.yaml").is_file():
        raise ManifestsMissing(f"{manifests}: no manifests there; run from a clone of the repository")
    create_absent(sandbox, "-k", str(manifests / "crds-kai"))
    definitions = [f"crd/{name}" for name in _SHARED_CRDS]
    sandbox.kubectl("wait", "--for=condition=Established", "--timeout=60s", *definitions)
    folder = sandbox.state_dir / "install" / "scheduler"
    folder.mkdir(parents=True, exist_ok=True)
    adapted = _adapted(folder, manifests / "scheduler", "nodemend-scheduler")
    adapted["components"] = [
        os.path.relpath((manifests / "scheduler" / name).resolve(), folder.resolve()) for name in components
    ]
    (folder / "kustomization.yaml").write_text(json.dumps(adapted, indent=1))
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    strict = "strict" in components
    _await_enforced(sandbox, lambda cluster: _why_scheduler_not_enforced(cluster, strict=strict))
    if example_queues:
        create_absent(sandbox, "-f", str(manifests / "examples" / "scheduler" / "queues.yaml"))


def create_absent(sandbox: Cluster, *what: str) -> None:
    """Run `kubectl create`, which replaces nothing; what is there already is as good. Raises KubectlError for all else."""
    try:
        sandbox.kubectl("create", *what)
    except KubectlError as error:
        if not all("(AlreadyExists)" in line for line in str(error).splitlines()):
            raise


def _await_enforced(sandbox: Cluster, why_not: Callable[[Cluster], str | None]) -> None:
    """Wait until each policy refuses what it must and what is right passes all of them. Nothing is created: dry runs."""
    deadline = time.monotonic() + _ENFORCED_WITHIN_S
    while said := why_not(sandbox):
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


def _why_scheduler_not_enforced(sandbox: Cluster, *, strict: bool) -> str | None:
    part = {"name": "twice", "minMember": 1}
    group = _named("scheduling.run.ai/v2alpha2", "PodGroup", spec={"queue": "q", "subGroups": [part, part]})
    group["metadata"]["namespace"] = "nodemend-system"
    wrong = [group, _pod({"nodemend.dev/gpu-grant": "{}"}), _pod({"gpu-fraction": "2"})]
    refused = _dry_run(sandbox, "nodemend-controller", *wrong)
    expected = ("nodemend-pod-group", "nodemend-gpu-grant")
    if missing := [name for name in expected if f"'{name}'" not in refused]:
        return f"{', '.join(missing)} refused nothing: {refused}"
    said = "'nodemend-fractions' denied request" if strict else "'nodemend-fractions': annotation"
    if said not in refused:
        return f"nodemend-fractions must {'refuse' if strict else 'warn alone'}: {refused}"
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


def _pod(annotations: Mapping[str, str]) -> dict[str, Any]:
    spec = {
        "schedulerName": "nodemend-scheduler",
        "serviceAccountName": "nodemend-scheduler",
        "containers": [{"name": "probe", "image": IMAGE}],
    }
    pod = _named("v1", "Pod", spec=spec)
    pod["metadata"] |= {"namespace": "nodemend-system", "annotations": dict(annotations)}
    return pod


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
    adapted = _adapted(folder, overlay, "nodemend-controller")
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


def _adapted(folder: Path, resources: Path, deployment: str) -> dict[str, Any]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [
            os.path.relpath(resources.resolve(), folder.resolve())
        ],  # kustomize takes no absolute paths
        "replicas": [{"name": deployment, "count": 0}],
        "images": [{"name": "nodemend", "newTag": IMAGE.partition(":")[2]}],
    }
