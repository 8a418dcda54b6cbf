"""What came of an order: every answer is a value, which the loop learns from. Pure."""

import msgspec

from controller.outcome import Result
from controller.scheduler.shell.effects import Answer
from controller.scheduler.shell.orders import BindOrder, Victim
from controller.scheduler.shell.prebind import Prepared
from kube.types import Pod


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one bind. `waits`: nothing was sent, since something it needs is not there yet."""

    order: BindOrder
    job: str
    answer: Answer
    waits: bool = False


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one victim. `tried`: the answer is that to the question, and nothing was evicted. `siblings`: other pods
    that may not be evicted for the same reason."""

    victim: Victim
    gains: str
    answer: Answer
    tried: bool = False
    siblings: tuple[str, ...] = ()


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was read, since nobody knew whether it was bound; None = it is gone. `was_read` False: no answer."""

    task: str
    pod: Pod | None = None
    was_read: bool = True


Outcome = Bound | Evicted | Looked


def refused(order: BindOrder, job: str, why: str) -> Bound:
    """Say that a bind was not sent, since the world is another one than was planned on."""
    return Bound(order=order, job=job, answer=Answer(result=Result.REFUSED, why=why))


def unready(order: BindOrder, job: str, prepared: Prepared) -> Bound:
    """Say that a bind was not sent: yet, or not at all, since what it needs did not come."""
    result = Result.SKIPPED if prepared.waits else Result.BLOCKED
    return Bound(order=order, job=job, answer=Answer(result=result, why=prepared.why), waits=prepared.waits)
