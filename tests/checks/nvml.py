"""Builders of what NVML says, and a machine that is judged step by step: half a minute a step, as an agent does."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from checks.check import Check, Clearing, Context, Judgement
from checks.condition import Condition, fold
from checks.finding import Part, PartKind
from checks.gpu_health import GpuHealth, NvmlRefusal
from checks.nvml_error import MEANINGS
from checks.observation import (
    GpuReading,
    NvmlError,
    NvmlFailed,
    NvmlHung,
    NvmlRead,
    NvmlReleased,
    Observation,
)
from tests.checks.kernel import BOOT, at

ROUND_S = 30.0


def pci(number: int) -> str:
    """Give the address of GPU `number`."""
    return f"0000:{number + 0x10:02x}:00"


def uuid(number: int) -> str:
    return f"GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8{number:02x}"


def error(code: int, call: str = "nvmlDeviceGetSerial") -> NvmlError:
    meaning = MEANINGS.get(code)
    return NvmlError(call=call, code=code, name=meaning.name if meaning is not None else f"Code{code}")


def gpu(number: int, *codes: int, quiet: str = "") -> GpuReading:
    """Build a GPU that answers, beside errors of these codes."""
    errors = tuple(error(code) for code in codes)
    return GpuReading(
        index=number, pci=pci(number), uuid=uuid(number), model="NVIDIA H100", errors=errors, quiet=quiet
    )


def healthy(number: int, health: GpuHealth | None, **fields: Any) -> GpuReading:
    """Build a GPU that says this of its health; `fields` are those of the reading."""
    return msgspec.structs.replace(gpu(number), health=health, **fields)


def refusal(code: int = 999, call: str = "nvmlDeviceGetRemappedRows") -> NvmlRefusal:
    """Build the error that one call about health gave."""
    meaning = MEANINGS.get(code)
    return NvmlRefusal(call=call, code=code, name=meaning.name if meaning is not None else f"Code{code}")


def dead(number: int, code: int, *, known: bool = True) -> GpuReading:
    """Build a GPU whose handle cannot be had; `known`: its address is remembered."""
    return GpuReading(
        index=number,
        pci=pci(number) if known else "",
        errors=(error(code, "nvmlDeviceGetHandleByIndex_v2"),),
    )


def read(*gpus: GpuReading, seconds: float = 0, child: int = 1, count: int | None = None) -> NvmlRead:
    """Build a round; without GPUs one of eight sound ones."""
    gpus = gpus or tuple(gpu(number) for number in range(8))
    return NvmlRead(
        seen_at=at(seconds),
        child=child,
        driver="580.95.05",
        library="13.580.95.05",
        count=len(gpus) if count is None else count,
        gpus=gpus,
    )


def sound(count: int, *, seconds: float = 0, child: int = 1) -> NvmlRead:
    """Build a round of the first `count` GPUs, all of them sound."""
    return read(*(gpu(number) for number in range(count)), seconds=seconds, child=child, count=count)


def failed(
    code: int = 9, *, seconds: float = 0, since: float = 0, child: int = 2, fresh: bool = True
) -> NvmlFailed:
    return NvmlFailed(
        seen_at=at(seconds),
        child=child,
        error=error(code, "nvmlInitWithFlags"),
        since=at(since),
        fresh=fresh,
    )


def hung(
    number: int | None = None, *, seconds: float = 0, since: float = 0, child: int = 1, gone: bool = False
) -> NvmlHung:
    """Build a call that hangs on GPU `number`, or on none in particular."""
    return NvmlHung(
        seen_at=at(seconds),
        child=child,
        call="nvmlDeviceGetCount_v2" if number is None else "nvmlDeviceGetUUID",
        pci="" if number is None else pci(number),
        uuid="" if number is None else uuid(number),
        since=at(since),
        child_gone=gone,
    )


def released(seconds: float = 0, why: str = "label nvidia.com/gpu-driver-upgrade-state") -> NvmlReleased:
    return NvmlReleased(seen_at=at(seconds), why=why)


def later(observation: Observation, seconds: float) -> Observation:
    """Give the same observation as made at another instant."""
    return msgspec.structs.replace(observation, seen_at=at(seconds))


class Watched:
    """One check on one machine, judged every half minute; `status` and `reason` are the Node condition's."""

    def __init__(
        self,
        check: Check,
        *,
        bus: int | None = 8,
        labels: Mapping[str, str] | None = None,
        expected: int | None = None,
        last_validated: int | None = None,
        nvml: bool = True,
        **settings: Any,
    ) -> None:
        self.check = check
        self.seconds = 0.0
        self.judgement = Judgement()
        self.condition: Condition | None = None
        self.parts: tuple[Part, ...] = ()
        self.context = Context(
            now=at(0),
            boot_id=BOOT,
            labels=labels or {},
            expected=expected,
            last_validated=last_validated,
            nvml=nvml,
            settings={**check.default_settings, **settings},
        )
        self.on_bus(bus)

    def on_bus(self, numbers: int | Sequence[int] | None, error: str = "") -> "Watched":
        """Set which GPUs sysfs shows; None: it was never read."""
        shown = None if numbers is None else range(numbers) if isinstance(numbers, int) else numbers
        bus = None if shown is None else tuple(pci(number) for number in shown)
        parts = tuple(Part(kind=PartKind.GPU, pci=pci(number), index=number) for number in (shown or ()))
        self.set(bus=bus, bus_error=error, parts=parts)
        return self

    def set(self, **fields: Any) -> "Watched":
        """Change what surrounds the machine."""
        self.context = msgspec.structs.replace(self.context, **fields)
        return self

    def hears(self, *observations: Observation, now: datetime | None = None) -> "Watched":
        """Judge at this instant what was said at this instant."""
        self.context = msgspec.structs.replace(self.context, now=now or at(self.seconds))
        said = [later(seen, self.seconds + number / 1000) for number, seen in enumerate(observations)]
        self.judgement = self.check.judge(said, self.judgement.memory, self.context)
        self._fold()
        return self

    def waits(self, seconds: float, *observations: Observation) -> "Watched":
        """Let time pass; the observations are made anew every half minute."""
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds = min(self.seconds + ROUND_S, end)
            self.hears(*observations)
        return self

    def is_cleared(self) -> "Watched":
        """Let somebody deal with all that was seen so far."""
        return self.set(cleared_before=at(self.seconds))

    def gpu_is_cleared(self, number: int) -> "Watched":
        """Let a repair of one GPU be proven."""
        return self.set(clearings=(Clearing(pci=pci(number), uuid=uuid(number), before=at(self.seconds)),))

    def _fold(self) -> None:
        """Do what the agent does with a judgement."""
        judgement = self.judgement
        faults = any(finding.severity == "Fault" for finding in judgement.findings)
        if judgement.exists is False:
            self.condition = None
        elif faults or not judgement.not_yet:
            self.condition = fold(
                self.check.condition,
                findings=judgement.findings,
                unreadable=judgement.unreadable,
                healthy=self.check.healthy,
                previous=self.condition,
                now=self.context.now,
            )

    @property
    def shown(self) -> str:
        """Give status and reason as `True GpuLost`, empty where nothing is published."""
        return f"{self.condition.status} {self.condition.reason}" if self.condition is not None else ""

    @property
    def message(self) -> str:
        return self.condition.message if self.condition is not None else ""

    @property
    def rows(self) -> list[str]:
        """Give why something is not evaluated."""
        return [row.why for row in self.judgement.not_evaluated]

    @property
    def reasons(self) -> list[str]:
        return sorted(finding.reason for finding in self.judgement.findings)
