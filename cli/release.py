"""`kubectl nodemend release --all | NODE`: put nodes back whose controller is gone, from what stands on the Node alone.

For a cluster whose namespace or CRDs were simply deleted: no Remediation, no NodeHealth and no controller is needed. While a
controller leads it is refused, since that one would put cordon and taint back.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cli.asking import Console
from cli.cluster import read_node_names
from cli.failure import Exit, Failure
from cli.intent import unknown_node
from cli.release_leader import LeaderWatch
from cli.release_nodes import clean_nodes, read_healths, read_node, read_nodes
from cli.release_plan import OwnedNode, Trace, Wanted, doubt_lines, left_words, trace, trace_lines
from cli.release_tries import tried
from kube import paths
from kube.api import Api
from kube.clock import Clock

AGENT = "nodemend-agent"


class ReleaseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed. `node` is empty for all; see `cli.release_plan.Wanted` for `by_name` and `force`."""

    namespace: str
    node: str = ""
    force: bool = False
    by_name: bool = False
    dry_run: bool = False


class ReleaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; its fields are the keys of `-o json`. `left` names what of nodemend's is still there."""

    at: datetime
    planned: tuple[str, ...]
    released: int
    left: tuple[str, ...]


def release(api: Api, clock: Clock, options: ReleaseOptions, console: Console) -> tuple[Exit, ReleaseReport]:
    """Look, refuse or ask, put back, look again. Raises Failure."""
    odd: list[str] = []
    nodes = _chosen(api, clock, options, odd)
    healths = read_healths(api, clock)
    agents = _agents_live(api, clock, options.namespace)
    wanted = Wanted(conditions=not agents, by_name=options.by_name, force=options.force)

    def look(node: OwnedNode) -> Trace:
        return trace(node, healths.get(node.metadata.name), wanted)

    traces = [look(node) for node in nodes]
    planned = [*trace_lines(traces), *(f"NOT READ: {line}" for line in odd)]
    if agents and any(one.marked for one in traces):
        planned.append(f"conditions stay: DaemonSet {AGENT} is there, and its agents publish them")
    report = ReleaseReport(at=clock.now(), planned=tuple(planned), released=0, left=_left(traces, odd))
    if options.dry_run:
        _show_dry_run(console, planned)
        return Exit.DONE, report
    if not any(one.goes for one in traces):
        return _finished(console, report)
    if not options.force:
        _refuse_beside_a_leader(api, clock, options.namespace)
    if not console.may_go_on(planned):
        console.tell("nothing was written")
        return Exit.NOT_SO, report
    released = clean_nodes(api, clock, nodes, look, console.tell)
    odd = []
    traces = [look(node) for node in _chosen(api, clock, options, odd)]
    return _finished(console, msgspec.structs.replace(report, released=released, left=_left(traces, odd)))


def _chosen(api: Api, clock: Clock, options: ReleaseOptions, odd: list[str]) -> list[OwnedNode]:
    if not options.node:
        return read_nodes(api, clock, odd)
    node = read_node(api, clock, options.node)
    if node is None:
        raise unknown_node(options.node, read_node_names(api))
    return [node]


def _agents_live(api: Api, clock: Clock, namespace: str) -> bool:
    """Tell whether agents are meant to run: what they publish would be there again at once."""
    path = paths.member(paths.collection("apps", "v1", "daemonsets", namespace), AGENT)
    return tried(clock, f"get daemonset {AGENT}", lambda: api.get(path)) is not None


def _refuse_beside_a_leader(api: Api, clock: Clock, namespace: str) -> None:
    if holder := LeaderWatch(api, clock, namespace).wait_to_know():
        raise Failure(
            f"a controller leads ({holder}) and would put cordon and taint back: while it runs, `cancel NODE` gives a node "
            "back, and `uninstall` ends it first (--force releases all the same)",
            Exit.NOT_SO,
        )


def _left(traces: Sequence[Trace], odd: Sequence[str]) -> tuple[str, ...]:
    return (*filter(None, map(left_words, traces)), *doubt_lines(traces), *odd)


def _show_dry_run(console: Console, planned: Sequence[str]) -> None:
    for line in planned or ["nothing of nodemend's is there"]:
        console.tell(line)
    console.tell("dry run: nothing was written")


def _finished(console: Console, report: ReleaseReport) -> tuple[Exit, ReleaseReport]:
    for line in report.left:
        console.tell(f"LEFT: {line}")
    if report.left:
        return Exit.NOT_SO, report
    console.tell(f"nothing of nodemend's is left ({report.released} nodes were put back or cleaned)")
    return Exit.DONE, report
