"""The floor of detection: the least that can be sent to show something on a node."""

from datetime import UTC, datetime

import msgspec

from agent.publish import patch_body
from bench.detect_sights import CONDITION, Looking
from bench.outcome import NotMeasured
from bench.wire import Wire, head, request
from checks.condition import Condition, Status
from kube import paths
from kube.api import PatchType
from kube.clock import SYSTEM
from kube.types import Pod, Struct
from sandbox.actors import AGENT, SYSTEM_NAMESPACE
from sandbox.cluster import Sandbox
from sandbox.nodes import SimulatedNode

_POD_WITHIN_S = 90.0


class _Pods(Struct, frozen=True, kw_only=True):
    items: tuple[Pod, ...] = ()


class Floor:
    """One node without an agent, and the least that can be done to show something on it."""

    def __init__(self, sandbox: Sandbox, node: SimulatedNode, looking: Looking) -> None:
        self._looking = looking
        self._node = node.read(sandbox.admin)
        token = sandbox.token_file(SYSTEM_NAMESPACE, AGENT, pod=agent_pod(sandbox, node)).read_text()
        path = f"{paths.node_status(node.name)}"
        self._head = head(sandbox.server, token.strip(), "PATCH", path, PatchType.STRATEGIC.value)
        self._wire = Wire(sandbox.server, sandbox.ca_file)

    def patch(self, key: str) -> None:
        """Show the sample `key`. Raises NotMeasured where the server refuses."""
        condition = Condition(
            type=CONDITION,
            status=Status.TRUE,
            reason="Xid95UncontainedEcc",
            message=f"sample {key}: {'as long as what agents write ' * 12}",
            last_transition=datetime.now(UTC),
        )
        body = msgspec.json.encode(patch_body([condition], (), self._node, datetime.now(UTC)))
        whole = request(self._head, body)
        self._looking.expect(self._node.metadata.name, f"sample {key}:", key, SYSTEM.monotonic())
        status, answer = self._wire.ask(whole)
        if status != 200:
            raise NotMeasured(f"the bare patch was refused: {status} {answer[:300]!r}")

    def close(self) -> None:
        self._wire.close()


def agent_pod(sandbox: Sandbox, node: SimulatedNode) -> tuple[str, str]:
    """Find the DaemonSet's pod on a node. Raises NotMeasured."""
    query = {
        "labelSelector": f"app.kubernetes.io/name={AGENT}",
        "fieldSelector": f"spec.nodeName={node.name}",
    }
    deadline = SYSTEM.monotonic() + _POD_WITHIN_S
    while SYSTEM.monotonic() < deadline:
        listed = msgspec.json.decode(sandbox.admin.get(paths.pods(SYSTEM_NAMESPACE), query), type=_Pods)
        if listed.items:
            return listed.items[0].metadata.name, listed.items[0].metadata.uid
        SYSTEM.sleep(0.2)
    raise NotMeasured(f"no pod of DaemonSet {AGENT} on node {node.name}")
