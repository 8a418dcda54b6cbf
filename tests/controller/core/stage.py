"""One incident on gpu-1 in a given phase, with everything around it as it would be, and what the controller decides then.

`stage` builds the Fleet; a test changes the one thing it is about. The pool has ten nodes, so its budget is one.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from controller.plan import plan
from controller.steps import Open, Save, SavePolicy, Silence, Step
from controller.view import Eviction, Failure, Fleet
from kube.nodehealth import HealthFinding, NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Attempt, DrainRecord, NodeBefore, Phase, Remediation, RemediationStatus
from kube.types import DaemonSet, Job, Lease, Node, Pod
from tests import build as make
from tests.build import NOW, SEEN, XID

LOST = make.finding()
INCIDENT = make.remediation().metadata.name
REBOOT = f"reboot-{INCIDENT}-1"
VALIDATE = f"validate-{INCIDENT}-1"
DEADLINE = NOW + timedelta(minutes=30)
TOUCHED = frozenset({Phase.DRAINING, Phase.REPAIRING, Phase.REVALIDATING, Phase.ESCALATED})
PROVEN = ("boot-2", "boot-1")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller decided about gpu-1: the phase and hold that are saved (or stand), and the effects."""

    phase: Phase
    held_by: str
    effects: tuple[str, ...]
    message: str
    status: RemediationStatus
    steps: tuple[Step, ...]
    recheck_at: datetime | None


def decide(fleet: Fleet, now: datetime = NOW) -> Decision:
    """Plan, and look at gpu-1's incident alone."""
    planned = plan(fleet, now)
    mine = [step for step in planned.steps if step.node == "gpu-1"]
    saves = [step for step in mine if isinstance(step, Save | Open)]
    others = [step for step in mine if not isinstance(step, Save | Open | SavePolicy | Silence)]
    assert not (saves and others), "one Save or effects, never both"
    held = [one for one in fleet.remediations.values() if one.spec.node_name == "gpu-1"]
    status = saves[0].status if saves else held[0].status if held else RemediationStatus(message="(none)")
    return Decision(
        phase=status.phase,
        held_by=status.held_by,
        effects=tuple(type(step).__name__ for step in others),
        message=status.message,
        status=status,
        steps=tuple(mine),
        recheck_at=planned.recheck_at,
    )


def drain_record(**fields: Any) -> DrainRecord:
    base = DrainRecord(started_at=SEEN, deadline=DEADLINE, urgency="now")
    return msgspec.structs.replace(base, **fields)


def reboot(**fields: Any) -> Attempt:
    """Build the first repair attempt, written down and not yet submitted."""
    base = Attempt(
        number=1,
        kind="reboot",
        job=REBOOT,
        boot_id_before="boot-1",
        started_at=SEEN,
        deadline=NOW + timedelta(minutes=45),
    )
    return msgspec.structs.replace(base, **fields)


def validation(**fields: Any) -> Attempt:
    """Build the first revalidation, written down and not yet submitted."""
    base = Attempt(
        number=1,
        kind="revalidate",
        job=VALIDATE,
        boot_id_before="boot-1",
        started_at=SEEN,
        deadline=NOW + timedelta(minutes=15),
    )
    return msgspec.structs.replace(base, **fields)


def stage(
    phase: Phase,
    *,
    evidence: Sequence[HealthFinding] = (LOST,),
    reported: Sequence[HealthFinding] | None = None,
    condition: str | tuple[str, datetime] | None = None,
    marked: bool | None = None,
    node: Mapping[str, Any] | None = None,
    health: Mapping[str, Any] | None = None,
    policy: RemediationPolicy | None = None,
    policies: Sequence[RemediationPolicy] | None = None,
    recipe: NodeBefore | None = None,
    annotations: Mapping[str, str] | None = None,
    since: datetime = SEEN,
    others: Iterable[Node] | None = None,
    other_remediations: Iterable[Remediation] = (),
    other_healths: Iterable[NodeHealth] = (),
    pods: Iterable[Pod] = (),
    pods_synced: bool = True,
    jobs: Iterable[Job] = (),
    leases: Iterable[Lease] = (),
    daemonsets: Iterable[DaemonSet] = (),
    evictions: Mapping[str, Eviction] | None = None,
    failures: Mapping[str, Failure] | None = None,
    settings: Any = make.SETTINGS,
    **status: Any,
) -> Fleet:
    """Build the fleet around an incident; further keywords are fields of its status.

    `reported` is what NodeHealth holds (default: the evidence, as long as no repair was made), `condition` the Node's.
    """
    repaired = phase is Phase.REVALIDATING
    found = (() if repaired else evidence) if reported is None else reported
    shown = ("True" if found else "False") if condition is None else condition
    touched = phase in TOUCHED if marked is None else marked
    types = {f.condition: shown for f in evidence} | {XID: shown}
    plain = make.node(**{"conditions": types, **(node or {})})
    recipe = make.before(unschedulable=plain.spec.unschedulable) if recipe is None else recipe
    name = make.remediation(plain, evidence).metadata.name
    sick = make.quarantined(plain, name, recipe) if touched else plain
    defaults: dict[str, Any] = {}
    if phase is not Phase.SUSPECTED:
        defaults["before"] = (
            recipe if touched else msgspec.structs.replace(recipe, applied_at=None, applied_version="")
        )
    if phase in (Phase.DRAINING, Phase.REPAIRING):
        defaults["drain"] = drain_record()
    if phase is Phase.REPAIRING:
        defaults["attempts"] = (reboot(),)
    incident = make.remediation(
        plain, evidence, phase=phase, since=since, annotations=annotations, **{**defaults, **status}
    )
    published = {f.condition for f in evidence} | {XID}
    return make.fleet(
        sick,
        *(make.idle_nodes(9) if others is None else others),
        healths=[make.health(plain, found, **{"published": published, **(health or {})}), *other_healths],
        remediations=[incident, *other_remediations],
        policies=([make.policy()] if policy is None else [policy]) if policies is None else policies,
        pods=pods,
        pods_synced=pods_synced,
        jobs=jobs,
        leases=leases,
        daemonsets=daemonsets,
        evictions=evictions,
        failures=failures,
        settings=settings,
    )
