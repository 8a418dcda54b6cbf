"""Whether single GPUs of a node can be reset, whether the driver is free for it, and whether it is proven. Pure.

A reset is a smaller repair than a reboot and needs more: a model whose GPUs can be reset one by one, MIG off, and nobody
else at the GPU. Where any of that fails the rung is refused with the reason, and the ladder goes on. Its proof is told
twice: by the Job, which asked nvidia-smi for each UUID after the reset, and then by the agent, which has taken the driver up
again and reports the same UUID in the same boot, with nothing against it.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from checks.condition import Status
from checks.finding import Action, Severity, is_same_part
from checks.observation import NVML
from controller.assess import name_parts, why_not_usable
from controller.case import Case
from controller.gpu_clients import clients_on, taken_over, unstoppable
from controller.last_words import termination_of
from kube.nodehealth import CLEARED_LIMIT, ClearedPart, HealthFinding, NodeHealth, PartState
from kube.remediation import Attempt, Phase, RemediationStatus, RepairTarget
from kube.types import Job, Pod, Struct

RESET_GPU = "reset-gpu"

# How long the agent and the clients may take to let go of the driver; their pods have a grace of their own (30 s).
QUIET_WITHIN = timedelta(minutes=5)

# nvidia-smi(1), --gpu-reset: GPUs older than Ampere are reset together with all their NVLink peers; with NVSwitch, Ampere
# needs Fabric Manager to be reset alone, Hopper and newer do not. Whether an A100 board has NVSwitches cannot be told from
# here, and one without its peers would be refused by the driver at best.
_ONLY_TOGETHER = re.compile(r"\b(A100|A800)[ -]SXM|\b[VP]100[ -]SXM", re.IGNORECASE)
_ALONE = re.compile(
    r"\b(A2|A10G?|A16|A30|A40|A100|A800|H20|H100|H200|H800|L2|L4|L20|L40S?|T4|B100|B200|B300|GH200|GB200|GB300)\b"
    r"|\bRTX (PRO )?\d{4}\b|\bRTX A\d{4}\b",
    re.IGNORECASE,
)
_NEVER = datetime.min.replace(tzinfo=UTC)
_DRIVER_CONDITIONS = ("GpuMissing", "GpuDriverFault")


class _Row(Struct, frozen=True, kw_only=True):
    """One GPU in the report of `nodemend-agent reset-gpu`; `at` is when it answered again."""

    name: str
    result: str
    at: datetime | None = None


class _Report(Struct, frozen=True, kw_only=True):
    result: str
    boot_id: str = msgspec.field(name="bootID", default="")
    checks: tuple[_Row, ...] = ()


def is_reset(attempt: Attempt) -> bool:
    """Tell whether the Job has reset every GPU that the attempt is about; the agent's word may still be missing."""
    return bool(attempt.targets) and all(target.reset_at is not None for target in attempt.targets)


def wants_quiet(status: RemediationStatus, attempt: Attempt | None) -> bool:
    """Tell whether the GPU's clients are to be off now: a reset is written down and neither over nor done."""
    if attempt is None or attempt.kind != RESET_GPU or status.phase is not Phase.REPAIRING:
        return False
    return not attempt.result and not is_reset(attempt)


def targets(case: Case) -> tuple[RepairTarget, ...]:
    """Give the GPUs whose due faults a reset ends, each once, by UUID; one without a UUID has an empty one."""
    found: dict[str, RepairTarget] = {}
    for finding in case.due:
        if finding.action != Action.RESET_GPU or finding.part.kind != "gpu":
            continue
        part = _part_of(case, finding)
        uuid = finding.part.uuid or (part.uuid if part is not None else "")
        pci = finding.part.pci or (part.pci if part is not None else "")
        found.setdefault(uuid or pci, RepairTarget(uuid=uuid, pci=pci))
    return tuple(found[key] for key in sorted(found))


def why_not_reset(case: Case) -> str | None:
    """Say why a reset of GPUs is not for this node now, or None."""
    for finding in case.due:
        if why := _why_not_for(finding):
            return why
    wanted = targets(case)
    if not wanted:
        return "no GPU has a fault that a reset ends"
    for target in wanted:
        if why := _why_not_this(case, target):
            return why
    if not case.survey.fleet.pods_synced:
        return None  # what holds the repair, and passes
    if held := unstoppable(case.node, case.survey.fleet):
        return f"{held[0]} holds the GPUs, and no label of the Node stops it"
    return None


def _why_not_for(finding: HealthFinding) -> str | None:
    """Say which due fault a reset of GPUs would leave: then the reboot is due at once, and one drain serves both."""
    if finding.part.kind == "gpu" and finding.action == Action.RESET_GPU:
        return None
    if finding.action in (Action.REBOOT, Action.RESET_GPU):
        return f"{name_parts([finding])} needs more than a reset of GPUs"
    return None


def _why_not_this(case: Case, target: RepairTarget) -> str | None:
    where = f"the GPU at {target.pci or 'an unknown address'}"
    if not target.uuid:
        return f"the UUID of {where} is not known"
    part = next((p for p in _gpus(case) if p.uuid == target.uuid), None)
    if part is None:
        return f"NodeHealth reports no {target.uuid}"
    if not part.model:
        return f"the model of {target.uuid} is not known"
    if _ONLY_TOGETHER.search(part.model):
        return f"{part.model}: where NVSwitches join such GPUs, one cannot be counted on to be reset alone"
    if not _ALONE.search(part.model):
        return f"{part.model} is not among the models whose GPUs can be reset one by one"
    if part.mig:
        return f"MIG is on at {target.uuid}: a reset would end every instance on it"
    return None


