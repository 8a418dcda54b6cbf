"""One cycle's world: the snapshot, the rules, the ledger, and what was found out on the way."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.scheduler.domains import DomainTree
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import Settings, Snapshot
from controller.scheduler.plan import Wait
from controller.scheduler.rules import Rules
from controller.scheduler.state import TaskState

if TYPE_CHECKING:
    from controller.scheduler.candidates import Candidates
    from controller.scheduler.fit import Fit
    from controller.scheduler.reservation import Reservation


class Session:
    """What every step of a cycle is given.

    `waits`: the newest reason why each job waits, by job id. `started`: jobs that began to run in this cycle. `exhausted`:
    the actions whose search ran out of steps or time. `ms` counts milliseconds from an origin of its own and only bounds
    a search; a replay is given a clock that stands still, and is bounded by steps alone. `to_place` is a memory of
    `gangs.tasks_to_place`: by job id and kind of try, for one version of the job. `trees`: topologies as trees of domains,
    None = there is no such Topology. `fit` says what a node refuses, `candidates` finds nodes for pods;
    `cycle.open_session` sets both. `gains`: by the id of a pod that is evicted, the job for which it goes. `reservation`:
    what is kept for the job that waits longest. `promised`: the jobs that were served first, as promised.
    `passed_over`: by job id the subgroups that found no room while siblings did (`place`).
    `movable`: the only jobs that may lose pods to others, None = any (see `doubt`).
    """

    fit: "Fit"
    candidates: "Candidates"

    def __init__(self, snapshot: Snapshot, rules: Rules, ledger: Ledger, ms: Callable[[], int]) -> None:
        self.snapshot = snapshot
        self.settings: Settings = snapshot.settings
        self.rules = rules
        self.ledger = ledger
        self.ms = ms
        self.waits: dict[str, Wait] = {}
        self.started: list[str] = []
        self.exhausted: list[str] = []
        self.to_place: dict[tuple[str, bool], tuple[int, list[TaskState]]] = {}
        self.trees: dict[str, DomainTree | None] = {}
        self.gains: dict[str, str] = {}
        self.reservation: Reservation | None = None
        self.promised: list[str] = []
        self.passed_over: dict[str, frozenset[str]] = {}
        self.movable: frozenset[str] | None = None
