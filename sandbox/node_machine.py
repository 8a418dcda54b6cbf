"""The machine under a kubelet's node: its namespaces, switched on and off, and programs started in them.

`power_on` boots (`sandbox.node_init`), `power_off` is the power cut: every process of the node is gone when it returns, and
with them its mounts, its bridge and its cable. Not its job: what runs there (`sandbox.kubelet_node`).
"""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandbox import cgroups
from sandbox.control_plane import NotReady
from sandbox.node_enter import HIDE_KERNEL_LOG
from sandbox.node_files import NETWORKS, SERVICE, Network
from sandbox.processes import Process, tail

_SCRIPTS = Path(__file__).parent
_BOOT_WITHIN_S = 60.0
_END_WITHIN_MS = 30_000
_LOOK_S = 0.02
_SERVICE_PORT = 443


class Host(Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        *,
        cwd: Path | None = None,
    ) -> Process: ...


class NodeMachine:
    """One machine. `folder` holds its simulated trees and its disk, `root` is the root of its file system."""

    def __init__(
        self,
        host: Host,
        name: str,
        folder: Path,
        *,
        api_port: int,
        cgroup: str,
        binds: Mapping[str, str],
        real_kernel_log: bool,
    ) -> None:
        """`binds` shows files or folders of this machine at paths of the node's."""
        self.name = name
        self.folder = folder
        self.root = folder / "rootfs"
        self.network, self._claim = _claim_network()
        self._host = host
        self._api_port = api_port
        self._cgroup = cgroup
        self._binds = {**binds, str(folder / "var"): "/var", str(folder): "/run/simulated/machine"}
        self.real_kernel_log = real_kernel_log
        self._processes: list[Process] = []
        self._init: tuple[int, int] | None = (
            None  # its pid, and a handle that stays true when the pid does not
        )

    @property
    def init(self) -> int:
        """The pid, here, of the node's process 1. Raises ValueError while the node is switched off."""
        if self._init is None:
            raise ValueError(f"node {self.name} is switched off")
        return self._init[0]

    def power_on(self) -> None:
        """Boot; returns when process 1 lives in its own root. Raises NotReady with the end of its log."""
        for kind in ("driver", "dev", "proc/driver", "sys/class", "sys/bus", "var"):
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
        self.root.mkdir(parents=True, exist_ok=True)
        cgroups.make(self._cgroup)
        pid_file = self.folder / "init.pid"
        pid_file.unlink(missing_ok=True)
        told = {
            "name": self.name,
            "root": str(self.root),
            "machine": str(self.folder),
            "binds": self._binds,
            "pid_file": str(pid_file),
            "real_kernel_log": self.real_kernel_log,
            "network": {
                "interface": self.network.interface,
                "host": self.network.host,
                "node": self.network.node,
                "pods": self.network.pods,
                "service": SERVICE,
            },
        }
        (self.folder / "init.json").write_text(json.dumps(told))
        process = self._script("init", "node_init.py", str(self.folder / "init.json"))
        pid = self._await_boot(process, pid_file)
        self._init = pid, os.pidfd_open(pid)
        arguments = (str(pid), SERVICE, str(_SERVICE_PORT), str(self._api_port))
        self._script("gateway", "node_gateway.py", *arguments)

    def power_off(self) -> None:
        """Cut the power; returns when nothing of the node runs any more. Safe to call twice."""
        for process in reversed(self._processes):
            process.kill()
        self._processes.clear()
        if self._init is not None:
            (_, handle), self._init = self._init, None
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(
                _END_WITHIN_MS
            )  # the kernel lets process 1 go when all others of its namespace are gone
            os.close(handle)
        cgroups.remove(self._cgroup)

    def close(self) -> None:
        """Switch it off for good and let go of its network's number."""
        self.power_off()
        self._claim.close()

    def spawn(
        self, program: str, argv: Sequence[str], *, hide_kernel_log: bool = False, log: Path | None = None
    ) -> Process:
        """Start a program in the node; its log is `logs/NODE-PROGRAM.log` of the sandbox unless given."""
        option = HIDE_KERNEL_LOG if hide_kernel_log else ""
        return self._script(program, "node_enter.py", str(self.init), option, *argv, log=log)

    def _script(self, program: str, script: str, *arguments: str, log: Path | None = None) -> Process:
        argv = [sys.executable, "-I", "-S", str(_SCRIPTS / script), *arguments]
        process = self._host.spawn(f"{self.name}-{program}", argv, log=log)
        self._processes = [other for other in self._processes if other.alive] + [process]
        return process

    def _await_boot(self, process: Process, pid_file: Path) -> int:
        deadline = time.monotonic() + _BOOT_WITHIN_S
        while time.monotonic() < deadline and process.alive:
            pid = pid_file.read_text() if pid_file.exists() else ""
            if pid.isdigit() and Path("/proc", pid, "root", "run/booted").exists():
                return int(pid)
            time.sleep(_LOOK_S)
        why = "did not boot in time" if process.alive else f"ended with status {process.poll()}"
        raise NotReady(f"node {self.name} {why}; the end of {process.log}:\n{tail(process.log)[-3000:]}")


def _claim_network() -> tuple[Network, socket.socket]:
    """Take a number that no other sandbox holds: the socket's name exists once, for as long as it is open."""
    for number in range(NETWORKS):
        network = Network(number=number)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            claim.bind(f"\0nodemend-node-{number}")
        except OSError:
            claim.close()
            continue
        if not Path("/sys/class/net", network.interface).exists():  # one whose owner died may still be going
            return network, claim
        claim.close()
    raise NotReady(f"{NETWORKS} nodes have all the networks that there are")
