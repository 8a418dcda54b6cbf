"""The cluster that `quarantine` is measured on: KWOK nodes in groups, a policy for each group, the controller's process."""

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from bench.outcome import NotMeasured
from kube import paths
from kube.api import Api, NotFound, PatchType
from kube.clock import SYSTEM
from kube.nodehealth import GROUP, VERSION
from kube.types import Lease, Node
from sandbox.actors import AGENT, CONTROLLER, SYSTEM_NAMESPACE
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import DEFAULT_PLATFORM, body
from sandbox.platforms import platform

GROUP_LABEL = "bench.nodemend.dev/group"
FLEET, SAMPLES, NOBODY = "fleet", "samples", "nobody"
SAMPLE_POLICY = "samples"
AT_ONCE = 16
_READY_WITHIN_S = 180.0

# Everything raised to the whole pool: what is measured is the controller, not its limits.
RAISED: Mapping[str, Any] = {
    "mode": "Enforce",
    "budget": {"maxUnavailable": "100%", "maxQuarantined": "100%", "maxRepairsInFlight": 1},
    "breaker": {"threshold": "100%", "minNodes": 2, "window": "10m"},
}


class Ready:
    """Counts the nodes that are Ready and not tainted any more, as the watch shows them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._names: set[str] = set()

    def see(self, node: Node, _at: float) -> None:
        condition = node.condition("Ready")
        if condition is None or condition.status != "True" or node.spec.taints:
            return
        with self._changed:
            self._names.add(node.metadata.name)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Wait until `count` nodes are. Raises NotMeasured."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._names) >= count, _READY_WITHIN_S):
                raise NotMeasured(
                    f"{len(self._names)} of {count} nodes are Ready after {_READY_WITHIN_S:g} s"
                )


def prepare(sandbox: Sandbox) -> None:
    """Apply the manifests with raised limits, for no node yet; without pods, since only Nodes are looked at."""
    install(sandbox, overlay="enforce", policy={**RAISED, "nodeSelector": {GROUP_LABEL: NOBODY}})
    nowhere = {"spec": {"template": {"spec": {"nodeSelector": {GROUP_LABEL: NOBODY}}}}}
    sandbox.kubectl(
        "patch",
        "daemonset",
        AGENT,
        f"--namespace={SYSTEM_NAMESPACE}",
        "--type=merge",
        f"--patch={json.dumps(nowhere)}",
    )
    policy = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RemediationPolicy",
        "metadata": {"name": SAMPLE_POLICY},
        "spec": {**RAISED, "nodeSelector": {GROUP_LABEL: SAMPLES}},
    }
    sandbox.admin.create(paths.policies(), policy)


def govern(api: Api) -> None:
    """Let the policy `default` govern the fleet from now on: one write."""
    api.patch(paths.policy("default"), {"spec": {"nodeSelector": {GROUP_LABEL: FLEET}}}, PatchType.MERGE)


def names(group: str, count: int) -> list[str]:
    """Name the nodes of a group."""
    return [f"{group}-{number:04}" for number in range(count)]


def boot_id(name: str) -> str:
    """Give a node's boot id, the same whenever it is asked for."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"boot.{name}.sandbox.nodemend.dev"))


def create(api: Api, groups: Mapping[str, Sequence[str]]) -> None:
    """Create the Nodes of all groups. Raises ApiError."""
    kind = platform(DEFAULT_PLATFORM)
    bodies: list[dict[str, Any]] = []
    for group, members in groups.items():
        for name in members:
            node = body(name, kind, boot_id(name), len(bodies))
            node["metadata"]["labels"][GROUP_LABEL] = group
            bodies.append(node)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="create") as pool:
        list(pool.map(lambda one: api.create(paths.nodes(), one), bodies))


def wait_led(api: Api, within_s: float = 60.0) -> None:
    """Wait until a controller holds the Lease. Raises NotMeasured."""
    deadline = SYSTEM.monotonic() + within_s
    while SYSTEM.monotonic() < deadline:
        try:
            lease = msgspec.json.decode(api.get(paths.lease(SYSTEM_NAMESPACE, CONTROLLER)), type=Lease)
        except NotFound:
            lease = None
        if lease is not None and lease.spec.holder_identity:
            return
        SYSTEM.sleep(0.2)
    raise NotMeasured(f"no controller leads after {within_s:g} s")
