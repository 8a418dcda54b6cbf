"""Terms: a RemediationPolicy as the core uses it, with its durations and limits read. Pure.

A policy that cannot be read is never half applied: it yields its problems, its nodes are left alone and the problems stand
in its status. A typing error in one policy must not stop the others.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from checks.finding import Action
from controller.view import Settings
from kube.nodehealth import HealthFinding
from kube.policy import (
    BREAKER_ACKNOWLEDGED,
    Containment,
    ExpectedRule,
    Mode,
    RemediationPolicy,
    Rung,
    TaintUse,
)
from kube.remediation import WORKLOAD_ACKNOWLEDGED
from kube.types import Node

WHOLE_POOL = "default"  # the one pool of a policy without poolLabel
UNLABELLED = "unlabelled"  # the pool of the nodes that lack poolLabel

_DURATION = re.compile(r"(?:\d+(?:ms|h|m|s))+")
_DURATION_PART = re.compile(r"(\d+)(ms|h|m|s)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_LONGEST = timedelta(days=366)
_LONGEST_FENCE_GRACE = timedelta(minutes=10)
# What the CRD's pattern admits, so that a policy that was accepted can also be read.
_LIMIT = re.compile(r"([1-9][0-9]?|100)(%)|([1-9][0-9]{0,4})")
_MOST_ATTEMPTS = 10
_LONGEST_LADDER = 20  # attempts of all rungs together: the persisted story has to hold them
# Repairs that end the faults of one action alone; every other repair counts for every fault.
_ONLY_FOR = {"reset-gpu": Action.RESET_GPU}


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A number of nodes, or a percentage of a pool's."""

    text: str
    number: int
    percent: bool

    def of(self, nodes: int) -> int:
        """Give the limit for a pool of `nodes`: a percentage is rounded down and is at least 1."""
        return max(1, nodes * self.number // 100) if self.percent else self.number


class RungTerms(msgspec.Struct, frozen=True, kw_only=True):
    """One rung of the ladder, read."""

    repair: str
    timeout: timedelta
    attempts: int


class RuleTerms(msgspec.Struct, frozen=True, kw_only=True):
    reasons: tuple[str, ...]
    conditions: tuple[str, ...]
    wait: timedelta | None
    ladder: tuple[RungTerms, ...] | None


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done to a policy's nodes. With `problems` nothing may; `warnings` are shown and stop nothing."""

    name: str
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = {}
    priority: int = 0
    mode: Mode = Mode.OBSERVE
    paused: bool = False
    containment: Containment = Containment.CORDON
    fence_grace: timedelta = timedelta(seconds=90)
    taint: TaintUse = TaintUse.AUTO
    pool_label: str = ""
    default_wait: timedelta = timedelta(0)
    rules: tuple[RuleTerms, ...] = ()
    ladder: tuple[RungTerms, ...] = ()
    drain_deadline: timedelta = timedelta(minutes=30)
    when_idle_limit: timedelta = timedelta(hours=24)
    evict_empty_dir: bool = True
    evict_unmanaged: bool = False
    excluded_namespaces: frozenset[str] = frozenset({"kube-system"})
    validation_timeout: timedelta = timedelta(minutes=15)
    validation_attempts: int = 2
    gpu_resource: str = "nvidia.com/gpu"
    max_unavailable: Limit = Limit(text="10%", number=10, percent=True)
    max_quarantined: Limit = Limit(text="30%", number=30, percent=True)
    max_repairs_in_flight: int = 1
    breaker_threshold: Limit = Limit(text="10%", number=10, percent=True)
    breaker_min_nodes: int = 2
    breaker_window: timedelta = timedelta(minutes=10)
    breaker_acknowledged: datetime | None = None
    workload_nodes: int = 3
    workload_within: timedelta = timedelta(hours=24)
    workload_acknowledged: datetime | None = None
    expected: tuple[ExpectedRule, ...] = ()
    sinks: tuple[str, ...] = ()
    drills_are_real: bool = False

    def pool_of(self, node: Node) -> str:
        """Name the pool of a node within this policy."""
        if not self.pool_label:
            return WHOLE_POOL
        return node.metadata.labels.get(self.pool_label, UNLABELLED)

    def selects(self, node: Node) -> bool:
        return self.node_selector.items() <= node.metadata.labels.items()

    def rule_for(self, finding: HealthFinding) -> RuleTerms | None:
        """Give the first rule that names the finding's reason or condition."""
        for rule in self.rules:
            if finding.reason in rule.reasons or finding.condition in rule.conditions:
                return rule
        return None

    def wait_for(self, finding: HealthFinding) -> timedelta:
        rule = self.rule_for(finding)
        return self.default_wait if rule is None or rule.wait is None else rule.wait

    def ladder_for(self, finding: HealthFinding) -> tuple[RungTerms, ...]:
        """Give the rungs that may end this fault."""
        rule = self.rule_for(finding)
        ladder = self.ladder if rule is None or rule.ladder is None else rule.ladder
        return tuple(rung for rung in ladder if _ONLY_FOR.get(rung.repair, finding.action) == finding.action)


def read(policy: RemediationPolicy, settings: Settings) -> Terms:
    """Read a policy. Everything that is wrong with it is said at once, each naming field, value and what would be right."""
    spec = policy.spec
    reader = _Reader(settings)
    terms = Terms(
        name=policy.metadata.name,
        node_selector=spec.node_selector,
        priority=spec.priority,
        mode=Mode.OBSERVE if settings.dry_run else spec.mode,
        paused=spec.paused,
        containment=spec.containment,
        fence_grace=reader.duration(
            "spec.fenceGrace", spec.fence_grace, zero=True, longest=_LONGEST_FENCE_GRACE
        ),
        taint=spec.taint,
        pool_label=spec.pool_label,
        default_wait=reader.duration("spec.defaultWait", spec.default_wait, zero=True),
        rules=tuple(
            RuleTerms(
                reasons=rule.reasons,
                conditions=rule.conditions,
                wait=None
                if rule.wait is None
                else reader.duration(f"spec.rules[{number}].wait", rule.wait, zero=True),
                ladder=None
                if rule.ladder is None
                else reader.ladder(f"spec.rules[{number}].ladder", rule.ladder),
            )
            for number, rule in enumerate(spec.rules)
        ),
        ladder=reader.ladder("spec.ladder", spec.ladder),
        drain_deadline=reader.duration("spec.drain.deadline", spec.drain.deadline),
        when_idle_limit=reader.duration("spec.drain.whenIdleLimit", spec.drain.when_idle_limit),
        evict_empty_dir=reader.choice("spec.drain.emptyDirData", spec.drain.empty_dir_data),
        evict_unmanaged=reader.choice("spec.drain.unmanagedPods", spec.drain.unmanaged_pods),
        excluded_namespaces=frozenset(spec.drain.excluded_namespaces),
        validation_timeout=reader.duration("spec.revalidation.timeout", spec.revalidation.timeout),
        validation_attempts=reader.count("spec.revalidation.attempts", spec.revalidation.attempts, least=1),
        gpu_resource=spec.revalidation.gpu_resource,
        max_unavailable=reader.limit("spec.budget.maxUnavailable", spec.budget.max_unavailable),
        max_quarantined=reader.limit("spec.budget.maxQuarantined", spec.budget.max_quarantined),
        max_repairs_in_flight=reader.count(
            "spec.budget.maxRepairsInFlight", spec.budget.max_repairs_in_flight, least=0, most=1000
        ),
        breaker_threshold=reader.limit("spec.breaker.threshold", spec.breaker.threshold),
        breaker_min_nodes=reader.count(
            "spec.breaker.minNodes", spec.breaker.min_nodes, least=1, most=1_000_000
        ),
        breaker_window=reader.duration("spec.breaker.window", spec.breaker.window),
        breaker_acknowledged=reader.moment(
            BREAKER_ACKNOWLEDGED, policy.metadata.annotations.get(BREAKER_ACKNOWLEDGED, "")
        ),
        workload_nodes=reader.count("spec.workload.nodes", spec.workload.nodes, least=0, most=1000),
        workload_within=reader.duration("spec.workload.within", spec.workload.within),
        workload_acknowledged=reader.moment(
            WORKLOAD_ACKNOWLEDGED, policy.metadata.annotations.get(WORKLOAD_ACKNOWLEDGED, "")
        ),
        expected=spec.expected,
        sinks=tuple(dict.fromkeys(spec.sinks)),
        drills_are_real=spec.drills_are_real,
    )
    warnings = (*reader.warnings, *(_unknown_sink(sink, settings) for sink in terms.sinks))
    return msgspec.structs.replace(
        terms, problems=tuple(reader.problems), warnings=tuple(word for word in warnings if word)
    )


def choose(node: Node, terms: Iterable[Terms]) -> tuple[Terms | None, str]:
    """Give the policy in force on a node, or None and why the node is left alone.

    The highest priority counts, even where that policy cannot be read: a typing error must not hand its nodes to another.
    """
    matching = [one for one in terms if one.selects(node)]
    if not matching:
        return None, "no policy selects this node"
    top = max(one.priority for one in matching)
    first = sorted((one for one in matching if one.priority == top), key=lambda one: one.name)
    if len(first) > 1:
        names = " and ".join(one.name for one in first)
        return (
            None,
            f"policies {names} both select this node with priority {first[0].priority}: it is left alone",
        )
    if first[0].problems:
        return None, f"policy {first[0].name} is invalid ({first[0].problems[0]}): its nodes are left alone"
    return first[0], ""


def parse_duration(text: str) -> timedelta:
    """Read `90s`, `1h30m`, `250ms`, at most a year. Raises ValueError for anything else."""
    if not _DURATION.fullmatch(text) or len(text) > 32:
        raise ValueError("is no duration; write it like 30s, 5m or 1h30m")
    total = sum(int(number) * _UNIT_MS[unit] for number, unit in _DURATION_PART.findall(text))
    if total > _LONGEST // timedelta(milliseconds=1):
        raise ValueError("is longer than a year; give at most 8784h")
    return timedelta(milliseconds=total)


def parse_limit(text: str) -> Limit:
    """Read `10%` or `3`: 1% to 100%, or 1 to 99999 nodes. Raises ValueError for anything else."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError("is no limit; write 1% to 100%, or a number of nodes from 1 to 99999")
    return Limit(text=text, number=int(match[1] or match[3]), percent=bool(match[2]))


def parse_moment(text: str) -> datetime:
    """Read an RFC 3339 time with its zone. Raises ValueError for anything else."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no RFC 3339 time; write it like 2026-01-31T08:15:00Z") from None
    if at.tzinfo is None:
        raise ValueError("has no time zone; write it like 2026-01-31T08:15:00Z")
    return at


