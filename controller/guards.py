"""Guards: why something may not be done to a node now. Pure; asked by the phases, and again by the shell.

The shell asks the three at the end once more on objects read that very moment, right before a request that cannot be taken
back (NVIDIA/NVSentinel#141, planetlabs/draino#50). A patch of a Node needs none: it carries the UID and the version that it
was decided on, and the server refuses it on any other.
"""

from datetime import datetime

from controller.assess import key
from controller.budget import Hold, Place, place_of
from controller.case import DRILL, EVIDENCE, MODE, OWNER, PODS, POLICY, WAIT, WORKLOAD, Case
from controller.gpu_reset import RESET_GPU, why_not_quiet, why_not_reset
from controller.incident import BadMark, clock, holds, last_repair, read_mark
from controller.intake import case_of
from controller.narrow import left_for, sick_gpus, why_cordon
from controller.ownership import Cordon, cordon_of
from controller.survey import Survey, survey
from controller.view import Fleet
from controller.workloads import hold_words
from kube.policy import Mode
from kube.remediation import CANCEL, WORKLOAD_ACKNOWLEDGED, Attempt, Phase, Remediation


def hold_quarantine(case: Case) -> tuple[Hold | None, datetime | None]:
    """Say why the node may not be taken out, and when the answer may change by the clock alone."""
    hold, until = hold_containment(case)
    if hold is None and case.pool is not None:
        hold = case.pool.why_not_quarantine(case.node_name, takes_node=case.takes_node)
    return hold, until


def hold_containment(case: Case) -> tuple[Hold | None, datetime | None]:
    """Say why nothing may be done for this incident, not even what takes nothing out; and when that may change."""
    hold = _hold_by_others(case) or _hold_by_mark(case) or _hold_by_evidence(case, fresh=False)
    if hold is not None:
        return hold, None
    if not case.due:
        until = min(f.first_seen + case.terms.wait_for(f) for f in case.live)
        return Hold(by=WAIT, why=f"{case.what()}: the policy waits until {clock(until)}"), until
    if case.terms.mode is Mode.OBSERVE:
        return Hold(by=MODE, why=f"mode Observe: {would(case)}"), None
    return _hold_by_evidence(case, fresh=True), None


def hold_mark(case: Case) -> Hold | None:
    """Say why a node that is in service may not be cordoned for its proof: a recovery otherwise waits for nothing."""
    return _hold_by_others(case) or _hold_by_mark(case)


def hold_readiness(case: Case) -> tuple[Hold | None, datetime | None]:
    """Say why an open node is not taken out for its repair yet: it works on until the repair may follow at once."""
    hold, until = hold_quarantine(case)
    if hold is None:
        hold = hold_drain(case, None)
    if hold is None and case.pool is not None:
        hold = case.pool.why_not_ready(case.node_name)
    return hold, until


def hold_drain(case: Case, place: Place | None) -> Hold | None:
    """Say why no drain may start. `place` is the incident's turn in its pool, None where it has none yet."""
    hold = hold_eviction(case) or _hold_by_workload(case) or _hold_by_evidence(case, fresh=True)
    if hold is None and case.pool is not None:
        hold = case.pool.why_not_work(case.node_name, place)
    return hold


def hold_eviction(case: Case) -> Hold | None:
    """Say why a drain that began may not go on. An agent's silence does not stop it, doubt about the fault does."""
    hold = _hold_by_others(case)
    if hold is None and case.terms.mode is not Mode.ENFORCE:
        hold = Hold(
            by=MODE,
            why=f"policy {case.terms.name} is in mode {case.terms.mode}: nothing is drained or repaired",
        )
    if hold is None:
        hold = _hold_by_evidence(case, fresh=False)
    if hold is None and case.pool is not None and case.node_name in case.pool.burst.nodes:
        hold = case.pool.why_not_work(case.node_name, place_of(case.remediation))
    return hold


