"""XID 13 and 31 come from programs, unless one GPU gives them to programs that have nothing to do with each other. Pure.

NVIDIA's catalogue: suspect the hardware where 13 repeats on the same GPC and TPC, or 31 on the same GPU, for different
programs; spread over GPUs, or of one program, it is the program. What is known of a program is the pod that holds the GPU,
so a sight without a pod counts for nothing. Pods of one workload (a Job's next try, a Deployment's replicas, a gang) are
one program: the endings that Kubernetes gives their names are taken off. A workload that gives these XIDs on several GPUs
is at fault itself. A sight is judged once half a minute has passed, since a job on eight GPUs says it on one of them first.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault

CODES = frozenset({13, 31})
MOST_SIGHTS = 64  # eight GPUs with eight workloads each; the oldest go
ACROSS_PODS = fault(
    "XidRepeatsAcrossPods",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.RESET_GPU,
    "One GPU gives XID 13 or 31 to programs that have nothing to do with each other: suspect the GPU",
    "One such XID is a program's fault. Different workloads that fail alike on one GPU, and on no other, point at the GPU: "
    "for 13 on the same GPC and TPC, for 31 anywhere. nodemend keeps new work off as far as it can, lets running work "
    "finish, resets the GPU and tests it. If it comes back, or the test fails, run the field diagnostic (dcgmi diag -r 4) "
    "and ask for a replacement with the pods and lines of the evidence.",
)

_UNIT = re.compile(r"\bGPC (\d{1,3}), TPC (\d{1,3})\b")
# Register contents that stand beside a line which names the unit.
_REGISTERS = re.compile(r"Graphics Exception: (?:ESR|ChID|Shader)")
# The random ending of a generated name uses only these letters (apimachinery's rand.String); a ReplicaSet's is its hash.
_ENDING = re.compile(r"-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}|\d{1,10})$")
SEVERAL = " and "
"""Stands in a holder that does not name all of its pods."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload had on one GPU: since when, and last. `unit` is GPC and TPC for 13; `judged`: it was weighed."""

    pci: str
    code: int
    unit: str
    workloads: tuple[str, ...]
    since: datetime
    at: datetime
    judged: bool = False


def workload_of(pod: str) -> str:
    """Give the name that the pods of one workload share: `ns/train-0-x7k2p` -> `ns/train`."""
    while (shorter := _ENDING.sub("", pod)) != pod and not shorter.endswith("/"):
        pod = shorter
    return pod


def workloads_of(holder: str) -> tuple[str, ...]:
    """Give the workloads of the pods that have a GPU; none where they are not all named."""
    if not holder or SEVERAL in holder:
        return ()
    return tuple(sorted({workload_of(pod) for pod in holder.split(", ")}))


class Repeats:
    """Mutable only inside one judgement."""

    def __init__(self, sights: Iterable[Sight], window: timedelta) -> None:
        self._sights = {_key(sight): sight for sight in sights}
        self._window = window
        self._latest: datetime | None = None

    def see(self, pci: str, code: int, text: str, holder: str, when: datetime) -> None:
        """Take one XID 13 or 31 of a GPU that `holder` has."""
        unit = ""
        if code == 13:
            found = _UNIT.search(text)
            if found is None and _REGISTERS.match(text):
                return
            unit = f"GPC {found[1]} TPC {found[2]}" if found else ""
        workloads = workloads_of(holder)
        if not workloads:
            return
        self._latest = when
        new = Sight(pci=pci, code=code, unit=unit, workloads=workloads, since=when, at=when)
        held = self._sights.get(_key(new))
        if held is not None:
            self._sights[_key(new)] = msgspec.structs.replace(held, at=when)
        else:
            if len(self._sights) >= MOST_SIGHTS:
                del self._sights[min(self._sights, key=lambda key: self._sights[key].at)]
            self._sights[_key(new)] = new

    def suspects(self, now: datetime, settles: timedelta, pods: int) -> list[tuple[Sight, str]]:
        """Give the sights that make their GPU suspect now, each with the words for it."""
        found: list[tuple[Sight, str]] = []
        for key, sight in list(self._sights.items()):
            if sight.judged or abs(now - sight.since) < settles:
                continue
            self._sights[key] = msgspec.structs.replace(sight, judged=True)
            different = self._different(sight)
            if len(different) >= pods:
                at = f" at {sight.unit}" if sight.unit else ""
                found.append((sight, f"XID {sight.code}{at} in {', '.join(different)}"))
        return found

    def forget(self, pci: str, before: datetime) -> None:
        """Take away what a GPU gave before it recovered."""
        self._sights = {
            key: sight for key, sight in self._sights.items() if sight.pci != pci or sight.at > before
        }

    def kept(self) -> tuple[Sight, ...]:
        """Give what may still count, by the sight that came last: one dated in the future by a wrong clock goes."""
        latest = self._latest
        return tuple(
            sight
            for sight in self._sights.values()
            if latest is None or abs(latest - sight.at) <= self._window
        )

    def _different(self, sight: Sight) -> list[str]:
        """Give workloads that had the same trouble on the same GPU and on no other, none in two of them."""
        different: list[str] = []
        taken: set[str] = set()
        for other in sorted(self._sights.values(), key=lambda one: one.at):
            alike = (other.pci, other.code, other.unit) == (sight.pci, sight.code, sight.unit)
            lately = abs(sight.at - other.at) <= self._window
            if alike and lately and taken.isdisjoint(other.workloads) and not self._is_spread(other):
                different.append("+".join(other.workloads))
                taken.update(other.workloads)
        return different

    def _is_spread(self, sight: Sight) -> bool:
        mine = set(sight.workloads)
        return any(
            other.pci != sight.pci and not mine.isdisjoint(other.workloads) for other in self._sights.values()
        )


def _key(sight: Sight) -> tuple[str, int, str, tuple[str, ...]]:
    return (sight.pci, sight.code, sight.unit, sight.workloads)