class _Reader:
    """Collects every problem instead of stopping at the first."""

    def __init__(self, settings: Settings) -> None:
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self._settings = settings

    def duration(
        self, field: str, text: str, *, zero: bool = False, longest: timedelta | None = None
    ) -> timedelta:
        try:
            duration = parse_duration(text)
        except ValueError as error:
            self.problems.append(f"{field}: {text!r} {error}")
            return timedelta(0)
        if longest is not None and duration > longest:
            self.problems.append(
                f"{field}: {text!r} is too long; give at most {longest.total_seconds():.0f}s"
            )
        if not duration and not zero:
            self.problems.append(f"{field}: {text!r} leaves no time; give more than 0s")
        return duration

    def limit(self, field: str, text: str) -> Limit:
        try:
            return parse_limit(text)
        except ValueError as error:
            self.problems.append(f"{field}: {text!r} {error}")
            return Limit(text=text, number=0, percent=False)

    def count(self, field: str, number: int, *, least: int, most: int = _MOST_ATTEMPTS) -> int:
        if not least <= number <= most:
            self.problems.append(f"{field}: {number} is not within {least} and {most}")
        return number

    def choice(self, field: str, text: str) -> bool:
        if text not in ("evict", "block"):
            self.problems.append(f"{field}: {text!r} is neither evict nor block")
        return text == "evict"

    def ladder(self, field: str, rungs: Iterable[Rung]) -> tuple[RungTerms, ...]:
        steps = []
        for number, rung in enumerate(rungs):
            where = f"{field}[{number}]"
            if rung.repair not in self._settings.repairs:
                known = ", ".join(sorted(self._settings.repairs))
                self.problems.append(f"{where}.repair: {rung.repair!r} is no repair; known are {known}")
            steps.append(
                RungTerms(
                    repair=rung.repair,
                    timeout=self.duration(f"{where}.timeout", rung.timeout),
                    attempts=self.count(f"{where}.attempts", rung.attempts, least=1),
                )
            )
        if sum(step.attempts for step in steps) > _LONGEST_LADDER:
            self.problems.append(
                f"{field}: more than {_LONGEST_LADDER} attempts in all; give fewer rungs or attempts"
            )
        return tuple(steps)

    def moment(self, annotation: str, text: str) -> datetime | None:
        if not text:
            return None
        try:
            return parse_moment(text)
        except ValueError as error:
            self.warnings.append(f"annotation {annotation}: {text[:64]!r} {error}; it is ignored")
            return None


def _unknown_sink(sink: str, settings: Settings) -> str:
    if sink in settings.sinks:
        return ""
    known = ", ".join(sorted(settings.sinks)) or "none"
    return f"spec.sinks: {sink!r} is not in the controller's configuration; configured are {known}"
