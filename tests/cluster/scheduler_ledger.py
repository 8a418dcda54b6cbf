"""What a scheduler really did, counted from outside: the API server's audit record, and a watch of every pod."""

import threading
import time
from collections import Counter
from typing import Any

import msgspec

from kube.store import Change
from kube.types import Pod
from tests.cluster.scheduler_stage import USER, SchedulerStage

GPUS = 8


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one job came to: its pods that hold a place and those that wait, and how many were evicted.

    `odd` lists what must never be, whoever schedules: a pod bound twice, one evicted twice, a delete, a gang half there, a
    node that is over its GPUs in the end. `needless`: what one scheduler alone never does, a node over its GPUs on the way
    and a victim that was none.
    """

    bound: int
    waiting: int = 0
    evicted: int = 0
    odd: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()


class Ledger:
    """Follows the stage's watch: what each node carries at every moment, and for how long a gang was half there."""

    def __init__(self, stage: SchedulerStage) -> None:
        self.stage = stage
        self.lent: dict[str, str] = {}
        self.half_s: dict[str, float] = {}
        self._lock = threading.Lock()
        self._at: dict[str, Pod] = {}
        self._half_since: dict[str, float] = {}
        self._over: dict[str, int] = {}
        self._least: dict[str, int] = {}
        stage.pods.store.subscribe(self._see)

    def watch_gang(self, job: str, least: int) -> None:
        """Measure for how long less than `least` of a job's pods hold places, but some do."""
        self._least[job] = least

    def holding(self, job: str) -> dict[str, str]:
        """Give the nodes of a job's pods that hold a place, also of those that are ending."""
        with self._lock:
            return {one.metadata.name: one.spec.node_name for one in self._at.values() if _is_of(one, job)}

    def leaving(self, job: str) -> int:
        """Count the pods of a job that were evicted, whether they are gone or not."""
        return sum(1 for name in self.stage.disrupted if name.startswith(f"{job}-"))

    def close_half(self, job: str) -> None:
        """Stop the clock of a gang that gave its places back."""
        self._half_since.pop(job, None)

    def _see(self, change: Change, pod: Pod | None) -> None:
        if pod is None:
            return
        now = time.monotonic()
        with self._lock:
            if change is Change.DELETED or has_ended(pod) or not pod.spec.node_name:
                self._at.pop(pod.metadata.uid, None)
            else:
                self._at[pod.metadata.uid] = pod
            for node, amount in self._carried().items():
                if amount > GPUS:
                    self._over[node] = max(self._over.get(node, 0), amount)
            for job, least in self._least.items():
                self._clock(job, sum(1 for one in self._at.values() if _is_of(one, job)), least, now)

    def _clock(self, job: str, held: int, least: int, now: float) -> None:
        if 0 < held < least:
            self._half_since.setdefault(job, now)
        elif (since := self._half_since.pop(job, None)) is not None:
            self.half_s[job] = max(self.half_s.get(job, 0.0), now - since)

    def account(self, job: str) -> Account:
        """Draw up the account of one job."""
        stage = self.stage
        evictions = Counter(one for one in self._done("eviction") if one[0].startswith(f"{job}-"))
        return Account(
            bound=len(stage.running(job)),
            waiting=len(stage.waiting(job)),
            evicted=len({name for name, _ in evictions}),
            odd=tuple(self._odd(job, evictions)),
            needless=tuple(self._needless({name for name, _ in self._done("eviction")})),
        )

    def bound_by_others(self) -> set[str]:
        """Name the pods that a scheduler with another account than the real one's bound."""
        return {name for name, user in self._done("binding") if user != USER}

    def carried(self) -> dict[str, int]:
        """Give the GPUs that each node of the stage carries now."""
        with self._lock:
            return self._carried()

    def _carried(self) -> Counter[str]:
        carried = Counter[str]()
        for one in self._at.values():
            if one.spec.node_name in self.stage.nodes:
                carried[one.spec.node_name] += gpus_of(one)
        return carried

    def _odd(self, job: str, evictions: Counter[tuple[str, str]]) -> list[str]:
        """Two schedulers may tell the same pod to leave, which it does once; one of them does not ask again."""
        stage = self.stage
        binds = Counter(name for name, _ in self._done("binding"))
        found = [f"{name} was bound {times} times" for name, times in binds.items() if times > 1]
        found += [f"pod {uid} was on nodes {sorted(on)}" for uid, on in stage.bound_to.items() if len(on) > 1]
        found += [f"{name} was evicted {times} times" for (name, _), times in evictions.items() if times > 1]
        found += [f"node {node} carries {now} GPUs" for node, now in self.carried().items() if now > GPUS]
        found += [f"{name} waits and does not say why" for name in stage.waiting(job) if not stage.why(name)]
        found += [f"{one['resource']} {one.get('name')} was deleted" for one, _ in self._writes("delete")]
        if (since := self._half_since.get(job)) is not None:
            found.append(f"{job} is half there for {time.monotonic() - since:.0f} s")
        return found

    def _needless(self, evicted: set[str]) -> list[str]:
        found = [f"node {node} carried {most} GPUs" for node, most in self._over.items()]
        return found + self._wrong_victims(evicted)

    def _wrong_victims(self, evicted: set[str]) -> list[str]:
        """Who had to leave: all that were lent on one node, and what is left of a gang that is not whole."""
        lent = {name for name in evicted if name in self.lent}
        others = {name for name in evicted - lent if not name.startswith("short-")}
        found = [f"{name} had to leave for nothing" for name in sorted(others)]
        if len(emptied := {self.lent[name] for name in lent}) > 1:
            found.append(f"pods of {len(emptied)} nodes were evicted for one pod")
        return found

    def _done(self, subresource: str) -> list[tuple[str, str]]:
        """Give pod and account of each."""
        return [
            (str(one.get("name", "")), user)
            for one, user in self._writes("create")
            if (one["resource"], one.get("subresource", "")) == ("pods", subresource)
        ]

    def _writes(self, verb: str) -> list[tuple[dict[str, Any], str]]:
        """Give what schedulers wrote in this namespace and the server carried out, whatever account they had."""
        return [
            (event["objectRef"], event["user"]["username"])
            for event in self.stage.sandbox.audit_events()
            if event.get("stage") == "ResponseComplete"
            and event["verb"] == verb
            and "scheduler" in event.get("userAgent", "")
            and 200 <= event["responseStatus"]["code"] < 300
            and "dryRun=All" not in event["requestURI"]
            and event.get("objectRef", {}).get("namespace") == self.stage.namespace
        ]


def _is_of(pod: Pod, job: str) -> bool:
    return pod.metadata.name.startswith(f"{job}-")


def has_ended(pod: Pod) -> bool:
    """Tell whether a pod gave back what it had."""
    return pod.status.phase in ("Succeeded", "Failed")


def gpus_of(pod: Pod) -> int:
    """Give the GPUs that a pod asks for."""
    return sum(int(one.resources.limits.get("nvidia.com/gpu", "0")) for one in pod.spec.containers)
