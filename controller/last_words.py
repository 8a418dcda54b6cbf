"""What a Job's pod said when it ended: the termination message, as a sentence for people. Pure.

The Job's own condition only says that its pod failed. `nodemend-agent validate` leaves its verdict as JSON; a repair, or a
command of the administrator's own, leaves whatever text it likes. Whether the Job counts is not decided here.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from kube.types import Job, Pod, Struct, TerminatedState

_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_LIMIT = 512
_NEVER = datetime.min.replace(tzinfo=UTC)


class _Row(Struct, frozen=True, kw_only=True):
    name: str
    result: str
    message: str = ""


class _Verdict(Struct, frozen=True, kw_only=True):
    """What `agent.validate` and `agent.reset_gpu` write (that package is not the controller's to import)."""

    result: str
    checks: tuple[_Row, ...] = ()


def is_pod_of(job: Job, pod: Pod) -> bool:
    """Tell a Job's pods by their label, in the Job's namespace alone: elsewhere anybody may label a pod like that."""
    metadata = pod.metadata
    if metadata.namespace != job.metadata.namespace:
        return False
    return job.metadata.name in (metadata.labels.get(label) for label in _LABELS)


def termination_of(job: Job, pods: Iterable[Pod]) -> TerminatedState | None:
    """Give how the newest ended pod of the Job ended; None where none did."""
    ended = [(pod.metadata.creation_timestamp or _NEVER, said) for pod in pods if (said := _ended(job, pod))]
    return max(ended, key=lambda pair: pair[0])[1] if ended else None


def refusal(job: Job, pods: Iterable[Pod]) -> str:
    """Say that kubelet refused the newest pod of the Job before it ran, as it does where it cannot hand out its devices.

    Empty where it did not (pkg/kubelet/lifecycle, admission: UnexpectedAdmissionError, OutOf<resource>).
    """
    newest = max(
        (pod for pod in pods if is_pod_of(job, pod)),
        key=lambda pod: pod.metadata.creation_timestamp or _NEVER,
        default=None,
    )
    if newest is None or newest.status.phase != "Failed" or newest.status.container_statuses:
        return ""
    reason = newest.status.reason
    if reason != "UnexpectedAdmissionError" and not reason.startswith("OutOf"):
        return ""
    return _printable(f"kubelet refused its pod: {reason}: {newest.status.message}")[:_LIMIT]


def last_words(job: Job, pods: Iterable[Pod]) -> str:
    """Give what the newest ended pod of the Job said; empty where none ended or it said nothing at all."""
    state = termination_of(job, pods)
    if state is None:
        return ""
    told = _verdict(state.message) or _printable(state.message)
    if not told and state.exit_code:
        told = f"exit code {state.exit_code}{f' ({state.reason})' if state.reason else ''}"
    return told[:_LIMIT]


def _ended(job: Job, pod: Pod) -> TerminatedState | None:
    if not is_pod_of(job, pod):
        return None
    states: Sequence[TerminatedState | None] = [one.state.terminated for one in pod.status.container_statuses]
    return next((state for state in states if state is not None), None)


def _verdict(text: str) -> str:
    try:
        verdict = msgspec.json.decode(text, type=_Verdict)
    except msgspec.DecodeError:
        return ""
    rows = [row for row in verdict.checks if row.result != "Passed"] or list(verdict.checks)
    words = "; ".join(f"{row.name}: {row.message or row.result}" for row in rows)
    return _printable(f"{verdict.result}: {words}" if words else verdict.result)


def _printable(text: str) -> str:
    """Keep it on one line: a message may hold anything that a program printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
