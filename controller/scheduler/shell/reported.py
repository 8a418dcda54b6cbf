"""What the loop tells the reporter after a cycle: frozen values. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from controller.scheduler.model import Snapshot
from controller.scheduler.plan import Plan
from controller.scheduler.values import Value


class Happened(Value, frozen=True, kw_only=True):
    """What became of one bind or eviction. `pod`: namespace/name; `message`: why, in the words of who refused or decided."""

    pod: str
    uid: str
    what: Literal["bound", "bind-failed", "evicted", "evict-refused"]
    node: str = ""
    message: str = ""
    at: datetime


class Report(Value, frozen=True, kw_only=True):
    """One cycle. `problems`: what the snapshot could not read; `group_problems`: why a pod has no group, by namespace/name.

    `waiting_pods`: by job id the keys of its pending pods. `extra`: by job id a reason of the shell's (back-off, fractions
    are off), which is told instead of the plan's.
    """

    plan: Plan
    snapshot: Snapshot
    problems: tuple[str, ...] = ()
    group_problems: Mapping[str, str] = {}
    happened: tuple[Happened, ...] = ()
    waiting_pods: Mapping[str, tuple[str, ...]] = {}
    extra: Mapping[str, str] = {}
