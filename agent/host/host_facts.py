"""What is looked at of the host itself, from procfs and sysfs, for warnings alone. Nothing is changed or signalled.

procfs is read directly: what psutil would add is a process list with everything in it, at some MiB a node. Each fact that
cannot be read is an entry in `errors`; the others are still told.
"""

import ctypes
import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from agent.host.acs import redirecting_bridges
from agent.host.mountinfo import host_root
from checks.host_reading import FABRIC_MANAGER, KUBELET, PERSISTENCED, HostRead

MOST_PROCESSES = 65536
MOST_NAMED = 64
_NAME = 64
_LIMIT = 1024 * 1024
# A process's own name is cut to 15 characters (TASK_COMM_LEN).
_BY_NAME = {FABRIC_MANAGER: FABRIC_MANAGER[:15], PERSISTENCED: PERSISTENCED[:15]}
# Where the runtimes listen, below the host's own root directory.
_SOCKETS = {
    "containerd": "run/containerd/containerd.sock",
    "crio": "run/crio/crio.sock",
    "k3s": "run/k3s/containerd/containerd.sock",
    "cri-dockerd": "run/cri-dockerd.sock",
}
_ANSWERS_WITHIN_S = 1.0
_TIMEX_BYTES, _STATUS_AT, _UNSYNCHRONISED = 512, 3 * 8 + 2 * 8, 0x40  # struct timex, adjtimex(2), 64 bit

V = TypeVar("V")
Process = tuple[int, str, str, str]
"""pid, name, state, start time."""


def clock_is_synchronised() -> bool:
    """Ask the kernel whether somebody disciplines its clock (adjtimex without a change). Raises OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if library.adjtimex(buffer) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return not int.from_bytes(buffer.raw[_STATUS_AT : _STATUS_AT + 4], "little") & _UNSYNCHRONISED


class HostReader:
    """Reads the host; remembers who was in uninterruptible sleep, since only one that stays there is stuck."""

    def __init__(
        self,
        proc_root: Path,
        sys_root: Path,
        kubelet_socket: Path,
        now: Callable[[], datetime],
        is_synchronised: Callable[[], bool] = clock_is_synchronised,
    ) -> None:
        self._proc_root = proc_root
        self._sys_root = sys_root
        self._kubelet_socket = kubelet_socket
        self._now = now
        self._is_synchronised = is_synchronised
        self._slept: frozenset[tuple[int, str]] = frozenset()

    def read(self) -> HostRead:
        """Read all of it. Raises OSError where not even the processes can be listed."""
        errors: dict[str, str] = {}

        def told(name: str, read: Callable[[], V | None]) -> V | None:
            try:
                return read()
            except (OSError, ValueError) as error:
                errors[name] = str(error)[:256]
                return None

        processes = list(_processes(self._proc_root))
        stuck = self._stuck(processes)
        names = {name for _, name, _, _ in processes}
        return HostRead(
            seen_at=self._now(),
            acs=told("acs", lambda: redirecting_bridges(self._sys_root)),
            modules=told("modules", self._modules),
            d_state=tuple(stuck[:MOST_NAMED]),
            stuck=len(stuck),
            edac_corrected=told("edac_corrected", lambda: self._edac("ce_count")),
            edac_uncorrected=told("edac_uncorrected", lambda: self._edac("ue_count")),
            clock_synchronised=told("clock_synchronised", self._is_synchronised),
            services={
                **{service: name in names for service, name in _BY_NAME.items()},
                **(told("services", self._answering) or {}),
            },
            errors=errors,
        )

    def _stuck(self, processes: list[Process]) -> list[tuple[int, str]]:
        asleep = {(pid, start): name for pid, name, state, start in processes if state == "D"}
        stuck = [(pid, name) for (pid, start), name in sorted(asleep.items()) if (pid, start) in self._slept]
        self._slept = frozenset(asleep)
        return stuck

    def _modules(self) -> tuple[str, ...] | None:
        path = self._proc_root / "modules"
        if not path.exists():
            return None
        with path.open(encoding="utf-8", errors="replace") as file:
            names = [line.partition(" ")[0] for line in file.read(_LIMIT).splitlines()]
        return tuple(sorted(name[:_NAME] for name in names if name.startswith("nv")))

    def _edac(self, name: str) -> int | None:
        """Add up the counts of all memory controllers; None where none is watched."""
        counts = [
            int(path.read_text()) for path in (self._sys_root / "devices/system/edac/mc").glob(f"mc*/{name}")
        ]
        return sum(counts) if counts else None

    def _answering(self) -> dict[str, bool]:
        sockets = {name: host_root(self._proc_root) / path for name, path in _SOCKETS.items()}
        sockets[KUBELET] = self._kubelet_socket
        return {name: _answers(path) for name, path in sockets.items() if path.is_socket()}


def _processes(proc_root: Path) -> Iterator[Process]:
    """List processes. Raises OSError where the list cannot be read; one that ends meanwhile is left out."""
    pids = [entry for entry in os.listdir(proc_root) if entry.isdecimal()]  # noqa: PTH208 - thousands of names
    for pid in pids[:MOST_PROCESSES]:
        try:
            with open(f"{proc_root}/{pid}/stat", "rb") as file:  # noqa: PTH123 - each Path costs more than the read
                text = file.read(4096).decode(errors="replace")
        except OSError:
            continue
        # The name stands in parentheses and may itself hold some.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) > 19:
            shown = "".join(c for c in name if c.isprintable())[:_NAME]
            yield int(pid), shown, fields[0], fields[19]


def _answers(path: Path) -> bool:
    """Say whether somebody takes a connection; a process that died leaves its socket behind. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_ANSWERS_WITHIN_S)
        try:
            caller.connect(str(path))
        except (ConnectionRefusedError, TimeoutError, BlockingIOError):
            return False
    return True
