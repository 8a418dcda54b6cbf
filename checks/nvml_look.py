"""Feeds what NVML says into `checks.polled`, for the checks of GPU health: one look a round, failures as failures. Pure."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from checks.check import Context, NotEvaluated
from checks.finding import Part, Reason
from checks.gpu_health import GpuHealth
from checks.nvml_word import gpu_part, in_order, spoken
from checks.observation import (
    GpuReading,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
)
from checks.polled import TRIES_BEFORE_UNKNOWN, Polled, Said, Word

WordsOf = Callable[[GpuReading, GpuHealth, Part], Iterable[Word]]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU that told of its health in a round."""

    gpu: GpuReading
    health: GpuHealth
    part: Part


def hear_rounds(
    observations: Sequence[Observation],
    polled: Polled,
    context: Context,
    words_of: WordsOf,
    name: str,
) -> None:
    """Give each round to `polled`: `words_of` is asked for every GPU that answered.

    A GPU that is left alone (quiet) or that gave no health keeps what it has, and is listed as not evaluated. A round in
    which none gave any, but errors, was no look at all.
    """

    def words_of_all(answered: Sequence[Answered]) -> list[Word]:
        return [word for one in answered for word in words_of(one.gpu, one.health, one.part)]

    hear_whole_rounds(observations, polled, context, words_of_all, name)


def hear_whole_rounds(
    observations: Sequence[Observation],
    polled: Polled,
    context: Context,
    words_of_all: Callable[[Sequence[Answered]], Iterable[Word]],
    name: str,
) -> None:
    """Do the same for a check that sees the GPUs of a round beside each other."""
    known = {part.pci: part for part in context.parts if part.pci}
    for heard in in_order(observations):
        match heard:
            case NvmlRead(gpus=gpus):
                answered: list[Answered] = []
                rows: list[NotEvaluated] = []
                for gpu in gpus:
                    part = gpu_part(gpu, known, {})
                    if gpu.quiet or gpu.health is None:
                        why = f"it is not asked: {gpu.quiet}" if gpu.quiet else "it did not answer"
                        rows.append(NotEvaluated(check=name, part=part.shown(), why=why))
                    else:
                        answered.append(Answered(gpu=gpu, health=gpu.health, part=part))
                if why_not := why_no_look(heard):
                    polled.fail(why_not)
                else:
                    polled.hear(words_of_all(answered), rows)
            case NvmlFailed() | NvmlHung() | NvmlReleased():
                polled.fail(spoken(heard).why, TRIES_BEFORE_UNKNOWN if isinstance(heard, NvmlReleased) else 1)


def why_no_look(read: NvmlRead) -> str:
    """Say why a round was no look at all: no GPU told of its health; empty where one did, or all are left alone."""
    asked = [gpu for gpu in read.gpus if not gpu.quiet]
    if any(gpu.health is not None for gpu in asked) or (read.gpus and not asked):
        return ""
    error = next((gpu.errors[0] for gpu in asked if gpu.errors), None)
    said = f": {error.call} gives {error.name} ({error.code})" if error is not None else ""
    return f"no GPU tells of its health{said}"


def group_missing(
    health: GpuHealth, group: str, reason: Reason, part: Part, what: str, *, always_asked: bool = False
) -> Word:
    """Give the word for a group that was not told: unreadable where its call gave an error, else not shown.

    `always_asked`: a group that is told to be neither refused nor absent was not asked by mistake, which is no proof of
    anything.
    """
    refusal = health.errors.get(group)
    if refusal is not None:
        detail = f"{what}: {refusal.call} gives {refusal.name} ({refusal.code})"
        return Word(said=Said.UNREADABLE, reason=reason, part=part, detail=detail)
    if always_asked and group not in health.absent:
        return Word(said=Said.UNREADABLE, reason=reason, part=part, detail=f"{what}: nobody asked for it")
    return Word(
        said=Said.NOT_SHOWN, reason=reason, part=part, detail=f"this GPU or driver does not show {what}"
    )
