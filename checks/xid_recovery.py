"""What the driver wants done to a GPU (XID 154, NVML's field 230), joined with the XIDs that came near it in time. Pure.

XID 154 has no cause of its own. It becomes a finding of its own that names the XIDs near it, and takes the place of their
action, where it asks for a repair of the GPU. Where the line was lost, or was never written (the driver squashes some, and
does not log the first change), the polled field says the same. Of several wishes the driver's own order decides: reboot >
reset > drain and reset > drain P2P > IMEX > none; the strongest stands until the driver says None.

"To None", in a line or polled after something else, is the driver's word that the GPU has recovered: its wishes end, and
with a wish that was about the GPU itself all findings of that GPU that a reset ends. What only a new board ends stays
(XID 64, and XID 48 or 119 that came back after such a recovery), and so does a fall from the bus.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from checks.finding import Action, Effect, Finding, Part, Reason, Severity, Urgency
from checks.reason_rows import fault
from checks.recovery import CODE, Recovery, of_number, of_text
from checks.standing import CONFIRMED_EVERY
from checks.xid_lately import KEPT, Lately, near
from checks.xid_ledger import Ledger
from checks.xid_reasons import FALLEN_OFF_BUS, XID_REASONS

RECOVERY_CHANGED = XID_REASONS[CODE]
"""Shown where the line does not say what the driver wants."""
FOLLOWERS = frozenset({43, 45})
"""Consequences of another XID: never a cause."""
IMEX_NUMBER = 5
MOST_CAME_BACK = 64
_FROM = re.compile(r"recovery action changed from 0x([0-9a-f]{1,8})\b", re.IGNORECASE)
_IMEX = re.compile(r"\bto\s+0x5\b|\(recover imex domain\)\s*$", re.IGNORECASE)


class Wish(StrEnum):
    """What the driver wants, weakest first."""

    IMEX = "IMEX"
    DRAIN_P2P = "DRAIN_P2P"
    DRAIN_AND_RESET = "DRAIN_AND_RESET"
    RESET_GPU = "RESET_GPU"
    REBOOT = "REBOOT"


RANK = {wish: rank for rank, wish in enumerate(Wish)}
SOFT = frozenset({Wish.IMEX, Wish.DRAIN_P2P})
"""About the GPU's surroundings: they say nothing of the state of the GPU itself, and their end does not either."""
_WISHES: Mapping[Recovery, Wish] = MappingProxyType(
    {
        Recovery.RESTART_BM: Wish.REBOOT,
        Recovery.RESET_GPU: Wish.RESET_GPU,
        Recovery.DRAIN_AND_RESET: Wish.DRAIN_AND_RESET,
        Recovery.DRAIN_P2P: Wish.DRAIN_P2P,
    }
)
_SOURCE = (
    " The finding names the XIDs near it in time, which are its cause: XID 154 and NVML's field 230 only sum them up. It "
    "ends when the driver says None again, with a new boot, or with a clearing."
)
RECOVERY_REASONS: Mapping[Wish, Reason] = MappingProxyType(
    {
        Wish.REBOOT: fault(
            "RecoveryNodeReboot",
            Effect.NODE_OUT,
            Urgency.NOW,
            Action.REBOOT,
            "The driver asks for a reboot of the node: a fault may have left the operating system inconsistent",
            "A reset of the GPU is not enough. nodemend keeps new work off, drains the node and reboots it. If it comes "
            "back on the same GPU after the reboot, ask for its replacement." + _SOURCE,
        ),
        Wish.RESET_GPU: fault(
            "RecoveryGpuReset",
            Effect.PART_OUT,
            Urgency.NOW,
            Action.RESET_GPU,
            "The driver asks for a reset of the GPU: it cannot be used before",
            "nodemend keeps new work off, drains it and brings the GPU back through a reset or a reboot. By hand: end all "
            "its processes, then `nvidia-smi --gpu-reset -i INDEX`." + _SOURCE,
        ),
        Wish.DRAIN_AND_RESET: fault(
            "RecoveryDrainAndReset",
            Effect.PART_OUT,
            Urgency.WHEN_IDLE,
            Action.RESET_GPU,
            "The driver asks to drain the GPU and then to reset it: it works at reduced capacity",
            "What runs is not affected and is let finish; nothing new starts on the GPU, then it is reset."
            + _SOURCE,
        ),
        Wish.DRAIN_P2P: fault(
            "RecoveryDrainP2p",
            Effect.NO_MULTI_GPU,
            Urgency.WHEN_IDLE,
            Action.RESET_GPU,
            "The driver asks to stop the traffic between this GPU and its peers",
            "Work on one GPU goes on. Once nothing uses peer access any more the driver says what it wants next, a reset "
            "or nothing: see `nvidia-smi -q -d RECOVERY`. nodemend resets the GPU once it is idle." + _SOURCE,
        ),
        Wish.IMEX: fault(
            "RecoveryImexDomain",
            Effect.NO_MULTI_NODE,
            Urgency.PERSON,
            Action.CONTACT_SUPPORT,
            "The driver asks to recover the IMEX domain: memory of GPUs on other nodes cannot be reached",
            "The fault is in the domain of several nodes, not in this GPU. Look at nvidia-imex on all nodes of the domain "
            "(`nvidia-imex-ctl -N`) and restart it there; in Kubernetes look at the ComputeDomain." + _SOURCE,
        ),
    }
)
_BY_NAME = {reason.name: wish for wish, reason in RECOVERY_REASONS.items()}
_XID_ROWS = {reason.name: (code, reason) for code, reason in XID_REASONS.items()}
# What only another board ends: a remap that failed, and what came back after the driver had said that it was well.
_NEEDS_A_BOARD = frozenset({XID_REASONS[64].name})
_ONCE_ONLY = frozenset({XID_REASONS[48].name, XID_REASONS[119].name})
_STAYS = _NEEDS_A_BOARD | {XID_REASONS[FALLEN_OFF_BUS].name}


