"""Three jobs of the scheduler that are held half done, by a gate on its way to the API server (tests/cluster/gate.py).

A gang of 16: of its Bindings some were carried out, of some the answer is on its way, the others the server never heard.
A gang of 8, likewise, whose room is taken by somebody else meanwhile. A reclaim: of 8 victims 3 were evicted, and who gains
waits. They stand on nodes of their own in one pool, so that one fault strikes all three at once.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any

from kube import paths
from kube.api import Conflict
from sandbox.actors import SCHEDULER
from tests.cluster.gate import Asked, Gate, Word
from tests.cluster.scheduler_ledger import GPUS, Ledger
from tests.cluster.scheduler_stage import NOW, POOL_LABEL, QUEUE_LABEL, SchedulerStage

PART = "part"
HELD_WITHIN_S = 20.0
ENDED_WITHIN_S = 60.0
RACE_S = 8.0
# The scheduler's own patience for a member that cannot follow, or was turned away; shorter than in production, as the Lease
# is.
SETTINGS: dict[str, Any] = {
    "graces": {"half_gang": "3s", "stale_gang": "3s"},
    "leader": {"lease_duration": "8s", "renew_deadline": "6s", "retry_period": "1s"},
}


class Phase(StrEnum):
    """What is half done when the fault strikes."""

    GANG = "mid-gang"
    ROOM = "mid-gang, and its room is taken"
    RECLAIM = "mid-reclaim"


JOBS = {Phase.GANG: "gang", Phase.ROOM: "short", Phase.RECLAIM: "lent"}
MEMBERS = {"gang": 16, "short": 8}
OWNER, TAKER, PASSED_BY = "owner", "taker", "passed-by"


class Holding:
    """The rule of the gate: the first of each kind pass, the others wait. Who asks again gets the same answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, list[str]] = {}

    def __call__(self, asked: Asked) -> Word:
        pod, _, what = asked.path.rpartition("/")
        name = pod.rpartition("/")[2].partition("-")[0]
        if asked.method != "POST" or "dryRun=All" in asked.query or (name, what) not in _WORDS:
            return Word.PASS
        words = _WORDS[name, what]
        with self._lock:
            seen = self._seen.setdefault(name, [])
            if pod not in seen:
                seen.append(pod)
            number = seen.index(pod)
        return words[number] if number < len(words) else Word.HOLD


_WORDS = {
    ("gang", "binding"): (Word.PASS,) * 6 + (Word.KEEP,) * 2,
    ("short", "binding"): (Word.PASS,) * 4,
    ("lent", "eviction"): (Word.PASS,) * 3,
}


