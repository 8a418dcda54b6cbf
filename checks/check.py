"""The shape of a check, and how checks are found.

A check is one module in this package that exports `CHECK`. Its docstring is the run-book of its condition. `judge` is
pure: it is given observations, the check's memory, a context and nothing else, and gives back a new judgement and memory.
Adding a check = one file here (and its data), one test file.

A condition that no agent publishes (the scheduler's own) has its row in the public table all the same: its module exports
`FAULT_CLASS`, which nobody judges.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.condition import Healthy, Unreadable
from checks.finding import Finding, Part, PartKind, Reason, Severity, is_same_part
from checks.observation import Observation


class CheckDefect(Exception):
    """A check, its reasons or its data are wrong: said at load, naming the module and the row."""


class Clearing(msgspec.Struct, frozen=True, kw_only=True):
    """A proven repair dealt with everything that was seen of one part up to `before` (NodeHealth.spec.cleared)."""

    uuid: str = ""
    pci: str = ""
    before: datetime

    def covers(self, part: Part) -> bool:
        """Tell whether this is about `part`: by UUID where both have one, else by PCI address."""
        return is_same_part(self, part)


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """A finding that a person asked for: `reason` on `part` from `since` until `until` (see `checks.drill`)."""

    id: str
    reason: str
    part: Part
    since: datetime
    until: datetime


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the machine and asked of it, the same for every check.

    `cleared_before`: a person or a proven repair dealt with everything seen up to then (NodeHealth.spec.clearedBefore);
    `clearings`: the same for single parts, whose neighbours stay as they are.
    `parts`: what this machine holds, by PCI address, as far as it could be read.
    `labels`: the Node's own, empty while the Node was not read. `expected`: the GPUs that NodeHealth.spec.expected asks
    for, in the words of `expected_source`. `last_validated`: the most GPUs that were ever counted on this Node while
    every one of them answered (NodeHealth.status.lastValidated), `last_validated_pci` where they were, as far as that is
    remembered. None = nobody says.
    `expected_ports`, `expected_rate_mbps`: the compute fabric's active ports and their rate that NodeHealth.spec.expected
    asks for, in the words of `expected_ports_source`; `peer_ports`, `peer_rate_mbps`: what most of `peers_counted` other
    nodes of this kind show (NodeHealth.spec.peers); `last_validated_ports`, `last_validated_rate_mbps`: what this Node
    showed itself while all was well (NodeHealth.status.lastValidated).
    `nvml`: whether this agent asks NVML at all. `bus`: the PCI addresses of the GPUs that sysfs shows, None while it could
    not be read; `bus_error` is why the newest try failed, and then `bus` is the last good reading.
    `looked_at`: the sources of `checks.observation` that are looked at every so often here; what is not among them nobody
    reads. `drills`: the findings that a person asked for (NodeHealth.spec.drills).
    `holders`: the pods that have each GPU now, as namespace/name (several with commas between), under the GPU's UUID and
    under its PCI address; a GPU that no pod has, or of which kubelet says nothing, is not among them.
    """

    boot_id: str
    cleared_before: datetime | None = None
    clearings: tuple[Clearing, ...] = ()
    parts: tuple[Part, ...] = ()
    labels: Mapping[str, str] = {}
    expected: int | None = None
    expected_source: str = ""
    last_validated: int | None = None
    last_validated_pci: tuple[str, ...] = ()
    expected_ports: int | None = None
    expected_rate_mbps: int | None = None
    expected_ports_source: str = ""
    peer_ports: int | None = None
    peer_rate_mbps: int | None = None
    peers_counted: int = 0
    last_validated_ports: int | None = None
    last_validated_rate_mbps: int | None = None
    nvml: bool = False
    bus: tuple[str, ...] | None = None
    bus_error: str = ""
    looked_at: tuple[str, ...] = ()
    holders: Mapping[str, str] = {}
    drills: tuple[Drill, ...] = ()


class Context(MachineFacts, frozen=True, kw_only=True):
    """What a judgement may depend on beside observations.

    `watched_ms`: how long this agent has watched since its judgement before, by a clock that nobody sets; 0 at its first.
    None where there is no such clock: then the dates of the judgements must do.
    """

    now: datetime
    watched_ms: int | None = None
    settings: dict[str, Any] = {}


