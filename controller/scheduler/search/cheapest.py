"""Our search for victims: the least work is lost, nobody falls below his quota while there is another way. Pure.

Pod after pod of the waiting job takes a node that has room by now, or else the node where room costs least (`shelf`,
`room_on_node`); whoever of the victims can stay after all, or find another place, does. What cannot work by counting GPUs is
refused before anything is tried, and an eviction that its victim could turn round is refused too (`loops`). What is cheapest
for the first pod of a gang may stand in the way of the rest: then the gang is tried again without that victim.
Rule `victims_by_cost`; what KAI does instead: `solver`.
"""

from typing import Final, TypeAlias

from controller.scheduler import gangs, model_gates, place, topology
from controller.scheduler.amounts import GPU, NOTHING, Amounts
from controller.scheduler.model import ACTIVE_USED, TaskStatus
from controller.scheduler.search import loops, sentences
from controller.scheduler.search.budget import Budget
from controller.scheduler.search.kinds import Kind
from controller.scheduler.search.room_on_node import Choice
from controller.scheduler.search.shelf import Shelf
from controller.scheduler.search.turns import Turns
from controller.scheduler.search.units import Prices, Unit
from controller.scheduler.state import JobState, NodeSet, NodeState, TaskState

MOST_TRIES: Final = 12
"""How many nodes are tried for one pod, and how many domains for one job, after counting said that they would do."""

MOST_SECOND_THOUGHTS: Final = 2
"""How often a gang is tried again, each time without the victims of its first pod."""

_Who: TypeAlias = tuple[object, ...]


