"""One GPU while it is asked for its health: what it answered, what it refused, and what it does not have at all.

What a GPU does not have is remembered for ten minutes and then asked again, and until then not asked: a driver that was
reloaded or a mode that was switched must not leave an answer frozen. While MIG is on nothing is remembered, because its
instances come and go and with them what NVML tells.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agent.host.nvml_binding import Binding, refusal
from agent.host.nvml_codes import (
    ABSENT,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_SHOWN,
    OF_THE_DRIVER,
    OF_THE_GPU,
    Refused,
    error_of,
)
from agent.host.nvml_fields import Answers, Query

ASK_AGAIN_S = 600.0
FIELD_VALUES = "nvmlDeviceGetFieldValues"
# A driver that is older than a field may call its id an invalid argument.
FIELD_NOT_SHOWN = NOT_SHOWN | {INVALID_ARGUMENT}
RECOVERY_ACTION = 230
"""Field: what the driver itself says is needed to bring the GPU back; see GpuReading.recovery."""

Ask = Callable[[str, Callable[[], Any]], Any]
"""Makes a call, once more where its answer may pass at once, and counts its time to a group of calls."""


class Memory:
    """What is kept of one GPU from round to round: what it does not have, and the queries that follow from that."""

    def __init__(self, since: float, mig: bool) -> None:
        self.mig = mig
        self.absent: set[str | int] = set()
        """Field ids, and calls with their arguments."""
        self.links: Any = None
        """agent.host.nvml_links keeps its query here."""
        self.fixed: dict[str, Any] = {}
        """What was told and does not change while a GPU is up."""
        self._since = since
        self._plain: tuple[int, Query] | None = None

    def holds(self, now: float, mig: bool) -> bool:
        """Tell whether it may be relied on."""
        return not mig and not self.mig and now - self._since < ASK_AGAIN_S

    def plain(self, fields: Iterable[int]) -> Query:
        """Give the query of these fields, which have no scope; those that are absent are left out."""
        known = len(self.absent)  # it only grows
        if self._plain is None or self._plain[0] != known:
            self._plain = known, Query((field, 0) for field in fields if field not in self.absent)
        return self._plain[1]


class Lost(Exception):
    """The GPU is gone: whatever else is asked of it gives the same answer, or hangs."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.error = error_of(refused)


class Asked:
    """One GPU while it is asked. Raises Refused from any call that says the driver as a whole cannot be used."""

    def __init__(self, nvml: Binding, ask: Ask, handle: Any, memory: Memory) -> None:
        self.nvml = nvml
        self.memory = memory
        self.errors: dict[str, dict[str, Any]] = {}
        self.of_the_gpu: list[Refused] = []
        """What was refused for a reason that concerns the GPU as a whole."""
        self._ask = ask
        self._handle = handle
        self._answers = Answers()
        self._refused: Refused | None = None

    def fields(self, query: Query) -> Answers:
        """Read fields. Raises Refused where that gave nothing at all."""
        answers: Answers = self._ask("fields", partial(self.nvml.fields, self._handle, query))
        return answers

    def plain_fields(self, fields: Iterable[int]) -> None:
        """Read what has no scope, for all groups."""
        if FIELD_VALUES in self.memory.absent:
            return
        query = self.memory.plain(fields)
        try:
            self._answers = self.fields(query) if query.keys else Answers()
        except Refused as refused:
            self._refused = refused

    def recovery(self) -> int | None:
        """Give field 230, which is no part of any group. Raises Refused."""
        if self._refused is not None:
            raise self._refused
        if code := self._answers.refused.get((RECOVERY_ACTION, 0)):
            if code in ABSENT:
                self.memory.absent.add(RECOVERY_ACTION)
            raise refusal(FIELD_VALUES, code)
        return self._answers.values.get((RECOVERY_ACTION, 0))

    def field(self, group: str, field: int) -> int | None:
        """Give a field that was read; None where it has no value."""
        value = self._answers.values.get((field, 0))
        if value is not None or field in self.memory.absent:
            return value
        if self._refused is not None:
            self.refused(group, self._refused, FIELD_VALUES)
        elif code := self._answers.refused.get((field, 0)):
            if code in FIELD_NOT_SHOWN:
                self.memory.absent.add(field)
            else:
                self.field_refused(group, code)
        return None

    def get(self, group: str, call: str, *arguments: int, read: Callable[..., Any] | None = None) -> Any:
        """Make a call (by default one that gives an unsigned int); None where it has no value."""
        what = f"{call} {arguments}"
        if what in self.memory.absent:
            return None
        try:
            return self._ask("health", partial(read or self.nvml.uint, call, self._handle, *arguments))
        except Refused as refused:
            self.refused(group, refused, what)
            return None

    def get_fixed(self, group: str, call: str, *arguments: int) -> int | None:
        """Do the same for what does not change while a GPU is up: told once, it is not asked again for a while."""
        value: int | None = self.memory.fixed.get(call)
        if value is None:
            value = self.get(group, call, *arguments)
            if value is not None:
                self.memory.fixed[call] = value
        return value

    def field_refused(self, group: str, code: int) -> None:
        """Take that a field which this GPU has gave no value."""
        self.refused(group, refusal(FIELD_VALUES, code), "")

    def refused(self, group: str, refused: Refused, what: str) -> None:
        """Take that a call for a group (empty: for none) gave no value; `what` is remembered where it is not there."""
        if refused.code in OF_THE_DRIVER:
            raise refused
        if refused.code in NOT_SHOWN:
            self.memory.absent.add(what)
            return
        if group:
            self.errors.setdefault(group, error_of(refused))
        if refused.code in OF_THE_GPU:
            self.of_the_gpu.append(refused)
        if refused.code == GPU_IS_LOST:
            raise Lost(refused)