def hold_repair(case: Case, attempt: Attempt | None, repair: str = "") -> Hold | None:
    """Say why no repair may start, or be submitted where its `attempt` is already written down, else by its name."""
    hold = hold_drain(case, place_of(case.remediation))
    if hold is not None:
        return hold
    node = case.node
    boot_id = node.status.node_info.boot_id
    if not boot_id:
        return Hold(by=EVIDENCE, why="the Node shows no boot id, so no repair could ever be proven")
    if attempt is not None and attempt.boot_id_before != boot_id:
        return Hold(
            by=EVIDENCE, why=f"the node was booted again (boot {boot_id}) since the repair was decided"
        )
    fleet = case.survey.fleet
    if not fleet.pods_synced:
        return Hold(by=PODS, why="the pods of the node are not known yet")
    left = left_for(case, repair if attempt is None else attempt.kind)
    if left:
        return Hold(by=PODS, why=f"pods are on the node again: {left.names()}")
    if case.pool is None:
        return None
    place = None if attempt is None else Place(since=attempt.started_at, incident=case.name)
    return case.pool.why_not_repair(case.node_name, place)


def would(case: Case) -> str:
    """Say what Enforce would do."""
    if not why_cordon(case):
        return _would_narrow(case)
    person = case.person
    ladder = ", then ".join(dict.fromkeys(rung.repair for rung in case.ladder))
    if person is not None or not ladder:
        return f"would cordon the node for {case.what()} and hand it to a person"
    how = "drain it" if any(f.urgency == "now" for f in case.due) else "wait until it is idle"
    return f"would cordon the node for {case.what()}, {how}, {ladder}, and revalidate"


def _would_narrow(case: Case) -> str:
    gpus = sick_gpus(case)
    how = f"evict the pods on {', '.join(gpus)}" if gpus else "wait until what is ill is idle"
    ladder = ", then ".join(dict.fromkeys(rung.repair for rung in case.ladder))
    if case.person is not None or not ladder:
        return f"would leave the node open for {case.what()}, and hand it to a person"
    return f"would leave the node open for {case.what()}, {how}, cordon it for {ladder}, and revalidate"


def _hold_by_others(case: Case) -> Hold | None:
    if owner := case.survey.owners.get(case.node_name):
        return Hold(by=OWNER, why=f"left alone: {owner}")
    if case.ungoverned:
        return Hold(by=POLICY, why=case.ungoverned)
    if case.terms.paused:
        return Hold(by=POLICY, why=f"policy {case.terms.name} is paused")
    return None


def _hold_by_mark(case: Case) -> Hold | None:
    """Wait for the mark of an earlier incident to go: what stands now is not what the node looked like before."""
    mark = read_mark(case.node)
    if isinstance(mark, BadMark):
        return Hold(by=OWNER, why=f"{mark.why}: repair or remove it by hand")
    if mark is None or mark.incident == case.name:
        return None
    if mark.incident in case.survey.fleet.remediations:
        return Hold(by=OWNER, why=f"the node still carries the mark of incident {mark.incident}")
    return None


def _hold_by_evidence(case: Case, *, fresh: bool) -> Hold | None:
    verdict = case.verdict
    if not verdict.standing:
        unknown = f"{', '.join(verdict.unknown)} is Unknown" if verdict.unknown else ""
        why = verdict.doubt or unknown or "the fault is not reported as standing now"
        return Hold(by=EVIDENCE, why=f"nothing is done without proof: {why}")
    if not case.live:
        return Hold(by=DRILL, why="a drill, which reaches no further unless the policy says drillsAreReal")
    if fresh and not verdict.fresh:
        at = "never" if verdict.confirmed_at is None else f"at {clock(verdict.confirmed_at)}"
        return Hold(by=EVIDENCE, why=f"the fault was last confirmed {at}: waiting for the agent's report")
    return None


