"""What a cycle decides: frozen values, for the shell that carries them out and for people. Pure."""

from controller.scheduler.amounts import NOTHING, UNLIMITED, Amounts, ZoneAmounts
from controller.scheduler.values import Value


class Promise(Value, frozen=True, kw_only=True):
    """Room that was made for a job by evictions: one node's name for each of its pods, sorted."""

    job: str
    nodes: tuple[str, ...]


class Bind(Value, frozen=True, kw_only=True):
    """Bind this pod now. `gpus`: UUIDs, one for each device; `milli`, `mib`: of each; `devices`: what its claims get.

    `requests`: the request that each of those devices is for, claim by claim; empty where a claim has them already.
    `zones`: the NUMA zones that its kubelet is expected to give it.
    """

    task: str
    job: str
    node: str
    gpus: tuple[str, ...] = ()
    milli: int = 0
    mib: int = 0
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()
    requests: tuple[tuple[str, ...], ...] = ()
    zones: ZoneAmounts = ()


class Pipeline(Value, frozen=True, kw_only=True):
    """The place is being made for this pod: nothing is bound yet."""

    task: str
    job: str
    node: str
    gpus: tuple[str, ...] = ()
    zones: ZoneAmounts = ()


class Evict(Value, frozen=True, kw_only=True):
    """Evict this pod. `why`: a sentence that names the action, who gains, why this victim; `moved_to`: where it goes on."""

    task: str
    job: str
    node: str
    action: str
    why: str
    gains: str = ""
    moved_to: str = ""


class Reason(Value, frozen=True, kw_only=True):
    """One counted reason: "Insufficient nvidia.com/gpu" on 4 nodes."""

    text: str
    count: int = 1


class Wait(Value, frozen=True, kw_only=True):
    """Why a job waits. `code` is KAI's (OverLimit, NonPreemptibleOverQuota, ...); `message` is for kubectl.

    `reasons` are counted over all nodes where nodes refuse, else over the pods that wait.
    """

    job: str
    code: str
    message: str
    reasons: tuple[Reason, ...] = ()
    task: str = ""


class Share(Value, frozen=True, kw_only=True):
    """A queue's numbers after the cycle, for status and metrics; each in the order of `amounts.RESOURCES`."""

    queue: str
    deserved: Amounts = (UNLIMITED, UNLIMITED, UNLIMITED)
    fair_share: Amounts = NOTHING
    allocated: Amounts = NOTHING
    allocated_non_preemptible: Amounts = NOTHING
    requested: Amounts = NOTHING
    shortage: Amounts = NOTHING


class Plan(Value, frozen=True, kw_only=True):
    """One cycle's decisions, in the order in which they were taken. `reserved_for`: who holds the reservation now;
    `promises`: for whom room was made. Both are given to the next cycle. `started`: jobs that begin to run; `stale`: jobs
    that run without all that they need to run.
    """

    binds: tuple[Bind, ...] = ()
    pipelined: tuple[Pipeline, ...] = ()
    evictions: tuple[Evict, ...] = ()
    waits: tuple[Wait, ...] = ()
    shares: tuple[Share, ...] = ()
    total: Amounts = NOTHING
    reserved_for: str = ""
    promises: tuple[Promise, ...] = ()
    started: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    exhausted: tuple[str, ...] = ()
