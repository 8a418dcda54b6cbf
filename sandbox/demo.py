"""nodemend-demo: the main job on a real Kubernetes with simulated GPU nodes, watched from outside.

Act 1: one GPU falls off the bus; the node leaves service, is drained, rebooted, proven, tested and given back.
Act 2: an application's XID; nothing may happen to its node. Act 3: half of the fleet fails at once; breaker and budget hold.
Act 4: two teams share two more nodes under nodemend-scheduler; a GPU of theirs falls ill (`sandbox.sharing`).
The kernel records are raw records on each node's own pipe; reboots are simulated, and in act 4 which
card a kubelet gives to whom, and which it withholds; everything else is the product itself.
Where this machine can, the node of act 1 is a real kubelet's and runs the product's own image (`sandbox.demo_nodes`).
Exit: 0 the loop closed and acts 2 to 4 held, 1 not, 3 this machine lacks something (named).
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec
import structlog

from kube import paths
from kube.api import ApiError, NotFound
from kube.clock import SYSTEM
from kube.policy import PoolStatus
from kube.remediation import Phase
from kube.types import Lease
from sandbox import actors, demo_nodes, shared_pool, sharing, workloads
from sandbox.acts import loop_milestones, tainted
from sandbox.cluster import KubectlError, Sandbox
from sandbox.control_plane import NotReady
from sandbox.demo_nodes import Chain, DemoNode
from sandbox.install import install
from sandbox.programs import MissingProgramError
from sandbox.receiver import Receiver
from sandbox.shared_pool import SharedPool
from sandbox.sharing_objects import POOL
from sandbox.stage import Stage
from sandbox.story import Reached, Story
from sandbox.watching import Watching

NODES = 8
NAMES = tuple(f"gpu-{number}" for number in range(1, NODES + 1))
BREAKS, WARNS, BREAK_TOGETHER = "gpu-3", "gpu-5", ("gpu-1", "gpu-2", "gpu-6", "gpu-7")
LOOP_LIMIT_S = 120.0
HOLD_S = 8.0
LOOK_AT_POOL = (f"kubectl nodemend queues --pool {POOL}", f"kubectl nodemend gpus --pool {POOL}")
APPLICATION_XID = (
    31,
    "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_a0000000",
)
OFF_THE_BUS = (79, "GPU has fallen off the bus.")


class LoopPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One milestone of the closed loop, or of a part of act 4, for --json; `after_s` since what began it."""

    name: str
    after_s: float
    at: str
    detail: str


class Report(msgspec.Struct, kw_only=True):
    """What --json writes."""

    closed: bool = False
    phases: list[LoopPhase] = []
    application_xid_untouched: bool = False
    budget_held: bool = False
    breaker_held: bool = False
    lent_and_taken_back: bool = False
    gang_whole: bool = False
    sick_part_avoided: bool = False
    shared_phases: list[LoopPhase] = []
    chain: str = "not run"
    chain_reason: str = ""
    source: str = "raw kernel records on a named pipe per simulated node"
    reboot: str = "simulated"
    cards: str = "simulated in act 4: which GPU a pod gets, and that kubelet withholds the sick one"
    missing: list[str] = []

    @property
    def limits(self) -> bool:
        return self.budget_held and self.breaker_held

    @property
    def shared(self) -> bool:
        return self.lent_and_taken_back and self.gang_whole and self.sick_part_avoided

    @property
    def held(self) -> bool:
        return self.closed and self.application_xid_untouched and self.limits and self.shared


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="nodemend-demo", description="nodemend's main job, end to end, on this machine"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write what was measured to FILE")
    parser.add_argument(
        "--keep", action="store_true", help="keep the cluster up at the end until Enter is pressed"
    )
    parser.add_argument(
        "--chain",
        type=Chain,
        choices=list(Chain),
        default=Chain.AUTO,
        help="whether the node that breaks is a real kubelet's: where this machine can (auto), surely, or not at all (kwok)",
    )
    arguments = parser.parse_args(argv)
    if arguments.json is not None and not arguments.json.absolute().parent.is_dir():
        parser.error(
            f"--json {arguments.json}: there is no folder {arguments.json.absolute().parent} to write it in"
        )
    signal.signal(signal.SIGTERM, _end_cleanly)
    stage = Stage(sys.stdout)
    report = Report()
    try:
        _play(stage, report, chain=arguments.chain, keep=arguments.keep)
    except MissingProgramError as error:
        stage.fail(f"this machine lacks something: {error}")
        report.missing.append(str(error))
        _write(arguments.json, report)
        return 3
    except (KeyboardInterrupt, NotReady, KubectlError, ApiError, TimeoutError) as error:
        stage.fail(f"not played to its end: {str(error) or 'interrupted'}")
        _write(arguments.json, report)
        return 1
    _write(arguments.json, report)
    stage.verdict(
        closed=report.closed,
        untouched=report.application_xid_untouched,
        limits=report.limits,
        shared=report.shared,
    )
    return 0 if report.held else 1


