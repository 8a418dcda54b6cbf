"""The agent's metrics, in a registry of its own, so that many agents can live in one process.

Values are set here from the shell's results, never inside a judgement. Labels hold our own words only: condition types,
reasons, sources; never text that a tenant can choose.
"""

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from checks.condition import Condition, Status
from checks.finding import Finding
from checks.observation import KERNEL_LOG, KernelRecord, Observation, RecordsLost
from kube.nodehealth import SourceState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LATENCY_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """One agent's numbers."""

    def __init__(self, version: str) -> None:
        registry = self._registry = CollectorRegistry()
        Info("nodemend_agent", "Version of the agent.", registry=registry).info({"version": version})
        self._condition = Gauge(
            "nodemend_condition", "1 for the status that stands.", ["type", "status"], registry=registry
        )
        self._findings = Gauge(
            "nodemend_findings",
            "Findings that stand.",
            ["condition", "reason", "severity"],
            registry=registry,
        )
        self._readable = Gauge(
            "nodemend_source_readable", "1 where the last try succeeded.", ["source"], registry=registry
        )
        self._records = Counter(
            "nodemend_source_records", "Records read and judged.", ["source"], registry=registry
        )
        self._lost = Counter(
            "nodemend_source_lost", "Records known to exist and never read.", ["source"], registry=registry
        )
        self._writes = Counter(
            "nodemend_agent_writes",
            "Writes to the API server by outcome: ok, or the kind of error.",
            ["object", "outcome"],
            registry=registry,
        )
        self.delayed = Counter(
            "nodemend_agent_writes_delayed", "Times that the rate limit held a condition.", registry=registry
        )
        self._latency = Histogram(
            "nodemend_record_to_condition_seconds",
            "From reading a record to the API server's answer to the condition that it changed.",
            registry=registry,
            buckets=_LATENCY_S,
        )
        self.check_failures = Counter(
            "nodemend_check_failures", "Judgements that broke off.", ["check"], registry=registry
        )
        self.state_file_errors = Counter(
            "nodemend_state_file_errors", "Loads and saves of the state file that failed.", registry=registry
        )
        self.omitted = Gauge(
            "nodemend_nodehealth_omitted", "Findings and lines left out of NodeHealth.", registry=registry
        )
        self._nvml_round = Gauge(
            "nodemend_nvml_round_seconds",
            "Time that the last round spent in NVML, by group of calls.",
            ["group"],
            registry=registry,
        )
        self._nvml_children = Gauge(
            "nodemend_nvml_children_started", "Processes started to ask NVML in this boot.", registry=registry
        )
        self._nvml_left = Gauge(
            "nodemend_nvml_children_left",
            "Such processes that could not be killed and are still there.",
            registry=registry,
        )
        self._nvml_quiet = Gauge(
            "nodemend_nvml_quiet_gpus",
            "GPUs to which no call is made, because one may hang.",
            registry=registry,
        )
        self._heartbeat_age = Gauge(
            "nodemend_agent_heartbeat_age_seconds",
            "Since a thread last went round.",
            ["thread"],
            registry=registry,
        )

    def nvml(self, spent_us: Mapping[str, int], started: int, left: int, quiet: int) -> None:
        """Show the last round of NVML, the children so far, and how many of them and of the GPUs are given up."""
        for group, spent in spent_us.items():
            self._nvml_round.labels(group).set(spent / 1e6)
        self._nvml_children.set(started)
        self._nvml_left.set(left)
        self._nvml_quiet.set(quiet)

    def wrote(self, kind: str, outcome: str) -> None:
        """Count one write; `kind` is condition, nodehealth or lease."""
        self._writes.labels(kind, outcome).inc()

    def published_after(self, seconds: float) -> None:
        self._latency.observe(max(0.0, seconds))

    def judged(self, conditions: Sequence[Condition], findings: Sequence[tuple[str, Finding]]) -> None:
        """Show what stands now, and nothing that stood before."""
        self._condition.clear()
        for condition in conditions:
            for status in Status:
                self._condition.labels(condition.type, status.value).set(int(condition.status is status))
        counts: dict[tuple[str, str, str], int] = {}
        for condition_type, finding in findings:
            key = (condition_type, finding.reason, finding.severity.value)
            counts[key] = counts.get(key, 0) + 1
        self._findings.clear()
        for key, count in counts.items():
            self._findings.labels(*key).set(count)

    def observed(self, observations: Sequence[Observation]) -> None:
        """Count what was judged and what was lost."""
        records = sum(isinstance(seen, KernelRecord) for seen in observations)
        if records:
            self._records.labels(KERNEL_LOG).inc(records)
        for seen in observations:
            if isinstance(seen, RecordsLost):
                self._lost.labels(seen.source).inc(seen.count)

    def sources(self, sources: Mapping[str, SourceState]) -> None:
        for name, source in sources.items():
            self._readable.labels(name).set(int(source.readable))

    def exposition(self, loop_age_s: float, writer_age_s: float) -> bytes:
        """Write all of it in Prometheus' text format."""
        self._heartbeat_age.labels("loop").set(loop_age_s)
        self._heartbeat_age.labels("writer").set(writer_age_s)
        return generate_latest(self._registry)
