"""A whole controller minus threads and sockets: real plan, real apply, real stores, over a fake server and a fake clock.

`turn` lets the controller turn until it has nothing more to do. What kubelet, agent and Jobs would do, the test does.
"""

import threading
from datetime import datetime, timedelta
from typing import Any

import msgspec

from controller import guards
from controller.announce import Announcement
from controller.apply import Applier, World
from controller.config import Config, SinkSection
from controller.crew import Crew
from controller.deliver import Deliverer
from controller.journal import Journal
from controller.loop import Loop, Telling, Tick
from controller.message import Meaning
from controller.metrics import Metrics
from controller.outcome import Outcome
from controller.runtime import settings_of
from controller.sight import Sight
from controller.stores import STALE_AFTER_S, Stores, reflectors
from controller.webhook import Answer
from kube import paths
from kube.api import PatchType
from kube.timestamps import rfc3339
from tests.controller.shell.samples import NOW
from tests.controller.shell.world import config
from tests.fakes import FakeApi, FakeClock, wait_until

JOBS = "nodemend-repairs"
LEASES = "nodemend-system"


class Inbox:
    """A receiver that takes everything, or answers as told."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.answers: list[Answer] = []

    def send(self, message_id: str, body: bytes, _content_type: str, _now: datetime) -> Answer:
        if self.answers:
            return self.answers.pop(0)
        event = msgspec.json.decode(body)
        assert event["id"] == message_id
        self.bodies.append(event)
        return Answer(status=200)

    def types(self) -> list[str]:
        """Give the last word of each event's type, in order."""
        return [body["type"].removeprefix("dev.nodemend.") for body in self.bodies]


