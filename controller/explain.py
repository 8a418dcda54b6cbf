"""Explain: what the controller sees of one node, what it does, what holds it, and what comes next. Pure.

The same functions that decide are asked, so the answer is the controller's own and not a second opinion.
"""

from datetime import datetime

from controller import guards
from controller.advance import advance, move_of
from controller.assess import name_parts
from controller.case import Case, Move
from controller.gpu_reset import RESET_GPU
from controller.incident import BadMark, clock, last_repair, read_mark
from controller.intake import case_of
from controller.narrow import fence_awaited, why_cordon
from controller.opening import open_incident
from controller.phases_drain import left_in, next_rung
from controller.phases_narrow import left_open
from controller.phases_return import said_repaired
from controller.plan import plan
from controller.steps import (
    Evict,
    Quarantine,
    Restore,
    RunRepair,
    RunValidation,
    StartClients,
    StopClients,
    WriteSpec,
)
from controller.survey import Survey, is_ready, survey
from controller.view import Fleet
from kube.policy import Mode
from kube.remediation import REPAIRED, Phase, Remediation
from kube.types import Node

_NAMES = 6


def explain(fleet: Fleet, node: str, now: datetime) -> tuple[str, ...]:
    """Tell the story of one node in lines: seen, in force, done, held, next."""
    looked = survey(fleet, now)
    found = fleet.nodes.get(node)
    mine = looked.open_on(node)
    if found is None:
        gone = [f"There is no Node {node} in the cluster."]
        return tuple(
            gone + ([f"Incident {mine.metadata.name} is about to close as Superseded."] if mine else [])
        )
    lines = [*_seen(looked, found), *_in_force(looked, node)]
    if mine is not None and mine.spec.node_uid != found.metadata.uid:
        return (
            *lines,
            f"Incident {mine.metadata.name} is about to close as Superseded: it was another Node object.",
        )
    planned = plan(fleet, now)
    if mine is not None:
        lines += _incident(looked, mine, found)
    elif node in planned.explanations:
        lines.append(f"No incident is open: {planned.explanations[node]}.")
        if looked.verdicts[node].standing and node in looked.terms_on:
            lines.append(f"Next: an incident opens as {open_incident(looked, found).line}.")
    else:
        lines.append("No incident is open and no fault stands: nothing is going to be done.")
    return tuple(lines)


def _seen(looked: Survey, node: Node) -> list[str]:
    name = node.metadata.name
    verdict = looked.verdicts[name]
    lines = []
    if verdict.standing:
        lines.append(f"Seen: {name_parts(verdict.standing, most=8)}.")
    if verdict.unknown:
        lines.append(f"Not known: {', '.join(verdict.unknown)}. Unknown causes nothing.")
    if verdict.doubt:
        lines.append(f"Doubt: {verdict.doubt}.")
    heard = "never" if verdict.confirmed_at is None else f"at {clock(verdict.confirmed_at)}"
    stale = "" if verdict.fresh else ", too long ago for anything new to be started"
    lines.append(f"The agent was last heard {heard}{stale}.")
    if owner := looked.owners.get(name):
        lines.append(f"Left alone: {owner}.")
    state = "cordoned" if node.spec.unschedulable else "schedulable"
    lines.append(f"The node is {'Ready' if is_ready(node) else 'not Ready'} and {state}.")
    mark = read_mark(node)
    if isinstance(mark, BadMark):
        lines.append(f"{mark.why[0].upper()}{mark.why[1:]}.")
    elif mark is not None and mark.incident not in looked.fleet.remediations:
        lines.append(
            f"It carries the mark of incident {mark.incident}, which no longer exists; the cordon is left as it is. "
            f"If the node is well: kubectl uncordon {name}, and remove the annotation and taint nodemend.dev/quarantine."
        )
    return lines


def _in_force(looked: Survey, name: str) -> list[str]:
    terms = looked.terms_on.get(name)
    if terms is None:
        return [f"In force: nothing, since {looked.left_alone[name]}."]
    paused = ", paused" if terms.paused else ""
    lines = [f"In force: policy {terms.name}, mode {terms.mode}{paused}."]
    pool = looked.pool_on(name)
    if pool is not None:
        most = terms.max_unavailable.of(len(pool.nodes))
        lines.append(
            f"Pool {pool.name}: {len(pool.out)} of {len(pool.nodes)} nodes out of service, at most {most} by budget; "
            f"{len(pool.repairing)} of {terms.max_repairs_in_flight} repair(s) in flight."
        )
        if pool.burst.nodes:
            lines.append(
                f"The breaker of the pool is tripped for {len(pool.burst.nodes)} node(s): {pool.breaker_hold().why}."
            )
    return lines


def _incident(looked: Survey, one: Remediation, node: Node) -> list[str]:
    case = case_of(looked, one, node)
    status = one.status
    lines = [
        f"Incident {one.metadata.name}: {status.phase} since {clock(status.phase_since or one.spec.opened_at)}."
    ]
    if status.held_by:
        lines.append(f"Held by {status.held_by}: {status.message}.")
    elif status.message:
        lines.append(f"Now: {status.message}.")
    failure = looked.fleet.failures.get(node.metadata.name)
    if failure is not None:
        lines.append(
            f"{failure.step} failed {failure.tries} time(s), last at {clock(failure.at)}: {failure.why}."
        )
    dead = [row for row in status.notifications if row.dead]
    lines += [
        f"Message {row.id} to sink {row.sink} could not be delivered: {row.error}." for row in dead[-2:]
    ]
    lines += _next(case, looked, one)
    return lines


