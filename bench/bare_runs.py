"""The bare loop's runs on the cluster that the controller is measured on: nothing decides, requests are only sent.

No controller may run meanwhile: it would take the bare incidents for its own. `forget` takes them away before one does.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from bench import bare_loop
from bench.audit import Asked
from bench.bare_plan import Bare, Done, Send, Template, incident_name, one_quarantine, sequences
from bench.figures import percentile
from bench.node_watch import Outside
from bench.outcome import NotMeasured, Say
from bench.pace import play
from bench.quarantine_sights import Looking
from bench.wire import Wire
from controller.crew import WORKERS
from kube import paths
from kube.clock import SYSTEM
from kube.types import Node
from sandbox.actors import CONTROLLER, SYSTEM_NAMESPACE
from sandbox.cluster import Sandbox

_SEEN_WITHIN_S = 60.0
_ALL_WITHIN_S = 300.0
_MOST_REFUSED = 0.05
_AT_ONCE = 16


class BareRuns:
    """Sends the template's incident for other nodes, under the controller's own token."""

    def __init__(
        self, sandbox: Sandbox, say: Say, looking: Looking, watch: Outside[Node], template: Template
    ) -> None:
        self._sandbox = sandbox
        self._say = say
        self._looking = looking
        self._watch = watch
        self._template = template
        self._incidents = 0
        self._forgotten = 0
        self._runs = 0

    def one_by_one(self, names: Sequence[str], per_s: float) -> tuple[float, ...]:
        """Quarantine nodes by the three requests alone; give seconds until the watch showed it. Raises NotMeasured."""
        pairs = self._looking.bare
        self._looking.follow(pairs, names)
        self._say(f"bare, one by one: {len(names)} nodes, {per_s:g} a second")
        wire = Wire(self._sandbox.server, self._sandbox.ca_file)
        plan = [(number / per_s, name) for number, name in enumerate(names)]
        play(SYSTEM, SYSTEM.monotonic() + 1.0, plan, partial(self._quarantine, wire))
        wire.close()
        if not pairs.wait(len(names), _SEEN_WITHIN_S):
            raise NotMeasured(f"{len(pairs.missing())} bare quarantines were not seen")
        seconds = tuple(pairs.seconds().values())
        self._say(f"  p50 {percentile(seconds, 50):.3f} s, p99 {percentile(seconds, 99):.3f} s")
        return seconds

    def at_once(self, names: Sequence[str], wanted: Asked) -> Done:
        """Send as many requests of each kind for these nodes, in a process of its own. Raises NotMeasured."""
        self._say(f"bare, at once: {len(names)} nodes over {WORKERS} connections, in a process of its own")
        written = sequences(self._template, self._nodes(names), wanted, first=self._incidents)
        self._incidents += len(names)
        self._runs += 1
        folder = self._sandbox.state_dir / "bare" / str(self._runs)
        folder.mkdir(parents=True)
        plan, result = folder / "plan.json", folder / "result.json"
        plan.write_bytes(msgspec.json.encode(self._bare(written)))
        name = f"bare-loop-{self._runs}"
        argv = [sys.executable, "-m", "bench.bare_loop", str(plan), str(result)]
        status = self._sandbox.spawn(name, argv).wait(_ALL_WITHIN_S)
        if status != 0:
            raise NotMeasured(f"{name} ended with status {status}: {self._sandbox.logs(name)[-500:]}")
        done = msgspec.json.decode(result.read_bytes(), type=Done)
        if sum(done.refused.values()) > _MOST_REFUSED * done.answered:
            raise NotMeasured(f"the server refused too much of {name}: {done.refused} of {done.answered}")
        self._say(
            f"  {done.answered} requests in {done.ended - done.began:.2f} s; refused: {done.refused or 'none'}"
        )
        return done

    def forget(self) -> None:
        """Delete the bare incidents, so that no controller takes them for its own. Raises ApiError."""
        names = [incident_name(number) for number in range(self._forgotten, self._incidents)]
        self._forgotten = self._incidents
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="forget") as pool:
            list(pool.map(lambda name: self._sandbox.admin.delete(paths.remediation(name)), names))

    def _quarantine(self, wire: Wire, name: str) -> None:
        # Written just before: a heartbeat in between would change the version that the patch has to name.
        (node,) = self._nodes([name])
        plan = self._bare([one_quarantine(self._template, node, self._incidents)])
        self._incidents += 1
        ready = bare_loop.prepared(plan, plan.sequences[0])
        self._looking.bare.begin(name, SYSTEM.monotonic())
        statuses = bare_loop.play(wire, ready)
        if any(not 200 <= status < 300 for status in statuses):
            raise NotMeasured(f"the bare quarantine of {name} was refused: {statuses}")

    def _bare(self, written: Sequence[tuple[Send, ...]]) -> Bare:
        token = self._sandbox.token_file(SYSTEM_NAMESPACE, CONTROLLER).read_text().strip()
        return Bare(
            server=self._sandbox.server,
            ca_file=str(self._sandbox.ca_file),
            token=token,
            connections=WORKERS,
            sequences=tuple(written),
        )

    def _nodes(self, names: Sequence[str]) -> list[Node]:
        """Give the nodes as the watch last showed them. Raises NotMeasured."""
        found = [self._watch.store.get(name) for name in names]
        if None in found:
            raise NotMeasured("a node vanished")
        return [node for node in found if node is not None]