class Fleet:
    """Nodes gpu-0 ... with agents that report, one policy, one sink."""

    def __init__(
        self, nodes: int = 8, *, mode: str = "Enforce", policy: dict[str, Any] | None = None, **changes: Any
    ) -> None:
        self.clock = FakeClock(now=NOW)
        self.api = FakeApi(self.clock, streams_end=True)
        self.names = [f"gpu-{number}" for number in range(nodes)]
        for name in self.names:
            self.add_node(name)
        spec = {"mode": mode, "sinks": ["oncall"], **(policy or {})}
        self.api.add(paths.policies(), {"metadata": {"name": "gpus"}, "spec": spec})
        self.inbox = Inbox()
        self.said: list[Announcement] = []
        self.woken = threading.Event()
        self.leads = True
        self.config: Config = config(
            cluster_name="west", sinks={"oncall": SinkSection(url="https://x", secret_file="x")}, **changes
        )
        self.start()

    def start(self) -> None:
        """Start a controller; a second call is a crash and a new leader: memory is gone, the server is not."""
        self.metrics = Metrics()
        self.stores = Stores(self.woken.set)
        self.deliverer = Deliverer(
            {"oncall": self.inbox}, self.clock.clock, wake=self.woken.set, may_send=lambda: self.leads
        )
        self.deliverer.start()
        sight = Sight(
            self.stores,
            settings_of(self.config),
            self.clock.clock,
            guard=guards.why_not_repair,
            eviction_guard=guards.why_not_evict,
            validation_guard=guards.why_not_validate,
        )
        applier = Applier(
            World(
                api=self.api,
                clock=self.clock.clock,
                config=self.config,
                held_node=self.stores.nodes.get,
                why_not_repair=sight.why_not_repair,
                why_not_evict=sight.why_not_evict,
                why_not_validate=sight.why_not_validate,
                why_not_write=lambda: None if self.leads else "this replica does not lead",
            )
        )
        self.crew = Crew(applier.apply, wake=self.woken.set, patience_s=5.0)
        self.loop = Loop(
            stores=self.stores,
            sight=sight,
            crew=self.crew,
            deliverer=self.deliverer,
            telling=Telling(
                cluster="west", meanings={"Xid79FallenOffBus": Meaning(summary="s", runbook="r")}
            ),
            journal=Journal(self.metrics, self.said.append),
            metrics=self.metrics,
            clock=self.clock.clock,
            woken=self.woken,
            spread=lambda: 1.0,
        )

    def stop(self) -> None:
        """End the workers."""
        self.crew.stop()
        self.deliverer.stop(5)

    def hear(self) -> None:
        """Read everything anew, as the watches would have brought it."""
        for reflector in reflectors(
            self.stores,
            self.api,
            agents_namespace=LEASES,
            jobs_namespace=JOBS,
            clock=self.clock.clock,
            stop=threading.Event(),
        ):
            reflector._list()

    def turn(self, most: int = 40) -> list[Outcome]:
        """Turn until nothing more is done and every page that is due was answered; give all outcomes."""
        outcomes: list[Outcome] = []
        for _ in range(most):
            self.hear()
            tick = self.loop.tick()
            outcomes += tick.outcomes
            wait_until(lambda: not self.deliverer._in_flight)
            self.clock.advance(0.02)
            if not tick.outcomes and not self.deliverer.deliveries():
                return outcomes
        raise AssertionError(f"still not at rest after {most} turns: {[o.kind for o in outcomes[-5:]]}")

    def tick(self) -> Tick:
        """Turn once, on what the watches bring."""
        self.hear()
        return self.loop.tick()

    def later(self, delta: timedelta) -> list[Outcome]:
        """Let time pass, with every agent alive, then turn."""
        self.clock.advance(delta.total_seconds())
        for name in self.api.names(paths.leases(LEASES)):
            self.renew(name)
        return self.turn()

    # What others do

    def add_node(self, name: str, *, uid: str | None = None) -> None:
        """Register a Node with its agent's first report."""
        at = rfc3339(self.clock.now() - timedelta(hours=1))
        uid = uid or f"uid-{name}"
        self.api.add(
            paths.nodes(),
            {
                "metadata": {"name": name, "uid": uid, "labels": {"nvidia.com/gpu.present": "true"}},
                "spec": {
                    "providerID": f"test:///{name}",
                    "taints": [{"key": "team", "effect": "NoSchedule"}],
                },
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "True", "lastTransitionTime": at},
                        {
                            "type": "GpuXidError",
                            "status": "False",
                            "reason": "NoXid",
                            "lastTransitionTime": at,
                        },
                    ],
                    "capacity": {"nvidia.com/gpu": "8"},
                    "allocatable": {"nvidia.com/gpu": "8"},
                    "nodeInfo": {"bootID": f"{name}-boot-1"},
                },
            },
        )
        self.api.add(
            paths.node_healths(),
            {
                "metadata": {"name": name},
                "status": {
                    "nodeUID": uid,
                    "bootID": f"{name}-boot-1",
                    "observedAt": rfc3339(self.clock.now()),
                    "publishedConditions": ["GpuXidError"],
                    "findings": [],
                },
            },
        )
        self.api.add(
            paths.leases(LEASES),
            {
                "metadata": {"name": name},
                "spec": {"holderIdentity": name, "renewTime": rfc3339(self.clock.now())},
            },
        )

    def renew(self, name: str) -> None:
        """Let an agent say that it lives."""
        spec = {"renewTime": rfc3339(self.clock.now())}
        self.api.patch(paths.lease(LEASES, name), {"spec": spec}, PatchType.MERGE)

    def report(self, name: str, *, fault: bool, boot: str | None = None) -> None:
        """Let an agent publish: the condition first, then NodeHealth."""
        now = rfc3339(self.clock.now())
        condition = {
            "type": "GpuXidError",
            "status": "True" if fault else "False",
            "reason": "Xid79FallenOffBus" if fault else "NoXid",
            "lastTransitionTime": now,
        }
        self.api.patch(paths.node_status(name), {"status": {"conditions": [condition]}}, PatchType.STRATEGIC)
        boot = boot or self.api.read(paths.node(name))["status"]["nodeInfo"]["bootID"]
        finding = {
            "condition": "GpuXidError",
            "reason": "Xid79FallenOffBus",
            "severity": "Fault",
            "effect": "node-out",
            "urgency": "now",
            "action": "REBOOT",
            "part": {"kind": "gpu", "index": 3, "pci": "0000:3b:00"},
            "firstSeen": now,
            "lastSeen": now,
            "bootID": boot,
            "evidence": ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."],
        }
        status = {"observedAt": now, "bootID": boot, "findings": [finding] if fault else []}
        self.api.patch(paths.node_health_status(name), {"status": status}, PatchType.MERGE)

    def reboot(self, name: str, boot: str = "boot-2") -> None:
        """Let the machine come back: kubelet with a new boot id, agent with a clean report."""
        self.clock.advance(60)
        self.api.patch(
            paths.node_status(name), {"status": {"nodeInfo": {"bootID": f"{name}-{boot}"}}}, PatchType.MERGE
        )
        self.report(name, fault=False, boot=f"{name}-{boot}")
        self.renew(name)

    def finish(self, job: str, condition: str = "Complete") -> None:
        """Let a Job end."""
        status = {"conditions": [{"type": condition, "status": "True", "reason": "Test", "message": "done"}]}
        self.api.patch(f"{paths.job(JOBS, job)}/status", {"status": status}, PatchType.MERGE)

    def end_pod(self, node: str, job: str, message: str) -> None:
        """Let a Job's pod end with a termination message."""
        state = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
        self.api.add(
            paths.pods(JOBS),
            {
                "metadata": {"name": f"{job}-x", "labels": {"batch.kubernetes.io/job-name": job}},
                "spec": {"nodeName": node},
                "status": {"phase": "Failed", "containerStatuses": [{"name": "c", "state": state}]},
            },
        )

    def add_pod(self, node: str, name: str) -> None:
        """Run a pod of a ReplicaSet on a node."""
        owner = {"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
        self.api.add(
            paths.pods("ml"),
            {
                "metadata": {"name": name, "namespace": "ml", "ownerReferences": [owner]},
                "spec": {"nodeName": node, "containers": [{"name": "c"}]},
            },
        )

    # What can be seen

    def incidents(self) -> list[dict[str, Any]]:
        """Give every Remediation."""
        return [self.api.read(paths.remediation(name)) for name in self.api.names(paths.remediations())]

    def phase(self) -> str:
        """Give the phase of the one incident."""
        (incident,) = self.incidents()
        return str(incident["status"]["phase"])

    def jobs(self) -> list[str]:
        """Name the Jobs that exist."""
        return self.api.names(paths.jobs(JOBS))

    def sent(self, method: str, part: str) -> int:
        """Count the requests of one method to paths with a part."""
        return sum(1 for r in self.api.requests if r.method == method and part in r.path)

    def deafen(self) -> None:
        """Let the API server fall silent for longer than the stores may be trusted."""
        self.clock.advance(STALE_AFTER_S + 1)