class NotEvaluated(msgspec.Struct, frozen=True, kw_only=True):
    """What this hardware or configuration cannot show: said openly, never Unknown, never blocking."""

    check: str
    part: str
    why: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """All that a check has to say now. `memory` is opaque JSON-able state that survives restarts of the agent.

    `not_yet` says why nothing can be said so far (the source was never read, and has not failed three times): a
    condition is then left exactly as it stands, and not published where there is none. A finding outranks it. Whoever
    does not heed it sees `unreadable`, which is set with it: reading nothing is never False.

    `exists` says whether the class has a part on this machine, where the check knows better than `applies`: a GPU that is
    expected and gone is a part of its class, and what cannot be seen here at all is none.
    """

    findings: tuple[Finding, ...] = ()
    unreadable: Unreadable | None = None
    not_yet: str = ""
    exists: bool | None = None
    not_evaluated: tuple[NotEvaluated, ...] = ()
    memory: Any = None


class FaultClass(msgspec.Struct, frozen=True, kw_only=True):
    """What is public of a fault class, whoever publishes it: its condition, the reasons, the run-book.

    `condition` is empty for a class of warnings alone: it has no condition on the Node, and what it finds is shown in
    NodeHealth, Events and metrics. Such a class has no reason that is a fault, and none of Unknown.
    `unknown_reasons` are the reasons of its Unknown condition, with their run-book text; their effect is none.
    """

    name: str
    condition: str
    healthy: Healthy
    reasons: tuple[Reason, ...]
    runbook: str
    unknown_reasons: tuple[Reason, ...] = ()


class Check(FaultClass, frozen=True, kw_only=True):
    """A fault class that the agent judges. `applies(parts)` says whether it exists on a machine that holds these parts.

    `restore(findings, memory)` gives a memory that holds these latched findings of the present boot too: the agent read
    them back from NodeHealth, which knows more than its own state where that was lost or could not be saved; of two
    accounts of one finding the newer one counts. None where the class is probed anew and latches nothing.
    `single_look` are settings that take the place of others where there is one look and nobody comes back for the next.
    `why_settings` gives the reason for each default, with its source, for the generated documentation. `part_kind` is what
    most of its findings are about.
    """

    judge: Callable[[Sequence[Observation], Any, Context], Judgement]
    applies: Callable[[Sequence[Part]], bool]
    memory_type: Any
    default_settings: dict[str, Any] = {}
    restore: Callable[[Sequence[Finding], Any], Any] | None = None
    single_look: dict[str, Any] = {}
    why_settings: dict[str, str] = {}
    part_kind: PartKind = PartKind.GPU


def discover() -> tuple[Check, ...]:
    """Load every check of this package, by name. Raises CheckDefect as `documented` does."""
    return tuple(one for one in documented() if isinstance(one, Check))


def documented() -> tuple[FaultClass, ...]:
    """Load every fault class of this package: the checks by name, and after them what others than the agent publish.

    Raises CheckDefect for a reason or condition that two classes claim, or a reason without run-book text.
    """
    import checks

    found: list[FaultClass] = []
    for module_info in pkgutil.iter_modules(checks.__path__):
        module = importlib.import_module(f"checks.{module_info.name}")
        kept = (getattr(module, name, None) for name in ("CHECK", "FAULT_CLASS"))
        found += [one for one in kept if isinstance(one, FaultClass)]
    _refuse_double_names(found)
    return tuple(sorted(found, key=lambda one: (not isinstance(one, Check), one.name)))


def _refuse_double_names(found: Sequence[FaultClass]) -> None:
    seen: dict[str, str] = {}
    for check in found:
        reasons = (*check.reasons, *check.unknown_reasons)
        if not check.condition and any(reason.severity is Severity.FAULT for reason in reasons):
            raise CheckDefect(f"checks/{check.name}: a class without a condition has warnings alone")
        for name in (check.condition, *(reason.name for reason in reasons)):
            if name and name in seen:
                raise CheckDefect(f"checks/{check.name}: {name} is already claimed by checks/{seen[name]}")
            seen[name] = check.name
        for reason in reasons:
            if not reason.runbook.strip() or not reason.summary.strip():
                raise CheckDefect(f"checks/{check.name}: reason {reason.name} has no run-book text")
