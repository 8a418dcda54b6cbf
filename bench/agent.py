"""`nodemend-bench agent`: what a node pays for its agent while nothing happens.

Memory and processor are those of the real program and all its children, under its DaemonSet pod's token, on a simulated
node of eight GPUs: NVML answers (the fake driver, through the real nvidia-ml-py), kubelet answers (PodResources with sixty
pods, over real gRPC), and it is probed and scraped as often as its DaemonSet and Prometheus would. It runs on a Python of
its own with compiled bytecode (bench.own_python). Beside it, at the same time and on another such Python, the floor
(bench.bare_agent): one process that holds an API connection and one that asks NVML.

Writes are counted by the API server's audit record, Leases left out: those of the same program in the same window, and,
since a window says little about a pace of ten minutes, those of hours on a clock that runs ahead (bench.quiet_hours).
"""

import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog
import urllib3

from agent.offered import POD_RESOURCES
from bench.audit import Asked, asked
from bench.figures import Figure
from bench.floor import agent_pod
from bench.footprint import Memory, Stopwatch, family, memory
from bench.outcome import NotMeasured, Say
from bench.own_python import OwnPython, copy_python
from bench.quiet_hours import QuietHours
from checks.observation import KERNEL_LOG, NVML
from kube import paths
from kube.clock import SYSTEM
from kube.nodehealth import NodeHealth
from kube.session import connect, user_agent
from sandbox.actors import AGENT, SYSTEM_NAMESPACE
from sandbox.agent_files import write_config
from sandbox.cluster import Sandbox
from sandbox.fake_nvml import FakeDriver
from sandbox.install import install
from sandbox.nodes import SimulatedNode, create
from sandbox.pod_resources import PodResourcesServer, allocatable, pod
from sandbox.processes import Process

WINDOW_S = 900
HOURS = 3
WARM_UP_S = 30.0
MEMORY_S = 60.0
PODS = 60
_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT}"
_READY_WITHIN_S = 120.0
_ROUND_S = 30.0
# As often as manifests/base/agent.yaml has it probed, and Prometheus scrapes by default.
_PROBES = (("/healthz", 20.0), ("/readyz", 10.0), ("/metrics", 30.0))


def measure(say: Say, *, window_s: int = WINDOW_S, hours: int = HOURS) -> list[Figure]:
    """Run it all; `window_s` real seconds and `hours` on the fast clock. Raises NotMeasured and what the sandbox raises."""
    if window_s < MEMORY_S:
        raise NotMeasured(
            f"a window of {window_s} s is too short: memory alone is watched for {MEMORY_S:g} s"
        )
    with Sandbox(progress=say, audit=True) as sandbox:
        log = (sandbox.state_dir / "bench.log").open("w")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        install(sandbox, overlay="observe")
        node, quiet = create(sandbox, ["gpu-0", "gpu-1"])
        driver = FakeDriver(node.root / "driver", node.gpus)
        with PodResourcesServer(sandbox.state_dir / "kubelet.sock") as kubelet:
            _fill(kubelet, node)
            return [
                *_real_time(say, sandbox, node, driver, kubelet.path, window_s),
                *_fast_time(say, sandbox, quiet, kubelet, hours),
            ]


def _fill(kubelet: PodResourcesServer, node: SimulatedNode) -> None:
    """Let every GPU be offered and held, among pods that hold nothing."""
    uuids = [gpu.uuid for gpu in node.gpus]
    kubelet.allocatable = allocatable("nvidia.com/gpu", *uuids)
    kubelet.pods = b"".join(
        pod("team-a", f"trainer-{number}", "nvidia.com/gpu", *uuids[number : number + 1])
        for number in range(PODS)
    )


