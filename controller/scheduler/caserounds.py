"""The rounds of a case: plan, take the plan for done, step on. Pure.

The step between two rounds is the suite's: what was bound runs, what was pipelined or evicted is pending again.
"""

import msgspec

from controller.scheduler.casecards import Standing, first_standings, task_id
from controller.scheduler.casefile import held, snapshot_of
from controller.scheduler.casejobs import claim_id
from controller.scheduler.casewords import Case
from controller.scheduler.cycle import Action, run_cycle
from controller.scheduler.model import TaskStatus
from controller.scheduler.plan import Plan
from controller.scheduler.rules import Rules


class Rounds:
    """One case on its way. `standings`: where each pod stands by now; `calls`: binds, evictions and pipelines so far."""

    def __init__(self, case: Case, rules: Rules, actions: tuple[Action, ...]) -> None:
        self.case = case
        self.number = 0
        self.standings = first_standings(case)
        self.calls = {"binds": 0, "evictions": 0, "pipelines": 0}
        self.plan = Plan()
        self.started: set[str] = set()
        self._rules = rules
        self._actions = actions
        self._claims = {
            claim_id(claim.namespace, claim.name): held(claim) for claim in case.dra.resource_claims
        }
        self._stays = {
            task_id(job, index)
            for job in case.jobs
            if job.stays_releasing_between_rounds
            for index in range(len(job.tasks))
        }

    def act(self) -> None:
        """Plan once, and put every pod where the plan has it."""
        snapshot = snapshot_of(self.case, self.standings, started=self.started, claims=self._claims)
        # A clock that stands still: only the steps bound a search, so that a case comes out alike on every machine.
        snapshot = msgspec.structs.replace(
            snapshot, reserved_for=self.plan.reserved_for, promises=self.plan.promises
        )
        self.plan = plan = run_cycle(snapshot, self._rules, actions=self._actions)
        self.number += 1
        self.started |= set(plan.started)
        for eviction in plan.evictions:
            stood = self.standings[eviction.task]
            self.standings[eviction.task] = Standing(
                TaskStatus.RELEASING, stood.node, stood.gpus, stood.zones
            )
        for place in plan.pipelined:
            self.standings[place.task] = Standing(TaskStatus.PIPELINED, place.node, place.gpus, place.zones)
        for bind in plan.binds:
            self.standings[bind.task] = Standing(TaskStatus.BINDING, bind.node, bind.gpus, bind.zones)
            for claim, devices in bind.devices:
                self._reserve(claim, devices, bind.task)
        self.calls["binds"] += len(plan.binds)
        self.calls["evictions"] += len(plan.evictions)
        self.calls["pipelines"] += len(plan.pipelined)

    def step(self) -> None:
        """Go on to the next round."""
        for name, stood in self.standings.items():
            if stood.status == TaskStatus.BINDING:
                self.standings[name] = Standing(TaskStatus.RUNNING, stood.node, stood.gpus, stood.zones)
            elif stood.status == TaskStatus.PIPELINED or self._is_gone(name, stood):
                self.standings[name] = Standing(TaskStatus.PENDING)
                self._release(name)

    def _is_gone(self, name: str, stood: Standing) -> bool:
        return stood.status == TaskStatus.RELEASING and name not in self._stays

    def _reserve(self, claim: str, devices: tuple[str, ...], task: str) -> None:
        _, pods = self._claims[claim]
        self._claims[claim] = devices, (*(pod for pod in pods if pod != task), task)

    def _release(self, task: str) -> None:
        """Let go of the claims of a pod that ended: whoever was the last gives the devices back, as Kubernetes does."""
        for claim, (devices, pods) in self._claims.items():
            if task in pods:
                left = tuple(pod for pod in pods if pod != task)
                self._claims[claim] = devices if left else (), left