def why_not_quiet(case: Case, attempt: Attempt) -> str | None:
    """Say who still may hold the driver."""
    health = case.survey.fleet.healths.get(case.node_name)
    if health is None or not asks(health, attempt) or health.status.released is None:
        return "the agent has not let go of the driver"
    stopped = case.status.stopped
    if stopped is None or stopped.applied_at is None:
        return "the clients of the GPUs are not switched off"
    if theirs := taken_over(case.node, stopped):
        return theirs
    if left := clients_on(case.node_name, stopped, case.survey.fleet):
        return f"waiting for {', '.join(left[:3])}{f' and {len(left) - 3} more' if len(left) > 3 else ''} to leave the GPUs"
    return None


def asks(health: NodeHealth, attempt: Attempt) -> bool:
    """Tell whether the agent is asked for the driver by this very attempt."""
    return health.spec.release is not None and health.spec.release.by == attempt.job


def answers(health: NodeHealth, attempt: Attempt) -> bool:
    """Tell whether the agent says that it let go of the driver for this very attempt."""
    return health.status.released is not None and health.status.released.by == attempt.job


def read_report(
    attempt: Attempt, job: Job, pods: Iterable[Pod], now: datetime
) -> tuple[tuple[RepairTarget, ...], str]:
    """Give the attempt's targets with the time of their reset, or say what is missing from the report of its Job.

    The times are the machine's own; none reaches beyond `now`, the moment in which the controller heard them.
    """
    state = termination_of(job, pods)
    if state is None:
        return (), "its report is not here yet"
    try:
        report = msgspec.json.decode(state.message, type=_Report)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return (), "its report cannot be read"
    if report.boot_id != attempt.boot_id_before:
        return (), f"its report is about boot {report.boot_id or 'unknown'}"
    reset = {row.name: row.at for row in report.checks if row.result == "Reset" and row.at is not None}
    missing = [target.uuid for target in attempt.targets if target.uuid not in reset]
    if missing:
        return (), f"its report does not say that {', '.join(missing)} was reset"
    return tuple(
        msgspec.structs.replace(target, reset_at=min(reset[target.uuid], now)) for target in attempt.targets
    ), ""


def why_not_proven(case: Case, attempt: Attempt) -> str | None:
    """Say what is missing from the agent's part of the proof, once the driver was given back."""
    health = case.survey.fleet.healths.get(case.node_name)
    if health is None or (doubt := why_not_usable(case.node, health)):
        return f"the agent's report does not count: {'there is none' if health is None else doubt}"
    if health.status.boot_id != attempt.boot_id_before:
        return f"the agent reports boot {health.status.boot_id or 'unknown'}"
    if health.spec.release is not None or health.status.released is not None:
        return "the agent has not taken the driver up again"
    if not any(source.name == NVML and source.readable for source in health.status.sources):
        return "the agent cannot read NVML"
    for kind in _DRIVER_CONDITIONS:
        condition = case.node.condition(kind)
        if condition is not None and condition.status != Status.FALSE:
            return f"{kind} is {condition.status} ({condition.reason})"
    for target in attempt.targets:
        if why := _why_not_well(health, target):
            return why
    return None


def _why_not_well(health: NodeHealth, target: RepairTarget) -> str | None:
    """Say what speaks against one GPU. What was cleared and still is in the report is older than the clearing, and so is
    the report."""
    if not any(part.kind == "gpu" and part.uuid == target.uuid for part in health.status.parts):
        return f"the agent does not report {target.uuid}"
    cleared = ClearedPart(uuid=target.uuid, pci=target.pci, before=target.reset_at or _NEVER)
    for finding in health.status.findings:
        if finding.severity == Severity.FAULT and is_same_part(finding.part, cleared):
            new = finding.last_seen > cleared.before
            return f"{finding.reason} on {target.uuid} {'was seen after the reset' if new else 'is still reported'}"
    return None


def clearings(status: RemediationStatus) -> tuple[ClearedPart, ...]:
    """Give what the Jobs of an incident have reset: what was seen of these GPUs before is dealt with."""
    return tuple(
        ClearedPart(uuid=target.uuid, pci=target.pci, before=target.reset_at, by=attempt.job)
        for attempt in status.attempts
        for target in attempt.targets
        if target.reset_at is not None
    )


def with_clearings(held: tuple[ClearedPart, ...], new: Iterable[ClearedPart]) -> tuple[ClearedPart, ...]:
    """Put clearings in, one a part: a newer one takes the place of an older one, and the oldest of too many go."""
    kept = {(one.uuid, one.pci): one for one in held}
    for one in new:
        before = kept.get((one.uuid, one.pci))
        if before is None or before.before < one.before:
            kept.pop((one.uuid, one.pci), None)
            kept[(one.uuid, one.pci)] = one
    return tuple(kept.values())[-CLEARED_LIMIT:]


def _gpus(case: Case) -> tuple[PartState, ...]:
    health = case.survey.fleet.healths.get(case.node_name)
    parts = health.status.parts if health is not None else ()
    return tuple(part for part in parts if part.kind == "gpu")


def _part_of(case: Case, finding: HealthFinding) -> PartState | None:
    """Find the part that a finding is about, by its UUID or where it sits."""
    return next((part for part in _gpus(case) if is_same_part(finding.part, part)), None)
