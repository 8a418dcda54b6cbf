"""The machine of `nodemend-bench checks`: eight H100 on a fake driver, and a sysfs with eight HCAs, switches and NVSwitches.

Files alone, and they change as those of a machine at work do: `live` moves what moves there, below every threshold.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from sandbox.fake_nvml import FakeDriver
from sandbox.machine import Gpu
from sandbox.sysfs_infiniband import SysHca, SysMachine, Tree, render
from sandbox.sysfs_pci import Bus

NVSWITCHES = 4
_SELDOM = 25  # steps between two of what a sound machine counts now and then


class BenchMachine:
    """Lays the machine out at `root`: `sys` and `proc` for the agent. `driver` is None where NVML is of no interest."""

    def __init__(self, root: Path, gpus: Sequence[Gpu], driver: FakeDriver | None = None) -> None:
        self.gpus = tuple(gpus)
        self._bus = Bus(root)
        self._tree = Tree(root)
        self._driver = driver
        self.sys, self.proc = self._bus.sys, self._bus.proc
        self.hcas = tuple(self._pair(number, gpu) for number, gpu in enumerate(self.gpus))
        for number in range(NVSWITCHES):
            port = self._bus.add(f"0000:0{number}:02.0", gts="16.0 GT/s PCIe", lanes=2)
            self._bus.nvswitch(f"0000:0{number}:05.0", port)
        self._plug_in(render(SysMachine(hcas=self.hcas), root / "rdma"))
        # What the looks at file systems go by: this machine's own.
        (self.proc / "1/root").symlink_to("/")
        shutil.copy("/proc/self/mountinfo", self.proc / "1/mountinfo")

    def _pair(self, number: int, gpu: Gpu) -> SysHca:
        """Put a GPU and an HCA behind a switch of their own, as an HGX board has them."""
        bus = int(gpu.pci.split(":")[1], 16)
        _, _, to_gpu, to_hca = self._bus.switched(bus - 3)
        self._bus.gpu(gpu.pci, to_gpu)
        hca = SysHca(name=f"mlx5_{number}", pci=f"0000:{bus + 1:02x}:00.0", numa=2 * number // len(self.gpus))
        self._bus.hca(hca.pci, to_hca)
        return hca

    def _plug_in(self, rdma: Tree) -> None:
        """Take the RDMA devices over from a tree of their own, each into the folder of its PCI device."""
        shutil.copytree(rdma.proc, self.proc, dirs_exist_ok=True)
        for shared in ("module", "class/net"):
            shutil.copytree(rdma.sys / shared, self.sys / shared)
        devices = self.sys / "class/infiniband"
        devices.mkdir()
        for hca in self.hcas:
            folder = (self._bus.devices / hca.pci).resolve()
            came_from = (rdma.sys / "bus/pci/devices" / hca.pci).resolve()
            device = folder / "infiniband" / hca.name
            shutil.copytree(came_from / "infiniband" / hca.name, device, symlinks=True)
            (device / "device").unlink()
            (device / "device").symlink_to(folder)
            (folder / "driver").symlink_to(self.sys / "bus/pci/drivers" / hca.driver)
            (devices / hca.name).symlink_to(device)

    def live(self, step: int) -> None:
        """Let one GPU and its HCA go on: load and heat each time, an error corrected or counted now and then."""
        number = step % len(self.gpus)
        gpu, hca = self.gpus[number], self.hcas[number]
        if self._driver is not None:
            self._driver.set(number, "temperature", 40 + step % 30)
            self._driver.set(number, "utilization", (step % 100, step % 50))
        self._tree.set(hca.name, "counters/port_xmit_wait", str(1000 * step))
        if step % _SELDOM == 0:
            seldom = step // _SELDOM
            self._tree.set(hca.name, "counters/symbol_error", str(seldom))
            self._bus.set_errors(gpu.pci, correctable_RxErr=seldom)
