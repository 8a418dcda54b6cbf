"""A machine's first process in a folder: its mountinfo and its root directory, below which real files lie."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

# A child that never comes back, in the place of one that looks.
NEVER = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


class HostTree:
    """`mount` says what is mounted where; the directory is made, too."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.root = self.proc / "1/root"
        self.root.mkdir(parents=True)
        self._lines: dict[str, str] = {}
        self.mount("/", fstype="ext4", source="/dev/vda1", super_options="rw,errors=remount-ro")

    def mount(
        self,
        path: str,
        *,
        fstype: str = "nfs4",
        source: str = "filer:/data",
        options: str = "rw,relatime",
        super_options: str = "rw,vers=4.2",
    ) -> None:
        self._lines[path] = f"0:42 / {path} {options} shared:7 - {fstype} {source} {super_options}"
        (self.root / path[1:]).mkdir(parents=True, exist_ok=True)
        self._write()

    def unmount(self, path: str) -> None:
        del self._lines[path]
        self._write()

    def remove(self, path: str) -> None:
        shutil.rmtree(self.root / path[1:])

    def _write(self) -> None:
        lines: Mapping[int, str] = dict(enumerate(self._lines.values(), start=22))
        (self.proc / "1/mountinfo").write_text("".join(f"{n} 1 {line}\n" for n, line in lines.items()))
