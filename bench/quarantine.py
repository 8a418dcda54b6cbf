"""`nodemend-bench quarantine`: from the Node condition to the quarantine, one by one and hundreds of nodes at once.

The controller is the real process under its ServiceAccount's token. Conditions and NodeHealth are written by the product's
own agents over scripted readings (bench.reporters). A node counts as quarantined when a watch of ours shows it cordoned and
tainted. One by one: from the watch's event of the condition to its event of the quarantine. At once: all conditions stand
and no policy governs their nodes; the clock starts before the one write that lets the policy govern them, limits raised, and
stops at the last node's quarantine. Before and after that, while no controller runs, a bare loop in a process of its own,
under the same token and over as many connections, sends in all as many requests of each kind (counted in the API server's
audit record) with the same bodies for fresh nodes of the same cluster: half of them before and half after, so that what
else the machine has to do tells on both.

KWOK renews the nodes' Leases every 100 s, not every 10 s as kubelets do: at that pace the renewals alone would keep half of
a two-core machine busy, and the figures would be about them.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec
import structlog

from bench import fleet
from bench.audit import Asked, asked
from bench.bare_plan import CREATE, EVENT, NODE, STATUS, Template
from bench.bare_runs import BareRuns
from bench.figures import Figure, percentile
from bench.fleet import AT_ONCE, FLEET
from bench.fleet import SAMPLES as SAMPLE_GROUP
from bench.hardware import spent_s
from bench.node_watch import Outside
from bench.outcome import NotMeasured, Say
from bench.pace import play
from bench.quarantine_figures import AIMED_NODES, AIMED_SICK, Burst, figures
from bench.quarantine_sights import Looking
from bench.reporters import Reporter
from controller.announce import CONTROLLER as EVENTS_OF
from kube import paths
from kube.clock import SYSTEM
from kube.remediation import Remediation
from kube.types import Node
from sandbox.actors import CONTROLLER, SYSTEM_NAMESPACE, ControllerActor, start_controller
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities

NODES = AIMED_NODES
SICK = AIMED_SICK
SAMPLES = 200
SAMPLES_PER_S = 4.0
_FLOOR_GROUP, _FLOOR = "bare", 60
_SEEN_WITHIN_S = 60.0
_ALL_WITHIN_S = 300.0
_AUDIT_FLUSH_S = 2.0
_NODE_LEASE_S = 400
_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{CONTROLLER}"


def measure(say: Say, *, nodes: int = NODES, sick: int = SICK, samples: int = SAMPLES) -> list[Figure]:
    """Run it all. Raises NotMeasured, MissingProgramError, and what the sandbox raises."""
    if nodes < 2 * sick:
        raise NotMeasured(
            f"{sick} of {nodes} nodes leave too few for the bare loop, which needs as many fresh ones"
        )
    with Sandbox(progress=say, audit=True, node_lease_s=_NODE_LEASE_S) as sandbox:
        log = (sandbox.state_dir / "bench.log").open("w")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        return _Run(sandbox, say, nodes=nodes, sick=sick, samples=samples).all()


class _Run:
    """One benchmark on one sandbox."""

    def __init__(self, sandbox: Sandbox, say: Say, *, nodes: int, sick: int, samples: int) -> None:
        self._sandbox = sandbox
        self._say = say
        self._fleet = fleet.names(FLEET, nodes)
        self._samples = fleet.names(SAMPLE_GROUP, samples)
        self._floor = fleet.names(_FLOOR_GROUP, _FLOOR)
        self._sick, self._fresh = self._fleet[:sick], self._fleet[sick : 2 * sick]
        self._looking = Looking()
        self._stories: dict[str, list[Remediation]] = defaultdict(list)

    def all(self) -> list[Figure]:
        sandbox, say = self._sandbox, self._say
        fleet.prepare(sandbox)
        groups = {FLEET: self._fleet, SAMPLE_GROUP: self._samples, _FLOOR_GROUP: self._floor}
        count = sum(len(members) for members in groups.values())
        say(
            f"creating {count} nodes: {len(self._fleet)} of the fleet, {len(self._samples) + _FLOOR} for samples"
        )
        say(f"KWOK renews each node's Lease every {_NODE_LEASE_S // 4} s (kubelet: every 10 s)")
        with Outside(sandbox.admin, paths.nodes(), Node, self._looking.see) as watch:
            fleet.create(sandbox.admin, groups)
            self._looking.ready.wait(count)
            with self._controller():
                single = self._one_by_one()
            runs = BareRuns(sandbox, say, self._looking, watch, self._template())
            floor = runs.one_by_one(self._floor, SAMPLES_PER_S)
            half = len(self._fresh) // 2
            least = Asked(done={CREATE: half, STATUS: half, NODE: half}, refused={})
            bare = [runs.at_once(self._fresh[:half], least)] if half else []
            runs.forget()
            with self._controller() as controller:
                burst = self._at_once(controller)
            bare.append(runs.at_once(self._fresh[half:], burst.asked.without(least)))
        return figures(single, floor, burst, bare, len(self._sick), len(self._fleet))

    @contextmanager
    def _controller(self) -> Iterator[ControllerActor]:
        """Run one controller, from the moment that it leads."""
        (controller,) = start_controller(self._sandbox)
        try:
            fleet.wait_led(self._sandbox.admin)
            yield controller
        finally:
            controller.stop()

    def _one_by_one(self) -> tuple[float, ...]:
        names = self._samples
        self._looking.follow(self._looking.one_by_one, names)
        reporters = self._reporters(names)
        self._each(reporters, Reporter.begin)
        self._say(f"one by one: {len(names)} faults, {SAMPLES_PER_S:g} a second")
        with (
            Outside(self._sandbox.admin, paths.remediations(), Remediation, self._tell),
            ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fail") as pool,
        ):
            plan = [(number / SAMPLES_PER_S, reporter) for number, reporter in enumerate(reporters)]
            failing = []
            play(SYSTEM, SYSTEM.monotonic() + 1.0, plan, lambda one: failing.append(pool.submit(one.fail)))
            for future in failing:
                future.result()
            pairs = self._looking.one_by_one
            if not pairs.wait(len(names), _SEEN_WITHIN_S):
                lost = sorted(set(names) - set(pairs.seconds()))
                raise NotMeasured(
                    f"{len(lost)} of {len(names)} nodes were not quarantined within {_SEEN_WITHIN_S:g} s: "
                    f"{', '.join(lost[:5])}"
                )
        seconds = tuple(pairs.seconds().values())
        self._say(
            f"  p50 {percentile(seconds, 50):.3f} s, p99 {percentile(seconds, 99):.3f} s, worst {max(seconds):.3f} s"
        )
        return seconds

    def _at_once(self, controller: ControllerActor) -> Burst:
        pairs, names = self._looking.at_once, self._sick
        self._say(
            f"at once: the agents of {len(names)} nodes report a fault each; no policy governs them yet"
        )
        self._looking.follow(pairs, names)
        self._each(self._reporters(names), Reporter.begin_sick)
        self._wait_ill(names)
        if pairs.ended_by(SYSTEM.monotonic()):
            raise NotMeasured("a node of the fleet was quarantined before any policy governed it")
        before = self._spent(controller)
        began, since = SYSTEM.monotonic(), datetime.now(UTC)
        fleet.govern(self._sandbox.admin)
        in_time = pairs.wait(len(names), _ALL_WITHIN_S)
        until = datetime.now(UTC)
        spent = {name: after - before[name] for name, after in self._spent(controller).items()}
        if not in_time:
            raise NotMeasured(
                f"{len(pairs.missing())} of {len(names)} nodes were not quarantined within {_ALL_WITHIN_S:g} s"
            )
        seconds = pairs.last_end() - began
        SYSTEM.sleep(_AUDIT_FLUSH_S)
        sent = asked(self._sandbox.audit_events(), _USER, since, until)
        burst = Burst(
            seconds=seconds,
            half_s=percentile((end - began for end in pairs.ends()), 50),
            asked=sent.beside(EVENT, self._events(since, until)),
            spent=spent,
        )
        self._say(f"  {len(names)} quarantined in {seconds:.2f} s; the controller sent {burst.asked.words()}")
        self._say("  processor seconds meanwhile: " + ", ".join(f"{n} {s:.1f}" for n, s in spent.items()))
        return burst

    @cached_property
    def _identities(self) -> AgentIdentities:
        return AgentIdentities(self._sandbox, max_connections=AT_ONCE)

    def _reporters(self, names: Sequence[str]) -> list[Reporter]:
        folder = self._sandbox.state_dir / "reporters"
        return [
            Reporter(self._identities.of(name), name, fleet.boot_id(name), folder / name) for name in names
        ]

    def _each(self, reporters: Sequence[Reporter], do: Any) -> None:
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="report") as pool:
            list(pool.map(do, reporters))

    def _wait_ill(self, names: Sequence[str]) -> None:
        deadline = SYSTEM.monotonic() + _SEEN_WITHIN_S
        while len(self._looking.at_once.missing()) < len(names):
            if SYSTEM.monotonic() > deadline:
                raise NotMeasured(
                    f"{len(self._looking.at_once.missing())} of {len(names)} conditions were seen"
                )
            SYSTEM.sleep(0.05)

    def _tell(self, remediation: Remediation, _at: float) -> None:
        self._stories[remediation.spec.node_name].append(remediation)

    def _template(self) -> Template:
        """Take the incident of one sampled node that was told from its first write on. Raises NotMeasured."""
        for name in self._samples:
            story = tuple(self._stories.get(name, ()))
            if (
                len(story) >= 3
                and story[0].status.phase_since is None
                and story[-1].status.before is not None
            ):
                node = msgspec.json.decode(self._sandbox.admin.get(paths.node(name)), type=Node)
                events = [one for one in self._all_events() if one["regarding"]["name"] == name]
                return Template(node=node, story=story, event=_sendable(events[0]) if events else None)
        raise NotMeasured("no incident was seen from its first write on")

    def _events(self, since: datetime, until: datetime) -> int:
        """Count the Events that the controller wrote meanwhile; the audit record leaves Events out."""
        times = [datetime.fromisoformat(one["metadata"]["creationTimestamp"]) for one in self._all_events()]
        first = since.replace(microsecond=0)  # the server keeps whole seconds
        return sum(first <= time <= until for time in times)

    def _all_events(self) -> list[dict[str, Any]]:
        listed = msgspec.json.decode(
            self._sandbox.admin.get("/apis/events.k8s.io/v1/namespaces/default/events")
        )
        return [one for one in listed["items"] if one.get("reportingController") == EVENTS_OF]

    def _spent(self, controller: ControllerActor) -> dict[str, float]:
        pids = {name: process.pid for name, process in self._sandbox.control_plane.items()}
        return {name: spent_s(pid) for name, pid in {"controller": controller.process.pid, **pids}.items()}


def _sendable(event: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the server adds to an Event."""
    added = {"metadata", "deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"}
    return {name: value for name, value in event.items() if name not in added}