def _end_cleanly(_number: int, _frame: FrameType | None) -> None:
    """Take SIGTERM as Ctrl-C is taken: the cluster ends with the demo."""
    raise KeyboardInterrupt


def _write(path: Path | None, report: Report) -> None:
    if path is not None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def _play(stage: Stage, report: Report, *, chain: Chain, keep: bool) -> None:
    stage.heading("A real Kubernetes on this machine, with simulated GPU nodes")
    with Sandbox(progress=stage.say) as sandbox, Receiver(sandbox.state_dir / "receiver") as receiver:
        log = (sandbox.state_dir / "demo.log").open("w")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(log))
        install(sandbox, overlay="enforce")
        with demo_nodes.started(sandbox, NAMES, BREAKS, chain, stage.say) as nodes:
            report.chain, report.chain_reason = nodes.chain, nodes.why_not_real
            workloads.start(sandbox, replicas=2 * NODES, gpus=2)
            with (
                actors.started(sandbox, nodes.simulated, receiver=receiver, settings=demo_nodes.COMMANDS),
                Watching(sandbox.admin, SYSTEM, receiver) as watching,
            ):
                if not _wait_until_watched(stage, sandbox, watching):
                    return
                report.closed = _act_1(stage, report, watching, nodes.by_name[BREAKS])
                report.application_xid_untouched = _act_2(stage, watching, nodes.by_name[WARNS])
                sick = [nodes.by_name[name] for name in BREAK_TOGETHER]
                report.breaker_held, report.budget_held = _act_3(stage, watching, receiver, sick)
                stage.heading("Act 4: two teams share 16 GPUs, a gang starts whole, and one GPU falls ill")
                with shared_pool.standing(sandbox, watching, stage.say) as pool:
                    _act_4(stage, report, pool)
                    stage.lines_to_look(sandbox.admin_kubeconfig, BREAKS, *LOOK_AT_POOL)
                    if keep:
                        stage.wait_for_enter()


def _leads(sandbox: Sandbox) -> bool:
    try:
        lease = sandbox.admin.get(paths.lease("nodemend-system", "nodemend-controller"))
    except NotFound:
        return False
    return bool(msgspec.json.decode(lease, type=Lease).spec.holder_identity)


def _wait_until_watched(stage: Stage, sandbox: Sandbox, watching: Watching) -> bool:
    def ready() -> bool:
        conditions = [node.condition("GpuXidError") for node in watching.nodes.values()]
        looked = sum(1 for condition in conditions if condition and condition.status == "False")
        working = sum(1 for pod in watching.pods.values() if pod.status.phase == "Running")
        return looked == NODES and working == 2 * NODES and _leads(sandbox)

    if watching.wait_for(ready, 60):
        stage.say("every node is watched (GpuXidError=False), 16 pods run, the controller leads")
        return True
    stage.fail("the agents, the pods and the controller did not all come up within 60 s")
    return False


def _act_1(stage: Stage, report: Report, watching: Watching, node: DemoNode) -> bool:
    pods = len(watching.work_on(node.name))
    stage.heading(f"Act 1: a GPU of {node.name} falls off the bus; {pods} pods run there")
    story = Story(
        node=node.name, milestones=loop_milestones(node.boot_id, pods), clock=SYSTEM, tell=stage.milestone
    )
    story.restart_clock()
    line = node.write_xid(*OFF_THE_BUS, gpu=3)
    stage.record(line)
    watching.follow(story)
    closed = story.wait(LOOP_LIMIT_S)
    report.phases = [_phase(reached) for reached in story.reached]
    if not closed:
        stage.fail("not reached: " + ", ".join(story.missing()))
    stage.timeline(story.reached)
    return closed


def _phase(reached: Reached) -> LoopPhase:
    return LoopPhase(
        name=reached.name,
        after_s=round(reached.after_s, 3),
        at=reached.at.isoformat(timespec="milliseconds"),
        detail=reached.words,
    )


