"""Random histories: whatever happens in whatever order, what must never happen does not.

A machine of rules plays agents, kubelets, people and other automations against the controller's core, with crashes in the
middle of a tick. Each step is judged at the moment at which it is applied, against the world as it is then.
"""

from datetime import timedelta

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.drain import left_on
from controller.incident import TIMELINE_LIMIT, is_open, read_mark, repairs
from controller.steps import Evict, Open, Quarantine, Restore, RunRepair, RunValidation, Save, Step
from controller.terms import read
from kube.policy import BreakerPolicy, BudgetPolicy, DrainPolicy, Mode, RemediationPolicy
from kube.remediation import CANCEL, REPAIRED, Phase, Remediation
from tests import build as make
from tests.build import XID
from tests.controller.core.world import World

NAMES = tuple(f"gpu-{number}" for number in range(1, 7))
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
MOST_OUT = 3
MOST_CONTAINED = 4
MOST_REPAIRS = 1

names = st.sampled_from(NAMES)


def the_policy(mode: Mode = Mode.ENFORCE, *, paused: bool = False) -> RemediationPolicy:
    """Build the policy of the walk: tight limits, no breaker at first sight, short times."""
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
        sinks=("pager",),
    )


class Walk(RuleBasedStateMachine):
    """The rules are what the world does; `tick` is what the controller does."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(*(make.node(name) for name in NAMES), policies=[the_policy()])
        self.pods = 0

    # The controller

    @rule(crash_after=st.none() | st.integers(0, 3))
    def tick(self, crash_after: int | None) -> None:
        first, second = self.world.plan(), self.world.plan()
        assert first == second
        for step in first.steps[:crash_after]:
            self.judge(step)
            self.world.apply(step)

    @rule(times=st.integers(1, 4))
    def work(self, times: int) -> None:
        """The controller works for a while, and the machines do what is asked of them."""
        for _ in range(times):
            for _ in range(8):
                self.tick(None)
            for name in NAMES:
                self.help_along(name)

    @rule()
    def work_on(self) -> None:
        self.work(2)

    @rule(span=st.sampled_from([1, 30, 120, 301, 900, 3600]))
    def wait(self, span: int) -> None:
        self.world.now += timedelta(seconds=span)
        for name in set(NAMES) - self.world.silent:
            uid = self.world.nodes[name].metadata.uid
            self.world.leases[name] = make.lease(name, renewed=self.world.now, node_uid=uid)

    # Agents

    @rule(
        name=names, kind=st.sampled_from(["lost", "lost", "idle", "person", "drill"]), index=st.integers(0, 1)
    )
    def fault(self, name: str, kind: str, index: int) -> None:
        known = {
            "lost": make.finding(index=index),
            "idle": make.idle_finding(index=index),
            "person": make.person_finding(index=index),
            "drill": make.finding(index=index, drill=True),
        }[kind]
        boot = self.world.nodes[name].status.node_info.boot_id
        now = self.world.now
        self.world.fault(name, msgspec.structs.replace(known, first_seen=now, last_seen=now, boot_id=boot))

    @rule(
        name=names, what=st.sampled_from(["well", "unknown", "unproven", "silent or not", "drained by hand"])
    )
    def report(self, name: str, what: str) -> None:
        match what:
            case "well":
                self.world.well(name)
            case "unknown":
                self.world.unknown(name)
            case "unproven":
                self.world.claim(name)
            case "silent or not":
                self.world.silent ^= {name}
            case _:
                self.world.pods.clear()

    # People and other automations

    @rule(
        name=names,
        what=st.sampled_from(
            [
                "cordon",
                "uncordon",
                "unmark",
                "upgrade",
                "upgrade done",
                "recreate",
                "not ready",
                "ready",
                "reboot",
            ]
        ),
    )
    def disturb(self, name: str, what: str) -> None:
        world = self.world
        match what:
            case "cordon" | "uncordon":
                world.cordon(name, on=what == "cordon")
            case "unmark":
                world.unmark(name)
            case "upgrade" | "upgrade done":
                world.label(name, UPGRADE, "upgrade-done" if what == "upgrade done" else "drain-required")
            case "recreate":
                world.recreate(name)
            case "reboot":
                world.reboot(name)
            case _:
                world.ready(name, on=what == "ready")

    @precondition(lambda self: bool(self.world.remediations))
    @rule(data=st.data(), word=st.sampled_from([CANCEL, REPAIRED, REPAIRED, REPAIRED]))
    def say(self, data: st.DataObject, word: str) -> None:
        one = data.draw(st.sampled_from(sorted(self.world.remediations)))
        self.world.say(word, self.world.remediations[one].spec.node_name)

    @rule(
        mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.QUARANTINE, Mode.OBSERVE]),
        paused=st.sampled_from([False, False, True]),
    )
    def change_policy(self, mode: Mode, paused: bool) -> None:
        self.world.change_policy(the_policy(mode, paused=paused and mode is Mode.ENFORCE))
        self.work(1)
        self.world.change_policy(the_policy())

    # Machines and workloads

    @rule(name=names, managed=st.booleans(), protected=st.booleans())
    def start_pod(self, name: str, managed: bool, protected: bool) -> None:
        self.pods += 1
        new = make.pod(f"train-{self.pods}", name, owner="ReplicaSet" if managed else None)
        self.world.pods[new.metadata.uid] = new
        if protected:
            self.world.protected.add(new.metadata.uid)

    def help_along(self, name: str) -> None:
        """The machine reboots where a repair was submitted, the revalidation Job succeeds."""
        for job in sorted(self.world.jobs):
            running = not self.world.jobs[job].status.conditions
            mine = any(job == a.job for r in self.of(name) for a in r.status.attempts)
            if running and mine and job.startswith("reboot"):
                self.world.finish(job)
                self.world.reboot(name)
            elif running and mine:
                self.world.finish(job)

    def of(self, name: str) -> list[Remediation]:
        return [one for one in self.world.remediations.values() if one.spec.node_name == name]

    @precondition(lambda self: bool(self.world.jobs))
    @rule(data=st.data(), failed=st.sampled_from(["", "exit 1"]))
    def finish_job(self, data: st.DataObject, failed: str) -> None:
        self.world.finish(data.draw(st.sampled_from(sorted(self.world.jobs))), failed=failed)

    # What must hold at each step

    def judge(self, step: Step) -> None:
        match step:
            case RunRepair():
                self.judge_repair(step)
            case Evict():
                self.judge_eviction(step)
            case Quarantine():
                self.judge_quarantine(step)
            case Restore():
                self.judge_restore(step)
            case Save() | Open():
                self.judge_status(step)
            case RunValidation():
                assert self.world.created_jobs[step.job] == 0

    def judge_harm(self, node: str, incident: str) -> Remediation:
        """What holds for anything destructive."""
        world = self.world
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

    def judge_repair(self, step: RunRepair) -> None:
        world = self.world
        one = self.judge_harm(step.node, step.incident)
        attempt = repairs(one.status)[-1]
        assert (attempt.job, attempt.submitted_at, attempt.result) == (step.job, None, "")
        assert one.status.phase is Phase.REPAIRING
        assert world.created_jobs[step.job] == 0
        assert step.boot_id == world.nodes[step.node].status.node_info.boot_id
        terms = read(world.policies["gpus"], world.settings)
        assert not left_on(step.node, terms, world.fleet(), world.now)
        heard = max(
            world.leases[step.node].spec.renew_time or make.LONG_AGO,
            world.healths[step.node].status.observed_at or make.LONG_AGO,
        )
        assert world.now - heard < timedelta(minutes=5)
        assert len(self.out_of_service() - self.ours()) < MOST_OUT

    def judge_eviction(self, step: Evict) -> None:
        one = self.judge_harm(step.node, step.incident)
        assert one.status.phase is Phase.DRAINING
        assert one.status.drain is not None
        assert one.status.drain.urgency == "now"
        assert self.world.pods[step.uid].spec.node_name == step.node

    def judge_quarantine(self, step: Quarantine) -> None:
        one = self.world.remediations[step.incident]
        assert is_open(one)
        mark = read_mark(self.world.nodes[step.node])
        applied = one.status.before is not None and one.status.before.applied_at is not None
        if mark is None and not applied:
            assert step.before.unschedulable == self.world.nodes[step.node].spec.unschedulable

    def judge_restore(self, step: Restore) -> None:
        """The cordon goes only where it is ours, and everything of ours goes."""
        one = self.world.remediations[step.incident]
        recipe = one.status.before
        assert recipe is not None
        assert step.uncordon == (recipe.cordoned and not recipe.unschedulable)
        assert step.untaint == recipe.tainted
        validated = [a for a in one.status.attempts if a.kind == "revalidate" and a.result == "Succeeded"]
        assert validated or one.status.phase is Phase.CANCELLED

    def judge_status(self, step: Save | Open) -> None:
        status = step.status
        assert len(status.timeline) <= TIMELINE_LIMIT
        assert len(status.evidence) <= 20
        assert len(status.attempts) <= 40
        assert len(status.notifications) <= 40
        if isinstance(step, Open):
            assert status.phase in (Phase.SUSPECTED, Phase.QUARANTINED)
            held = Phase.SUSPECTED
        else:
            held = self.world.remediations[step.name].status.phase
        if status.phase is Phase.QUARANTINED and held is Phase.SUSPECTED:
            assert len(self.out_of_service() | {step.node}) <= MOST_CONTAINED
            assert self.world.policies["gpus"].spec.mode is not Mode.OBSERVE
        if status.phase is Phase.RETURNED:
            assert held is Phase.REVALIDATING
            last = [a for a in status.attempts if a.kind == "revalidate"][-1]
            assert last.result == "Succeeded"
            assert read_mark(self.world.nodes[step.node]) is None
        if held is Phase.ESCALATED and status.phase is Phase.REVALIDATING:
            assert REPAIRED in self.world.remediations[step.name].metadata.annotations

    def out_of_service(self) -> set[str]:
        """Count independently of the core."""
        out = {
            name
            for name, node in self.world.nodes.items()
            if node.spec.unschedulable
            or node.metadata.labels.get(UPGRADE) == "drain-required"
            or any(c.type == "Ready" and c.status != "True" for c in node.status.conditions)
        }
        return out | self.ours()

    def ours(self) -> set[str]:
        contained = (Phase.QUARANTINED, Phase.DRAINING, Phase.REPAIRING, Phase.REVALIDATING, Phase.ESCALATED)
        return {
            one.spec.node_name
            for one in self.world.remediations.values()
            if one.status.phase in contained
            and self.world.nodes[one.spec.node_name].metadata.uid == one.spec.node_uid
        }

    @invariant()
    def one_open_incident_a_node(self) -> None:
        open_ = [(r.spec.node_name, r.spec.node_uid) for r in self.world.remediations.values() if is_open(r)]
        assert len(open_) == len(set(open_))

    @invariant()
    def no_job_is_created_twice(self) -> None:
        assert all(count == 1 for count in self.world.created_jobs.values())

    @invariant()
    def no_more_repairs_in_flight_than_allowed(self) -> None:
        flying = [
            attempt.job
            for one in self.world.remediations.values()
            if is_open(one)
            for attempt in repairs(one.status)
            if not attempt.result
        ]
        assert len(flying) <= MOST_REPAIRS

    def teardown(self) -> None:
        """Once the world holds still, so does the controller."""
        self.world.settle(60)


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=25,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
