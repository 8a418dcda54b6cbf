"""Take what is nodemend's off the Nodes: two patches a Node at most, each under the UID and version that it was decided on.

Whatever else stands on a Node is never written back, so it stays as it is to the byte.
"""

from collections.abc import Callable, Mapping

import msgspec

from cli.cluster import by_name
from cli.failure import Exit, Failure
from cli.release_plan import OwnedNode, Trace, condition_body, node_operations
from cli.release_tries import listed, tried
from kube import paths
from kube.api import Api, Conflict, Invalid, PatchType
from kube.clock import Clock
from kube.nodehealth import NodeHealth

Look = Callable[[OwnedNode], Trace]
Tell = Callable[[str], None]
_PROGRESS_EVERY = 500


def read_nodes(api: Api, clock: Clock, odd: list[str]) -> list[OwnedNode]:
    """Read all Nodes; one that cannot be decoded is named in `odd`. Raises Failure."""
    return listed(api, clock, paths.nodes(), OwnedNode, "nodes", odd)


def read_node(api: Api, clock: Clock, name: str) -> OwnedNode | None:
    """Read one Node; None where there is none. Raises Failure."""
    raw = tried(clock, f"get node {name}", lambda: api.get(paths.node(name)))
    return None if raw is None else _decoded(raw)


def read_healths(api: Api, clock: Clock) -> Mapping[str, NodeHealth]:
    """Read every NodeHealth, by its node's name; none where the kind is gone. Raises Failure.

    One that cannot be decoded proves nothing about its node's conditions; the Node's own books may.
    """
    found = listed(api, clock, paths.node_healths(), NodeHealth, "nodehealths", [])
    return by_name(found, lambda health: health.metadata.name)


def clean_nodes(api: Api, clock: Clock, nodes: list[OwnedNode], look: Look, tell: Tell) -> int:
    """Take everything off these Nodes that `look` says goes; give how many had something. Raises Failure."""
    cleaned = 0
    for node in nodes:
        found = look(node)
        if not found.goes:
            continue
        clean_node(api, clock, node, look)
        cleaned += 1
        if found.marked and not found.held:
            tell(f"{found.node}: {_restored_words(found)}")
        if cleaned % _PROGRESS_EVERY == 0:
            tell(f"{cleaned} nodes done")
    return cleaned


def clean_node(api: Api, clock: Clock, node: OwnedNode, look: Look) -> None:
    """Take everything off one Node, looking anew after each write and each conflict. Raises Failure."""
    held: OwnedNode | None = node

    def once() -> None:
        nonlocal held
        if held is None:
            held = _decoded(api.get(paths.node(node.metadata.name)))
        now, held = held, None  # whatever comes of the write, what was read before it is old
        found = look(now)
        name = now.metadata.name
        try:
            if operations := node_operations(now, found):
                now = _decoded(api.patch(paths.node(name), operations, PatchType.JSON))
                found = look(now)
            if body := condition_body(now, found):
                api.patch(paths.node_status(name), body, PatchType.STRATEGIC)
        except Invalid as error:
            # A path of the patch is not there any more, or the Node is another one: the server saw a newer Node than we.
            raise Conflict(str(error), code=409) from error

    tried(clock, f"patch node {node.metadata.name}", once)


def _decoded(raw: bytes) -> OwnedNode:
    try:
        return msgspec.json.decode(raw, type=OwnedNode)
    except msgspec.DecodeError as error:
        raise Failure(f"the cluster's answer is no Node: {error}", Exit.MISSING) from error


def _restored_words(found: Trace) -> str:
    if found.uncordon:
        return "put back as it was found: no cordon, no taint"
    stays = f"; it stays cordoned: {found.cordon_stays}" if found.cordon_stays else ""
    return f"everything of nodemend's taken off{stays}"
