"""What the API server says to an object: taken, warned of or refused, in its words. Nothing is kept: dry runs of kubectl."""

import json
import subprocess
from typing import Any

import msgspec

from sandbox.cluster import Sandbox
from tests.manifests.deeds import named

SCHEDULER_ACCOUNT = "system:serviceaccount:nodemend-system:nodemend-scheduler"
KAI_BINDER = "system:serviceaccount:kai-scheduler:binder"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`taken` holds beside `words` where the server warned."""

    taken: bool
    words: str = ""


def judged(sandbox: Sandbox, body: dict[str, Any], verb: str = "create", account: str = "") -> Verdict:
    """Send an object, as the admin or as an account that RBAC hinders nowhere."""
    groups = ["system:masters", *([f"system:serviceaccounts:{account.split(':')[2]}"] if account else [])]
    who = [f"--as={account}", *(f"--as-group={group}" for group in groups)] if account else []
    command = [
        str(sandbox.programs["kubectl"]),
        f"--kubeconfig={sandbox.admin_kubeconfig}",
        f"--cache-dir={sandbox.state_dir / 'kubectl-cache'}",
        *(verb, "--dry-run=server", "-f", "-", *who),
        *([] if verb == "delete" else ["--validate=ignore"]),
    ]
    answer = subprocess.run(
        command,
        input=json.dumps(body),
        env=sandbox.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Verdict(taken=answer.returncode == 0, words=answer.stderr.strip())


def queue(name: str = "verdict", **spec: Any) -> dict[str, Any]:
    return named(name, "Queue", "scheduling.run.ai/v2", spec=spec)


def pod_group(name: str = "verdict", **spec: Any) -> dict[str, Any]:
    made = named(name, "PodGroup", "scheduling.run.ai/v2alpha2", spec=spec)
    made["metadata"]["namespace"] = "default"
    return made


def topology(*levels: dict[str, str]) -> dict[str, Any]:
    return named("verdict", "Topology", "kai.scheduler/v1alpha1", spec={"levels": list(levels)})


def pod(
    annotations: dict[str, str] | None = None,
    *,
    name: str = "verdict",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    gpus: int = 0,
    **spec: Any,
) -> dict[str, Any]:
    """Describe a pod of the scheduler's with one container, `main`; `spec` wins."""
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "main:1", "resources": limits}
    made = named(
        name, "Pod", "v1", spec={"schedulerName": "nodemend-scheduler", "containers": [container], **spec}
    )
    made["metadata"] |= {"namespace": namespace, "annotations": annotations or {}, "labels": labels or {}}
    return made
