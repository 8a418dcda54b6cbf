"""A real node: kubelet and containerd on a simulated GPU machine, beside the KWOK nodes of the same sandbox.

`with KubeletNode(sandbox, "gpu-1") as node:` gives a Node that is Ready and runs pods from images, among them the
product's own DaemonSet, unchanged, under its real token. The machine below is simulated (`sandbox.machine`), in
namespaces of its own (`sandbox.node_machine`): boot id, PCI bus and driver are seen at their usual places in `/proc`
and `/sys`, the driver's root is `/run/nvidia/driver` with a fake NVML in it, `/dev/kmsg` is the simulated kernel log,
a pipe for each reader. Several stand side by side; leaving the block leaves nothing, and after kill -9 of the owner
the next start of a sandbox removes the rest.

What differs from a machine: the kernel is this machine's, and so is a container's `/sys/class` unless the node's
`/sys` is mounted there; no kube-proxy, so the Service `kubernetes` is the only one; no DNS. Reports call what happens
here simulated.
"""

import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.types import Node
from sandbox import cgroups, node_files
from sandbox.control_plane import NotReady
from sandbox.fake_nvml import FakeDriver
from sandbox.kubelet_parts import Parts, find_or_build, import_images
from sandbox.long_command import Progress
from sandbox.machine import Gpu, Machine
from sandbox.node_credentials import write_credentials
from sandbox.node_machine import Host, NodeMachine
from sandbox.node_readiness import serves, why_not_ready
from sandbox.nodes import DEFAULT_PLATFORM, body, xid_line
from sandbox.opened import Opened
from sandbox.platforms import platform
from sandbox.processes import Process, tail
from sandbox.simulated_reboot import take_request

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
SIMULATED_REBOOT = ("python3", "-m", "sandbox.simulated_reboot")
_READY_WITHIN_S = 120.0  # 10 s on an idle machine
_END_WITHIN_S = 10.0
_LOOK_S = 0.1
_GOES_DOWN_AFTER_S = (
    1.0  # services are stopped first: kubelet can still say that the pod which asked has ended
)
_GPU_LABELS = {"nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/gpu.deploy.driver": "true"}


