"""`nodemend-bench detect`: from a kernel line to the Node condition, as a watch sees it.

Every node's agent is the real process under its DaemonSet pod's own token, reading raw kernel records from a named pipe; the
condition is seen by a watch of ours. A sample begins before the record is written and ends when the watch's event that
names this very fault (reason and GPU) has been decoded. Beside it, in the same seconds, the floor: one status patch of the
same size on a node without agent, under the same kind of token, sent over a bare connection and seen by the same watch.
Twice: in quiet, and with application XIDs at 100 a second going into the pipe of the node that fails next.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import structlog

from bench.agents_metrics import count, scrape
from bench.detect_sights import Looking
from bench.faults import Line, faults, storm
from bench.figures import Figure, beside, percentile
from bench.floor import Floor
from bench.node_watch import Outside
from bench.outcome import NotMeasured, Say
from bench.pace import Players, play
from kube import paths
from kube.clock import SYSTEM
from kube.types import Node
from sandbox.actors import AgentActor, start_agent
from sandbox.cluster import Sandbox
from sandbox.install import install
from sandbox.nodes import SimulatedNode, create

NODES = 32
SAMPLES = 224  # seven a node: within an agent's own limit of six writes at once and one in 10 s
FAULTS_PER_S = 4.5
STORM_PER_S = 100.0
_LEAD_S = 2.0
_PAUSE_S = 12.0  # between the phases, so that the second begins with the agents' budgets as the first did
_READY_WITHIN_S = 90.0
_SEEN_WITHIN_S = 30.0
_FLOOR = "bare"
_START_AT_ONCE = 4


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What one phase gave, in seconds: ours and the floor's, in the order in which they were sampled."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]
    storm_lines: int
    storm_s: float


def measure(say: Say, *, nodes: int = NODES, samples: int = SAMPLES) -> list[Figure]:
    """Run it all. Raises NotMeasured, MissingProgramError, and what the sandbox raises."""
    with Sandbox(progress=say) as sandbox:
        log = (sandbox.state_dir / "bench.log").open("w")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        install(sandbox, overlay="observe")
        machines = create(sandbox, [f"gpu-{number:02}" for number in range(nodes)])
        (bare,) = create(sandbox, [_FLOOR])
        say(
            f"{nodes} nodes of {bare.platform.name} are Ready; each gets the real agent: a process, its pod's token"
        )
        looking = Looking()
        with Outside(sandbox.admin, paths.nodes(), Node, looking.see):
            agents = _start_agents(sandbox, machines)
            try:
                _wait_healthy(looking, machines)
                floor = Floor(sandbox, bare, looking)
                figures = _both_phases(say, machines, agents, looking, floor, samples)
                floor.close()
            finally:
                _stop(agents)
    return figures


def _both_phases(
    say: Say,
    machines: Sequence[SimulatedNode],
    agents: Sequence[AgentActor],
    looking: Looking,
    floor: Floor,
    samples: int,
) -> list[Figure]:
    first, told = faults(count=samples, nodes=len(machines), rate=FAULTS_PER_S)
    second, _ = faults(count=samples, nodes=len(machines), rate=FAULTS_PER_S, told=told)
    SYSTEM.sleep(_PAUSE_S)
    say(f"quiet: {samples} faults on {len(machines)} nodes, {FAULTS_PER_S:g} a second")
    quiet = _phase("quiet", machines, looking, floor, first, ())
    SYSTEM.sleep(_PAUSE_S)
    say(f"storm: the same with {STORM_PER_S:g} application XIDs a second in front of them")
    stormy = _phase(
        "storm", machines, looking, floor, second, storm(second, rate=STORM_PER_S, lead_s=_LEAD_S)
    )
    return [*_figures(quiet, stormy), *_lines(machines, agents)]


def _phase(
    name: str,
    machines: Sequence[SimulatedNode],
    looking: Looking,
    floor: Floor,
    lines: Sequence[Line],
    beside_them: Sequence[Line],
) -> Phase:
    """Play one phase and wait until every sample was seen. Raises NotMeasured, naming the lost ones."""
    start = SYSTEM.monotonic() + _LEAD_S
    players = Players()
    ours = [(line.at_s, (f"{name}-{number}", line)) for number, line in enumerate(lines)]
    bare = [(line.at_s + 0.5 / FAULTS_PER_S, f"{name}-bare-{number}") for number, line in enumerate(lines)]
    storm_end = [start]

    def play_storm() -> None:
        play(SYSTEM, start, [(line.at_s, line) for line in beside_them], lambda line: _write(machines, line))
        storm_end[0] = SYSTEM.monotonic()

    players.start("faults", lambda: play(SYSTEM, start, ours, lambda one: _sample(machines, looking, *one)))
    players.start("bare", lambda: play(SYSTEM, start, bare, floor.patch))
    players.start("storm", play_storm)
    players.join()
    keys = [key for _, (key, _) in ours]
    floors = [key for _, key in bare]
    looking.pairs.wait(len(looking.pairs.seconds()) + len(looking.pairs.missing()), _SEEN_WITHIN_S)
    if missing := looking.pairs.missing():
        raise NotMeasured(
            f"{name}: {len(missing)} of {len(keys) + len(floors)} samples were not seen within "
            f"{_SEEN_WITHIN_S:g} s: {', '.join(missing[:5])}"
        )
    seconds = looking.pairs.seconds()
    return Phase(
        ours=tuple(seconds[key] for key in keys),
        bare=tuple(seconds[key] for key in floors),
        storm_lines=len(beside_them),
        storm_s=storm_end[0] - (start - _LEAD_S),
    )


def _sample(machines: Sequence[SimulatedNode], looking: Looking, key: str, line: Line) -> None:
    node = machines[line.node]
    pci = node.gpus[line.gpu].pci.rpartition(".")[0]
    looking.expect(node.name, f"at {pci}: {line.reason}", key, SYSTEM.monotonic())
    _write(machines, line)


def _write(machines: Sequence[SimulatedNode], line: Line) -> None:
    machines[line.node].write_xid(line.code, line.text, gpu=line.gpu, pid=line.pid)


def _figures(quiet: Phase, stormy: Phase) -> list[Figure]:
    p50, p99 = percentile(quiet.ours, 50), percentile(quiet.ours, 99)
    storm_p50, storm_p99 = percentile(stormy.ours, 50), percentile(stormy.ours, 99)
    bare_p50, bare_p99 = percentile(quiet.bare, 50), percentile(quiet.bare, 99)
    bare_storm_p50, bare_storm_p99 = percentile(stormy.bare, 50), percentile(stormy.bare, 99)
    what = "a bare status patch seen by the same watch"
    return [
        Figure(name="kernel_line_to_condition_p50_s", value=p50, aim=0.1, beside=beside(p50, bare_p50, what)),
        Figure(name="kernel_line_to_condition_p99_s", value=p99, aim=1.0, beside=beside(p99, bare_p99, what)),
        Figure(name="kernel_line_to_condition_max_s", value=max(quiet.ours)),
        Figure(name="storm_p50_s", value=storm_p50, beside=beside(storm_p50, bare_storm_p50, what)),
        Figure(name="storm_p99_s", value=storm_p99, aim=2.0, beside=beside(storm_p99, bare_storm_p99, what)),
        Figure(name="storm_max_s", value=max(stormy.ours)),
        Figure(name="storm_lines_per_s", value=stormy.storm_lines / stormy.storm_s),
        Figure(name="bare_patch_p50_s", value=bare_p50),
        Figure(name="bare_patch_p99_s", value=bare_p99),
        Figure(name="storm_bare_patch_p50_s", value=bare_storm_p50),
        Figure(name="storm_bare_patch_p99_s", value=bare_storm_p99),
        Figure(name="kernel_line_to_condition_p50_vs_bare", value=p50 / bare_p50),
        Figure(name="samples", value=len(quiet.ours), aim=200, at_least=True),
        Figure(name="storm_samples", value=len(stormy.ours), aim=200, at_least=True),
    ]


def _lines(machines: Sequence[SimulatedNode], agents: Sequence[AgentActor]) -> list[Figure]:
    """Compare what was written into the pipes with what the agents judged. Raises NotMeasured where they differ."""
    written = sum(node.lines_written for node in machines)
    addresses = [agent.listen.read_text().strip() for agent in agents]
    deadline = SYSTEM.monotonic() + _SEEN_WITHIN_S
    sums = scrape(addresses)
    while count(sums, "nodemend_source_records_total") < written and SYSTEM.monotonic() < deadline:
        SYSTEM.sleep(0.5)
        sums = scrape(addresses)
    seen, lost = count(sums, "nodemend_source_records_total"), count(sums, "nodemend_source_lost_total")
    unwritten = sum(node.machine.kernel_log.lines_lost for node in machines)
    if seen != written or unwritten:
        raise NotMeasured(
            f"{written} lines were written ({unwritten} found the pipe full), the agents saw {seen} and know of {lost} lost"
        )
    return [
        Figure(name="lines_written", value=written),
        Figure(name="lines_seen", value=seen, beside=f"equal to the {written} written"),
        Figure(name="writes_held_by_rate_limit", value=count(sums, "nodemend_agent_writes_delayed_total")),
        Figure(name="nodes", value=len(machines)),
    ]


def _start_agents(sandbox: Sandbox, machines: Sequence[SimulatedNode]) -> list[AgentActor]:
    with ThreadPoolExecutor(_START_AT_ONCE, thread_name_prefix="start") as pool:
        agents = list(pool.map(lambda node: start_agent(sandbox, node), machines))
    for agent in agents:
        agent.wait_ready(_READY_WITHIN_S)
    return agents


def _wait_healthy(looking: Looking, machines: Sequence[SimulatedNode]) -> None:
    deadline = SYSTEM.monotonic() + _READY_WITHIN_S
    while missing := {node.name for node in machines} - looking.healthy:
        if SYSTEM.monotonic() > deadline:
            raise NotMeasured(
                f"{len(missing)} agents did not publish within {_READY_WITHIN_S:g} s: {min(missing)} and others"
            )
        SYSTEM.sleep(0.2)


def _stop(agents: Sequence[AgentActor]) -> None:
    with ThreadPoolExecutor(16, thread_name_prefix="stop") as pool:
        list(pool.map(lambda agent: agent.stop(), agents))