def _real_time(
    say: Say, sandbox: Sandbox, node: SimulatedNode, driver: FakeDriver, kubelet: Path, window_s: int
) -> list[Figure]:
    say("copying Python twice, for the agent and for the floor, and compiling it")
    mine, bare = (copy_python(sandbox.state_dir / name) for name in ("python", "bare-python"))
    agent = _start_agent(sandbox, node, mine, driver, kubelet)
    floor = _start_floor(sandbox, bare, driver)
    stop = threading.Event()
    prober = threading.Thread(
        target=_probe, args=(node.machine.state_dir / "listen", stop), name="prober", daemon=True
    )
    try:
        _wait_ready(sandbox, agent, node)
        prober.start()
        say(f"the agent is ready; warming up for {WARM_UP_S:g} s, then watching it for {window_s} s")
        SYSTEM.sleep(WARM_UP_S)
        since = SYSTEM.now()
        watches = [Stopwatch(process.pid) for process in (agent, *floor)]
        most = _most_memory(sandbox, [agent, *floor])
        SYSTEM.sleep(max(0.0, window_s - (SYSTEM.monotonic() - watches[0].since)))
        percent, *bare_percent = (watch.percent() for watch in watches)
        written = _written(sandbox, node, since, SYSTEM.now())
        processes = len(family(agent.pid))
        _check(sandbox, agent, node)
    finally:
        stop.set()
        for process in (agent, *floor):
            process.stop()
    ours, least = most[agent.pid], sum((most[process.pid] for process in floor), Memory())
    say(f"in {window_s} s the agent's processes ({processes}) asked the API server for: {written.words()}")
    return [
        Figure(
            name="agent_pss_mib",
            value=ours.pss / 1024,
            aim=64,
            beside=_times(ours.pss / 1024, least.pss / 1024, "bare HTTP and NVML processes", "MiB"),
        ),
        Figure(
            name="agent_cpu_percent",
            value=percent,
            aim=0.5,
            beside=_times(percent, sum(bare_percent), "the same NVML questions alone", "%"),
        ),
        Figure(name="agent_rss_mib", value=ours.rss / 1024),
        Figure(name="agent_private_mib", value=ours.private / 1024),
        Figure(name="agent_processes", value=processes),
        Figure(name="bare_pss_mib", value=least.pss / 1024),
        Figure(name="bare_cpu_percent", value=sum(bare_percent)),
        Figure(name="gpus", value=len(node.gpus)),
        Figure(name="window_s", value=window_s),
        Figure(name="window_writes", value=written.total),
    ]


def _fast_time(
    say: Say, sandbox: Sandbox, node: SimulatedNode, kubelet: PodResourcesServer, hours: int
) -> list[Figure]:
    _fill(kubelet, node)
    token = sandbox.token_file(SYSTEM_NAMESPACE, AGENT, pod=agent_pod(sandbox, node))
    api = connect(
        user_agent=user_agent("nodemend-bench"),
        server=sandbox.server,
        token_file=token,
        ca_file=sandbox.ca_file,
    )
    try:
        agent = QuietHours(api, node, kubelet.path)
        say(f"{hours} hours of nothing on a clock that runs ahead")
        since, began = SYSTEM.now(), SYSTEM.monotonic()
        agent.pass_by(hours * 3600)
        took_s = SYSTEM.monotonic() - began
        agent.end()
    finally:
        api.close()
    written = _written(sandbox, node, since, SYSTEM.now())
    say(f"in {hours} hours ({took_s:.0f} s) the API server was asked for: {written.words()}")
    return [
        Figure(
            name="writes_per_node_per_hour",
            value=written.total / hours,
            aim=12,
            beside="12 an hour by a kubelet that has nothing to say (nodeStatusReportFrequency, 5 min)",
        ),
        Figure(name="quiet_hours", value=hours),
    ]


def _start_agent(
    sandbox: Sandbox, node: SimulatedNode, python: OwnPython, driver: FakeDriver, kubelet: Path
) -> Process:
    token = sandbox.token_file(SYSTEM_NAMESPACE, AGENT, pod=agent_pod(sandbox, node))
    more: dict[str, Any] = {
        "kube": {
            "server": sandbox.server,
            "token_file": str(token),
            "ca_file": str(sandbox.ca_file),
        },
        "kubelet": {"enabled": True, "pod_resources": str(kubelet)},
        "nvml": {"enabled": True, "driver_root": str(driver.root)},
    }
    config = node.root / "etc" / "nodemend" / "agent.toml"
    write_config(config, node, kmsg=node.machine.kmsg, state_dir=node.machine.state_dir, more=more)
    node.machine.kernel_log.rewind()
    argv = [str(python.program), "-m", "agent", "--config", str(config)]
    return sandbox.spawn("agent", argv, {**python.environment, "NODE_NAME": node.name})


