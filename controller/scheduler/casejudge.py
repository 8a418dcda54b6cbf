"""Whether a case came out as expected: the suite's own rules of judgement. Pure."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import combinations

from controller.scheduler import casenuma
from controller.scheduler.casecards import ON_NODE, Standing, task_id
from controller.scheduler.caserounds import Rounds
from controller.scheduler.casewords import Case, CaseJob, CaseTask, Expectation, Observed
from controller.scheduler.model import HOLDING, TaskStatus

STARTED = frozenset(map(str, HOLDING))


def problems_of(case: Case, rounds: Rounds, observed: Mapping[str, Mapping[str, Observed]]) -> list[str]:
    """Say what is not as expected, in words; nothing = the case holds so far.

    `observed`: what KAI did here, for the GPU groups: labels, of which only the sharing counts.
    """
    found: list[str] = []
    for job in case.jobs:
        if job.name in case.expected.jobs:
            found += _job_problems(job, case.expected.jobs[job.name], rounds)
        for index, task in enumerate(job.tasks):
            name = task_id(job, index)
            if name in case.expected.tasks:
                found += _task_problems(name, (task,), case.expected.tasks[name], rounds, job)
    missing = sorted(case.expected.jobs.keys() - {job.name for job in case.jobs})
    found += [f"job {name} is expected and not there" for name in missing]
    found += _node_problems(case, rounds)
    return found + list(_group_problems(case, rounds, observed))


def _job_problems(job: CaseJob, wanted: Expectation, rounds: Rounds) -> Iterator[str]:
    for index in range(len(job.tasks)):
        yield from _place_problems(task_id(job, index), wanted, rounds)
    yield from _sum_problems(job.name, job.tasks, wanted)
    yield from _start_problems(job, wanted, rounds)
    if wanted.has_fit_error and not any(wait.job == job.name for wait in rounds.plan.waits):
        yield f"{job.name} waits without a reason"


def _task_problems(
    name: str, task: tuple[CaseTask], wanted: Expectation, rounds: Rounds, job: CaseJob
) -> Iterator[str]:
    yield from _place_problems(name, wanted, rounds)
    yield from _sum_problems(name, task, wanted)
    yield from _start_problems(job, wanted, rounds)


def _place_problems(name: str, wanted: Expectation, rounds: Rounds) -> Iterator[str]:
    stood = rounds.standings[name]
    if stood.status != wanted.status:
        yield f"{name} is {_words(stood)} instead of {wanted.status}{wanted.node and f' on {wanted.node}'}"
    elif wanted.node and stood.node != wanted.node:
        yield f"{name} is {_words(stood)} instead of on {wanted.node}"
    if wanted.numa_zones is not None:
        yield from casenuma.zone_problems(rounds.case, name, stood, wanted.numa_zones)


def _words(stood: Standing) -> str:
    return f"{stood.status}{stood.node and f' on {stood.node}'}"


def _sum_problems(name: str, tasks: tuple[CaseTask, ...], wanted: Expectation) -> Iterator[str]:
    asked = [task.requests for task in tasks]
    gpus = sum((ask.gpus_total for ask in asked), Decimal(0))
    if gpus != wanted.gpus_required:
        yield f"{name} asks for {gpus} GPUs instead of {wanted.gpus_required}"
    cpu = sum((ask.cpu_milli for ask in asked), Decimal(0))
    if wanted.milli_cpu_required and cpu != wanted.milli_cpu_required:
        yield f"{name} asks for {cpu} millicores instead of {wanted.milli_cpu_required}"
    memory = sum((ask.memory_bytes for ask in asked), Decimal(0))
    if wanted.memory_required and memory != wanted.memory_required:
        yield f"{name} asks for {memory} bytes instead of {wanted.memory_required}"


def _start_problems(job: CaseJob, wanted: Expectation, rounds: Rounds) -> Iterator[str]:
    if wanted.status not in STARTED:
        return
    started_now = job.name in rounds.started
    if not started_now and job.started_seconds_ago is None:
        yield f"{job.name} has no start time"
        return
    ago = Decimal(0) if started_now or job.started_seconds_ago is None else job.started_seconds_ago
    if wanted.last_start_older_than_seconds is not None and ago < wanted.last_start_older_than_seconds:
        yield f"{job.name} started {ago} s ago instead of {wanted.last_start_older_than_seconds}"


def _node_problems(case: Case, rounds: Rounds) -> Iterator[str]:
    for name, wanted in case.expected.nodes.items():
        idle, releasing = _cards(case, rounds, name)
        if wanted.idle_gpus != idle or wanted.releasing_gpus != releasing:
            yield (
                f"node {name} has {idle} idle and {releasing} releasing GPUs"
                f" instead of {wanted.idle_gpus} and {wanted.releasing_gpus}"
            )
        yield from casenuma.room_problems(case, name, rounds.standings.values(), wanted.numa_zones_available)


def _cards(case: Case, rounds: Rounds, node: str) -> tuple[int, int]:
    """Count a node's idle whole cards, and those of which everybody goes."""
    total = sum(each.gpus for each in case.nodes if each.name == node)
    here = [stood for stood in rounds.standings.values() if stood.node == node]
    held = {card for stood in here if stood.status in ON_NODE for card in stood.gpus}
    kept = {
        card
        for stood in here
        if stood.status in ON_NODE and stood.status != TaskStatus.RELEASING
        for card in stood.gpus
    }
    return total - len(held), len(held - kept)


def _group_problems(
    case: Case, rounds: Rounds, observed: Mapping[str, Mapping[str, Observed]]
) -> Iterator[str]:
    """Compare which pods of a node share a card, among those that are judged."""
    judged = {}
    for job in case.jobs:
        of_job = case.expected.jobs.get(job.name)
        for index in range(len(job.tasks)):
            name = task_id(job, index)
            wanted = case.expected.tasks.get(name, of_job)
            seen = observed.get(job.name, {}).get(name)
            if wanted and not wanted.dont_validate_gpu_group and seen and seen.gpu_groups and seen.node:
                judged[name] = seen
    for (one, seen_one), (other, seen_other) in combinations(judged.items(), 2):
        stood_one, stood_other = rounds.standings[one], rounds.standings[other]
        if not (seen_one.node == seen_other.node == stood_one.node == stood_other.node):
            continue
        wanted_shared = len(set(seen_one.gpu_groups) & set(seen_other.gpu_groups))
        shared = len(set(stood_one.gpus) & set(stood_other.gpus))
        if shared != wanted_shared:
            yield f"{one} and {other} share {shared} GPUs instead of {wanted_shared}"