def wish_of_text(text: str) -> Wish | Recovery:
    """Read the text of a 154: a wish, Recovery.NONE, or Recovery.UNKNOWN where it says nothing that can be acted on."""
    told = of_text(text)
    if told is Recovery.UNKNOWN and _IMEX.search(text):
        return Wish.IMEX
    return _WISHES.get(told, told)


def wish_of_number(number: int) -> Wish | Recovery:
    """Read NVML's field 230 in the same way."""
    if number == IMEX_NUMBER:
        return Wish.IMEX
    told = of_number(number)
    return _WISHES.get(told, told)


class Recoveries:
    """Mutable only inside one judgement. `came_back` holds the keys of findings that a recovery ended in this boot."""

    def __init__(
        self,
        ledger: Ledger,
        standing: Iterable[Finding],
        lately: Lately,
        came_back: tuple[str, ...],
        *,
        within: timedelta,
        settles: timedelta,
    ) -> None:
        self._ledger = ledger
        self._lately = lately
        self._within = within
        self._settles = settles
        self._wanted: dict[str, Finding] = {}
        self.came_back = came_back
        self.recovered: dict[str, datetime] = {}
        """GPUs that the driver called well in this judgement, by PCI address."""
        for finding in standing:
            if finding.reason in _BY_NAME and not finding.drill:
                self._wanted[finding.part.key()] = self._stronger(finding)

    def told(self, gpu: Part, when: datetime, text: str, line: str, holder: str) -> Wish | Recovery:
        """Take an XID 154; UNKNOWN is given back untouched, for the caller to show."""
        wish = wish_of_text(text)
        if isinstance(wish, Wish):
            self._want(gpu, wish, when, line, "XID 154", holder)
        elif wish is Recovery.NONE:
            came_from = _FROM.search(text)
            told = wish_of_number(int(came_from[1], 16)) if came_from else Recovery.UNKNOWN
            self._recovered(gpu, when, told)
        return wish

    def polled(self, gpu: Part, number: int, when: datetime, holder: str, now: datetime) -> None:
        """Take the field that NVML gave in one round; a round about when a line of 154 came may be from before it.

        A round of now is no older than what stands dated far ahead: the clock was set back since that was seen.
        """
        said_at = self._lately.at(gpu.pci, CODE)
        if said_at is not None and -KEPT < when - said_at < self._settles:
            return
        wish = wish_of_number(number)
        held = self._wanted.get(gpu.key())
        if wish is Recovery.NONE:
            is_now = near(when, now, KEPT)
            if held is not None and (
                when - self._last(held) >= self._settles or (is_now and self._last(held) - now > KEPT)
            ):
                self._recovered(gpu, when, Recovery.UNKNOWN, now if is_now else None)
        elif isinstance(wish, Wish):
            line = f"NVML field 230 (recovery action) reads {number}"
            if held is None or RANK[_BY_NAME[held.reason]] < RANK[wish]:
                self._want(gpu, wish, when, line, "NVML", holder)
            elif when - self._last(held) >= CONFIRMED_EVERY:
                self._ledger.see(RECOVERY_REASONS[_BY_NAME[held.reason]], gpu, when, "", count=0)
        else:
            words = f"NVML field 230 (recovery action) reads {number}, which is not known"
            if self._ledger.seen(RECOVERY_CHANGED, gpu) is None:
                self._ledger.see(RECOVERY_CHANGED, gpu, when, words, detail=words)

    def on_xid(self, gpu: Part, code: int, reason: Reason, when: datetime) -> None:
        """Join a new XID with what the driver wanted near it."""
        held = self._wanted.get(gpu.key())
        if held is None:
            return
        wanted = RECOVERY_REASONS[_BY_NAME[held.reason]]
        sights = self._ledger.seen(wanted, gpu)
        if sights is None or not any(near(when, sight, self._within) for sight in sights):
            return
        told = self._ledger.find(wanted, gpu)
        if code not in FOLLOWERS and told and not re.search(rf"\bXID {code}\b", told.detail):
            self._ledger.note(wanted, gpu, f"with XID {code}")
        finding = self._ledger.find(reason, gpu)
        if finding is not None:
            self._override(finding, wanted)

    def holds(self, gpu: Part) -> bool:
        """Tell whether the driver wants something of this GPU."""
        return gpu.key() in self._wanted

    def _last(self, held: Finding) -> datetime:
        sights = self._ledger.seen(RECOVERY_REASONS[_BY_NAME[held.reason]], held.part)
        return held.last_seen if sights is None else sights[1]

    def _stronger(self, finding: Finding) -> Finding:
        held = self._wanted.get(finding.part.key())
        if held is None or RANK[_BY_NAME[held.reason]] < RANK[_BY_NAME[finding.reason]]:
            return finding
        return held

    def _want(self, gpu: Part, wish: Wish, when: datetime, line: str, said: str, holder: str) -> None:
        held = self._wanted.get(gpu.key())
        if held is not None and RANK[_BY_NAME[held.reason]] > RANK[wish]:
            wish = _BY_NAME[held.reason]
        reason = RECOVERY_REASONS[wish]
        self._ledger.see(reason, gpu, when, line, detail=self._causes(gpu, when, said), holder=holder)
        for finding in self._ledger.on(gpu):
            if finding.reason == reason.name:
                self._wanted[gpu.key()] = finding
            elif finding.reason in _BY_NAME:
                self._ledger.absorb(reason, gpu, finding, f"before that {finding.action}")
            elif near(finding.last_seen, when, self._within):
                self._override(finding, reason)

    def _causes(self, gpu: Part, when: datetime, said: str) -> str:
        codes = self._lately.codes(gpu.pci, when, self._within)
        causes = [f"XID {code}" for code in codes if code not in FOLLOWERS and code != CODE]
        return f"{said}, after {', '.join(causes)}" if causes else said

    def _override(self, finding: Finding, wanted: Reason) -> None:
        """Let the driver's wish decide what ends an XID; it never makes a fault less urgent than its own row does."""
        code, row = _XID_ROWS.get(finding.reason, (0, None))
        if _BY_NAME[wanted.name] in SOFT or code == FALLEN_OFF_BUS or finding.reason == RECOVERY_CHANGED.name:
            return  # what is off the bus cannot be reached by a reset
        if row is None and not finding.reason.startswith("Xid"):
            return
        stays = finding.urgency is Urgency.NOW or finding.severity is not Severity.FAULT
        urgency = finding.urgency if stays else wanted.urgency
        self._ledger.ask(finding, wanted.action, urgency, f"the driver asks for {wanted.name}")

    def _recovered(
        self, gpu: Part, when: datetime, came_from: Wish | Recovery, now: datetime | None = None
    ) -> None:
        held = self._wanted.pop(gpu.key(), None)
        wish = _BY_NAME[held.reason] if held is not None else came_from
        if wish not in SOFT:
            self.recovered[gpu.pci] = when
        for finding in self._ledger.on(gpu):
            is_dated_ahead = now is not None and finding.last_seen - now > KEPT
            if finding.last_seen > when and not is_dated_ahead:
                continue
            if finding.reason in _BY_NAME or (wish not in SOFT and self._ends(finding)):
                self._ledger.end(finding)

    def _ends(self, finding: Finding) -> bool:
        """Tell whether the driver's word that the GPU is well ends a finding, and remember it where a second time counts."""
        _, row = _XID_ROWS.get(finding.reason, (0, None))
        by_row = finding.action if row is None else row.action
        if finding.severity is not Severity.FAULT or finding.reason in _STAYS:
            return False
        if by_row is not Action.RESET_GPU and finding.action is not Action.RESET_GPU:
            return False
        if finding.reason in _ONCE_ONLY:
            key = f"{finding.reason} {finding.part.key()}"
            if key in self.came_back:
                return False
            self.came_back = (*self.came_back, key)[-MOST_CAME_BACK:]
        return True
