"""What a check finds: one fault on one part, with its meaning and its proof.

A `Finding` is a value. It is built once, from observations, by a check's pure `judge`; it never changes afterwards.
Names of reasons are stable API: alerts and policies name them, so they are deprecated, never renamed.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec


class Severity(StrEnum):
    """WARNING is shown (NodeHealth, Events, metrics) and never turns a condition True; FAULT turns it True."""

    WARNING = "Warning"
    FAULT = "Fault"


class Effect(StrEnum):
    """What the fault takes away from new work, from least to most: degraded is not dead."""

    NONE = "none"
    PREFER_NOT = "prefer-not"
    NO_MULTI_NODE = "no-multi-node"
    NO_MULTI_GPU = "no-multi-gpu"
    PART_OUT = "part-out"
    NODE_OUT = "node-out"


EFFECT_RANK = {effect: rank for rank, effect in enumerate(Effect)}


class Urgency(StrEnum):
    """When the repair may happen: at the price of running work, once the part is idle, or by a person."""

    WHEN_IDLE = "when-idle"
    PERSON = "person"
    NOW = "now"


class Action(StrEnum):
    """What ends the fault, in NVIDIA's words for the resolution of an XID."""

    NONE = "NONE"
    RESTART_APP = "RESTART_APP"
    RESET_GPU = "RESET_GPU"
    REBOOT = "REBOOT"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"


class PartKind(StrEnum):
    """What kind of part is ill."""

    NODE = "node"
    GPU = "gpu"
    NVSWITCH = "nvswitch"
    PORT = "port"
    MOUNT = "mount"
    DISK = "disk"


class Part(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One part of a machine. `pci` is `dddd:bb:dd` in lower case, without function (as the XID lines give it)."""

    kind: PartKind
    pci: str = ""
    uuid: str = ""
    index: int | None = None
    serial: str = ""
    name: str = ""

    def shown(self) -> str:
        """Name the part for people: `GPU 3 GPU-5d... at 0000:3b:00`."""
        words = [self.kind.value.upper() if self.kind is PartKind.GPU else self.kind.value]
        if self.index is not None:
            words.append(str(self.index))
        words += [word for word in (self.name, self.uuid) if word]
        if self.pci:
            words.append(f"at {self.pci}")
        return " ".join(words)

    def key(self) -> str:
        """Identify the part for as long as the node is up: the PCI address where there is one, a port by its name.

        The ports of one card share its address.
        """
        if self.kind is PartKind.PORT and self.name:
            return self.kind + "/" + self.name
        # Joined, since formatting an enumeration costs several times as much, and this is asked a thousand times a look.
        return self.kind + "/" + (self.pci or self.uuid or self.name)


NODE = Part(kind=PartKind.NODE)
"""The node itself, where no part of it is to be named."""


def has_gpu(parts: Iterable[Part]) -> bool:
    """Tell whether a GPU is among these: the classes about GPUs exist where one is."""
    return any(part.kind is PartKind.GPU for part in parts)


class Named(Protocol):
    """Whatever names a part, empty where it does not know."""

    @property
    def uuid(self) -> str: ...

    @property
    def pci(self) -> str: ...


def is_same_part(one: Named, other: Named) -> bool:
    """Compare by UUID where both have one, else by PCI address."""
    if one.uuid and other.uuid:
        return one.uuid == other.uuid
    return bool(one.pci) and one.pci == other.pci


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the public table of reasons; `summary` is one sentence, `runbook` what on-call does."""

    name: str
    severity: Severity
    effect: Effect
    urgency: Urgency
    action: Action
    summary: str
    runbook: str

    def found_on(
        self,
        part: Part,
        boot_id: str,
        *,
        first_seen: datetime,
        last_seen: datetime,
        count: int = 1,
        drill: bool = False,
        detail: str = "",
    ) -> "Finding":
        """Give a new finding of this reason."""
        return Finding(
            reason=self.name,
            severity=self.severity,
            effect=self.effect,
            urgency=self.urgency,
            action=self.action,
            part=part,
            boot_id=boot_id,
            first_seen=first_seen,
            last_seen=last_seen,
            count=count,
            drill=drill,
            detail=detail,
        )


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault on one part. `evidence` holds raw lines, newest last, bounded in number and length.

    `holder` is the pod, as namespace/name, that held the part when the fault was first seen; empty where none is known.
    """

    reason: str
    severity: Severity
    effect: Effect
    urgency: Urgency
    action: Action
    part: Part
    boot_id: str
    first_seen: datetime
    last_seen: datetime
    count: int = 1
    evidence: tuple[str, ...] = ()
    drill: bool = False
    detail: str = ""
    holder: str = ""

    def key(self) -> tuple[str, str]:
        """Identify the fault: the same reason on the same part is the same fault, seen again."""
        return (self.reason, self.part.key())
