"""The demo's nodes: most are simulated; the one that breaks is a real kubelet's where this machine can run one.

`--chain auto` takes the real node where it can and says in one line why not where it cannot, `kubelet` demands it, `kwok`
does without. The commands that the controller is told for its Jobs are the product's own, in both kinds of nodes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any

import msgspec

from kube.api import ApiError
from sandbox import gpu_operator
from sandbox.cluster import KubectlError, Sandbox
from sandbox.control_plane import NotReady
from sandbox.go_modules import MissingProgramError
from sandbox.kubelet_needs import why_not_here
from sandbox.kubelet_node import SIMULATED_REBOOT, KubeletNode
from sandbox.kubelet_parts import Parts, find_or_build
from sandbox.nodes import SimulatedNode, create

Say = Callable[[str], None]
DemoNode = SimulatedNode | KubeletNode

# Told to the controller where Jobs run in real pods too: programs of the product's image. Only the reboot is simulated.
COMMANDS: dict[str, Any] = {
    "repairs": {
        "reboot": {"command": list(SIMULATED_REBOOT)},
        "reset-gpu": {"command": ["nodemend-agent", "reset-gpu"]},
    },
    "validation": {"command": ["nodemend-agent", "validate"]},
}
_OFFERED_WITHIN_S = 60


class Chain(StrEnum):
    """What `--chain` may ask for."""

    AUTO = "auto"
    KUBELET = "kubelet"
    KWOK = "kwok"


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes by name, the simulated ones of them, and why none is a real one (empty: one is)."""

    by_name: Mapping[str, DemoNode]
    simulated: Sequence[SimulatedNode]
    why_not_real: str = ""

    @property
    def chain(self) -> Chain:
        return Chain.KWOK if self.why_not_real else Chain.KUBELET


@contextmanager
def started(sandbox: Sandbox, names: Sequence[str], real: str, chain: Chain, say: Say) -> Iterator[Nodes]:
    """Make a node of each name, that of `real` a real one where `chain` and this machine allow it, and say so.

    Raises MissingProgramError where a real node is demanded and cannot be; TimeoutError, NotReady, ApiError, KubectlError.
    """
    with ExitStack() as running:
        by_name: dict[str, DemoNode] = {}
        why_not = "not asked for (--chain kwok)" if chain is Chain.KWOK else ""
        if not why_not:
            try:
                by_name[real] = running.enter_context(_real_node(sandbox, real, say))
            except (MissingProgramError, NotReady) as error:
                if chain is Chain.KUBELET:
                    raise
                why_not = str(error).splitlines()[0]
        simulated = create(sandbox, [name for name in names if name not in by_name])
        by_name |= {node.name: node for node in simulated}
        first = simulated[0]
        say(f"{len(names)} nodes of {first.platform.name}, {len(first.gpus)} GPUs each, are Ready")
        if why_not:
            say(f"real chain: kwok; {real} is simulated like the others: {why_not}")
        else:
            say(
                f"real chain: kubelet; {real} is a real kubelet with containerd, the others are simulated (KWOK)"
            )
        yield Nodes(by_name=by_name, simulated=simulated, why_not_real=why_not)


@contextmanager
def _real_node(sandbox: Sandbox, name: str, say: Say) -> Iterator[KubeletNode]:
    """Run a real node; given when kubelet offers its GPUs. Raises MissingProgramError, NotReady with the reason."""
    parts = _parts(say)
    say(f"starting kubelet and containerd for {name}")
    with KubeletNode(sandbox, name, parts=parts, progress=say) as node:
        try:
            gpu_operator.install_device_plugin(sandbox)
            offered = r"jsonpath={.status.allocatable.nvidia\.com/gpu}=" + str(len(node.gpus))
            within = f"--timeout={_OFFERED_WITHIN_S}s"
            sandbox.kubectl(
                "wait", f"node/{name}", f"--for={offered}", within, timeout_s=_OFFERED_WITHIN_S + 30
            )
        except (ApiError, KubectlError) as error:
            raise NotReady(f"the device plugin of {name} offers no GPUs: {error}") from error
        yield node


def _parts(say: Say) -> Parts:
    if why := why_not_here():
        raise MissingProgramError(why)
    say("looking for kubelet and the product's image (built at the first run: about four minutes)")
    return find_or_build(say)
