"""Say what was done: one log line and one Event for each change of state, and the counters. Shell.

A step that fails again for the same reason is said once; when it works again, its success says so.
"""

from collections.abc import Callable
from datetime import datetime

import structlog

from controller.announce import Announcement
from controller.metrics import Metrics
from controller.outcome import SUCCESS, Outcome, Result
from controller.pacing import Key, key_of
from controller.steps import (
    CallBack,
    Evict,
    Open,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    Save,
    Silence,
    StartClients,
    Step,
    StopClients,
)
from kube.remediation import Phase, Remediation

log = structlog.get_logger(__name__)

_MOST_SAID = 20_000
_QUIET = frozenset(
    {Result.CONFLICT, Result.NOT_LEADER, Result.SKIPPED}
)  # decided anew in a moment, or said elsewhere


class Journal:
    """Only the loop's own thread uses it."""

    def __init__(self, metrics: Metrics, announce: Callable[[Announcement], None]) -> None:
        self._metrics = metrics
        self._announce = announce
        self._said: dict[Key, tuple[Result, str]] = {}

    def took(self, outcome: Outcome, before: Remediation | None, now: datetime) -> None:
        """Tell of one outcome; `before` is the incident as it stood when the step was planned."""
        self._metrics.steps.labels(kind=outcome.kind, result=outcome.result.value).inc()
        key = key_of(outcome.step)
        if outcome.result in SUCCESS:
            self._said.pop(key, None)
            if outcome.result is not Result.UNCHANGED:
                self._tell(outcome.step, before, now)
        elif outcome.result not in _QUIET and self._said.get(key) != (outcome.result, outcome.why):
            if len(self._said) >= _MOST_SAID:
                self._said.clear()
            self._said[key] = (outcome.result, outcome.why)
            self._tell_failure(outcome)

    def _tell(self, step: Step, before: Remediation | None, now: datetime) -> None:
        match step:
            case Open():
                log.info("incident.opened", node=step.node, incident=step.name, reason=step.status.message)
                self._say(step, step.spec.node_uid, step.status.phase, step.status.message, now)
            case Save() if before is not None and before.status.phase is not step.status.phase:
                phase, message = step.status.phase, step.status.message
                log.info(
                    "incident.moved", node=step.node, incident=step.name, phase=phase.value, reason=message
                )
                self._say(step, before.spec.node_uid, phase, message, now)
            case Quarantine():
                log.info("node.quarantined", node=step.node, incident=step.incident)
            case Restore():
                log.info("node.restored", node=step.node, incident=step.incident, uncordoned=step.uncordon)
            case Evict():
                log.info(
                    "pod.evicted", node=step.node, incident=step.incident, pod=f"{step.namespace}/{step.name}"
                )
            case StopClients():
                keys = [one.key for one in step.labels]
                log.info("clients.stopped", node=step.node, incident=step.incident, labels=keys)
            case StartClients():
                keys = [one.key for one in step.labels]
                log.info("clients.restored", node=step.node, incident=step.incident, labels=keys)
            case RunRepair():
                log.info("repair.started", node=step.node, incident=step.incident, job=step.job)
            case RunValidation():
                log.info("revalidation.started", node=step.node, incident=step.incident, job=step.job)
            case CallBack():
                log.info("job.called_back", node=step.node, incident=step.incident, job=step.job)
            case Silence():
                log.warning("agent.silenced", node=step.node)
            case _:
                pass  # numbers and clean-up: nothing that a person would look for

    def _tell_failure(self, outcome: Outcome) -> None:
        step, why = outcome.step, outcome.why
        match outcome.result:
            case Result.DRY_RUN:
                log.info("step.withheld", node=step.node, step=outcome.kind)
            case Result.REFUSED:
                log.warning("step.refused", node=step.node, step=outcome.kind, reason=why)
            case Result.BLOCKED | Result.MISCONFIGURED if isinstance(step, Evict):
                pod = f"{step.namespace}/{step.name}"
                log.warning("eviction.blocked", node=step.node, incident=step.incident, pod=pod, reason=why)
            case _:
                log.warning(
                    "step.failed", node=step.node, step=outcome.kind, result=outcome.result.value, error=why
                )

    def _say(self, step: Open | Save, node_uid: str, phase: Phase, message: str, now: datetime) -> None:
        self._announce(
            Announcement(
                node=step.node, node_uid=node_uid, incident=step.name, phase=phase, message=message, at=now
            )
        )