class Scene:
    """One pool with everything in it, and what an outsider counts."""

    def __init__(self, stage: SchedulerStage, gate: Gate) -> None:
        self.stage, self.gate = stage, gate
        self.ledger = Ledger(stage)
        self.by_hand: set[str] = set()

    def kube(self) -> dict[str, Any]:
        """Give the scheduler's way to the server, which leads through the gate."""
        return {"kube": {"server": self.gate.url}}

    def prepare(self) -> None:
        """Make nodes and queues, before the scheduler starts."""
        stage = self.stage
        for part, count in (("gang", 2), ("short", 1), ("lent", 2)):
            stage.add_nodes(count, {PART: part})
        self.gangs = stage.queue("gangs", quota=24)
        self.lender = stage.queue("lender", quota=8)
        self.borrower = stage.queue("borrower", quota=0)

    def lend(self) -> None:
        """Let the borrower take what the lender does not use."""
        self._create("lent", self.borrower, 16)
        self.stage.until(lambda: len(self.stage.running("lent")) == 16, "the borrower to use everything")
        self.ledger.lent = dict(self.stage.running("lent"))

    def hold(self) -> None:
        """Begin everything, and return when each of the three is half done."""
        self.gate.rule = Holding()
        self._create("gang", self.gangs, 16, least=16)
        self._create("short", self.gangs, 8, least=8)
        self._create(OWNER, self.lender, 1, gpus=8, part="lent")
        self.stage.until(
            lambda: not self._why_not_held(), f"all to be half done: {self._why_not_held}", HELD_WITHIN_S
        )

    def _why_not_held(self) -> str:
        stage, gate = self.stage, self.gate
        found = {
            "of the gang are bound": (len(stage.running("gang")), 8),
            "of them without an answer": (gate.waiting("/gang-", Word.KEEP), 2),
            "of the other gang are bound": (len(stage.running("short")), 4),
            "of the other gang wait": (gate.waiting("/short-", Word.HOLD), 4),
            "victims are evicted": (self.ledger.leaving("lent"), 3),
            "waits": (gate.waiting("/lent-", Word.HOLD), 1),
        }
        return ", ".join(f"{is_} of {due} {what}" for what, (is_, due) in found.items() if is_ != due)

    def take_room(self) -> None:
        """Let somebody else use what the second gang's members were to get, which are not heard of again."""
        node = next(iter(self.stage.running("short").values()))
        self.stage.create_pod(TAKER, self.gangs, 2, schedulerName="somebody-else", nodeName=node)
        self.gate.decide(goes_on=False, part="/short-")

    def overfill(self) -> None:
        """Bind pods of the second gang beside what took its room, one more than the node has GPUs for.

        Luck alone would bring two schedulers to it once in many rounds, and how one heals it is to be seen in each.
        """
        stage = self.stage
        stage.until(lambda: TAKER in stage.running(TAKER), f"{TAKER} to show")
        node = stage.running(TAKER)[TAKER]
        room = GPUS - self.ledger.carried()[node]
        for name in stage.waiting("short")[: room + 1]:
            with suppress(Conflict):  # one of them was quicker
                self._bind(name, node)

    def _bind(self, pod: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": pod}, "target": target}
        self.stage.admin.create(paths.binding(self.stage.namespace, pod), body)
        self.by_hand.add(pod)

    def has_gone_on(self) -> bool:
        """Tell whether the gang is whole and who gains has its place."""
        return len(self.stage.running("gang")) == 16 and bool(self.stage.running(OWNER))

    def end(self) -> None:
        """Wait until everything stands as it should, give the room back, and wait for the gang that missed it."""
        stage = self.stage
        stage.until(lambda: len(stage.running("gang")) == 16, "the gang to be whole", ENDED_WITHIN_S)
        stage.until(lambda: bool(stage.running(OWNER)), "the owner to have its quota back", ENDED_WITHIN_S)
        stage.until(self._has_given_back, "the other gang to give its places back", ENDED_WITHIN_S)
        stage.until(
            lambda: all(stage.why(name) for name in stage.waiting("")),
            "all that wait to say why",
            ENDED_WITHIN_S,
        )
        self.ledger.close_half("short")
        self._give_room_back()
        stage.until(lambda: len(stage.running("short")) == 8, "the other gang to be whole", ENDED_WITHIN_S)

    def end_race(self, leave_one: Callable[[], None]) -> None:
        """Let two schedulers race for everything, for the room that is given back too; then wait until the one that
        `leave_one` leaves has put all of it right.
        """
        self._pass_by()
        time.sleep(RACE_S)
        self._give_room_back()
        time.sleep(RACE_S)
        leave_one()
        self.stage.until(self._is_right, "one scheduler alone to put everything right", ENDED_WITHIN_S)

    def _pass_by(self) -> None:
        """Bind one pod by hand that no scheduler would bind: of this one at least it is sure that it was somebody else."""
        stage = self.stage
        stage.create_pod(PASSED_BY, self.gangs, 0, nodeSelector={PART: "none"})
        stage.until(lambda: bool(stage.why(PASSED_BY)), f"{PASSED_BY} to wait")
        time.sleep(1.0)
        self._bind(PASSED_BY, stage.nodes[0])

    def _is_right(self) -> bool:
        stage = self.stage
        counts = [len(stage.running(job)) for job in ("gang", "short", "lent", OWNER)]
        is_due = counts == [16, 8, 8, 1] and max(self.ledger.carried().values()) <= GPUS
        return is_due and len(stage.waiting("")) == 8 and all(stage.why(name) for name in stage.waiting(""))

    def _give_room_back(self) -> None:
        self.stage.admin.delete(paths.pod(self.stage.namespace, TAKER), NOW)

    def _has_given_back(self) -> bool:
        stage = self.stage
        return not self.ledger.holding("short") and len(stage.waiting("short")) == 8

    def _create(
        self, name: str, queue: str, pods: int, least: int = 1, *, gpus: int = 1, part: str = ""
    ) -> None:
        """Let a ReplicaSet keep so many pods in a pod group: who is evicted, or turned away, is made anew at once."""
        stage = self.stage
        labels = {QUEUE_LABEL: queue, POOL_LABEL: stage.pool, "set": name}
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
        pod = {
            "schedulerName": SCHEDULER,
            "nodeSelector": {PART: part or name},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.invalid/work:1", "resources": limits}],
        }
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "labels": labels},
            "spec": {"queue": queue, "minMember": least, "priorityClassName": "train"},
        }
        stage.admin.create(paths.pod_groups(stage.namespace), group)
        metadata = {"labels": labels, "annotations": {"pod-group-name": name}}
        spec = {
            "replicas": pods,
            "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": metadata, "spec": pod},
        }
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
        stage.admin.create(paths.collection("apps", "v1", "replicasets", stage.namespace), body)

    def close(self) -> None:
        """Let nobody make pods anew."""
        self.stage.admin.delete(paths.collection("apps", "v1", "replicasets", self.stage.namespace))