class Cheapest:
    """The search of one action, with what it learned kept from job to job."""

    def __init__(self, budget: Budget, kind: Kind) -> None:
        self._budget = budget
        self._session = budget.session
        self._ledger = budget.session.ledger
        self._kind = kind
        self._shelves: dict[_Who, Shelf] = {}
        self._may_go: dict[_Who, dict[str, bool]] = {}
        self._nodes: dict[tuple[int, ...], NodeSet] = {}
        self._prices = Prices(self._session)
        self._job: JobState | None = None
        self._who: _Who = ()
        self._asked: Amounts = NOTHING
        self._left: list[TaskState] = []
        self._spare_quota = self._is_moving = self._is_limited = False
        self._turns: Turns | None = None
        self._chosen: list[Choice] = []
        self._spared: frozenset[str] = frozenset()
        self._blamed: frozenset[str] = frozenset()

    def make_room(self, job: JobState) -> bool:
        """Find the cheapest victims for a job; True if the ledger holds the solution, else it is as it was."""
        tasks = list(gangs.tasks_to_place(self._session, job, real=False))
        if not tasks or job.queue is None:
            return False
        self._job, self._asked = job, gangs.amounts_of(tasks)
        self._who = _who(job, self._asked)
        self._is_limited = place.why_not_queue(self._session, job, tasks) is not None
        if self._is_limited and not self._kind.frees_limits(job, self._asked):
            return False
        domains = self._domains(job, tasks)
        if len(tasks) > 1 or domains != [None]:
            domains = [domain for domain in domains if self._could_hold(job, tasks, domain)]
        self._spared = frozenset()
        if self._try_all(job, tasks, domains):
            return True
        for _ in range(MOST_SECOND_THOUGHTS if len(tasks) > 1 else 0):
            if not self._blamed or self._budget.exhausted:
                return False
            self._spared |= self._blamed
            if self._try_all(job, tasks, domains):
                return True
        return False

    def _try_all(self, job: JobState, tasks: list[TaskState], domains: list[NodeSet | None]) -> bool:
        """Try every way in every domain. After a failure `_blamed` names whom its first choice was about."""
        self._blamed = frozenset()
        for is_moving, spare_quota in self._ways(job):
            self._is_moving, self._spare_quota = is_moving, spare_quota
            for domain in domains[:MOST_TRIES]:
                mark = self._ledger.mark()
                self._left, self._chosen = list(tasks), []
                if self._place_all(job, tasks, domain):
                    self._record(job)
                    return True
                self._blamed = self._blamed or frozenset(
                    unit.job.id for choice in self._chosen[:1] for unit in choice.units
                )
                self._ledger.undo_to(mark)
                if self._budget.exhausted:
                    return False
        return False

    def _ways(self, job: JobState) -> list[tuple[bool, bool]]:
        """List how it is tried: whether victims only move, and whether every quota is spared; the gentlest first."""
        if not self._kind.guards_quota:
            return [(self._kind.moves, False)]
        taking = (
            [(False, True), (False, False)]
            if self._session.rules.test_after_subtraction
            else [(False, False)]
        )
        if not self._session.settings.allow_consolidating_reclaim or self._kind.free_gpus() < self._asked[0]:
            return taking
        # What is preemptible had its chance to move others in consolidation; the rest has it here.
        return [*taking, (True, False)] if job.spec.preemptible else [(True, False), *taking]

    # --- placing the job ---------------------------------------------------------------------------------------------

    def _place_all(self, job: JobState, tasks: list[TaskState], domain: NodeSet | None) -> bool:
        for task in tasks:
            if not self._place(job, task, domain) and not self._evict_for(job, task, domain, len(tasks) == 1):
                return False
            self._left.pop(0)
        return len(tasks) == 1 or (gangs.is_satisfied(job) and self._settle(job))

    def _place(self, job: JobState, task: TaskState, only: NodeSet | None) -> bool:
        return place.place_job(self._session, job, real=False, only=only, tasks=[task])

    def _evict_for(self, job: JobState, task: TaskState, domain: NodeSet | None, is_last: bool) -> bool:
        """Make room for one pod on the cheapest node where it works."""
        shelf = self._shelf(job, task, domain)
        for _ in range(MOST_TRIES):
            choice = shelf.best(task)
            if choice is None:
                return False
            mark = self._ledger.mark()
            self._evict(job, choice)
            if self._place(job, task, self._only(choice.node)) and (not is_last or self._settle(job)):
                return True
            self._chosen.pop()
            self._ledger.undo_to(mark)
            shelf.drop(choice)
        return False

    def _evict(self, job: JobState, choice: Choice) -> None:
        """Evict what was chosen; whoever of it is served before the job in the next cycle is placed before it."""
        price = sentences.price(self._session, choice.cost)
        asked = gangs.amounts_of(self._left)
        claimed = {unit.job.id for unit in choice.units if self._has_claim(job, unit.job, choice.node, asked)}
        reasons = [(victim, self._kind.why(job, victim) + price) for victim in choice.tasks]
        for victim, why in reasons:
            self._ledger.evict(victim, why)
        self._chosen.append(choice)
        if self._turns is None:
            self._turns = Turns(self._session)
        for owner in {unit.job.id: unit.job for unit in choice.units}.values():
            if owner.id not in claimed and self._turns.is_first(owner, job, asked):
                self._place_again(owner, at_home=False)

    def _has_claim(self, job: JobState, victim: JobState, node: NodeState, asked: Amounts) -> bool:
        """Tell whether the room is the job's by name: then it is promised to it, whoever's turn it would be by the total."""
        model = self._named(job, node)
        if not model or not self._session.rules.keep_promises or job.queue is None or victim.queue is None:
            return False
        return model_gates.has_claim(job.queue, victim.queue, model, asked[GPU])

    def _only(self, *nodes: NodeState) -> NodeSet:
        key = tuple(sorted(node.index for node in nodes))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = NodeSet(("nodes", *map(str, key)), frozenset(key))
        return found

    # --- who may go --------------------------------------------------------------------------------------------------

    def _shelf(self, job: JobState, task: TaskState, domain: NodeSet | None) -> Shelf:
        shape, _ = self._session.fit.of(task)
        key = (
            self._who,
            shape.key,
            task.spec.request,
            (self._spare_quota, self._is_moving, self._is_limited),
            domain.key if domain is not None else None,
            self._spared,
        )
        shelf = self._shelves.get(key)
        if shelf is None:
            nodes = self._ledger.nodes
            chosen = nodes if domain is None else [nodes[index] for index in sorted(domain.nodes)]
            known = self._may_go.setdefault(self._who, {})
            asked, spared = self._asked, self._spared
            shelf = Shelf(
                self._budget,
                self._prices,
                task,
                chosen,
                lambda victim: victim.id not in spared and self._may_be_victim(known, job, victim, asked),
                self._allowed,
                self._takes,
            )
            self._shelves[key] = shelf
        return shelf

    def _may_be_victim(self, known: dict[str, bool], job: JobState, victim: JobState, asked: Amounts) -> bool:
        found = known.get(victim.id)
        if found is None:
            found = known[victim.id] = self._kind.may_be_victim(job, victim, asked)
        return found

    def _takes(self, task: TaskState, node: NodeState) -> bool:
        """Tell whether a pod could go to a node as things stand, by its queue's limits too."""
        if self._session.fit.why_not(task, node, True) is not None or task.job is None:
            return False
        return not self._is_limited or place.why_not_queue(self._session, task.job, [task]) is None

    def _allowed(self, units: list[Unit], node: NodeState) -> bool:
        """Tell whether queues can bear the loss of these, after what was taken before, for what is left of the job."""
        if self._job is None:
            return False
        victims = [task for unit in units for task in unit.tasks]
        return self._is_moving or self._kind.allows(
            self._job,
            victims,
            {task.id for task in victims},
            self._left,
            self._spare_quota,
            self._named(self._job, node),
        )

    def _named(self, job: JobState, node: NodeState) -> str:
        """Name the model of a node where the job's queue may have a claim to it by name."""
        by_name = self._session.rules.quota_per_model and job.queue is not None and job.queue.counts_models
        return model_gates.model_of(node) if by_name else ""

    # --- where the victims go ----------------------------------------------------------------------------------------

    def _settle(self, job: JobState) -> bool:
        """Let victims stay or move where there is room, the most expensive first; tell whether the rest may go."""
        units = sorted(
            (unit for choice in self._chosen for unit in choice.units), key=lambda unit: -unit.rank
        )
        victims = list({unit.job.id: unit.job for unit in units}.values())
        most = self._session.settings.max_consolidation_preemptees
        if self._is_moving and 0 <= most < len(victims):
            return False
        for victim in victims:
            self._place_again(victim, at_home=True)
            if self._is_moving or self._session.settings.allow_consolidating_reclaim:
                self._place_again(victim, at_home=False)
        for victim in victims:
            lost = [task for task in victim.tasks if task.status not in ACTIVE_USED and task.evicted]
            if lost and (
                self._is_moving or loops.why_not_evict(self._session, job, victim, lost) is not None
            ):
                return False
        return not self._is_moving or self._keeps_models(job)

    def _keeps_models(self, job: JobState) -> bool:
        """Tell whether nobody who only moves loses what its queue has by a quota of a GPU model."""
        if not self._session.rules.quota_per_model or job.queue is None:
            return True
        return all(
            model_gates.may_move(job.queue, task, choice.node)
            for choice in self._chosen
            for task in choice.tasks
            if task.evicted
        )

    def _place_again(self, victim: JobState, at_home: bool) -> None:
        """Place what was evicted of a job: at home only, or on any node."""
        while tasks := [
            task for task in victim.tasks if task.status is TaskStatus.RELEASING and task.evicted
        ]:
            only: NodeSet | None = None
            if at_home:
                homes = {task.node.index: task.node for task in tasks if task.node is not None}
                only = self._only(*homes.values())
            if not place.place_job(self._session, victim, real=False, only=only):
                return

    def _record(self, job: JobState) -> None:
        """Note for whom each victim went."""
        for choice in self._chosen:
            self._session.gains.update((victim.id, job.id) for victim in choice.tasks if victim.evicted)

    # --- what cannot work --------------------------------------------------------------------------------------------

    def _could_hold(self, job: JobState, tasks: list[TaskState], domain: NodeSet | None) -> bool:
        """Tell whether enough nodes could take the pods if everybody went who may go; a bound, by whole GPUs alone."""
        known = self._may_go.setdefault(self._who, {})
        asked = self._asked
        nodes = self._ledger.nodes
        chosen = nodes if domain is None else [nodes[index] for index in sorted(domain.nodes)]
        wanted = sorted((task.spec.request.gpus for task in tasks), reverse=True)
        if not wanted[0]:
            return True
        shapes = {shape.key: shape for shape in (self._session.fit.of(task)[0] for task in tasks)}.values()
        rooms = []
        for node in chosen:
            if all(self._session.fit.refusal(shape, node) is not None for shape in shapes):
                continue
            cards = node.idle_gpus + node.releasing_gpus
            for task in node.tasks.values():
                if (
                    task.job is not None
                    and task.status in ACTIVE_USED
                    and self._may_be_victim(known, job, task.job, asked)
                ):
                    cards += task.spec.request.gpus or len(task.devices)
            rooms.append(cards)
        for size in sorted(set(wanted) - {0}, reverse=True):
            if sum(room // size for room in rooms if room > 0) < sum(1 for other in wanted if other >= size):
                return False
        return True

    def _domains(self, job: JobState, tasks: list[TaskState]) -> list[NodeSet | None]:
        """List the domains that the job must fit into one of, those with most room first; None = no such bound."""
        domains = topology.domains_for_all(self._session, job)
        if domains is None or any(task.status in ACTIVE_USED for task in job.tasks):
            return [None]
        nodes = self._ledger.nodes
        wanted = sum(task.spec.request.gpus for task in tasks)

        def lacking(domain: NodeSet) -> int:
            room = sum(nodes[index].idle_gpus + nodes[index].releasing_gpus for index in domain.nodes)
            return max(wanted - room, 0)

        # By path already, and sorting keeps that order among equals.
        return [*sorted(domains, key=lacking)]


def _who(job: JobState, asked: Amounts) -> _Who:
    """Name those jobs that have the same victims."""
    running = job.id if any(pod_set.held for pod_set in job.pod_sets.values()) else ""
    return (job.spec.queue, job.spec.preemptible, job.spec.priority, asked, running)
