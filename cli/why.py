"""`kubectl nodemend why POD`: why a pod waits, or runs where it does, in the scheduler's own words, worked out now.

The pure cycle says what it would do; the session says how things stand before it does. What is recorded on the PodGroup is
shown beside that: it is what the running scheduler saw last.
"""

import difflib
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from cli.cluster import list_all
from cli.failure import Exit, Failure, failure_of
from cli.gpus import ill_words, takes_new_gpu_pods
from cli.scheduling_view import UNKNOWN_HERE, View, incomplete
from cli.why_queue import LevelRow, levels_of, position_of, why_no_victims
from cli.why_running import Card, cards_of, could_be_taken
from controller.scheduler import explain
from controller.scheduler.amounts import RESOURCE_NAMES, RESOURCES
from controller.scheduler.capacity import written
from controller.scheduler.cycle import run_cycle
from controller.scheduler.model import TaskStatus
from controller.scheduler.plan import Plan
from controller.scheduler.pod_tasks import name_of
from controller.scheduler.rules import Rules
from controller.scheduler.session import Session
from controller.scheduler.snapshot import POD_GROUP
from controller.scheduler.state import JobState, TaskState
from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.scheduling import DEFAULT_POOL
from kube.types import Pod
from kube.watch import Bare

NAMED_NODES: Final = 5
MOST_ILL: Final = 20
_ASKS_NO_NODE: Final = frozenset({explain.NO_QUEUE, explain.NOT_READY})