def _start_floor(sandbox: Sandbox, python: OwnPython, driver: FakeDriver) -> list[Process]:
    program = str(Path(__file__).with_name("bare_agent.py"))
    wanted = (["http"], ["nvml", str(driver.library), f"{_ROUND_S:g}"])
    return [
        sandbox.spawn(f"bare-{what[0]}", [str(python.program), program, *what], python.environment)
        for what in wanted
    ]


def _wait_ready(sandbox: Sandbox, agent: Process, node: SimulatedNode) -> None:
    """Wait until the agent has published. Raises NotMeasured with the end of its log."""
    deadline = SYSTEM.monotonic() + _READY_WITHIN_S
    listen = node.machine.state_dir / "listen"
    while SYSTEM.monotonic() < deadline and agent.alive:
        if listen.exists() and _get(listen, "/readyz") == 200:
            return
        SYSTEM.sleep(0.5)
    raise NotMeasured(
        f"the agent did not come up within {_READY_WITHIN_S:g} s:\n{sandbox.logs('agent')[-3000:]}"
    )


def _check(sandbox: Sandbox, agent: Process, node: SimulatedNode) -> None:
    """Refuse figures of an agent that died, complained, or did not read all that it should. Raises NotMeasured."""
    log = sandbox.logs("agent")
    troubles = [line for line in log.splitlines() if '"level": "info"' not in line]
    if not agent.alive or troubles:
        raise NotMeasured(f"the agent was not well: {troubles[-5:] or log[-2000:]}")
    status = msgspec.json.decode(sandbox.admin.get(paths.node_health(node.name)), type=NodeHealth).status
    if blind := {KERNEL_LOG, NVML, POD_RESOURCES} - {
        source.name for source in status.sources if source.readable
    }:
        raise NotMeasured(f"the agent did not read {', '.join(sorted(blind))}: {status.sources}")
    known = [part for part in status.parts if part.serial and part.offered and part.held]
    if len(known) != len(node.gpus):
        raise NotMeasured(f"NVML and kubelet told the agent of {len(known)} of {len(node.gpus)} GPUs")


def _get(listen: Path, path: str) -> int:
    try:
        return urllib3.request(
            "GET", f"http://{listen.read_text().strip()}{path}", timeout=5, retries=False
        ).status
    except (urllib3.exceptions.HTTPError, OSError):
        return 0


def _probe(listen: Path, stop: threading.Event) -> None:
    """Ask as kubelet and Prometheus do."""
    due = {path: 0.0 for path, _ in _PROBES}
    while not stop.wait(1.0):
        for path, every_s in _PROBES:
            if SYSTEM.monotonic() >= due[path]:
                due[path] = SYSTEM.monotonic() + every_s
                _get(listen, path)


def _most_memory(sandbox: Sandbox, processes: list[Process]) -> dict[int, Memory]:
    """Look every second for a minute; give for each program the look at which all its processes had most."""
    most = {process.pid: Memory() for process in processes}
    end = SYSTEM.monotonic() + MEMORY_S
    while SYSTEM.monotonic() < end:
        for process in processes:
            now = memory(family(process.pid))
            if not now.pss:
                raise NotMeasured(f"{process.name} has ended:\n{sandbox.logs(process.name)[-2000:]}")
            most[process.pid] = max(most[process.pid], now, key=lambda one: one.pss)
        SYSTEM.sleep(1.0)
    return most


def _written(sandbox: Sandbox, node: SimulatedNode, since: datetime, until: datetime) -> Asked:
    """Count what the agents' identity wrote about this node (its Node and its NodeHealth bear one name)."""
    SYSTEM.sleep(1.0)  # the record is written behind the answer
    about = [event for event in sandbox.audit_events() if event.get("objectRef", {}).get("name") == node.name]
    return asked(about, _USER, since, until + timedelta(seconds=1))


def _times(value: float, floor: float, what: str, unit: str) -> str:
    ratio = f"{value / floor:.2f} x" if floor > 0 else "beyond measure:"
    return f"{ratio} {what} ({floor:.4g} {unit})"