def _act_2(stage: Stage, watching: Watching, node: DemoNode) -> bool:
    stage.heading(
        f"Act 2: an application on {node.name} makes the driver report XID 31; the node must not be touched"
    )
    before = watching.nodes.get(node.name)
    pods = {pod.metadata.uid for pod in watching.work_on(node.name)}
    stage.record(node.write_xid(*APPLICATION_XID, gpu=1))

    def warned() -> bool:
        health = watching.healths.get(node.name)
        return health is not None and any(one.severity == "Warning" for one in health.status.findings)

    if not watching.wait_for(warned, 30):
        stage.fail("the warning was not shown in NodeHealth within 30 s")
        return False
    stage.say("NodeHealth shows it as a warning")
    watching.wait_for(lambda: False, 3)
    after = watching.nodes.get(node.name)
    condition = after.condition("GpuXidError") if after else None
    untouched = (
        before is not None
        and after is not None
        and before.spec == after.spec
        and condition is not None
        and condition.status == "False"
        and pods == {pod.metadata.uid for pod in watching.work_on(node.name)}
        and watching.scene(node.name).remediation is None
    )
    stage.outcome(untouched, "3 s later: condition False, no cordon, no taint, no eviction, no incident")
    return untouched


def _act_3(
    stage: Stage, watching: Watching, receiver: Receiver, sick: Sequence[DemoNode]
) -> tuple[bool, bool]:
    names = {node.name for node in sick}
    stage.heading(f"Act 3: {len(sick)} of {NODES} nodes fail in one instant; breaker and budget must hold")
    pods = {pod.metadata.uid for name in names for pod in watching.work_on(name)}
    for node in sick:
        node.write_xid(*OFF_THE_BUS, gpu=0)

    def all_true() -> bool:
        seen = [watching.nodes.get(name) for name in names]
        return all(node and (c := node.condition("GpuXidError")) and c.status == "True" for node in seen)

    def breaker() -> str:
        return next((pool.breaker for pool in _pools(watching) if pool.breaker), "")

    def budget() -> str:
        return next((pool.budget for pool in _pools(watching) if pool.budget), "")

    watching.wait_for(lambda: all_true() and bool(breaker()) and bool(budget()), 30)
    watching.wait_for(lambda: False, HOLD_S)
    cordoned = [name for name in names if (seen := watching.nodes.get(name)) and seen.spec.unschedulable]
    marked = [name for name in names if (seen := watching.nodes.get(name)) and tainted(seen)]
    busy = [one for one in watching.remediations.values() if one.spec.node_name in names]
    repairs = [row for one in busy for row in one.status.attempts if row.kind == "reboot"]
    left = len(pods & {pod.metadata.uid for name in names for pod in watching.work_on(name)})
    pages = [m for m in receiver.accepted if m.type == "dev.nodemend.breaker.open"]
    limit = max(1, NODES * 30 // 100)
    stage.say(
        f"conditions True on {len(sick)} nodes; cordoned {len(cordoned)} (limit 30 % = {limit}), tainted {len(marked)}"
    )
    for one in sorted(busy, key=lambda one: one.spec.node_name):
        stage.say(f"  {one.spec.node_name}: {one.status.phase.value}: {one.status.message}")
    breaker_held = bool(breaker()) and not repairs and left == len(pods) and len(pages) == 1
    stage.outcome(
        breaker_held, f"breaker: {breaker() or 'did not trip'}; no drain, no repair, {len(pages)} page"
    )
    budget_held = bool(budget()) and len(cordoned) <= limit
    stage.outcome(budget_held, budget() or "the budget was not named")
    returned = sum(1 for one in watching.remediations.values() if one.status.phase is Phase.RETURNED)
    stage.say(f"incidents returned so far: {returned}; messages at the receiver: {_kinds(receiver)}")
    return breaker_held, budget_held


def _act_4(stage: Stage, report: Report, pool: SharedPool) -> None:
    shared = sharing.play(stage, pool)
    report.lent_and_taken_back = shared.lent_and_taken_back
    report.gang_whole = shared.gang_whole
    report.sick_part_avoided = shared.sick_part_avoided
    report.shared_phases = [_phase(reached) for reached in shared.reached]


def _pools(watching: Watching) -> list[PoolStatus]:
    return [pool for policy in watching.policies.values() for pool in policy.status.pools]


def _kinds(receiver: Receiver) -> str:
    kinds: dict[str, int] = {}
    for message in receiver.accepted:
        kinds[message.type] = kinds.get(message.type, 0) + 1
    return ", ".join(f"{kind} x{count}" for kind, count in sorted(kinds.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())
