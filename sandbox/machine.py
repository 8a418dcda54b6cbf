"""A simulated machine as its own files show it: the trees an agent reads, the kernel's log, and a boot that can end.

The folder stands in for the machine's root: `proc/`, `sys/`, `dev/kmsg` (a named pipe), `var/lib/nodemend` (the agent's
state, which outlives a reboot). Nothing here knows of Kubernetes.
"""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sandbox.kernel_log import INFO, KernelLog
from sandbox.platforms import Platform

DRIVER = "580.95.05"
NVIDIA_VENDOR = "0x10de"
CLASS_3D_CONTROLLER = "0x030200"
# Where eight SXM modules of a common HGX board appear; smaller boards use the first ones.
_GPU_SLOTS = ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU; `pci` with domain and function, as sysfs names it."""

    index: int
    pci: str
    uuid: str
    model: str


class Machine:
    """One simulated machine. `gpus` is what it holds; `pull` takes one away for good, as a dead card is."""

    def __init__(self, root: Path, name: str, platform: Platform) -> None:
        self.root = root
        self.name = name
        self.gpus = tuple(_gpus(name, platform))
        self._pulled: set[int] = set()
        for folder in (self.state_dir, self.kmsg.parent, self._boot_id_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_boot_id()
        self._write_gpus()
        self.kernel_log = KernelLog(self.kmsg)
        self._say_hello()

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    @property
    def kmsg(self) -> Path:
        return self.root / "dev" / "kmsg"

    @property
    def state_dir(self) -> Path:
        """Where the agent keeps its state, `/var/lib/nodemend` of the machine."""
        return self.root / "var" / "lib" / "nodemend"

    @property
    def boot_id(self) -> str:
        return self._boot_id_file.read_text().strip()

    def boot(self) -> str:
        """End this boot and begin the next: a new boot id, an empty kernel log, the GPUs found anew. Return the boot id."""
        self._write_boot_id()
        self._write_gpus()
        self.kernel_log.boot()
        self._say_hello()
        return self.boot_id

    def pull(self, index: int) -> None:
        """Take GPU `index` off the bus, as one that fell off it and is not found again at the next boot."""
        self._pulled.add(index)
        self._write_gpus()

    def put_back(self, index: int) -> None:
        """Replace the card that was pulled."""
        self._pulled.discard(index)
        self._write_gpus()

    def close(self) -> None:
        """Let go of the kernel log's pipe."""
        self.kernel_log.close()

    @property
    def _boot_id_file(self) -> Path:
        return self.proc / "sys" / "kernel" / "random" / "boot_id"

    def _write_boot_id(self) -> None:
        _replace(self._boot_id_file, f"{uuid.uuid4()}\n")

    def _write_gpus(self) -> None:
        pci_devices = self.sys / "bus" / "pci" / "devices"
        driver = self.proc / "driver" / "nvidia"
        (driver / "gpus").mkdir(parents=True, exist_ok=True)
        _replace(
            driver / "version", f"NVRM version: NVIDIA UNIX Open Kernel Module  {DRIVER}  Release Build\n"
        )
        for gpu in self.gpus:
            device, information = pci_devices / gpu.pci, driver / "gpus" / gpu.pci
            if gpu.index in self._pulled:
                shutil.rmtree(device, ignore_errors=True)
                shutil.rmtree(information, ignore_errors=True)
                continue
            device.mkdir(parents=True, exist_ok=True)
            information.mkdir(parents=True, exist_ok=True)
            _replace(device / "vendor", f"{NVIDIA_VENDOR}\n")
            _replace(device / "class", f"{CLASS_3D_CONTROLLER}\n")
            _replace(information / "information", _information(gpu))

    def _say_hello(self) -> None:
        """Write a few of the lines of every boot: a log that holds nothing but faults would be no log."""
        self.kernel_log.write(f"Linux version 6.8.0-simulated ({self.name})", level=5)
        self.kernel_log.write(f"NVRM: loading NVIDIA UNIX Open Kernel Module  {DRIVER}", level=INFO)


def _gpus(name: str, platform: Platform) -> Iterator[Gpu]:
    for index in range(platform.gpus):
        unique = uuid.uuid5(uuid.NAMESPACE_DNS, f"gpu-{index}.{name}.sandbox.nodemend.dev")
        yield Gpu(
            index=index,
            pci=f"0000:{_GPU_SLOTS[index]}:00.0",
            uuid=f"GPU-{unique}",
            model=platform.gpu_model,
        )


def _information(gpu: Gpu) -> str:
    """Write `/proc/driver/nvidia/gpus/PCI/information` as the NVIDIA driver does."""
    rows = {
        "Model": gpu.model,
        "IRQ": str(300 + gpu.index),
        "GPU UUID": gpu.uuid,
        "Bus Type": "PCIe",
        "Bus Location": gpu.pci,
        "Device Minor": str(gpu.index),
        "GPU Excluded": "No",
    }
    return "".join(f"{key + ':':<16} {value}\n" for key, value in rows.items())


def _replace(path: Path, text: str) -> None:
    """Write whole or not at all: an agent may read at any instant."""
    pending = path.with_name(f".{path.name}")
    pending.write_text(text)
    pending.rename(path)
