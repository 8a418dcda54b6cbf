"""Agents of nodes that have no machine: the product's own Agent over scripted readings, driven by whoever holds it.

What is the product's: the checks, the fold, the publisher with its limits, NodeHealth and its writer. What is not: the
readings, and the threads. There is no hand-written condition or NodeHealth anywhere.
"""

import threading
from datetime import UTC, datetime
from pathlib import Path

import structlog

from agent.config import parse
from agent.host.inventory import Gpu, Inventory
from agent.host.kmsg import Cursor
from agent.runtime import Agent
from bench.outcome import NotMeasured
from checks.check import discover
from checks.finding import Part, PartKind
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceRead
from kube.api import Api
from kube.clock import SYSTEM
from sandbox.agent_files import toml
from sandbox.nodes import xid_line

OFF_THE_BUS = (79, "GPU has fallen off the bus.")
_PCI = tuple(f"0000:{slot}:00" for slot in ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db"))
_CHECKS = discover()
_PAUSE_S = 0.005
_WITHIN_S = 30.0

log = structlog.get_logger()


class Script:
    """An agent's Feed: what is put in comes out at its next tick."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._sequence = 0
        self._lock = threading.Lock()
        self._waiting: list[Observation] = []

    @property
    def begun(self) -> bool:
        return bool(self._boot_id)

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:  # noqa: ARG002 - nothing was read before
        self._boot_id = boot_id
        self.write("NVRM: loading NVIDIA UNIX Open Kernel Module")

    def end(self) -> None:
        self._boot_id = ""

    def write(self, text: str) -> None:
        """Let the kernel log one record. Raises ValueError before the agent reads."""
        if not self._boot_id:
            raise ValueError("this agent does not read its kernel log yet")
        now = datetime.now(UTC)
        with self._lock:
            self._sequence += 1
            record = KernelRecord(
                boot_id=self._boot_id,
                sequence=self._sequence,
                facility=0,
                level=4,
                monotonic_us=self._sequence * 1000,
                seen_at=now,
                text=text,
            )
            self._waiting += [record, SourceRead(source=KERNEL_LOG, seen_at=now)]

    def take(self) -> tuple[list[Observation], Cursor | None]:
        with self._lock:
            taken, self._waiting = self._waiting, []
        cursor = Cursor(boot_id=self._boot_id, sequence=self._sequence) if taken else None
        return taken, cursor

    def hangs_s(self, now: float) -> float:  # noqa: ARG002 - the protocol's argument; nothing here can hang
        return 0.0


class Reporter:
    """One node's agent. `folder` becomes its root: boot id and state."""

    def __init__(self, api: Api, name: str, boot_id: str, folder: Path) -> None:
        random = folder / "proc" / "sys" / "kernel" / "random"
        random.mkdir(parents=True)
        (random / "boot_id").write_text(f"{boot_id}\n")
        config = parse(
            toml(
                {
                    "node_name": name,
                    "listen": "",
                    "state_dir": str(folder / "state"),
                    "roots": {"proc": str(folder / "proc")},
                    "lease": {"namespace": ""},
                    "nvml": {
                        "enabled": False
                    },  # there is no driver: each agent would start a process to find that out
                }
            ),
            name,
            _CHECKS,
            {},
        )
        self.name = name
        self._script = Script()
        self._agent = Agent(
            config,
            api,
            SYSTEM,
            checks=_CHECKS,
            feed=self._script,
            probes=(),
            inventory=lambda: inventory(name),
        )
        self._agent.load()

    def begin(self) -> None:
        """Look at the node for the first time, until it is reported healthy. Raises NotMeasured."""
        self._until("False")

    def fail(self) -> None:
        """Let a GPU fall off the bus, and report it: condition first, then NodeHealth. Raises NotMeasured."""
        self._script.write(xid_line(f"{_PCI[3]}.0", *OFF_THE_BUS))
        self._until("True")

    def begin_sick(self) -> None:
        """Look at the node for the first time and find a GPU off the bus. Raises NotMeasured."""
        deadline = SYSTEM.monotonic() + _WITHIN_S
        while not self._script.begun:
            self._agent.tick()
            if not self._script.begun:
                self._agent.write()
            self._check(deadline, "reads its kernel log")
        self.fail()

    def _until(self, status: str) -> None:
        """Go round, as the agent's two threads would, until condition and NodeHealth are in."""
        deadline = SYSTEM.monotonic() + _WITHIN_S
        while True:
            self._agent.tick()
            if self._agent.write_due():
                self._agent.write()
            elif self._is_in(status):
                return
            else:
                SYSTEM.sleep(_PAUSE_S)
            self._check(deadline, f"reports {status}")

    def _is_in(self, status: str) -> bool:
        publisher = self._agent.publisher
        held = publisher.node.condition("GpuXidError") if publisher.node is not None else None
        return publisher.ready and held is not None and held.status == status

    def _check(self, deadline: float, what: str) -> None:
        if SYSTEM.monotonic() > deadline:
            raise NotMeasured(
                f"the agent of {self.name} has not come so far that it {what} within {_WITHIN_S:g} s"
            )


def inventory(name: str) -> Inventory:
    """Give eight GPUs, as a host's sysfs and procfs would show them."""
    return Inventory(
        gpus=tuple(
            Gpu(part=Part(kind=PartKind.GPU, pci=pci, uuid=f"GPU-{index}-{name}", index=index))
            for index, pci in enumerate(_PCI)
        ),
        driver="580.95.05",
    )
