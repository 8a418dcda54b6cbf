"""What the agent's log says of NVML: one line for each change of state, none for a round that went as the one before."""

from collections.abc import Iterable, Mapping

import structlog

from agent.nvml_keeper import Keeper
from checks.observation import NvmlError, NvmlHung, NvmlRead, NvmlReleased, Observation, SourceFailed


class NvmlLog:
    """Remembers what was said last."""

    def __init__(self) -> None:
        self._log = structlog.get_logger()
        self._state = ""
        self._quiet: Mapping[str, str] = {}
        self._events_error: NvmlError | None = None

    def note(self, keeper: Keeper, observations: Iterable[Observation]) -> None:
        """Say what is new."""
        for seen in observations:
            match seen:
                case NvmlRead() if self._is_new(f"read {seen.driver} {seen.count}"):
                    self._log.info("nvml.read", driver=seen.driver, gpus=seen.count, child=seen.child)
                case SourceFailed() if self._is_new(f"failed {seen.error}"):
                    self._log.warning("nvml.failed", error=seen.error)
                case NvmlReleased() if self._is_new(f"released {seen.why}"):
                    self._log.info("nvml.released", why=seen.why)
                case NvmlHung():
                    self._log.error("nvml.hung", call=seen.call, pci=seen.pci, child_gone=seen.child_gone)
                case _:
                    pass
        self._note_quiet(keeper.quiet)
        if keeper.events_error != self._events_error:
            self._events_error = keeper.events_error
            error = self._events_error
            self._log.info("events.changed", error=f"{error.call}: {error.name}" if error is not None else "")

    def _is_new(self, state: str) -> bool:
        new, self._state = state != self._state, state
        return new

    def _note_quiet(self, quiet: Mapping[str, str]) -> None:
        for pci in sorted(quiet.keys() - self._quiet.keys()):
            self._log.warning("gpu.silenced", pci=pci, why=quiet[pci])
        for pci in sorted(self._quiet.keys() - quiet.keys()):
            self._log.info("gpu.resumed", pci=pci)
        self._quiet = dict(quiet)
