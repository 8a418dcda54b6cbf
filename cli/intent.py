"""`repaired NODE` and `cancel NODE`: a person's word, written as an annotation on the open Remediation.

The controller acts on the annotation; this command changes nothing else. The write carries the resourceVersion that was
judged, so that a word is never given to an incident that moved on in between.
"""

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from cli.cluster import read_node_names, read_remediations
from cli.failure import Exit, Failure, failure_of
from cli.text import clock_time
from kube import paths
from kube.api import Api, ApiError, PatchType
from kube.remediation import CANCEL, CLOSED, REPAIRED, Phase, Remediation
from kube.timestamps import micro_time

# What each word sets in motion, so that nobody has to guess at night.
OUTLOOK = {
    REPAIRED: (
        "What was seen until now counts as dealt with; the node stays cordoned.",
        "A revalidation Job then asks for all its GPUs. Passed: the node is given back exactly as it was found.",
        "Failed: the incident escalates again, with a page.",
    ),
    CANCEL: (
        "The incident ends as Cancelled: no further pod is evicted, no further repair is started.",
        "A repair that has not begun on the node is called back; one that runs already is not.",
        "Cordon and taint are taken back exactly; a cordon that somebody else holds stays.",
        "The condition stays as it is, and the same evidence never opens an incident again.",
    ),
}


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, on which incident, and what follows; its fields are the keys of `-o json`."""

    node: str
    incident: str
    phase: str
    annotation: str
    at: datetime
    already_given: bool
    outlook: tuple[str, ...]


def choose_incident(remediations: Sequence[Remediation], node: str, incident: str) -> Remediation | None:
    """Give the one open incident of a node, or None where there is none.

    Raises Failure where several are open and `incident` names none of them.
    """
    standing = [r for r in remediations if r.spec.node_name == node and r.status.phase not in CLOSED]
    if incident:
        standing = [r for r in standing if r.metadata.name == incident]
    if len(standing) > 1:
        names = ", ".join(sorted(r.metadata.name for r in standing))
        raise Failure(f"{node} has several open incidents ({names}): name one with --incident", Exit.BAD_USE)
    return standing[0] if standing else None


def why_not_repaired(remediation: Remediation) -> str | None:
    """Say why a person's `repaired` does not fit this incident now; None where it does."""
    phase = remediation.status.phase
    if phase is Phase.ESCALATED:
        return None
    return f"the incident is {phase.value}, not Escalated: nodemend is still at it (`cancel` stops it)"


def given_before(remediation: Remediation, annotation: str) -> datetime | None:
    """Give when this word was already said in the incident's present phase; None where it was not, or is unreadable."""
    text = remediation.metadata.annotations.get(annotation)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = remediation.status.phase_since
    if at.tzinfo is None:
        return None
    if annotation == REPAIRED and (
        (since is not None and at < since) or at == remediation.status.repaired_at
    ):
        return None  # said of an earlier escalation: it was used up then
    return at


def prepare(
    api: Api, *, annotation: str, node: str, incident: str, now: datetime
) -> tuple[Remediation, Word]:
    """Read the incident and judge whether the word fits. Raises Failure with the one reason why it does not."""
    remediations = read_remediations(api)
    chosen = choose_incident(remediations, node, incident)
    if chosen is None:
        raise _no_incident(api, remediations, node, incident)
    why_not = why_not_repaired(chosen) if annotation == REPAIRED else None
    if why_not is not None:
        raise Failure(f"{node}: {why_not}", Exit.NOT_SO)
    before = given_before(chosen, annotation)
    since = chosen.status.phase_since or chosen.spec.opened_at
    return chosen, Word(
        node=node,
        incident=chosen.metadata.name,
        phase=chosen.status.phase.value,
        annotation=annotation,
        # A clock that runs behind the cluster's must not date the word before the phase it answers.
        at=before or max(now.astimezone(UTC), since.astimezone(UTC)),
        already_given=before is not None,
        outlook=OUTLOOK[annotation],
    )


def give(api: Api, remediation: Remediation, word: Word) -> None:
    """Write the word, unless it stands already. Raises Failure where the incident changed or the write is refused."""
    if word.already_given:
        return
    body = {
        "metadata": {
            "resourceVersion": remediation.metadata.resource_version,
            "annotations": {word.annotation: micro_time(word.at)},
        }
    }
    try:
        api.patch(paths.remediation(remediation.metadata.name), body, PatchType.MERGE)
    except ApiError as error:
        raise failure_of(error, f"patch remediation {remediation.metadata.name}") from error


def word_lines(word: Word, *, written: bool) -> list[str]:
    """Say what was (or would be) written and what follows from it."""
    what = "repaired" if word.annotation == REPAIRED else "cancel"
    if word.already_given:
        head = (
            f"{word.node}: `{what}` was already said at {clock_time(word.at)}; the controller will act on it."
        )
    elif written:
        head = f"{word.node}: `{what}` is written on incident {word.incident} (was {word.phase})."
    else:
        head = f"{word.node}: `{what}` will be written on incident {word.incident} (now {word.phase})."
    return [head, *(f"  {line}" for line in word.outlook), f"Watch it: kubectl nodemend explain {word.node}"]


def _no_incident(api: Api, remediations: Sequence[Remediation], node: str, incident: str) -> Failure:
    closed = [r for r in remediations if r.spec.node_name == node]
    if incident and all(r.metadata.name != incident for r in closed):
        return Failure(f"{node} has no incident {incident}", Exit.BAD_USE)
    if closed:
        last = max(closed, key=lambda r: r.spec.opened_at)
        ended = f"{last.metadata.name} ended as {last.status.phase.value}"
        return Failure(f"{node} has no open incident; the last one, {ended}", Exit.NOT_SO)
    known = read_node_names(api)
    if node in known:
        return Failure(f"{node} has no open incident", Exit.NOT_SO)
    return unknown_node(node, known)


def unknown_node(node: str, known: Sequence[str]) -> Failure:
    """Say that there is no such node, with the nearest names that exist."""
    near = difflib.get_close_matches(node, sorted(set(known)), n=3)
    hint = f" (is it {' or '.join(near)}?)" if near else ""
    return Failure(f"no node is named {node}{hint}", Exit.BAD_USE)