class Cluster(Host, Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    @property
    def id(self) -> str: ...

    @property
    def state_dir(self) -> Path: ...

    @property
    def server(self) -> str: ...

    @property
    def ca_file(self) -> Path: ...

    @property
    def admin(self) -> Api: ...


class KubeletNode:
    """One real node. `machine` is the simulated machine, `driver` the fake NVML's hand (None without GPUs)."""

    def __init__(
        self,
        sandbox: Cluster,
        name: str,
        *,
        platform_name: str = DEFAULT_PLATFORM,
        gpus: int | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        real_kernel_log: bool = False,
        parts: Parts | None = None,
        progress: Progress = print,
    ) -> None:
        """`gpus` of the platform's (all by default; 0 makes a node without), `labels` beside those of a GPU node.

        `real_kernel_log` shows this machine's own /dev/kmsg: see `sandbox.real_kernel_log` for when that is refused.
        """
        self.name = name
        kind = platform(platform_name)
        self.platform = msgspec.structs.replace(
            kind,
            gpus=kind.gpus if gpus is None else gpus,
            ib_ports=0 if gpus == 0 else kind.ib_ports,
        )
        self.kubelet: Process | None = None
        self.containerd: Process | None = None
        self.rebooted = 0
        self.obeys_reboots = True
        self.before_boot: Callable[[], object] = lambda: None  # called at each reboot, while the node is dark
        self._sandbox = sandbox
        self._labels = dict(labels or {})
        self._taints = taints
        self._real_kernel_log = real_kernel_log
        self._parts = parts
        self._progress = progress
        self._switch = threading.RLock()
        self._stop = threading.Event()
        # Two threads: the kernel log is looked after during a reboot that a pod asked for, too.
        self._watchers = [
            threading.Thread(target=watch, name=f"node-{name}", daemon=True)
            for watch in (self._share_kernel_log, self._obey_reboots)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it takes pods. Raises MissingProgramError, NotReady (with logs), ApiError."""
        parts = self._parts or find_or_build(self._progress)
        folder = self._sandbox.state_dir / "nodes" / self.name
        self.machine = Machine(folder, self.name, self.platform)
        self.driver = FakeDriver(folder / "driver", self.gpus) if self.gpus else None
        port = int(self._sandbox.server.rpartition(":")[2])
        self._cgroup = cgroups.name(self._sandbox.id, self.name)
        binds = {str(parts.kubelet): "/opt/sandbox/kubelet"}
        self._host = NodeMachine(
            self._sandbox,
            self.name,
            folder,
            api_port=port,
            cgroup=self._cgroup,
            binds=binds,
            real_kernel_log=self._real_kernel_log,
        )
        try:
            self._write_files()
            self._host.power_on()
            spec = json.loads(self.run("ctr", "oci", "spec"))
            node_files.write_spec(self._host.root, spec)
            self._start_containerd()
            self._await("containerd", self._containerd_serves)
            import_images(self.run, self._host.folder / "var", parts)
            self._start_kubelet()
            for watcher in self._watchers:
                watcher.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything and remove its disk; the Node object is deleted too, as a cloud would. Safe to call twice."""
        self._stop.set()
        for watcher in self._watchers:
            if watcher.is_alive():
                watcher.join(timeout=_READY_WITHIN_S)
        with self._switch:
            self._host.close()
            self.machine.close()
        shutil.rmtree(self.machine.root, ignore_errors=True)
        with suppress(ApiError):
            self._sandbox.admin.delete(paths.node(self.name))

    @property
    def root(self) -> Path:
        """The simulated machine's folder: its `proc`, `sys`, `dev`, `var` and the driver's root `driver`."""
        return self.machine.root

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.machine.gpus

    @property
    def interface(self) -> str:
        """This machine's end of the node's cable."""
        return self._host.network.interface

    @property
    def boot_id(self) -> str:
        return self.machine.boot_id

    def write_kernel_line(self, text: str, level: int = 4) -> int:
        """Let the simulated kernel log one record; return its sequence number."""
        return self.machine.kernel_log.write(text, level=level)

    def write_xid(self, code: int, text: str, *, gpu: int = 0, pid: str = "'<unknown>'") -> str:
        """Let the NVIDIA driver report an XID on GPU `gpu`, in the kernel log and to NVML's clients; return the line."""
        line = xid_line(self.gpus[gpu].pci, code, text, pid=pid)
        self.write_kernel_line(line)
        if self.driver is not None:
            self.driver.event(gpu, data=code)
        return line

    def show_kernel_log(self, *, real: bool) -> None:
        """Show this machine's own kernel log in the node, or the simulated one, from its next boot on."""
        self._host.real_kernel_log = real

    def read(self) -> Node:
        """Read the Node object. Raises NotFound and other ApiErrors."""
        return msgspec.json.decode(self._sandbox.admin.get(paths.node(self.name)), type=Node)

    def wait_ready(self, timeout_s: float = _READY_WITHIN_S) -> None:
        """Wait until the Node shows this boot, is Ready and takes pods. Raises NotReady with the end of kubelet's log."""
        deadline = time.monotonic() + timeout_s
        while why := self._why_not_ready():
            with self._switch:  # not in the middle of a restart
                for program, process in (("containerd", self.containerd), ("kubelet", self.kubelet)):
                    if process is None or not process.alive:
                        raise self._not_ready(program, f"ended; {why}")
            if time.monotonic() > deadline:
                raise self._not_ready("kubelet", why)
            time.sleep(_LOOK_S)

    def wait_allocatable(self, resource: str, count: int, timeout_s: float = _READY_WITHIN_S) -> None:
        """Wait until kubelet says that pods may have so much of `resource`. Raises NotReady."""
        deadline = time.monotonic() + timeout_s
        while (now := self.read().status.allocatable.get(resource, "0")) != str(count):
            if time.monotonic() > deadline:
                raise self._not_ready("kubelet", f"offers {now} {resource} instead of {count}")
            time.sleep(_LOOK_S)

    def restart_kubelet(self, *, kill: bool = False) -> None:
        """Stop kubelet (kill -9 with `kill`), start it again and wait until it serves; pods run on. Raises NotReady."""
        with self._switch:
            _end(self.kubelet, kill=kill)
            self._start_kubelet()
            self._await("kubelet", self._kubelet_serves)

    def restart_containerd(self, *, kill: bool = False) -> None:
        """Stop containerd (kill -9 with `kill`), start it again and wait until it serves. Raises NotReady.

        Containers run on under their shims.
        """
        with self._switch:
            _end(self.containerd, kill=kill)
            self._start_containerd()
            self._await("containerd", self._containerd_serves)

    def reboot(self) -> None:
        """Cut the power and boot anew: new boot id, empty kernel log, every pod's processes gone; the disk stays.

        Returns when the Node is Ready with the new boot id. Raises NotReady.
        """
        with self._switch:
            self._host.power_off()
            self.before_boot()
            self.machine.boot()
            if self.driver is not None:
                self.driver.boot()
            self._host.power_on()
            self._start_containerd()
            self._await("containerd", self._containerd_serves)  # kubelet ends where there is none
            self._start_kubelet()
            self.rebooted += 1
        self.wait_ready()

    def power_off(self) -> None:
        """Let it go dark, as a machine whose power fails; `reboot` brings it back."""
        with self._switch:
            self._host.power_off()

    def run(self, *argv: str, timeout_s: float = 30.0) -> str:
        """Run a program in the node's namespaces and return what it wrote. Raises NotReady where it fails."""
        log = self._sandbox.state_dir / "logs" / f"{self.name}-run-{time.monotonic_ns()}.log"
        process = self._host.spawn("run", ["/usr/bin/env", *argv], log=log)
        try:
            status = process.wait(timeout_s)
        finally:
            process.kill()
            said = tail(log)
            log.unlink(missing_ok=True)
        if status != 0:
            raise NotReady(f"node {self.name}: {' '.join(argv)} ended with status {status}: {said.strip()}")
        return said

    def _write_files(self) -> None:
        root = self._host.root
        described = body(self.name, self.platform, self.boot_id)
        if self.platform.gpus:
            self._labels = {**described["metadata"]["labels"], **_GPU_LABELS, **self._labels}
        node_files.write(
            root,
            self.name,
            self._host.network,
            cgroup=self._cgroup,
            provider_id=described["spec"]["providerID"],
            taints=self._taints,
            snapshotter=node_files.snapshotter(self._sandbox.state_dir),
        )
        write_credentials(self._sandbox.ca_file.parent, root / "etc/kubernetes", self.name)

    def _start_containerd(self) -> None:
        self.containerd = self._host.spawn("containerd", ["/usr/bin/containerd"])

    def _start_kubelet(self) -> None:
        argv = node_files.kubelet_argv(self.name, self._host.network, self._labels)
        self.kubelet = self._host.spawn("kubelet", argv, hide_kernel_log=True)

    def _await(self, program: str, serves: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        while not serves():
            process = self.kubelet if program == "kubelet" else self.containerd
            if process is None or not process.alive or time.monotonic() > deadline:
                raise self._not_ready(program, "serves nobody")
            time.sleep(_LOOK_S)

    def _not_ready(self, program: str, why: str) -> NotReady:
        log = self._sandbox.state_dir / "logs" / f"{self.name}-{program}.log"
        return NotReady(f"node {self.name}: {program} {why}; the end of {log}:\n{tail(log)[-4000:]}")

    def _containerd_serves(self) -> bool:
        return serves(socket.AF_UNIX, f"/proc/{self._host.init}/root{CONTAINERD_SOCKET}")

    def _kubelet_serves(self) -> bool:
        return serves(socket.AF_INET, (self._host.network.node, node_files.KUBELET_PORT))

    def _why_not_ready(self) -> str | None:
        try:
            seen = self.read()
        except NotFound:
            return "there is no such Node yet"
        except ApiError as error:
            return str(error)
        return why_not_ready(seen, self.boot_id)

    def _share_kernel_log(self) -> None:
        """Give each reader of the kernel log a pipe of its own."""
        opened = Opened(self.machine.kmsg)
        try:
            while not self._stop.is_set():
                if opened.wait(_LOOK_S):
                    self.machine.kernel_log.hand_over()
        finally:
            opened.close()

    def _obey_reboots(self) -> None:
        """Take the reboots that pods ask for."""
        while not self._stop.wait(_LOOK_S):
            if take_request(self.root) != self.boot_id or not self.obeys_reboots:
                continue
            self._stop.wait(_GOES_DOWN_AFTER_S)
            with suppress(NotReady):  # it stays down, which everybody sees
                self.reboot()


def _end(process: Process | None, *, kill: bool) -> None:
    if process is None:
        return
    if not kill:
        # Only the script before it, which hands it on: kubelet takes a second one for "at once".
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            process.wait(_END_WITHIN_S)
    process.kill()