def _next(case: Case, looked: Survey, one: Remediation) -> list[str]:
    done = advance(looked, one)
    coming = _coming(move_of(case), case)
    lines = [f"Next: {', '.join(coming)}."] if coming else []
    lines += _outlook(case)
    if done.recheck_at is not None and done.recheck_at > looked.now:
        lines.append(f"If nothing changes until then, it is looked at again at {clock(done.recheck_at)}.")
    return lines


def _coming(move: Move, case: Case) -> list[str]:
    """Name the next phase, or what the next steps do to the world; what is only written down is no news."""
    one = case.remediation
    if move.status.phase is not one.status.phase:
        return [f"{move.status.phase} ({move.status.message})"]
    asked = {pod.uid for pod in one.status.drain.blocked} if one.status.drain is not None else set()
    leaving: list[str] = []
    words: list[str] = []
    for step in move.effects:
        match step:
            case Evict() if step.uid not in asked:
                leaving.append(f"{step.namespace}/{step.name}")
            case Quarantine():
                words.append(
                    "cordon and taint on the node" if step.before.tainted else "the cordon on the node"
                )
            case Restore():
                words.append("what was changed on the node is taken back")
            case RunRepair() | RunValidation():
                words.append(f"the Job {step.job}")
            case StopClients():
                words.append("the clients of the GPUs are switched off")
            case StartClients():
                words.append("the clients of the GPUs are switched on again")
            case WriteSpec():
                words.append(_told(step, case))
            case _:
                pass
    if leaving:
        more = f" and {len(leaving) - _NAMES} more" if len(leaving) > _NAMES else ""
        words.append(f"the eviction of {', '.join(leaving[:_NAMES])}{more}")
    return words


def _told(step: WriteSpec, case: Case) -> str:
    """Say what a change of NodeHealth's spec tells the agent."""
    health = case.survey.fleet.healths.get(step.node)
    before = health.spec.release if health is not None else None
    if step.spec.release == before:
        return "the agent is told that the fault was repaired"
    if step.spec.release is None:
        return "the agent takes the driver up again"
    return "the agent is asked to let go of the driver"


def _outlook(case: Case) -> list[str]:
    """Say what the phase leads to, and which limit would hold it."""
    phase = case.status.phase
    if phase is Phase.WAITING or (phase is Phase.SUSPECTED and case.due and not why_cordon(case)):
        return _while_open(case)
    if phase is Phase.SUSPECTED and fence_awaited(case) is not None:
        return ["Then: if kubelet withholds the GPU, only the pods on it are evicted; else the cordon."]
    if phase is Phase.SUSPECTED and case.live:
        hold, _ = guards.hold_quarantine(case)
        return [f"Then: quarantine{'' if hold is None else f', held by {hold.by}: {hold.why}'}."]
    if phase is Phase.QUARANTINED and case.terms.mode is Mode.ENFORCE:
        hold = guards.hold_drain(case, None)
        return [f"Then: the drain{'' if hold is None else f', held by {hold.by}: {hold.why}'}."]
    if phase is Phase.DRAINING:
        rung = next_rung(case)
        then = "a person, since the ladder has no other repair" if rung is None else rung.repair
        return [_still_there(case), f"Then: {then}."]
    if phase is Phase.REPAIRING:
        attempt = last_repair(case.status)
        if attempt is None:
            return []
        proof = (
            "each GPU's own answer and the agent's report" if attempt.kind == RESET_GPU else "a new boot id"
        )
        return [f"Then: proof by {proof}, or failure by {clock(attempt.deadline)}."]
    if phase is Phase.REVALIDATING:
        return ["Then: the node is given back exactly as it was found, if its revalidation succeeds."]
    if phase is Phase.ESCALATED:
        word = said_repaired(case)
        asked = f" The annotation {REPAIRED} says {clock(word)}." if word is not None else ""
        gone = f" {case.what()} is reported as gone, which alone gives nothing back." if case.gone else ""
        return [
            f"Then: nothing until a person says so: kubectl nodemend repaired {case.node_name}.{gone}{asked}"
        ]
    return []


def _while_open(case: Case) -> list[str]:
    """Say who has what is ill, and what comes once nobody has it."""
    lines = [
        "The node is open: the scheduler keeps off it what the fault takes away, and nothing was changed on it."
    ]
    if why := why_cordon(case) if case.due else "":
        return [*lines, f"Then: the cordon, since {why}."]
    if not case.survey.fleet.pods_synced:
        return [*lines, "Who has what is ill is not known here."]
    rung = next_rung(case)
    if left := left_open(case):
        lines.append(f"Waited for: {left.names(_NAMES)}.")
    then = "a person" if rung is None or case.person is not None else f"the cordon and {rung.repair}"
    hold, _ = guards.hold_readiness(case)
    return [*lines, f"Then: {then}{'' if hold is None else f', held by {hold.by}: {hold.why}'}."]


def _still_there(case: Case) -> str:
    fleet = case.survey.fleet
    if not fleet.pods_synced:
        return "Which pods are still on the node is not known here."
    left = left_in(case)
    return (
        f"Still on the node: {left.names(_NAMES)}."
        if left
        else "No pod that has to leave is on the node any more."
    )
