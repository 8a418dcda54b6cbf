"""One round of NVML in the child: versions, count, and what each GPU is, as plain values for one line of JSON.

What concerns NVML as a whole ends the round with a `failed` message; what concerns one GPU stands in that GPU's `errors`
and the others are asked all the same. A GPU that the agent wants left alone is not touched: then the others are found by
their PCI address, because asking by index asks whatever stands there.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agent.host.nvml_asked import ASK_AGAIN_S, Asked, Memory
from agent.host.nvml_binding import Binding
from agent.host.nvml_codes import (
    ABSENT,
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    NOT_FOUND,
    OF_THE_DRIVER,
    PASSING,
    Refused,
    error_of,
)
from agent.host.nvml_health import PLAIN, health_of

# The driver counts GPUs with 32 bits; no machine has more than this.
MOST_GPUS = 256

Order = dict[str, Any]
"""What the agent asks: `round` number, `known` as [index, pci], `quiet` as [pci], `by_pci`."""


class Watched:
    """One GPU of the last round whose events may be waited for."""

    def __init__(self, handle: Any, index: int, pci: str, uuid: str) -> None:
        self.handle = handle
        self.index = index
        self.pci = pci
        self.uuid = uuid


class Failed(Exception):
    """NVML as a whole cannot be used: the round is over."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class Rounds:
    """Owns what is kept from round to round in one process: that NVML was initialised, and what each GPU does not have."""

    def __init__(self, binding: Binding, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.watched: list[Watched] = []
        self._nvml = binding
        self._monotonic = monotonic
        self._initialised = False
        self._absent: set[tuple[str, str]] = set()
        self._absent_since = monotonic()
        self._memories: dict[str, Memory] = {}
        self._usable_mib: dict[str, int] = {}
        self._spent: dict[str, float] = {}

    def run(self, order: Order) -> dict[str, Any]:
        """Give the message that answers one order."""
        self._spent = {}
        self.watched = []
        self._nvml.about = (-1, "")
        if self._monotonic() - self._absent_since > ASK_AGAIN_S or len(self._memories) > MOST_GPUS:
            self._absent, self._absent_since, self._memories = set(), self._monotonic(), {}
            self._usable_mib = {}
        try:
            message = self._round(order)
        except Failed as failed:
            return {"k": "failed", "n": order["round"], "error": error_of(failed.refused)}
        finally:
            self._nvml.about = (-1, "")
        message["spent_us"] = {group: int(spent * 1e6) for group, spent in self._spent.items()}
        return message

    def _round(self, order: Order) -> dict[str, Any]:
        if not self._initialised:
            self._of_nvml("init", self._nvml.init)
            self._initialised = True
        driver = self._of_nvml("system", self._nvml.driver_version)
        library = self._of_nvml("system", self._nvml.library_version)
        count = min(self._of_nvml("system", self._nvml.count), MOST_GPUS)
        by_pci = order["by_pci"] or bool(order["quiet"])
        gpus = self._by_pci(order["known"], order["quiet"]) if by_pci else self._by_index(count)
        return {
            "k": "round",
            "n": order["round"],
            "driver": driver,
            "library": library,
            "count": count,
            "gpus": list(gpus),
        }

    def _of_nvml(self, group: str, call: Callable[[], Any]) -> Any:
        try:
            return self._asked(group, call)
        except Refused as refused:
            raise Failed(refused) from None

    def _by_index(self, count: int) -> Iterable[dict[str, Any]]:
        for index in range(count):
            self._nvml.about = (index, "")
            gpu: dict[str, Any] = {"index": index, "errors": []}
            handle = self._get(gpu, "handles", "", partial(self._nvml.by_index, index))
            if handle is not None:
                self._get(gpu, "identity", "pci", partial(self._nvml.pci, handle))
                self._describe(gpu, handle)
            yield gpu

    def _by_pci(self, known: list[list[Any]], quiet: list[str]) -> Iterable[dict[str, Any]]:
        for index, pci in known:
            if pci in quiet:
                continue
            self._nvml.about = (index, pci)
            gpu: dict[str, Any] = {"index": index, "pci": pci, "errors": []}
            handle = self._get(gpu, "handles", "", partial(self._nvml.by_pci, pci))
            if handle is not None:
                self._get(gpu, "identity", "index", partial(self._nvml.index, handle))
                self._describe(gpu, handle)
            elif gpu["errors"] and gpu["errors"][-1]["code"] in {NOT_FOUND, GPU_NOT_FOUND}:
                continue  # only sysfs shows it: the driver does not count it
            yield gpu

    def _describe(self, gpu: dict[str, Any], handle: Any) -> None:
        nvml, pci = self._nvml, gpu.get("pci", "")
        nvml.about = (gpu["index"], pci)
        calls = (
            ("uuid", nvml.uuid),
            ("serial", nvml.serial),
            ("model", nvml.name),
            ("minor", nvml.minor),
            ("mig", nvml.mig),
        )
        for field, call in calls:
            self._get(gpu, "identity", field, partial(call, handle))
        self._tell_memory(gpu, handle)
        if gpu.get("mig"):
            self._get(gpu, "identity", "mig_devices", partial(nvml.mig_devices, handle))
        asked = Asked(nvml, self._asked, handle, self._memory(pci, mig=bool(gpu.get("mig"))))
        asked.plain_fields(PLAIN)
        self._get(gpu, "", "recovery", asked.recovery)
        if not any(error["code"] == GPU_IS_LOST for error in gpu["errors"]):
            self._examine(gpu, asked)
        self.watched.append(Watched(handle, gpu["index"], pci, gpu.get("uuid", "")))

    def _tell_memory(self, gpu: dict[str, Any], handle: Any) -> None:
        """Tell what programs may use of its memory: a constant, so it is asked for once."""
        pci = gpu.get("pci", "")
        if pci in self._usable_mib:
            gpu["memory_mib"] = self._usable_mib[pci]
            return
        usable = self._get(gpu, "identity", "memory_mib", partial(self._nvml.usable_memory, handle))
        if pci and usable is not None:
            self._usable_mib[pci] = usable

    def _examine(self, gpu: dict[str, Any], asked: Asked) -> None:
        """Ask for its health. What is refused there for a reason that concerns the whole GPU is an error of the GPU too."""
        mig_is_known = not any(error["call"] == "nvmlDeviceGetMigMode" for error in gpu["errors"])
        try:
            gpu["health"] = health_of(asked, with_links=mig_is_known and not gpu.get("mig"))
        except Refused as refused:
            raise Failed(refused) from None
        for whole in asked.of_the_gpu:
            if all(error["code"] != whole.code for error in gpu["errors"]):
                gpu["errors"].append(error_of(whole))

    def _memory(self, pci: str, *, mig: bool) -> Memory:
        """Give what is kept of the GPU at an address; nothing of one whose address is not known."""
        memory, now = self._memories.get(pci), self._monotonic()
        if memory is None or not memory.holds(now, mig):
            memory = Memory(now, mig)
            if pci:
                self._memories[pci] = memory
        return memory

    def _get(self, gpu: dict[str, Any], group: str, field: str, call: Callable[[], Any]) -> Any:
        """Put one call's value into `gpu[field]` and give it; None where there is none, with the error where it is one."""
        key = (gpu.get("pci", ""), field)
        if key in self._absent:
            return None
        try:
            value = self._asked(group, call)
        except Refused as refused:
            if refused.code in OF_THE_DRIVER:
                raise Failed(refused) from None
            if field and refused.code in ABSENT:
                if key[0]:
                    self._absent.add(key)
            else:
                gpu["errors"].append(error_of(refused))
            return None
        if field:
            gpu[field] = value
        return value

    def _asked(self, group: str, call: Callable[[], Any]) -> Any:
        """Make one call, once more where its answer may pass at once; the time it took is counted to its group."""
        if not group:
            return call()
        began = self._monotonic()
        try:
            try:
                return call()
            except Refused as refused:
                if refused.code not in PASSING:
                    raise
                return call()
        finally:
            self._spent[group] = self._spent.get(group, 0.0) + self._monotonic() - began
