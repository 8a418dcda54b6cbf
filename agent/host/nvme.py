"""The NVMe controllers on this machine's PCI bus: their state from sysfs, their SMART log from the controllers themselves.

/sys/class/nvme/nvmeN holds `state` (live, else new, resetting, connecting, deleting, dead), `transport` (pcie, tcp, rdma,
fc, loop), `address` (a PCI address for pcie), `model`, `serial` and `firmware_rev`. The SMART log is not there: it is asked
for by a child (`agent.host.smart_child`), of live controllers alone, and only every so often.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from agent.host.children import Children, Reply, program
from agent.host.mounts import LocalFileSystems
from checks.storage_reading import DisksRead, NvmeReading

MOST = 64
_CONTROLLER = re.compile(r"nvme[0-9]{1,4}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NVME_CLASS = 0x0108  # mass storage, non-volatile memory
_TEXT = 64
# Not allowed, or nothing there that offers it: not a controller that refuses.
_DENIED = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOTTY, errno.EOPNOTSUPP}
# Status codes of a controller without that command, that field or that log (NVM Express base specification, 3.1.1 on
# status codes); the bits above say whether asking again makes sense.
_NOT_OFFERED, _STATUS_BITS = {0x001, 0x002, 0x109}, 0x7FF

Command = Callable[[str], Sequence[str]]


def smart_of(device_root: Path, deadline_s: float) -> Command:
    """Give what makes the command line for a controller's name."""
    return lambda name: program("smart_child.py", str(int(deadline_s) + 5), str(device_root / name))


class Nvmes:
    """Reads the controllers; a SMART log is asked for anew after `smart_period_s`, or at once where it could not be had."""

    def __init__(
        self,
        sys_root: Path,
        children: Children,
        command: Command,
        smart_period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sys_root = sys_root
        self._children = children
        self._command = command
        self._smart_period_s = smart_period_s
        self._monotonic = monotonic
        self._told: dict[str, NvmeReading] = {}
        self._asked_at: dict[str, float] = {}

    def read(self) -> tuple[NvmeReading, ...]:
        """Give every controller on the PCI bus. Raises OSError where sysfs cannot be read."""
        found = _controllers(self._sys_root)
        now = self._monotonic()
        due = [one.name for one in found if self._is_due(one, now)]
        replies = self._children.ask({name: self._command(name) for name in due})
        told = [_with_smart(one, replies.get(one.name), self._told.get(one.name)) for one in found]
        self._told = {one.name: one for one in told}
        self._asked_at |= dict.fromkeys(due, now)
        return tuple(told)

    def _is_due(self, one: NvmeReading, now: float) -> bool:
        held = self._told.get(one.name)
        if one.state != "live":
            return False
        if held is None or held.serial != one.serial or one.name not in self._asked_at:
            return True
        failed = bool(held.smart_error) and not held.smart_denied
        return failed or now - self._asked_at[one.name] >= self._smart_period_s


class Disks:
    """NVMe controllers and local file systems, as one observation."""

    def __init__(
        self, sys_root: Path, nvmes: Nvmes, local: LocalFileSystems, now: Callable[[], datetime]
    ) -> None:
        self._sys_root = sys_root
        self._nvmes = nvmes
        self._local = local
        self._now = now

    def read(self) -> DisksRead:
        """Look at all of them. Raises OSError or ValueError."""
        local = self._local.read()
        return DisksRead(
            seen_at=self._now(), nvmes=self._nvmes.read(), bus=nvme_bus(self._sys_root), local=local
        )


def nvme_bus(sys_root: Path) -> dict[str, str] | None:
    """Give the NVMe controllers that the PCI bus shows and the driver of each; None where there is no PCI bus."""
    try:
        devices = sorted((sys_root / "bus/pci/devices").iterdir())
    except FileNotFoundError:
        return None
    found = {}
    for device in devices:
        try:
            kind = int((device / "class").read_text(), 16) >> 8
        except (FileNotFoundError, ValueError):
            continue  # it went away meanwhile, or is no device as others are
        if kind == _NVME_CLASS and not (device / "physfn").exists():
            found[device.name.partition(".")[0]] = _driver(device)
    return dict(list(found.items())[:MOST])


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""


def _controllers(sys_root: Path) -> list[NvmeReading]:
    folder = sys_root / "class/nvme"
    if not folder.exists() and (sys_root / "class").is_dir():
        return []
    names = sorted(entry.name for entry in folder.iterdir() if _CONTROLLER.fullmatch(entry.name))
    controllers = [_controller(folder / name) for name in names[:MOST]]
    return [one for one in controllers if one is not None]


def _controller(folder: Path) -> NvmeReading | None:
    """Read one; None for one of another transport, or that went away meanwhile."""
    if _text(folder / "transport") not in ("", "pcie"):
        return None
    try:
        state, error = (folder / "state").read_text(errors="replace").strip()[:_TEXT], ""
    except FileNotFoundError:
        if not folder.exists():
            return None
        state, error = "", f"{folder.name}/state is not there"
    except OSError as problem:
        state, error = "", f"{folder.name}/state: {problem.strerror}"
    address = _text(folder / "address")
    return NvmeReading(
        name=folder.name,
        pci=address.partition(".")[0] if _ADDRESS.fullmatch(address) else "",
        state=state,
        model=_text(folder / "model"),
        serial=_text(folder / "serial"),
        firmware=_text(folder / "firmware_rev"),
        error=error,
    )


def _text(path: Path) -> str:
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return ""
    return "".join(c for c in text if c.isprintable())[:_TEXT]


def _with_smart(one: NvmeReading, reply: Reply | None, held: NvmeReading | None) -> NvmeReading:
    """Put the newest SMART log beside what sysfs says: from this look, else the last one of the same disk."""
    if reply is not None:
        return _told(one, reply)
    if one.state != "live" or held is None or held.serial != one.serial:
        return msgspec.structs.replace(one, smart_error=f"it is {one.state or 'in no known state'}")
    return msgspec.structs.replace(
        held, state=one.state, pci=one.pci, model=one.model, firmware=one.firmware, error=one.error
    )


def _told(one: NvmeReading, reply: Reply) -> NvmeReading:
    if reply.error or reply.hangs_ms is not None:
        return msgspec.structs.replace(one, smart_error=reply.error or "the command has not come back")
    match reply.output.decode(errors="replace").split(" "):
        case ["ok", *words] if len(words) == 4 and all(word.isdecimal() for word in words):
            warning, spare, threshold, used = map(int, words)
            return msgspec.structs.replace(
                one,
                critical_warning=warning,
                spare_percent=spare,
                spare_threshold_percent=threshold,
                used_percent=used,
            )
        case ["error", number, stage] if number.isdecimal():
            said = f"{stage}: {os.strerror(int(number))}"
            return msgspec.structs.replace(one, smart_error=said, smart_denied=int(number) in _DENIED)
        case ["status", number] if number.isdecimal():
            said = f"the controller refuses with status {number[:16]}"
            denied = int(number[:16]) & _STATUS_BITS in _NOT_OFFERED
            return msgspec.structs.replace(one, smart_error=said, smart_denied=denied)
    return msgspec.structs.replace(one, smart_error=f"the look said {reply.output[:64]!r}")