class NodeReason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason, and on how many nodes; `nodes` names the first of them."""

    text: str
    count: int
    nodes: tuple[str, ...]


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that the next cycle would evict for this one's job."""

    pod: str
    node: str
    action: str
    why: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The pod group. `created` False: nobody has made its object yet."""

    name: str
    created: bool
    queue: str
    priority: int
    preemptible: bool
    pods: int
    needs: int
    holding: int
    waiting: int


class PodStory(msgspec.Struct, frozen=True, kw_only=True):
    """All that `why` shows; its fields are the keys of `-o json`."""

    at: datetime
    pod: str
    state: str
    scheduler: str
    since: datetime | None = None
    node: str = ""
    asks: str = ""
    verdict: str = ""
    code: str = ""
    group: Group | None = None
    position: str = ""
    levels: tuple[LevelRow, ...] = ()
    reasons: tuple[NodeReason, ...] = ()
    recorded: tuple[str, ...] = ()
    ill: tuple[str, ...] = ()
    victims: tuple[Victim, ...] = ()
    no_victims: str = ""
    reservation: str = ""
    cards: tuple[Card, ...] = ()
    on_node: tuple[str, ...] = ()
    could_be_taken: tuple[str, ...] = ()
    note: str = ""
    incomplete: tuple[str, ...] = ()


def find_pod(api: Api, namespace: str, name: str) -> Pod:
    """Read the pod. Raises Failure where there is none of that name, with the nearest names that exist."""
    try:
        return msgspec.json.decode(api.get(paths.pod(namespace, name)), type=Pod)
    except NotFound:
        raise Failure(
            f"no pod is named {name} in namespace {namespace}{_near(api, namespace, name)}", Exit.BAD_USE
        ) from None
    except ApiError as error:
        raise failure_of(error, f"get pod {namespace}/{name}") from error
    except msgspec.ValidationError as error:
        raise Failure(f"pod {namespace}/{name} cannot be read: {error}", Exit.NOT_SO) from error


def _near(api: Api, namespace: str, name: str) -> str:
    try:
        known = list_all(api, paths.pods(namespace), Bare, "pods", [])
    except ApiError:
        return ""
    near = difflib.get_close_matches(name, sorted({one.metadata.name for one in known}), n=3)
    return f" (is it {' or '.join(near)}?)" if near else ""


def is_of(pod: Pod, scheduler: str) -> bool:
    """Whether this scheduler places the pod."""
    return pod.spec.scheduler_name == scheduler


def story_of_stranger(view: View, pod: Pod, rules: Rules, scheduler: str, now: datetime) -> PodStory:
    """Tell of a pod that another scheduler places: what it holds here, and that nobody here decides about it."""
    theirs = pod.spec.scheduler_name or "default-scheduler"
    session = view.session(rules)
    task = next((one for one in session.ledger.others if one.id == name_of(pod)), None)
    where = f"; it holds what it asks for on {pod.spec.node_name}" if task is not None and task.node else ""
    verdict = f"scheduler {theirs} places it, not {scheduler}: why it waits or runs there is for {theirs} to say{where}"
    return _begun(pod, view, now, task, verdict)


def _begun(pod: Pod, view: View, now: datetime, task: TaskState | None, verdict: str) -> PodStory:
    """Give what can be said of any pod."""
    found = cards_of(view, task)
    return PodStory(
        at=now,
        pod=name_of(pod),
        state=_state(pod),
        scheduler=pod.spec.scheduler_name or "default-scheduler",
        since=pod.metadata.creation_timestamp,
        node=pod.spec.node_name,
        asks="" if task is None else asked_words(task),
        verdict=verdict,
        cards=found.cards,
        on_node=found.on_node,
        incomplete=incomplete(view),
    )


def _state(pod: Pod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    return pod.status.phase or "Pending"


def asked_words(task: TaskState) -> str:
    """Say what a pod asks for, in words."""
    request = task.spec.request
    words = []
    if request.gpus:
        words.append(f"{request.gpus} GPUs" if request.gpus > 1 else "1 GPU")
    if request.portion:
        words.append(f"{written(request.portion, 0)} of {request.devices} GPU")
    if request.gpu_memory_mib:
        words.append(f"{request.gpu_memory_mib} MiB of {request.devices} GPU")
    words += [f"{count} MIG instances {profile}" for profile, count in request.mig]
    words += [f"claim {claim}" for claim in request.claims]
    words += [
        f"{RESOURCE_NAMES[r]} {written(amount, r)}"
        for r, amount in zip(RESOURCES, (0, request.cpu_milli, request.memory_bytes), strict=True)
        if amount
    ]
    return ", ".join(words) or "nothing"


def story_of(view: View, pod: Pod, rules: Rules, now: datetime) -> PodStory:
    """Tell of a pod that this scheduler places."""
    session = view.session(rules)
    key = name_of(pod)
    task = session.ledger.tasks.get(key)
    if task is None or task.job is None:
        return msgspec.structs.replace(
            _begun(pod, view, now, None, _why_no_job(view, pod)), note=UNKNOWN_HERE
        )
    plan = run_cycle(view.snapshot, rules)
    job = task.job
    story = msgspec.structs.replace(
        _begun(pod, view, now, task, ""),
        group=_group(view, job),
        levels=levels_of(session, job),
        recorded=_recorded(view, job),
        note=UNKNOWN_HERE,
    )
    if task.status in (TaskStatus.PENDING, TaskStatus.GATED):
        return _waiting(story, session, plan, task, job)
    taken = next((one for one in plan.evictions if one.task == key), None)
    verdict = f"it runs on {task.spec.node}" if task.spec.node else f"it is {task.status}"
    if taken is not None:
        verdict += f"; the next cycle would evict it: {taken.why}"
    return msgspec.structs.replace(story, verdict=verdict, could_be_taken=could_be_taken(session, job, now))


def _why_no_job(view: View, pod: Pod) -> str:
    """Say why the scheduler does not look at a pod of its own."""
    key = name_of(pod)
    if key in view.grouped.problems:
        return f"it belongs to no pod group: {view.grouped.problems[key]}"
    mine = next((one for one in view.grouped.objects.pods if name_of(one) == key), pod)
    group = f"{mine.metadata.namespace}/{mine.metadata.annotations.get(POD_GROUP, '')}"
    groups = view.grouped.objects.pod_groups
    if all(f"{one.metadata.namespace}/{one.metadata.name}" != group for one in groups):
        return (
            f"its annotation {POD_GROUP} names the PodGroup {group}, which is not there:"
            " the scheduler makes it again if it made it, else somebody must"
        )
    for problem in view.problems:
        if problem.startswith((f"Pod {key}:", f"PodGroup {group}:")):
            return f"it cannot be read: {problem}"
    return f"its pod group {group} is of another node pool (--pool names the one to look at)"


def _recorded(view: View, job: JobState) -> tuple[str, ...]:
    """Give what the running scheduler wrote on the group last."""
    groups = view.grouped.objects.pod_groups
    mine = next((one for one in groups if f"{one.metadata.namespace}/{one.metadata.name}" == job.id), None)
    standing = () if mine is None else mine.status.scheduling_conditions
    return tuple(
        f"{one.type} on pool {one.node_pool or DEFAULT_POOL}: {one.reason}: {one.message}"
        for one in standing
        if one.status == "True"
    )


def _group(view: View, job: JobState) -> Group:
    spec = job.spec
    return Group(
        name=job.id,
        created=job.id not in view.grouped.made,
        queue=spec.queue,
        priority=spec.priority,
        preemptible=spec.preemptible,
        pods=len(job.tasks),
        needs=sum(one.min_available for one in job.pod_sets.values()),
        holding=sum(one.held for one in job.pod_sets.values()),
        waiting=sum(task.status in (TaskStatus.PENDING, TaskStatus.GATED) for task in job.tasks),
    )


def _waiting(story: PodStory, session: Session, plan: Plan, task: TaskState, job: JobState) -> PodStory:
    wait = next((one for one in plan.waits if one.job == job.id), None)
    bind = next((one for one in plan.binds if one.task == task.id), None)
    later = next((one for one in plan.pipelined if one.task == task.id), None)
    victims = tuple(
        Victim(pod=one.task, node=one.node, action=one.action, why=one.why)
        for one in plan.evictions
        if one.gains == job.id
    )
    code = ""
    if bind is not None:
        cards = f" ({', '.join(bind.gpus)})" if bind.gpus else ""
        verdict = f"nothing stands in its way: the next cycle would bind it to {bind.node}{cards}"
    elif wait is not None:
        code, verdict = wait.code, wait.message
        if later is not None and not victims:
            verdict = f"its place is on {later.node}, where it waits for what is being released"
        if victims:
            pods = "pod" if len(victims) == 1 else "pods"
            verdict = f"the next cycle would evict {len(victims)} {pods} for its job: {verdict}"
    else:
        verdict = "no action of the next cycle would get to it"
    return msgspec.structs.replace(
        story,
        verdict=verdict,
        code=code,
        position=position_of(session, job),
        # Without a queue, or with a gate, no node was asked.
        reasons=() if bind is not None or code in _ASKS_NO_NODE else _reasons(session, task),
        ill=() if bind is not None else tuple(_ill(session)),
        victims=victims,
        no_victims="" if bind is not None or victims or later is not None else why_no_victims(session, job),
        reservation=_reservation(plan, job),
        note=story.note + _about_shares(task),
    )


def _about_shares(task: TaskState) -> str:
    if not task.spec.request.is_shared:
        return ""
    return "; a part of a GPU is given only by a scheduler with --enable-fractions"


def _reservation(plan: Plan, job: JobState) -> str:
    if not plan.reserved_for:
        return "no room is kept for anybody"
    if plan.reserved_for == job.id:
        return "room is kept for its job, which waits longest"
    return f"room is kept for job {plan.reserved_for}, which waits longest: others may only fill what that does not need"


def _reasons(session: Session, task: TaskState) -> tuple[NodeReason, ...]:
    """Group the nodes by what they refuse, the most frequent reason first."""
    found: dict[str, list[str]] = {}
    for node in session.ledger.nodes:
        found.setdefault(session.candidates.reasons.why_not(task, node), []).append(node.name)
    ordered = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    return tuple(
        NodeReason(text=text, count=len(names), nodes=tuple(names[:NAMED_NODES])) for text, names in ordered
    )


def _ill(session: Session) -> Iterator[str]:
    """Name what is ill and takes room: nodes that are closed, then cards; the first of them."""
    words: list[str] = []
    for node in session.ledger.nodes:
        if node.devices and not takes_new_gpu_pods(node.spec):
            why = node.spec.closed or node.spec.no_new_gpu or "cordoned"
            words.append(f"{node.name}: takes no new pod with a GPU ({len(node.devices)} GPUs): {why}")
        words += [ill_words(node.name, device.spec) for device in node.devices if not device.open]
    yield from words[:MOST_ILL]
    if len(words) > MOST_ILL:
        yield f"and {len(words) - MOST_ILL} more (`kubectl nodemend gpus --sick`)"
