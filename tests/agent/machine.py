"""A machine in a folder for tests that start the real program: trees, boot id, kernel log, configuration."""

import os
import sys
from pathlib import Path

BOOT = "5f0e7c1a-0000-4000-8000-000000000001"
XID_79 = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=python, GPU has fallen off the bus."
XID_13 = "NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=python, Graphics Exception"


class FolderMachine:
    """`gpus` PCI devices in sysfs, a boot id in procfs, and a kernel log: a file, or a named pipe."""

    def __init__(self, root: Path, *, gpus: int = 2, pipe: bool = False) -> None:
        self.root = root
        self.boot_id = root / "proc/sys/kernel/random/boot_id"
        self.boot_id.parent.mkdir(parents=True)
        self.boot_id.write_text(BOOT + "\n")
        devices = root / "sys/bus/pci/devices"
        devices.mkdir(parents=True)
        for number in range(gpus):
            device = devices / f"0000:{number + 1:02x}:00.0"
            device.mkdir()
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")
        self.kmsg = root / "kmsg"
        if pipe:
            os.mkfifo(self.kmsg)
            self.writer = os.open(self.kmsg, os.O_RDWR | os.O_NONBLOCK)
        else:
            self.kmsg.write_text("")
        self.sequence = 0
        self.pipe = pipe
        self.state = root / "state"
        self.config = root / "agent.toml"
        self.configure()

    def configure(self, more: str = "") -> None:
        """Write the configuration; `more` goes to its end."""
        off = "".join(
            f"[{name}]\nenabled = false\n" for name in ("nvml", "storage", "host") if f"[{name}]" not in more
        )
        self.config.write_text(
            f'node_name = "gpu-1"\nlisten = ""\nstate_dir = "{self.state}"\n'
            f'[roots]\nproc = "{self.root}/proc"\nsys = "{self.root}/sys"\n'
            f"[kubelet]\nenabled = false\n{off}"
            f'[kernel_log]\npath = "{self.kmsg}"\n{more}'
        )

    def line(self, text: str, *, priority: int = 4) -> None:
        """Write one kernel record."""
        self.sequence += 1
        record = f"{priority},{self.sequence},{self.sequence * 1000},-;{text}\n"
        if self.pipe:
            os.write(self.writer, record.encode())
        else:
            with self.kmsg.open("a") as file:
                file.write(record)

    def command(self, *arguments: str) -> list[str]:
        """Give the command line of the program, with this machine's configuration."""
        return [sys.executable, "-m", "agent", "--config", str(self.config), *arguments]
