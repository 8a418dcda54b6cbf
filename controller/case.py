"""Case: one open incident on its node, with everything a phase may look at, and the few moves it may make. Pure.

A phase gives a Move: the status it wants and, where that is already the persisted one, effects. `advance` drops the effects
of a Move whose status is not yet persisted, so an effect always follows from a stored state.
"""

from datetime import datetime, timedelta

import msgspec

from checks.condition import Status
from controller import outbox
from controller.assess import Verdict, key, name_parts, needs_person, takes_node
from controller.budget import Hold, Pool
from controller.incident import told
from controller.steps import Step
from controller.survey import Survey
from controller.terms import RungTerms, Terms
from kube.nodehealth import HealthFinding
from kube.remediation import CLOSED, Phase, Remediation, RemediationStatus
from kube.types import Node

# What `heldBy` may say, beside `budget` and `breaker`.
WAIT = "wait"
MODE = "mode"
POLICY = "policy"
OWNER = "owner"
EVIDENCE = "evidence"
DRILL = "drill"
PODS = "pods"
WORKLOAD = "workload"
_TEXT = 1024
_QUIET = frozenset({WAIT, MODE})  # expected pauses: shown while they last, not part of the story


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase wants: the status to be in, the effects to have once it is, and when to be asked again."""

    status: RemediationStatus
    effects: tuple[Step, ...] = ()
    recheck_at: datetime | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is the working one: persisted, plus deliveries settled, evidence attached and marks noted.

    `terms` are the policy in force now, or plain defaults that permit nothing where `ungoverned` says why there is none.
    `live` are the faults that stand now and count (drills only where the policy says that they are real), `due` those of
    them whose wait is over; both worst first.
    """

    survey: Survey
    remediation: Remediation
    status: RemediationStatus
    node: Node
    verdict: Verdict
    terms: Terms
    ungoverned: str = ""
    pool: Pool | None = None
    live: tuple[HealthFinding, ...] = ()
    due: tuple[HealthFinding, ...] = ()

    @property
    def name(self) -> str:
        return self.remediation.metadata.name

    @property
    def node_name(self) -> str:
        return self.node.metadata.name

    @property
    def now(self) -> datetime:
        return self.survey.now

    @property
    def takes_node(self) -> bool:
        return any(takes_node(f) for f in self.due)

    @property
    def person(self) -> HealthFinding | None:
        """Give the fault that a person has to look at, if there is one: no repair may wash it away unseen."""
        return next((f for f in self.due if needs_person(f)), None)

    @property
    def ladder(self) -> tuple[RungTerms, ...]:
        """Give the ladder of the worst fault, of the worst latched one where none is due now."""
        worst = next(iter((*self.due, *self.status.evidence)), None)
        return self.terms.ladder_for(worst) if worst is not None else self.terms.ladder

    @property
    def gone(self) -> bool:
        """Tell whether every latched fault is False again, newer than the fault, and nothing else stands.

        "Newer" compares the agent's own times: a view of the Node from before the fault also says False.
        """
        if not self.verdict.usable or self.verdict.standing or not self.status.evidence:
            return False
        return all(_false_since(self.node, f) is not None for f in self.status.evidence)

    @property
    def gone_since(self) -> datetime | None:
        return max(filter(None, (_false_since(self.node, f) for f in self.status.evidence)), default=None)

    def what(self) -> str:
        """Name the evidence for people."""
        return name_parts(self.status.evidence)

    def enter(self, phase: Phase, message: str, *, page: str = "", **changes: object) -> Move:
        """Go to a phase (or begin it anew). `page` is the line that on-call gets; closing resolves what was paged."""
        status = msgspec.structs.replace(self.status, **changes)
        rows = status.notifications
        schedules = self.survey.fleet.settings.sinks
        if page:
            # Where no policy is in force, whoever was told of the incident still hears what becomes of it.
            sinks = dict.fromkeys(row.sink for row in rows) if self.ungoverned else self.terms.sinks
            rows = outbox.page(rows, self.name, page, sinks, schedules, self.now)
        if phase in CLOSED:
            line = f"{self.node_name}: {phase.value.lower()}: {message}"
            rows = outbox.resolve(rows, self.name, line, schedules, self.now)
        return Move(
            status=msgspec.structs.replace(
                status,
                phase=phase,
                phase_since=self.now,
                message=message[:_TEXT],
                held_by="",
                held_since=None,
                closed_at=self.now if phase in CLOSED else None,
                notifications=rows,
                timeline=told(status.timeline, self.now, phase, message),
            )
        )

    def hold(self, hold: Hold, recheck_at: datetime | None = None) -> Move:
        """Stay, and say what holds."""
        status = self.status
        if status.held_by != hold.by:
            timeline = status.timeline
            if hold.by not in _QUIET:
                timeline = told(timeline, self.now, status.phase, f"held: {hold.why}")
            status = msgspec.structs.replace(status, held_by=hold.by, held_since=self.now, timeline=timeline)
        return Move(status=msgspec.structs.replace(status, message=hold.why[:_TEXT]), recheck_at=recheck_at)

    def go_on(self, message: str, *effects: Step, recheck_at: datetime | None = None) -> Move:
        """Stay, held by nothing, and have effects."""
        status = msgspec.structs.replace(self.status, message=message[:_TEXT], held_by="", held_since=None)
        return Move(status=status, effects=effects, recheck_at=recheck_at)

    def closing(self, until: datetime | None = None) -> "Case":
        """Give the case as it is closed: with the evidence that was written down, and what was first seen by `until`.

        A closed incident answers for its evidence (incident.dealt_with). With what was seen only in the moment of closing it
        never dealt: that opens another one.
        """
        known = self.remediation.status.evidence or self.remediation.spec.evidence
        held = {key(f) for f in known}
        kept = tuple(
            f for f in self.status.evidence if key(f) in held or (until is not None and f.first_seen <= until)
        )
        if kept == self.status.evidence:
            return self
        timeline = self.remediation.status.timeline
        return self.with_status(msgspec.structs.replace(self.status, evidence=kept, timeline=timeline))

    def with_status(self, status: RemediationStatus) -> "Case":
        return msgspec.structs.replace(self, status=status)

    def held_for(self, by: str) -> timedelta:
        """Say how long the same thing has been holding already."""
        if self.status.held_by != by or self.status.held_since is None:
            return timedelta(0)
        return self.now - self.status.held_since


def _false_since(node: Node, finding: HealthFinding) -> datetime | None:
    condition = node.condition(finding.condition)
    if condition is None or condition.status != Status.FALSE or condition.last_transition_time is None:
        return None
    # Conditions carry whole seconds.
    if condition.last_transition_time < finding.first_seen.replace(microsecond=0):
        return None
    return condition.last_transition_time
