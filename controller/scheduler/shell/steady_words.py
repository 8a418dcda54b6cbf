"""Why each job waits, in words that stand still. Pure.

Every cycle counts anew: "6 Insufficient nvidia.com/gpu" becomes 5 as soon as a pod ends somewhere. Words are changed where
the set of reasons changed, at most every 5 s, and where only numbers did, at most every 30 s. What waits for a moment only
is not told at all: within a burst every pod waits for its cycle.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from controller.scheduler import explain
from controller.scheduler.plan import Reason, Wait
from controller.scheduler.shell import queue_conditions
from controller.scheduler.shell.reported import Report

SETTLE_S: Final = 1.0
"""How long a job waits before anybody is told: until then its words change freely."""
WORDS_EVERY_S: Final = 5.0
NUMBERS_EVERY_S: Final = 30.0
TEXT: Final = 1000
_NUMBER: Final = re.compile(r"\d+")
_CLAUSE: Final = re.compile(r"[,;:.] ?")
_UNREADABLE: Final = "PodGroup "


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of a job. `signature` stays the same while only numbers change; `at`: since when these are the words."""

    code: str
    message: str
    reasons: tuple[Reason, ...]
    signature: str
    since: float
    at: float


class SteadyWords:
    """Keeps the jobs of the last report, and no others. Times are monotonic seconds.

    `due_at`: when words that are kept back may be told, None = there are none.
    """

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}
        self.due_at: float | None = None

    def update(self, report: Report, at: float) -> Mapping[str, Told]:
        """Give for every job that waits what is told of it, in the order of job ids."""
        before = self._told
        self.due_at = None
        waits = _waits(report)
        self._told = {job: self._steady(before.get(job), waits[job], at) for job in sorted(waits)}
        return self._told

    def _steady(self, before: Told | None, wait: Wait, at: float) -> Told:
        if before is not None and before.message == wait.message and before.code == wait.code:
            return before
        signature = f"{wait.code}|{signature_of(wait.message[:TEXT])}"
        if before is not None and at >= before.since + SETTLE_S:
            free_at = before.at + (NUMBERS_EVERY_S if signature == before.signature else WORDS_EVERY_S)
            if at < free_at:
                self.due_at = free_at if self.due_at is None else min(self.due_at, free_at)
                return before
        return Told(
            code=wait.code,
            message=wait.message,
            reasons=wait.reasons,
            signature=signature,
            since=at if before is None else before.since,
            at=at,
        )


def _waits(report: Report) -> dict[str, Wait]:
    """Give the reason of every job: the plan's, before it the shell's own, and what is wrong with its queue or group."""
    waits = {wait.job: wait for wait in report.plan.waits}
    if odd := queue_conditions.unreadable(report.problems):
        for one in report.snapshot.jobs:
            if one.queue in odd and one.id in waits:  # to the plan it is a queue that is not there
                said = f'queue "{one.queue}" cannot be read: {odd[one.queue]}'
                reasons = (Reason(text=said, count=len(one.tasks)),)
                waits[one.id] = msgspec.structs.replace(waits[one.id], message=said, reasons=reasons)
    for job, words in report.extra.items():
        waits[job] = Wait(job=job, code=explain.NO_ROOM, message=words)
    for job, words in unreadable_groups(report.problems).items():
        waits[job] = Wait(job=job, code=explain.NO_ROOM, message=words)
    return waits


def unreadable_groups(problems: Iterable[str]) -> dict[str, str]:
    """Give what is wrong with pod groups that could not be read, by namespace/name."""
    found: dict[str, str] = {}
    for problem in problems:
        if problem.startswith(_UNREADABLE):
            job, _, words = problem.removeprefix(_UNREADABLE).partition(": ")
            found[job] = f"the PodGroup cannot be read: {words}"
    return found


@lru_cache(maxsize=4096)
def signature_of(message: str) -> str:
    """Give what stays of a message when only its numbers, or their order, change."""
    return "|".join(sorted(set(_CLAUSE.split(_NUMBER.sub("#", message)))))


def limited(text: str, limit: int = TEXT) -> str:
    """Cut a text to so many bytes of UTF-8, which is how the server counts; what is no letter, as a line break, is a blank.

    A queue's name or an annotation is a tenant's text, and a line of its own could pass for another row of kubectl's.
    """
    text = text[: limit + 1]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    raw = text.encode(errors="replace")
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "..."
