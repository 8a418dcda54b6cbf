"""`nodemend-bench scheduler`: from the first create to the last bind, beside kube-scheduler and beside a bare client.

500 KWOK nodes of 8 GPUs. In each turn one and the same creator, a process of 16 threads with a connection each that sends
requests written beforehand, creates 1,000 pods of one GPU; the clock runs from its first request to the last bind that a
watch of ours shows. In its own turn: the bare client, which creates all and then binds all, deciding nothing; kube-scheduler
with its client's limits raised (qps and burst 5000); nodemend-scheduler, the real process under its ServiceAccount's token.
Turns are repeated in changing order, since what else the machine does tells on all; between them the pods are deleted and
only the scheduler whose turn it is runs. What ours wrote to the server is counted in the audit record (Events, which that
leaves out, by listing them). Then 16 gangs of 64, created and bound in the same way.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from bench import fleet
from bench.bare_plan import Bare, Done, Send
from bench.figures import Figure
from bench.fleet import Ready
from bench.hardware import spent_s
from bench.node_watch import Outside
from bench.outcome import NotMeasured, Say
from bench.scheduler_figures import BARE, GANG, GANGS, OURS, THEIRS, Turn, Whole, figures
from bench.scheduler_requests import ACCOUNT, ACCOUNT_NAMESPACE, NAMESPACE, bind, create, pod_group
from bench.scheduler_sights import Landing
from bench.scheduler_stage import Stage, prepare, scheduler_name
from kube import paths
from kube.types import Node, Pod
from sandbox.cluster import Sandbox

NODES: Final = 500
PODS: Final = 1000
ROUNDS: Final = 3
GPUS: Final = 8
CREATORS: Final = 16
_NODE_LEASE_S: Final = 400
_WITHIN_S: Final = 300.0


def measure(say: Say, *, nodes: int = NODES, pods: int = PODS, rounds: int = ROUNDS) -> list[Figure]:
    """Run it all. Raises NotMeasured, MissingProgramError, and what the sandbox raises."""
    if max(pods, GANG) > nodes * GPUS:
        raise NotMeasured(f"{nodes} nodes have {nodes * GPUS} GPUs; {max(pods, GANG)} are needed")
    with Sandbox(progress=say, audit=True, node_lease_s=_NODE_LEASE_S) as sandbox:
        return _Run(sandbox, say, pods=pods).all(fleet.names("gpu", nodes), rounds)


class _Run:
    """One benchmark on one sandbox."""

    def __init__(self, sandbox: Sandbox, say: Say, *, pods: int) -> None:
        self._sandbox = sandbox
        self._say = say
        self._pods = pods
        self._landing = Landing()
        self._stage = Stage(sandbox, self._landing)
        self._plays = 0

    def all(self, nodes: Sequence[str], rounds: int) -> list[Figure]:
        sandbox = self._sandbox
        prepare(sandbox)
        self._say(f"creating {len(nodes)} nodes of {GPUS} GPUs")
        ready = Ready()
        with (
            Outside(sandbox.admin, paths.nodes(), Node, ready.see),
            Outside(sandbox.admin, paths.pods(NAMESPACE), Pod, self._landing.see),
        ):
            fleet.create(sandbox.admin, {"gpu": nodes})
            ready.wait(len(nodes))
            self._stage.calm()
            turns = [self._turn(number, who, nodes) for number in range(rounds) for who in order(number)]
            whole = self._gangs(min(GANGS, len(nodes) * GPUS // GANG))
        return figures(turns, whole)

    def _turn(self, number: int, who: str, nodes: Sequence[str]) -> Turn:
        """Let one of the three bind all pods."""
        names = [f"{who}-{number}-{pod:04}" for pod in range(self._pods)]
        creates = tuple(create(name, scheduler_name(who)) for name in names)
        turn = self._bare(names, creates, nodes) if who == BARE else self._scheduled(who, names, creates)
        self._stage.clear()
        spent = f", {turn.spent_s:.1f} s of processor time" if turn.spent_s else ""
        self._say(
            f"{who}: {turn.pods} pods in {turn.seconds:.2f} s, {turn.pods / turn.seconds:.0f} a second{spent}"
        )
        return turn

    def _scheduled(self, who: str, names: Sequence[str], creates: tuple[tuple[Send, ...], ...]) -> Turn:
        with self._stage.running(who) as process:
            since, before = datetime.now(UTC), spent_s(process.pid)
            seconds = self._landed(names, creates)
            spent = spent_s(process.pid) - before
            count = self._stage.count(since) if who == OURS else None
            settled = spent_s(process.pid) - before
        return Turn(who=who, pods=len(names), seconds=seconds, spent_s=spent, settled_s=settled, asked=count)

    def _bare(
        self, names: Sequence[str], creates: tuple[tuple[Send, ...], ...], nodes: Sequence[str]
    ) -> Turn:
        """Create all, then bind all; what its process takes to start in between is not counted."""
        self._landing.follow(names)
        created = self._play(creates)
        bound = self._play(tuple(bind(name, nodes[pod % len(nodes)]) for pod, name in enumerate(names)))
        self._landing.wait(_WITHIN_S)
        seconds = created.ended - created.began + bound.ended - bound.began
        return Turn(who=BARE, pods=len(names), seconds=seconds)

    def _gangs(self, count: int) -> Whole:
        """Let ours start gangs, each whole."""
        members = {
            group: [f"{group}-{pod:02}" for pod in range(GANG)]
            for group in (f"gang-{number:02}" for number in range(count))
        }
        creates = tuple(create(name, OURS, group) for group, names in members.items() for name in names)
        with self._stage.running(OURS):
            for group in members:
                self._sandbox.admin.create(paths.pod_groups(NAMESPACE), pod_group(group, GANG))
            seconds = self._landed([name for names in members.values() for name in names], creates)
        widest = max(self._landing.spread(names) for names in members.values())
        self._say(f"{count} gangs of {GANG}: {seconds:.2f} s, the widest {widest:.2f} s")
        return Whole(gangs=count, seconds=seconds, widest_s=widest)

    def _landed(self, names: Sequence[str], creates: tuple[tuple[Send, ...], ...]) -> float:
        """Create pods; give the seconds from the creator's first request until the last was seen on a node."""
        self._landing.follow(names)
        created = self._play(creates)
        return self._landing.wait(_WITHIN_S) - created.began

    def _play(self, sequences: tuple[tuple[Send, ...], ...]) -> Done:
        """Send requests from a process of its own. Raises NotMeasured."""
        self._plays += 1
        name = f"creator-{self._plays}"
        folder = self._sandbox.state_dir / "creators" / name
        folder.mkdir(parents=True)
        plan, result = folder / "plan.json", folder / "result.json"
        token = self._sandbox.token_file(ACCOUNT_NAMESPACE, ACCOUNT).read_text().strip()
        bare = Bare(
            server=self._sandbox.server,
            ca_file=str(self._sandbox.ca_file),
            token=token,
            connections=CREATORS,
            sequences=sequences,
        )
        plan.write_bytes(msgspec.json.encode(bare))
        argv = [sys.executable, "-m", "bench.bare_loop", str(plan), str(result)]
        status = self._sandbox.spawn(name, argv).wait(_WITHIN_S)
        if status != 0:
            raise NotMeasured(f"{name} ended with status {status}: {self._sandbox.logs(name)[-500:]}")
        done = msgspec.json.decode(result.read_bytes(), type=Done)
        if done.refused:
            raise NotMeasured(f"the server refused requests of {name}: {done.refused} of {done.answered}")
        return done


def order(number: int) -> tuple[str, ...]:
    """Give the order of a round's turns: each has each place in turn."""
    turns = (BARE, THEIRS, OURS)
    first = number % len(turns)
    return (*turns[first:], *turns[:first])
