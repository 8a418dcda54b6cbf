"""The story of `why POD`, laid out for a terminal. The strings in it are expected to be clean already."""

from collections.abc import Iterable

from cli.text import age, table
from cli.why import Group, PodStory
from cli.why_queue import LevelRow
from cli.why_running import Card
from controller.scheduler.amounts import RESOURCE_NAMES, UNLIMITED, WHOLE_GPU
from controller.scheduler.capacity import written


def why_lines(story: PodStory) -> list[str]:
    """Lay the story out, the answer first, then what it rests on."""
    head = [
        ("Pod", story.pod),
        (
            "State",
            f"{story.state} for {age(story.since, story.at)}" + (f" on {story.node}" if story.node else ""),
        ),
        ("Scheduler", story.scheduler),
        ("Asks for", story.asks),
        *_group(story),
        ("In line", story.position),
        ("Why", f"{story.code}: {story.verdict}" if story.code else story.verdict),
    ]
    lines = [f"{title + ':':<11}{text}" for title, text in head if text] + [""]
    lines += _block("RECORDED BY THE SCHEDULER", story.recorded)
    lines += _block("NODES", _reasons(story))
    lines += _block("QUEUES ON ITS WAY", _levels(story.levels))
    lines += _block("ILL, AND TAKES ROOM", story.ill)
    lines += _block(
        "WOULD BE EVICTED FOR IT", [*_victims(story), *([story.no_victims] if story.no_victims else [])]
    )
    lines += _block("KEPT ROOM", [story.reservation] if story.reservation else [])
    lines += _block("CARDS", [line for card in story.cards for line in _card(card)])
    lines += _block("FINDINGS ELSEWHERE ON ITS NODE", story.on_node)
    lines += _block("COULD IT BE TAKEN AWAY", story.could_be_taken)
    lines += story.incomplete
    return [*lines, story.note] if story.note else lines[:-1] if lines[-1] == "" else lines


def _block(title: str, body: Iterable[str]) -> list[str]:
    kept = [f"  {line}" for line in body]
    return [title, *kept, ""] if kept else []


def _group(story: PodStory) -> list[tuple[str, str]]:
    group = story.group
    if group is None:
        return []
    created = "" if group.created else ", not created yet"
    kind = "preemptible" if group.preemptible else "not preemptible"
    return [
        (
            "Group",
            f"{group.name}: {_pods(group)}{created}",
        ),
        ("Queue", f"{group.queue}; priority {group.priority}, {kind}"),
    ]


def _pods(group: Group) -> str:
    counts = f"{group.needs} needed together, {group.holding} have a place, {group.waiting} wait"
    return f"{group.pods} pods, {counts}" if group.pods > 1 else "1 pod"


def _reasons(story: PodStory) -> list[str]:
    lines = []
    for one in story.reasons:
        more = f" and {one.count - len(one.nodes)} more" if one.count > len(one.nodes) else ""
        lines.append(f"{one.count} {one.text}: {', '.join(one.nodes)}{more}")
    return lines


def _levels(levels: tuple[LevelRow, ...]) -> list[str]:
    if not levels:
        return []
    header = ("QUEUE", "RESOURCE", "QUOTA", "LIMIT", "FAIR SHARE", "ALLOCATED", "ASKS", "WITH IT")
    return table(header, [_level(one) for one in levels])


def _level(one: LevelRow) -> tuple[str, ...]:
    r = RESOURCE_NAMES.index(one.resource)

    def words(amount: int) -> str:
        return "unlimited" if amount == UNLIMITED else written(amount, r)

    held = words(one.allocated)
    if one.non_preemptible:
        held += f" ({words(one.non_preemptible)} non-preemptible)"
    numbers = (words(one.quota), words(one.limit), words(one.fair_share), held, words(one.asks))
    return (one.queue, one.resource, *numbers, one.verdict)


def _victims(story: PodStory) -> list[str]:
    return [f"{one.pod} on {one.node} ({one.action}): {one.why}" for one in story.victims]


def _card(card: Card) -> list[str]:
    part = "" if card.milli == WHOLE_GPU else f", {card.milli} milli of it"
    known = "" if card.known else " (counted here: which card it has is not known)"
    reason = f" ({card.reason})" if card.reason else ""
    first = f"GPU {card.index} {card.uuid} {card.model}: {card.health}{reason}{part}{known}"
    return [first, *(f"  {finding}" for finding in card.findings)]
