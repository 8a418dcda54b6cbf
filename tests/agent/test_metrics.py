"""What Prometheus sees of an agent."""

from datetime import UTC, datetime

from agent.metrics import Metrics
from checks.condition import Condition, Status
from checks.finding import Severity
from checks.observation import KERNEL_LOG, RecordsLost
from kube.nodehealth import SourceState
from tests.agent.scene import TYPE, finding

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def lines(metrics: Metrics) -> list[str]:
    return metrics.exposition(1.5, 0).decode().splitlines()


def test_the_condition_that_stands_is_1_and_the_others_are_0() -> None:
    """As kube-state-metrics shows it, so that alerts read alike."""
    metrics = Metrics("1")
    standing = Condition(type=TYPE, status=Status.TRUE, reason="R", message="", last_transition=NOW)
    metrics.judged([standing], [(TYPE, finding(at=NOW)), (TYPE, finding(part="b", at=NOW))])
    said = lines(metrics)
    assert 'nodemend_condition{status="True",type="GateFault"} 1.0' in said
    assert 'nodemend_condition{status="False",type="GateFault"} 0.0' in said
    assert 'nodemend_findings{condition="GateFault",reason="GateStuck",severity="Fault"} 2.0' in said


def test_what_stood_before_is_gone() -> None:
    """A series that nobody sets again would alert for ever."""
    metrics = Metrics("1")
    warning = finding(severity=Severity.WARNING, at=NOW)
    metrics.judged([], [(TYPE, warning)])
    metrics.judged([], [])
    assert not any(line.startswith(("nodemend_findings{", "nodemend_condition{")) for line in lines(metrics))


def test_lost_records_sources_and_heartbeats_are_shown() -> None:
    """What was not read is a number, not a silence."""
    metrics = Metrics("1")
    metrics.observed([RecordsLost(source=KERNEL_LOG, count=40, seen_at=NOW, why="overrun")])
    metrics.sources({KERNEL_LOG: SourceState(name=KERNEL_LOG, readable=False)})
    said = lines(metrics)
    assert 'nodemend_source_lost_total{source="kernel-log"} 40.0' in said
    assert 'nodemend_source_readable{source="kernel-log"} 0.0' in said
    assert 'nodemend_agent_heartbeat_age_seconds{thread="loop"} 1.5' in said


def test_two_agents_in_one_process_do_not_share_a_number() -> None:
    """Each has a registry of its own."""
    first, second = Metrics("1"), Metrics("1")
    first.wrote("condition", "ok")
    said = 'nodemend_agent_writes_total{object="condition",outcome="ok"} 1.0'
    assert (said in lines(first), said in lines(second)) == (True, False)
