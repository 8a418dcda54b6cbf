"""`kubectl nodemend uninstall`: everything off, every node as it was found. Run again after any interruption, it goes on.

The order is the safety. Policies are paused, so that no incident does anything new. Open incidents end in the own way of the
controller. Then the programs end and lose their rights, so that nobody publishes or cordons again. Only then are the Nodes
cleaned, from what stands on them alone, and the objects deleted; the CRDs, which hold the story, go last.

Each step is derived from what is in the cluster at that moment: nothing is remembered between runs. At the end everything is
looked for once more.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from cli.asking import Console
from cli.failure import Exit
from cli.release_nodes import clean_nodes, read_healths, read_nodes
from cli.release_plan import OwnedNode, Trace, Wanted, doubt_lines, left_words, trace, trace_lines
from cli.uninstall_incidents import Incidents, release_health
from cli.uninstall_objects import Objects, few
from cli.uninstall_plan import ALL, JOBS, OTHERS, PROGRAMS, RIGHTS, Thing, incident_lines, to_pause
from cli.uninstall_rights import check_rights, needed
from kube.api import Api
from kube.clock import Clock
from kube.nodehealth import NodeHealth

_ROUNDS = 3
_BETWEEN_ROUNDS_S = 2.0
_STAYS = "on each machine the folder /var/lib/nodemend stays; it holds some kilobytes and does nothing"


class UninstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed. `wait` is as it was typed, `wait_s` what it means."""

    namespace: str
    wait: str
    wait_s: float
    cancel: bool = False
    keep_crds: bool = False
    by_name: bool = False
    dry_run: bool = False


class UninstallReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it; its fields are the keys of `-o json`. `left` names what of nodemend's is still there."""

    at: datetime
    planned: tuple[str, ...]
    left: tuple[str, ...] = ()


def uninstall(
    api: Api, clock: Clock, options: UninstallOptions, console: Console
) -> tuple[Exit, UninstallReport]:
    """Say what will be done, ask, do it, look for what is left. Raises Failure."""
    return _Uninstall(api, clock, options, console).run()


class _Uninstall:
    def __init__(self, api: Api, clock: Clock, options: UninstallOptions, console: Console) -> None:
        self._api = api
        self._clock = clock
        self._options = options
        self._console = console
        self._tell = console.tell
        self._wanted = Wanted(by_name=options.by_name)
        self._healths: Mapping[str, NodeHealth] = {}
        self._incidents = Incidents(api, clock, console.tell, options.namespace)
        self._objects = Objects(api, clock, console.tell, options.namespace)

    def run(self) -> tuple[Exit, UninstallReport]:
        check_rights(self._api, self._clock, needed(self._options.namespace))
        planned = self._planned()
        report = UninstallReport(at=self._clock.now(), planned=tuple(planned))
        if self._options.dry_run:
            for line in (*planned, "dry run: nothing was written"):
                self._tell(line)
            return Exit.DONE, report
        if not self._console.may_go_on(planned):
            self._tell("nothing was written")
            return Exit.NOT_SO, report
        try:
            self._carry_out()
            left = self._left()
        except KeyboardInterrupt:
            self._tell("stopped half-way: policies may be paused; the same command goes on from here")
            raise
        for line in left:
            self._tell(f"LEFT: {line}")
        if left:
            self._tell("not everything is gone: see to it and run the same command again")
        else:
            self._tell(f"nothing of nodemend's is left in the cluster; {_STAYS}")
        return Exit.NOT_SO if left else Exit.DONE, msgspec.structs.replace(report, left=tuple(left))

    def _carry_out(self) -> None:
        self._incidents.pause()
        self._incidents.settle(wait_s=self._options.wait_s, cancel=self._options.cancel)
        self._end_programs()
        self._clean_nodes()
        objects = self._objects
        others = objects.find(OTHERS)
        objects.delete(others)
        objects.wait_until_gone(others)
        namespaces = [one for one in objects.find_namespaces() if not objects.foreign_in(one.metadata.name)]
        objects.delete(namespaces)
        objects.wait_until_gone(namespaces)
        if self._options.keep_crds:
            self._incidents.resume()
            return
        crds = objects.find_crds()
        objects.delete(crds)
        objects.wait_until_gone(crds)

    def _end_programs(self) -> None:
        """End what decides, publishes and repairs, then take their rights: one that outlives its pod can write nothing."""
        programs = self._objects.find(PROGRAMS)
        self._objects.delete(programs)
        self._objects.wait_for_pods(programs)
        self._objects.delete(self._objects.find(JOBS))
        rights = self._objects.find(RIGHTS)
        self._objects.delete(rights)

    def _clean_nodes(self) -> None:
        self._healths = read_healths(self._api, self._clock)
        for name, health in self._healths.items():
            if health.spec.release is not None:
                release_health(self._api, self._clock, name)
        total = 0
        for _ in range(_ROUNDS):  # a write that was under way when the rights went may still have arrived
            nodes = read_nodes(self._api, self._clock, [])
            cleaned = clean_nodes(self._api, self._clock, nodes, self._look, self._tell)
            total += cleaned
            if not cleaned:
                break
            self._clock.sleep(_BETWEEN_ROUNDS_S)
        self._tell(f"nodes: {total} of {len(nodes)} carried something of nodemend's, which is taken off")

    def _look(self, node: OwnedNode) -> Trace:
        return trace(node, self._healths.get(node.metadata.name), self._wanted)

    def _planned(self) -> list[str]:
        odd: list[str] = []
        self._healths = read_healths(self._api, self._clock)
        traces = [self._look(node) for node in read_nodes(self._api, self._clock, odd)]
        lines = [f"policy {one.metadata.name}: paused" for one in to_pause(self._incidents.policies(odd))]
        lines += incident_lines(
            self._incidents.standing(odd), cancel=self._options.cancel, wait=self._options.wait
        )
        lines += trace_lines(traces)
        lines += self._object_lines()
        lines += [f"NOT READ: {line}" for line in odd]
        if not lines:
            return ["nothing of nodemend's was found; it is looked for once more at the end"]
        return ["This takes nodemend off the cluster:", *(f"  {line}" for line in lines), f"  {_STAYS}"]

    def _object_lines(self) -> list[str]:
        objects = self._objects
        lines = [
            f"{kind.title} deleted: {', '.join(sorted(one.name for one in found))}"
            for kind in ALL
            if (found := objects.find([kind]))
        ]
        for one in objects.find_namespaces():
            name = one.metadata.name
            if foreign := objects.foreign_in(name):
                lines.append(f"namespace {name} stays, since it holds what is not nodemend's: {few(foreign)}")
            else:
                lines.append(f"namespace {name} is deleted with everything in it")
        if crds := [one.metadata.name for one in objects.find_crds()]:
            fate = (
                "stay, and so do their objects"
                if self._options.keep_crds
                else "are deleted with all their objects"
            )
            lines.append(f"CRDs {', '.join(crds)} {fate}")
        return lines

    def _left(self) -> list[str]:
        """Look for everything once more, as somebody would who comes from outside."""
        odd: list[str] = []
        objects = self._objects
        traces = [self._look(node) for node in read_nodes(self._api, self._clock, odd)]
        left = [*map(left_words, traces), *doubt_lines(traces)]
        things: list[Thing] = objects.find(ALL)
        if not self._options.keep_crds:
            things += objects.find_crds()
        left += [str(one) for one in things]
        for one in objects.find_namespaces():
            foreign = objects.foreign_in(one.metadata.name)
            why = f"holds {few(foreign)}, not nodemend's" if foreign else "does not end"
            left.append(f"{one}: it {why}")
        return [line for line in left if line] + odd
