"""How a gang is bound: all are prepared and looked at, and only then is the first Binding sent. Shell, for `dispatch`."""

import threading
from typing import TYPE_CHECKING

import structlog

from controller.scheduler.shell.orders import BindOrder, GangOrder
from controller.scheduler.shell.outcomes import refused, unready
from controller.scheduler.shell.prebind import Prepared

if TYPE_CHECKING:
    from controller.scheduler.shell.dispatch import Dispatch

log = structlog.get_logger(__name__)


class GangWaves:
    """The two waves of one gang. What the last member of the first wave finds decides about the second."""

    def __init__(self, gang: GangOrder, dispatch: "Dispatch") -> None:
        self._gang = gang
        self._dispatch = dispatch
        self._lock = threading.Lock()
        self._left = len(gang.members)
        self._begun = False
        self._off = ""
        self._prepared: dict[str, Prepared] = {}
        self._why: dict[str, str] = {}

    def start(self) -> None:
        for order in self._gang.members:
            self._dispatch.submit_preparing(self._prepare, order)

    def _prepare(self, order: BindOrder) -> None:
        task = order.bind.task
        prepared: Prepared | None = None
        why = self._dispatch.why_not(order)
        try:
            if not why:
                prepared = self._dispatch.prepare(order)
        except Exception as error:  # the gang's end must come, whatever one member's preparing meets
            log.exception("prepare.failed", task=task)
            why = f"a defect of the scheduler: {error!r}"
        with self._lock:
            if why:
                self._why[task] = why
            if prepared is not None:
                self._prepared[task] = prepared
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._second_wave()

    def _second_wave(self) -> None:
        gang, dispatch = self._gang, self._dispatch
        if not self._why:
            # It took a while until the last one was prepared: everybody is looked at once more, just before.
            self._why = {order.bind.task: why for order in gang.members if (why := dispatch.why_not(order))}
        if self._why:
            task, why = next(iter(self._why.items()))
            self._undo()
            dispatch.tell(*(refused(order, gang.job, f"{task}: {why}") for order in gang.members))
            return
        lacking = [one for one in self._prepared.values() if not one.ready]
        if lacking:
            # Whoever gave up took back what was its own; a gang without that member needs nothing of the others'.
            worst = next((one for one in lacking if not one.waits), lacking[0])
            if not worst.waits:
                self._undo()
            dispatch.tell(*(unready(order, gang.job, worst) for order in gang.members))
            return
        for order in gang.members:
            dispatch.submit(self._send, order)

    def _send(self, order: BindOrder) -> None:
        """Send one Binding: it may have stood in line for long. Before the first one is sent the gang still goes back whole;
        later the one stays back alone, for it is better placed elsewhere than on what is known to be ill."""
        dispatch, job, prepared = self._dispatch, self._gang.job, self._prepared[order.bind.task]
        why = dispatch.why_not_on(order)
        with self._lock:
            if not self._begun and why:
                self._off = self._off or f"{order.bind.task}: {why}"
            why = self._off or why
            self._begun = self._begun or not why
        if why:
            dispatch.undo(prepared)
            dispatch.tell(refused(order, job, why))
        else:
            dispatch.send(order, job, prepared)

    def _undo(self) -> None:
        for prepared in self._prepared.values():
            self._dispatch.undo(prepared)
