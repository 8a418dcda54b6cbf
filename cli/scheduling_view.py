"""The scheduler's own judgement, asked here: the same pure cycle, over what this program could read.

What only the running scheduler knows is missing and said (`UNKNOWN_HERE`): it may decide otherwise because of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from cli.grouping import Grouped, group_pods
from cli.scheduling_objects import SchedulingReading, read_hardware, read_scheduling
from controller.scheduler.cycle import open_session
from controller.scheduler.grouper.spec import Terms
from controller.scheduler.model import Snapshot
from controller.scheduler.rules import DEFAULT, Rules
from controller.scheduler.session import Session
from controller.scheduler.shell.start_failures import put_aside, read_back
from controller.scheduler.snapshot import Objects, Options, build
from kube.api import Api
from kube.scheduling import Queue

SCHEDULER: Final = "nodemend-scheduler"
MOST_LINES: Final = 20
NO_LABEL: Final = ""
"""A key that no node has a label of, so that none is of another pool."""
UNKNOWN_HERE: Final = (
    "Worked out here, now, with the scheduler's defaults. What it promised, for whom it keeps room, its back-offs and"
    " past use are not known here."
)


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Whose pods are looked at, and how; as in the scheduler's configuration. `namespace`: where nodemend runs;
    `pool` None = nobody named one: jobs are those without the label, nodes all."""

    namespace: str = "nodemend-system"
    scheduler_name: str = SCHEDULER
    pool: str | None = None
    terms: Terms = Terms()
    rules: Rules = DEFAULT


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A reading, its pods in their groups, and the snapshot of it. `problems`: what could not be read of which object."""

    reading: SchedulingReading
    grouped: Grouped
    snapshot: Snapshot
    options: Options
    problems: tuple[str, ...] = ()

    @property
    def queues(self) -> tuple[Queue, ...]:
        """Give the Queues of the pool that is looked at, whatever is wrong with them."""
        return tuple(
            one
            for one in self.reading.objects.queues
            if one.metadata.labels.get(self.options.pool_label, "") == self.options.pool
        )

    def session(self, rules: Rules) -> Session:
        """Give everybody's shares as they are before anything is decided."""
        return open_session(self.snapshot, rules)


def options_of(look: Look) -> Options:
    """Give how a snapshot is to be built."""
    return Options(
        scheduler_name=look.scheduler_name, pool=look.pool or "", pool_label=look.terms.node_pool_label
    )


def view_of(
    api: Api,
    reading: SchedulingReading,
    look: Look,
    now: datetime,
    known: Iterable[dict[str, Any]] = (),
) -> View:
    """Group the pods of a reading and make its snapshot. `known`: owners that are not on the API server."""
    grouped = group_pods(api, reading, scheduler_name=look.scheduler_name, terms=look.terms, known=known)
    options = options_of(look)
    snapshot, problems = _build(grouped.objects, now, options, look.rules)
    said = [f"Pod {name}: {why}" for name, why in sorted(grouped.problems.items())]
    return View(
        reading=reading, grouped=grouped, snapshot=snapshot, options=options, problems=(*problems, *said)
    )


def look_at_jobs(api: Api, look: Look, now: datetime) -> View:
    """Read all that a cycle looks at. Raises Failure where a list that is required cannot be had."""
    return view_of(api, read_scheduling(api, namespace=look.namespace), look, now)


def look_at_hardware(api: Api, look: Look, now: datetime) -> View:
    """Read nodes, what is known of their health, and who is on them. Raises Failure where nodes cannot be listed."""
    reading = read_hardware(api, namespace=look.namespace)
    options = options_of(look)
    if look.pool is None:
        options = msgspec.structs.replace(options, pool_label=NO_LABEL)
    snapshot, problems = _build(reading.objects, now, options, look.rules)
    return View(
        reading=reading,
        grouped=Grouped(objects=reading.objects),
        snapshot=snapshot,
        options=options,
        problems=problems,
    )


def _build(
    objects: Objects, now: datetime, options: Options, rules: Rules
) -> tuple[Snapshot, tuple[str, ...]]:
    """Make the snapshot, with the nodes put aside on which pods fail to start: the scheduler says so on the Nodes."""
    snapshot, problems = build(objects, now, options, rules)
    aside, probing = read_back(objects.nodes)
    return put_aside(snapshot, aside, probing), problems


def incomplete(view: View) -> tuple[str, ...]:
    """Say what the answer lacks, one line each, in the order of weight."""
    return (
        *_first("PROBLEM", view.problems),
        *_first("NOT INSTALLED", view.reading.absent),
        *_first("NOT READ", view.reading.not_read),
    )


def _first(title: str, words: Sequence[str]) -> Iterator[str]:
    yield from (f"{title}: {each}" for each in words[:MOST_LINES])
    if len(words) > MOST_LINES:
        yield f"{title}: and {len(words) - MOST_LINES} more"
