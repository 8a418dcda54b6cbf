"""One drill: a fault strikes incidents that are held in all phases at once.

Each stands on a node, a policy and a pool of its own, so that no budget and no breaker couples them.
"""

import time
from collections.abc import Callable, Sequence

from sandbox import nodes as simulated
from tests.cluster.holds import (
    Case,
    Held,
    answer_page,
    break_gpu,
    prepare,
    take_down,
    use_up_the_budget,
    why_not_held,
)
from tests.cluster.ledger import Account, Audit, account
from tests.cluster.stage import Stage, raw_node, take_away
from tests.cluster.strikes import Fault

_HELD_WITHIN_S = 60.0
_ENDED_WITHIN_S = 150.0
_AS_FOUND_WITHIN_S = 30.0
_QUIET_S = 3.0  # what is done twice is done soon

Strike = Callable[[Stage, Sequence[Case]], None]


class Drill:
    """Lets one fault strike the given holds. `seconds` says how long each part took."""

    def __init__(self, stage: Stage, fault: Fault, strike: Strike, holds: Sequence[Held]) -> None:
        self.stage = stage
        self.fault = fault
        self.seconds: dict[str, float] = {}
        self._strike = strike
        names = [f"{fault.name}-{held.name}".lower().replace("_", "-") for held in holds]
        made = simulated.create(stage.sandbox, names)
        self.cases = [Case(held=held, node=node) for held, node in zip(holds, made, strict=True)]

    def run(self) -> dict[Held, Account]:
        """Prepare, hold, strike, wait for the end, and draw up the accounts."""
        try:
            self._timed("prepare", self._prepare)
            self._timed("hold", self._hold)
            self._timed("strike", lambda: self._strike(self.stage, self.cases))
            self._timed("end", self._end)
            audit = Audit(self.stage)
            return {case.held: account(self.stage, case, audit) for case in self.cases}
        finally:
            self._timed("take away", lambda: take_away(self.stage, [case.node for case in self.cases]))

    def _timed(self, what: str, act: Callable[[], None]) -> None:
        began = time.monotonic()
        act()
        self.seconds[what] = round(time.monotonic() - began, 1)

    def _prepare(self) -> None:
        for case in self.cases:
            prepare(self.stage, case)
        self.stage.start_agents([case.node for case in self.cases])
        if self.fault is Fault.CORDONED_BEFORE:
            for case in self.cases:
                self.stage.set_cordon(case.name, True)
        time.sleep(1.0)  # the controller manager's own taint follows the cordon
        for case in self.cases:
            case.before = raw_node(self.stage.admin, case.name)
            self.stage.cordons[case.name] = [bool(case.before["spec"].get("unschedulable", False))]
            use_up_the_budget(self.stage, case)

    def _hold(self) -> None:
        """Bring each incident to where it is to be struck, and last the one that does not stay there."""
        held = [case for case in self.cases if case.held is not Held.JUST_TRUE]
        racing = [case for case in self.cases if case.held is Held.JUST_TRUE]
        for case in held:
            break_gpu(case)
        self._await_held(held)
        for case in held:
            if case.held is Held.REBOOTING and not case.trouble:
                take_down(self.stage, case)
        for case in racing:
            break_gpu(case)
        self._await_held(racing)

    def _await_held(self, cases: Sequence[Case]) -> None:
        missing: dict[str, str] = {}

        def all_held() -> bool:
            missing.clear()
            missing.update({case.name: why for case in cases if (why := why_not_held(self.stage, case))})
            return not missing

        self.stage.watching.wait_for(all_held, _HELD_WITHIN_S)
        for case in cases:
            if case.name in missing:
                case.trouble = f"not held in {case.held.name}: {missing[case.name]}"

    def _end(self) -> None:
        def over() -> bool:
            for case in self.cases:
                answer_page(self.stage, case)
            return all(self._is_over(case) for case in self.cases)

        if not self.stage.watching.wait_for(over, _ENDED_WITHIN_S):
            stuck = [case.name for case in self.cases if not self._is_over(case)]
            self.stage.print_story(stuck)
        time.sleep(_QUIET_S)
        for case in self.cases:
            self._await_as_found(case)
            case.trouble = case.trouble or self._why_not_over(case)

    def _await_as_found(self, case: Case) -> None:
        """Give the controller manager its time: what it taints for (a cordon, a silent kubelet) it also takes back."""
        self.stage.watching.wait_for(
            lambda: raw_node(self.stage.admin, case.name) == case.before, _AS_FOUND_WITHIN_S
        )

    def _why_not_over(self, case: Case) -> str:
        """Say where an incident stands that should have ended: of a failed cell the account may be all that is seen."""
        incident = self.stage.incident(case.name)
        if incident is None:
            return ""
        status = incident.status
        return f"it is {status.phase}, held by {status.held_by or 'nothing'}: {status.message}"

    def _is_over(self, case: Case) -> bool:
        incidents = self.stage.incidents(case.name)
        if not incidents or self.stage.incident(case.name) is not None:
            return False
        rows = [row for one in incidents for row in one.status.notifications]
        return all(row.sent_at is not None or row.dead for row in rows)
