"""`drill NODE FAULT`: a finding on purpose, so that people and programs can rehearse. Written into NodeHealth.spec.drills.

The node's own agent shows it, marked as a drill, until its time is over; nothing on the machine is touched, and no step that
takes anything from anybody follows unless the node's RemediationPolicy says `drillsAreReal`. The write carries the
resourceVersion that was read, so that two people's drills do not overwrite each other.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from checks.check import Check, discover
from checks.drill import LONGEST, MOST, default_part
from checks.finding import Part, PartKind, Reason, Severity
from cli.cluster import read_node_names
from cli.failure import Exit, Failure, failure_of
from cli.intent import unknown_node
from cli.runbook import choose_reasons
from cli.text import clock_time
from kube import paths
from kube.api import Api, ApiError, Conflict, NotFound, PatchType
from kube.nodehealth import AskedDrill, DrilledPart, NodeHealth
from kube.timestamps import micro_time

TRIES = 5


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; its fields are the keys of `-o json`. `condition` and `part` are empty where drills were ended."""

    node: str
    reason: str = ""
    condition: str = ""
    part: str = ""
    id: str = ""
    until: datetime | None = None
    turns_true: bool = False
    ended: tuple[str, ...] = ()


def begin(
    api: Api, node: str, asked: str, part: str, lasting: timedelta, now: datetime
) -> tuple[NodeHealth, AskedDrill, DrillReport]:
    """Read the node and make up the drill. Raises Failure with the one reason why it cannot be."""
    if not timedelta(0) < lasting <= LONGEST:
        raise Failure("--for: a drill lasts for more than nothing and at most an hour", Exit.BAD_USE)
    check, reason = _reason(asked)
    health = _read(api, node)
    if health.status.observed_at is not None:
        now = max(
            now, health.status.observed_at
        )  # this clock is behind the node's, by which a drill begins and ends
    standing = _under_way(health, now)
    if len(standing) >= MOST:
        raise _too_many(node)
    chosen = _part(check, part, health)
    drill = AskedDrill(
        id=f"{now:%H%M%S}-{len(standing) + 1}",
        reason=reason.name,
        part=DrilledPart(kind=chosen.kind.value, pci=chosen.pci, uuid=chosen.uuid, name=chosen.name),
        since=now.astimezone(UTC),
        until=(now + lasting).astimezone(UTC),
    )
    report = DrillReport(
        node=node,
        reason=reason.name,
        condition=check.condition,
        part=chosen.shown(),
        id=drill.id,
        until=drill.until,
        turns_true=bool(check.condition) and reason.severity is Severity.FAULT,
    )
    return health, drill, report


def write(api: Api, health: NodeHealth, drill: AskedDrill, now: datetime) -> None:
    """Write the drill beside those that are under way. Raises Failure where it is refused."""
    _patch(api, health, lambda newest: [*_under_way(newest, now), drill])


def end(api: Api, node: str) -> DrillReport:
    """End all drills of a node. Raises Failure."""
    health = _read(api, node)
    ended = tuple(drill.id for drill in health.spec.drills)
    if ended:
        _patch(api, health, lambda _: [])
    return DrillReport(node=node, ended=ended)


def drill_lines(report: DrillReport, *, written: bool) -> list[str]:
    """Say what was (or would be) written and what follows from it."""
    if not report.condition and not report.reason:
        return [
            f"{report.node}: {f'ended {len(report.ended)} drills' if report.ended else 'no drill to end'}"
        ]
    until = clock_time(report.until) if report.until is not None else ""
    what = (
        f"{report.condition} turns True with reason {report.reason}"
        if report.turns_true
        else f"{report.reason} is shown as a warning and turns no condition True"
    )
    return [
        f"{report.node}: drill {report.id} {'is written' if written else 'will be written'}; it ends by itself at {until}.",
        f"  {what}, on {report.part}.",
        "  It is marked as a drill wherever it is shown; nothing on the machine is touched.",
        "  No node is drained or repaired for it unless the policy says drillsAreReal.",
        f"Watch it: kubectl nodemend explain {report.node}",
        f"End it now: kubectl nodemend drill {report.node} --end",
    ]


def _reason(asked: str) -> tuple[Check, Reason]:
    checks = discover()
    rows = [row for row in choose_reasons(checks, asked) if row.turns != "Unknown"]
    if len(rows) != 1:
        names = ", ".join(row.reason for row in rows) or "none: it is a reason of Unknown"
        raise Failure(f"{asked!r} is no single fault; name one of {names}", Exit.BAD_USE)
    for check in checks:
        for reason in check.reasons:
            if reason.name == rows[0].reason:
                return check, reason
    raise Failure(f"no check gives {rows[0].reason}", Exit.BAD_USE)


def _read(api: Api, node: str) -> NodeHealth:
    try:
        return msgspec.json.decode(api.get(paths.node_health(node)), type=NodeHealth)
    except NotFound as error:
        known = read_node_names(api)
        if node not in known:
            raise unknown_node(node, known) from error
        raise Failure(f"{node} has no NodeHealth: no agent has ever reported there", Exit.NOT_SO) from error
    except ApiError as error:
        raise failure_of(error, f"read nodehealth {node}") from error
    except msgspec.MsgspecError as error:
        raise Failure(f"nodehealth {node} cannot be read: {error}", Exit.MISSING) from error


def _under_way(health: NodeHealth, now: datetime) -> list[AskedDrill]:
    return [drill for drill in health.spec.drills if drill.until > now]


def _part(check: Check, asked: str, health: NodeHealth) -> Part:
    kind = check.part_kind
    held = [
        Part(kind=PartKind(row.kind), pci=row.pci, uuid=row.uuid, index=row.index, name=row.name)
        for row in health.status.parts
        if row.kind == kind.value
    ]
    if not asked:
        return default_part(kind, held)
    for part in held:
        if asked in {part.uuid, part.pci, part.name, str(part.index)}:
            return part
    if held:
        names = ", ".join(str(part.index) if part.index is not None else part.pci for part in held)
        raise Failure(f"--part {asked!r} is none of this node's: {names}", Exit.BAD_USE)
    return Part(kind=kind, name=asked[:64])


def _patch(api: Api, health: NodeHealth, wanted: Callable[[NodeHealth], Sequence[AskedDrill]]) -> None:
    """Write what is wanted of the newest version: the agent writes the same object's status whenever it likes."""
    for left in reversed(range(TRIES)):
        drills = wanted(health)
        if len(drills) > MOST:
            raise _too_many(health.metadata.name)
        body = {
            "metadata": {"resourceVersion": health.metadata.resource_version},
            "spec": {"drills": [_row(drill) for drill in drills] or None},
        }
        try:
            api.patch(paths.node_health(health.metadata.name), body, PatchType.MERGE)
        except Conflict as error:
            if not left:
                raise failure_of(error, f"patch nodehealth {health.metadata.name}") from error
            health = _read(api, health.metadata.name)
        except ApiError as error:
            asked = f"patch nodehealth {health.metadata.name}"
            raise failure_of(error, asked, allowed_by="ask for the ClusterRole nodemend-driller") from error
        else:
            return


def _row(drill: AskedDrill) -> dict[str, Any]:
    return {
        "id": drill.id,
        "reason": drill.reason,
        "part": {key: value for key, value in msgspec.to_builtins(drill.part).items() if value},
        "since": micro_time(drill.since),
        "until": micro_time(drill.until),
    }


def _too_many(node: str) -> Failure:
    return Failure(f"{node} has {MOST} drills already: `drill {node} --end` ends them", Exit.NOT_SO)
