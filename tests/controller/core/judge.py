"""What must never happen, judged at the moment at which a step is applied, against the world as it is then.

Nothing here asks the core: limits, drains and cordons are counted again from the objects. The world has one policy, `gpus`,
made by `the_policy`.
"""

from datetime import timedelta

from controller.incident import TIMELINE_LIMIT, is_open, read_mark, repairs
from controller.steps import Evict, Open, Quarantine, Restore, RunRepair, RunValidation, Save, Step
from kube.policy import BreakerPolicy, BudgetPolicy, DrainPolicy, Mode, RemediationPolicy, Rung
from kube.remediation import CANCEL, REPAIRED, Phase, Remediation, RemediationStatus
from tests import build as make
from tests.build import XID
from tests.controller.core.world import World

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
MOST_OUT = 3
MOST_CONTAINED = 4
MOST_REPAIRS = 1
CONTAINED = (Phase.QUARANTINED, Phase.DRAINING, Phase.REPAIRING, Phase.REVALIDATING, Phase.ESCALATED)


def the_policy(mode: Mode = Mode.ENFORCE, *, paused: bool = False) -> RemediationPolicy:
    """Build a policy with tight limits and short times, and a breaker that trips late."""
    return make.policy(
        mode=mode,
        paused=paused,
        budget=BudgetPolicy(
            max_unavailable=str(MOST_OUT),
            max_quarantined=str(MOST_CONTAINED),
            max_repairs_in_flight=MOST_REPAIRS,
        ),
        breaker=BreakerPolicy(threshold="80%", min_nodes=2),
        drain=DrainPolicy(deadline="10m", when_idle_limit="20m"),
        ladder=(Rung(repair="reboot", attempts=2),),
        sinks=("pager",),
    )


def judge(world: World, step: Step) -> None:
    """Fail where this step must not be applied now."""
    match step:
        case RunRepair():
            _repair(world, step)
        case Evict():
            _eviction(world, step)
        case Quarantine():
            _quarantine(world, step)
        case Restore():
            _restore(world, step)
        case Save() | Open():
            _status(world, step)
        case RunValidation():
            assert world.created_jobs[step.job] == 0
            assert world.nodes[step.node].spec.unschedulable


def judge_rest(world: World) -> None:
    """Fail where the world as it stands must not be."""
    open_ = [(r.spec.node_name, r.spec.node_uid) for r in world.remediations.values() if is_open(r)]
    assert len(open_) == len(set(open_)), "one open incident a node"
    assert all(count == 1 for count in world.created_jobs.values()), "no Job is created twice"
    flying = [
        attempt.job
        for one in world.remediations.values()
        if is_open(one)
        for attempt in repairs(one.status)
        if not attempt.result
    ]
    assert len(flying) <= MOST_REPAIRS, "no more repairs in flight than allowed"


def out_of_service(world: World) -> set[str]:
    """Count every node that takes no work, whoever took it out."""
    out = {
        name
        for name, node in world.nodes.items()
        if node.spec.unschedulable
        or node.metadata.labels.get(UPGRADE) == "drain-required"
        or any(c.type == "Ready" and c.status != "True" for c in node.status.conditions)
    }
    return out | ours(world)


def ours(world: World) -> set[str]:
    """Count the nodes that we took out."""
    return {
        one.spec.node_name
        for one in world.remediations.values()
        if one.status.phase in CONTAINED and world.nodes[one.spec.node_name].metadata.uid == one.spec.node_uid
    }


def _harm(world: World, node: str, incident: str) -> Remediation:
    """Judge what holds for everything destructive."""
    one = world.remediations[incident]
    policy = world.policies["gpus"].spec
    found = world.nodes[node]
    assert policy.mode is Mode.ENFORCE
    assert not policy.paused
    assert found.metadata.uid == one.spec.node_uid
    assert found.spec.unschedulable
    assert found.metadata.labels.get(UPGRADE) != "drain-required"
    condition = found.condition(XID)
    assert condition is not None
    assert condition.status == "True"
    standing = [f for f in world.healths[node].status.findings if not f.drill]
    assert standing
    assert not any(f.urgency == "person" for f in standing)
    assert CANCEL not in one.metadata.annotations
    return one


def _repair(world: World, step: RunRepair) -> None:
    one = _harm(world, step.node, step.incident)
    attempt = repairs(one.status)[-1]
    assert (attempt.job, attempt.submitted_at, attempt.result) == (step.job, None, "")
    assert one.status.phase is Phase.REPAIRING
    assert world.created_jobs[step.job] == 0
    assert step.boot_id == world.nodes[step.node].status.node_info.boot_id
    assert not [pod for pod in world.pods.values() if pod.spec.node_name == step.node]
    heard = max(
        world.leases[step.node].spec.renew_time or make.LONG_AGO,
        world.healths[step.node].status.observed_at or make.LONG_AGO,
    )
    assert world.now - heard < timedelta(minutes=5)
    assert len(out_of_service(world) - ours(world)) < MOST_OUT


def _eviction(world: World, step: Evict) -> None:
    one = _harm(world, step.node, step.incident)
    assert one.status.phase is Phase.DRAINING
    assert one.status.drain is not None
    assert one.status.drain.urgency == "now"
    assert world.pods[step.uid].spec.node_name == step.node


def _quarantine(world: World, step: Quarantine) -> None:
    one = world.remediations[step.incident]
    node = world.nodes[step.node]
    assert is_open(one)
    assert node.metadata.uid == one.spec.node_uid
    applied = one.status.before is not None and one.status.before.applied_at is not None
    if read_mark(node) is None and not applied:
        assert step.before.unschedulable == node.spec.unschedulable


def _restore(world: World, step: Restore) -> None:
    """Judge that the cordon goes only where it is ours, and that everything of ours goes."""
    one = world.remediations[step.incident]
    recipe = one.status.before
    assert recipe is not None
    assert step.uncordon == (recipe.cordoned and not recipe.unschedulable)
    assert step.untaint == recipe.tainted
    if one.status.phase is Phase.CANCELLED:
        return
    assert one.status.phase is Phase.REVALIDATING
    assert _proven(one.status)
    condition = world.nodes[step.node].condition(XID)
    assert condition is not None
    drills = all(f.drill for f in world.healths[step.node].status.findings)
    assert condition.status == "False" or (condition.status == "True" and drills)


def _status(world: World, step: Save | Open) -> None:
    status = step.status
    assert len(status.timeline) <= TIMELINE_LIMIT
    assert len(status.evidence) <= 20
    assert len(status.attempts) <= 40
    assert len(status.notifications) <= 40
    held = RemediationStatus() if isinstance(step, Open) else world.remediations[step.name].status
    if isinstance(step, Open):
        assert status.phase in (Phase.SUSPECTED, Phase.QUARANTINED)
    if status.phase is Phase.QUARANTINED and held.phase is Phase.SUSPECTED:
        assert len(out_of_service(world) | {step.node}) <= MOST_CONTAINED
        assert world.policies["gpus"].spec.mode is not Mode.OBSERVE
    if status.phase is Phase.RETURNED:
        assert held.phase is Phase.REVALIDATING
        assert _proven(held)
        assert read_mark(world.nodes[step.node]) is None
    if held.phase is Phase.ESCALATED and status.phase is Phase.REVALIDATING:
        assert REPAIRED in world.remediations[step.name].metadata.annotations


def _proven(status: RemediationStatus) -> bool:
    """Judge that the last revalidation of this stay succeeded."""
    last = [a for a in status.attempts if a.kind == "revalidate"][-1]
    since = status.phase_since
    return last.result == "Succeeded" and since is not None and last.started_at >= since