def _hold_by_workload(case: Case) -> Hold | None:
    """Hold what would be repaired for the doing of a workload, unless something else is due by now."""
    held = case.status.suspect
    mine = case.survey.traces.on.get(case.node_name, {})
    traces = [mine.get(key(finding)) for finding in case.due]
    if held is None or any(trace is None or trace.owner != held.owner for trace in traces):
        return None
    why = hold_words(held, case.terms.workload_within)
    release = f"kubectl annotate remediation {case.name} {WORKLOAD_ACKNOWLEDGED}=true"
    return Hold(by=WORKLOAD, why=f"{why}. If it is not at fault: {release}")


# Asked again by the shell on freshly read objects (view.refreshed). `looked` saves making a Survey for each of many.


def why_not_evict(
    fleet: Fleet, remediation: Remediation, now: datetime, looked: Survey | None = None
) -> str | None:
    """Say why no pod must be evicted for this incident now, or None.

    In Waiting the node is open and stays so: who had a sick GPU when that was decided has it for as long as it lives.
    """
    waits = remediation.status.phase is Phase.WAITING
    case = _case(fleet, remediation, now, looked, Phase.WAITING if waits else Phase.DRAINING)
    if isinstance(case, str):
        return case
    if waits:
        return why_not_evict_narrowly(case)
    hold = _hold_by_cordon(case) or hold_eviction(case)
    return None if hold is None else hold.why


def why_not_evict_narrowly(case: Case) -> str | None:
    """Say why the pods of sick GPUs may not be evicted from an open node now, or None."""
    if (hold := hold_drain(case, None)) is not None:
        return hold.why
    if why := why_cordon(case):
        return f"the node is to be cordoned first: {why}"
    sick, record = sick_gpus(case), case.status.drain
    if not sick:
        return "no GPU is out whose repair may cost running work"
    well = [part for part in record.parts if part not in sick] if record is not None else []
    return f"{well[0]} is not out any more" if well else None


def why_not_repair(
    fleet: Fleet, remediation: Remediation, now: datetime, looked: Survey | None = None
) -> str | None:
    """Say why this incident's last attempt must not act now, or None: its Job, or switching off who stands in its way."""
    case = _case(fleet, remediation, now, looked, Phase.REPAIRING)
    if isinstance(case, str):
        return case
    attempt = last_repair(case.status)
    if attempt is None or attempt.result or attempt.submitted_at is not None:
        return "there is no repair that is written down and not yet submitted"
    if now >= attempt.deadline:
        return f"the time of {attempt.job} ran out at {clock(attempt.deadline)}"
    hold = _hold_by_cordon(case) or hold_repair(case, attempt)
    if hold is not None or attempt.kind != RESET_GPU:
        return None if hold is None else hold.why
    applied = case.status.stopped is not None and case.status.stopped.applied_at is not None
    return why_not_reset(case) or (why_not_quiet(case, attempt) if applied else None)


def why_not_validate(
    fleet: Fleet, remediation: Remediation, now: datetime, looked: Survey | None = None
) -> str | None:
    """Say why no revalidation Job must be created for this incident now, or None."""
    case = _case(fleet, remediation, now, looked, Phase.REVALIDATING)
    if isinstance(case, str):
        return case
    hold = _hold_by_cordon(case)
    if hold is None and (owner := case.survey.owners.get(case.node_name)):
        return f"left alone: {owner}"
    return None if hold is None else hold.why


def _case(
    fleet: Fleet, remediation: Remediation, now: datetime, looked: Survey | None, phase: Phase
) -> Case | str:
    spec = remediation.spec
    node = fleet.nodes.get(spec.node_name)
    if node is None or node.metadata.uid != spec.node_uid:
        return f"the Node of this incident is gone: {spec.node_name} is another one now"
    if remediation.status.phase is not phase:
        return f"the incident is {remediation.status.phase}, not {phase}"
    if CANCEL in remediation.metadata.annotations:
        return "a person cancelled the incident"
    return case_of(looked or survey(fleet, now), remediation, node)


def _hold_by_cordon(case: Case) -> Hold | None:
    cordon = cordon_of(case.node, case.remediation, case.now)
    if cordon is Cordon.STANDS and holds(case.node, case.name):
        return None
    return Hold(by=OWNER, why=f"the cordon of incident {case.name} on the node: {cordon}")
