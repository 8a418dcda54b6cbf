"""What NVML said last, and for how long something has lasted while somebody was watching. Pure, shared by checks of NVML.

Waits are counted in the time that was watched, from one judgement to the next, and at most two minutes of it at once: a
clock that is set, a machine that slept or an agent that was away never turns a wait into one that is over.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from checks.check import Context, NotEvaluated
from checks.finding import Part, PartKind
from checks.nvml_error import meaning, told
from checks.observation import GpuReading, NvmlFailed, NvmlHung, NvmlRead, NvmlReleased, Observation

NvmlObservation = NvmlRead | NvmlFailed | NvmlHung | NvmlReleased
# GPU Operator is told by this label to hand the GPUs of a node to virtual machines.
WORKLOAD_LABEL, PASSTHROUGH = "nvidia.com/gpu.workload.config", "vm-passthrough"
# Whoever judges does so at least once a minute.
MOST_AT_ONCE = timedelta(minutes=2)
SILENT_MS = 5 * 60 * 1000
"""A last good round older than this proves nothing any more: a round takes place every half minute."""


class Kind(StrEnum):
    """What kind of word the last one was."""

    NOTHING = "nothing"
    READ = "read"
    FAILED = "failed"
    HUNG = "hung"
    RELEASED = "released"


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """The last word. `why` says it for people, empty for a good round. `silent_ms`: watched since it was spoken."""

    kind: Kind = Kind.NOTHING
    why: str = ""
    silent_ms: int = 0

    @property
    def reads(self) -> bool:
        """Whether the last word was a whole round, and is not too old to count."""
        return self.kind is Kind.READ and self.silent_ms < SILENT_MS


def watched_ms(before: datetime | None, context: Context) -> int:
    """Give the milliseconds since the judgement at `before` that count as watched; one instant counts once."""
    if before is None or before == context.now:
        return 0
    by_dates = (context.now - before) // timedelta(milliseconds=1)
    watched = by_dates if context.watched_ms is None else context.watched_ms
    return max(0, min(watched, MOST_AT_ONCE // timedelta(milliseconds=1)))


def in_order(observations: Iterable[Observation]) -> list[NvmlObservation]:
    """Give what is about NVML, oldest first: a batch may come shuffled."""
    heard = [
        seen for seen in observations if isinstance(seen, NvmlRead | NvmlFailed | NvmlHung | NvmlReleased)
    ]
    return sorted(heard, key=lambda seen: seen.seen_at)


def why_not_asked(context: Context) -> str:
    """Say why nothing that NVML would show can be shown on this node at all; empty where it can."""
    if not context.nvml:
        return "NVML is switched off in the agent's configuration, so no GPU can be asked"
    if context.labels.get(WORKLOAD_LABEL) == PASSTHROUGH:
        return f"the GPUs are handed to virtual machines ({WORKLOAD_LABEL}={PASSTHROUGH})"
    return ""


def not_asked(name: str, context: Context) -> tuple[NotEvaluated, ...]:
    """Give the row that says so, where there is a GPU at all."""
    here = bool(context.bus) or any(part.kind is PartKind.GPU for part in context.parts)
    return (NotEvaluated(check=name, part="node", why=why_not_asked(context)),) if here else ()


def gpu_part(gpu: GpuReading, known: Mapping[str, Part], earlier: Mapping[int | None, Part]) -> Part:
    """Name a GPU by what it says, else by what is known of its address, else by what its index was before."""
    held = known.get(gpu.pci) if gpu.pci else earlier.get(gpu.index)
    if held is None:
        held = Part(kind=PartKind.GPU, name="" if gpu.pci or gpu.uuid else f"NVML index {gpu.index}")
    return Part(
        kind=PartKind.GPU,
        pci=gpu.pci or held.pci,
        uuid=gpu.uuid or held.uuid,
        index=gpu.index,
        serial=gpu.serial or held.serial,
        name=held.name,
    )


def spoken(observation: NvmlObservation) -> Word:
    """Make the word of an observation."""
    match observation:
        case NvmlRead():
            return Word(kind=Kind.READ)
        case NvmlFailed(error=error):
            return Word(kind=Kind.FAILED, why=f"NVML cannot be used: {meaning(error).says} ({told(error)})")
        case NvmlHung(call=call, pci=pci):
            on = f" to the GPU at {pci}" if pci else ""
            return Word(kind=Kind.HUNG, why=f"the call {call}{on} has not come back")
        case NvmlReleased(why=why):
            return Word(kind=Kind.RELEASED, why=why)
