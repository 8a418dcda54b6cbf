"""Random histories: whatever happens in whatever order, what must never happen does not.

A machine of rules plays agents, kubelets, people and other automations against the controller's core, with crashes in the
middle of a tick. Each step is judged at the moment at which it is applied, against the world as it is then.
"""

from datetime import timedelta

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube.policy import Mode
from kube.remediation import CANCEL, REPAIRED, Remediation
from tests import build as make
from tests.controller.core.judge import UPGRADE, judge, judge_rest, the_policy
from tests.controller.core.world import World

NAMES = tuple(f"gpu-{number}" for number in range(1, 7))
names = st.sampled_from(NAMES)


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
            judge(self.world, step)
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

    @rule(
        name=names,
        ticks=st.integers(0, 7),
        busy=st.booleans(),
        what=st.sampled_from(
            [
                "uncordon",
                "upgrade",
                "recreate",
                "reboot",
                "unmark",
                "unknown",
                "well",
                "silence",
                "cancel",
                "person",
            ]
        ),
    )
    def meddle(self, name: str, ticks: int, busy: bool, what: str) -> None:
        """A fault is being dealt with, and something happens to that very node in the middle of it."""
        if busy:
            self.start_pod(name, managed=True, protected=ticks % 2 == 1)
        self.fault(name, "lost", 0)
        for _ in range(ticks):
            self.tick(None)
        match what:
            case "unknown" | "well":
                self.report(name, what)
            case "silence":
                self.world.silent |= {name}
                self.world.pods.clear()
                self.wait(301)
            case "cancel":
                if self.of(name):
                    self.world.say(CANCEL, name)
            case "person":
                self.fault(name, "person", 1)
            case _:
                self.disturb(name, what)
        for _ in range(4):
            self.tick(None)
        self.world.silent -= {name}

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

    # What must hold

    @invariant()
    def the_world_is_as_it_may_be(self) -> None:
        judge_rest(self.world)

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
