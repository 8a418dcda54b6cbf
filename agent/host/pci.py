"""The PCI devices that matter to GPU work, from sysfs: GPUs, NVSwitches, HCAs, and the bridges above them. No driver needed.

Formats (Documentation/ABI/testing/sysfs-bus-pci and -devices-aer_stats of the kernel, drivers/pci/pci-sysfs.c): a link's
speed is `32.0 GT/s PCIe`, before Linux 5.8 `8 GT/s`, or `Unknown`; its files are absent on what is no PCIe device, and a
read gives EINVAL where the device does not answer. Each file of AER counters holds lines of a name, which may have blanks,
and a number, and last a total that need not be the sum. Where a device hangs is told by where its link in
/sys/bus/pci/devices leads: the bridges above it are the folders on the way.

Links, counters and config space are read at each look; what cannot change while a device is there (what it is, where it
hangs, what it could do) every ten minutes, and at once where the devices are others.

What is not there is None; what is there and gives no value is None beside a line in `errors`. Reading the config space of a
dying device can block, which is why a thread of its own reads (`agent.probes`).
"""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from checks.pci_reading import PciDevice, PciRead
from checks.pcie_link import ALL_ONES_WIDTH
from kube.clock import Clock

NVIDIA, MELLANOX, AMAZON = 0x10DE, 0x15B3, 0x1D0F
DISPLAY, OTHER_BRIDGE, NETWORK = {0x0300, 0x0302}, 0x0680, {0x0200, 0x0207}
EFA = 0xEFA  # device numbers 0xefa0 to 0xefaf; Amazon's other network cards are no RDMA devices
MOST_DEVICES = 4096
MOST_ERRORS = 8
FIXED_LOOKS = 20
"""Ten minutes at one look each half minute."""
_TEXT_LIMIT = 8192
_CPUINFO_LIMIT = 16384  # the flags of the first processor are within the first 3 KiB
_MOST_DIGITS = 20  # of a number of 64 bits

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_SPEED = re.compile(r"([0-9]{1,4})(?:\.([0-9]))?[0-9]* ?GT/s")
_AER = {
    "aer_dev_correctable": "correctable",
    "aer_dev_fatal": "fatal",
    "aer_dev_nonfatal": "nonfatal",
}
_ROOT_PORT = {
    "aer_rootport_total_err_cor": "rootport.correctable",
    "aer_rootport_total_err_fatal": "rootport.fatal",
    "aer_rootport_total_err_nonfatal": "rootport.nonfatal",
}
_GUESTS = re.compile(r"\b(?:QEMU|KVM|VMware|Virtual Machine|Xen|Google Compute Engine|OpenStack|HVM domU)\b")

V = TypeVar("V")


class PciReader:
    """Looks at the bus again and again; what cannot change while a device is there is read anew every `FIXED_LOOKS` looks.

    For one thread at a time.
    """

    def __init__(self, sys_root: Path, proc_root: Path, clock: Clock) -> None:
        self._sys_root, self._proc_root, self._clock = sys_root, proc_root, clock
        self._layout: _Layout | None = None
        self._looks = 0

    def read(self) -> PciRead:
        """Read all of them. Raises OSError or ValueError, naming the file, where it cannot be told what is on the bus."""
        bus = self._sys_root / "bus/pci/devices"
        addresses = _addresses(bus)
        layout, self._layout = self._layout, None  # kept only where all of this look went well
        if layout is None or layout.addresses != addresses or self._looks >= FIXED_LOOKS:
            layout, self._looks = self._read_layout(bus, addresses), 0
        found = _devices(layout)
        if self._looks and len(found) < len(layout.devices):
            layout, self._looks = self._read_layout(bus, addresses), 0
            found = _devices(layout)
        self._looks += 1
        if layout.is_whole and len(found) == len(layout.devices):
            self._layout = layout
        return PciRead(
            seen_at=self._clock.now(), devices=tuple(found), virtual_machine=layout.virtual_machine
        )

    def _read_layout(self, bus: Path, addresses: list[str]) -> "_Layout":
        return _layout(self._sys_root, self._proc_root, bus, addresses)


def read_pci(sys_root: Path, proc_root: Path, clock: Clock) -> PciRead:
    """Look once. Raises as `PciReader.read` does."""
    return PciReader(sys_root, proc_root, clock).read()


class _Fixed(NamedTuple):
    """What of a device does not change while it is there. `counters`: its files of counters, and how each is read."""

    path: str
    device: PciDevice
    counters: tuple[str, ...]


class _Layout(NamedTuple):
    """Who is on the bus. `is_whole`: all of it could be read, from devices that answered."""

    addresses: list[str]
    devices: tuple[_Fixed, ...]
    virtual_machine: bool
    is_whole: bool


def _layout(sys_root: Path, proc_root: Path, bus: Path, addresses: list[str]) -> _Layout:
    slots = _slots(sys_root / "bus/pci/slots")
    found: dict[str, _Fixed | None] = {}
    above: dict[str, tuple[Path, str]] = {}
    for address in addresses:
        role = _role(bus / address)
        if role is None:
            continue
        way = [(address, bus / address), *_bridges(bus / address), ("", bus)]
        found[address] = _fixed(bus / address, address, role, way[1][0], slots)
        above |= {bridge: (folder, way[n + 2][0]) for n, (bridge, folder) in enumerate(way[1:-1])}
    for address, (folder, parent) in above.items():
        if address not in found:
            found[address] = _fixed(folder, address, "bridge", parent, slots)
    here = tuple(one for _, one in sorted(found.items()) if one is not None)
    return _Layout(
        addresses=addresses,
        devices=here,
        virtual_machine=_is_guest(sys_root, proc_root),
        is_whole=len(here) == len(found)
        and not any(one.device.errors or one.device.max_width == ALL_ONES_WIDTH for one in here),
    )


def _addresses(bus: Path) -> list[str]:
    with os.scandir(bus) as entries:
        names = sorted(one.name for one in entries if _ADDRESS.fullmatch(one.name))
    if len(names) > MOST_DEVICES:
        raise ValueError(f"{bus} holds {len(names)} devices; more than {MOST_DEVICES} are not looked at")
    return names


def _role(device: Path) -> str | None:
    """Give what a device is to us, None for what is of no interest or went away meanwhile."""
    try:
        kind = _hexadecimal(device / "class") >> 8
        if kind not in DISPLAY | NETWORK | {OTHER_BRIDGE}:
            return None
        vendor = _hexadecimal(device / "vendor")
        number = _hexadecimal(device / "device") if vendor == AMAZON else 0
    except FileNotFoundError:
        if device.exists():
            raise
        return None
    if vendor == NVIDIA:
        return "gpu" if kind in DISPLAY else "nvswitch" if kind == OTHER_BRIDGE else None
    is_hca = kind in NETWORK and (vendor == MELLANOX or number >> 4 == EFA)
    return "hca" if is_hca else None


def _bridges(device: Path) -> list[tuple[str, Path]]:
    """Give address and folder of each bridge above, the nearest first, from where the link of the device leads."""
    way = device.resolve()
    return [(folder.name, folder) for folder in way.parents if _ADDRESS.fullmatch(folder.name)]


def _fixed(folder: Path, address: str, role: str, parent: str, slots: dict[str, str]) -> _Fixed | None:
    """Read what does not change; None where the device went away meanwhile and says nothing any more."""
    try:
        reader = _Folder(str(folder))
    except FileNotFoundError:
        return None
    with reader:
        device = PciDevice(
            address=address,
            role=role,
            vendor=reader.value("vendor", _hexadecimal_of),
            device=reader.value("device", _hexadecimal_of),
            max_speed=reader.value("max_link_speed", _speed_of),
            max_width=reader.value("max_link_width", _width_of),
            parent=parent,
            numa=reader.value("numa_node", _numa_of),
            slot=slots.get(address.partition(".")[0], ""),
            virtual=(folder / "physfn").is_symlink(),
            errors=tuple(reader.errors[:MOST_ERRORS]),
        )
        counters = (*_AER, *(_ROOT_PORT if role == "bridge" else ()))
        held = tuple(name for name in counters if reader.holds(name))
    return _Fixed(str(folder), device, held) if device.vendor is not None or device.errors else None


def _devices(layout: _Layout) -> list[PciDevice]:
    return [one for fixed in layout.devices if (one := _device(fixed)) is not None]


def _device(fixed: _Fixed) -> PciDevice | None:
    """Read what changes; None where the device went away."""
    try:
        reader = _Folder(fixed.path)
    except FileNotFoundError:
        return None
    with reader:
        return msgspec.structs.replace(
            fixed.device,
            speed=reader.value("current_link_speed", _speed_of),
            width=reader.value("current_link_width", _width_of),
            aer=reader.counters(fixed.counters),
            config_ones=reader.config_ones(),
            errors=(*reader.errors, *fixed.device.errors)[:MOST_ERRORS],
        )


class _Folder:
    """One device's folder, opened; `errors` collects one line for each file that is there and gave no value."""

    def __init__(self, path: str) -> None:
        """Raises FileNotFoundError where it is gone."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.errors: list[str] = []

    def __enter__(self) -> "_Folder":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def holds(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return os.access(name, os.F_OK, dir_fd=self._descriptor)

    def value(self, name: str, value_of: Callable[[str], V | None]) -> V | None:
        """Give a file's value, None where there is no file, or where it says that there is none."""
        text = self._text(name)
        if text is None:
            return None
        try:
            return value_of(text)
        except ValueError:
            self.errors.append(f"{name} holds {text[:40]!r}")
            return None

    def counters(self, names: Iterable[str]) -> dict[str, int]:
        """Give all AER counters of these files; a line that is none is an error, the others count."""
        counters: dict[str, int] = {}
        for name in names:
            if name in _ROOT_PORT:
                total = self.value(name, _count_of)
                if total is not None:
                    counters[_ROOT_PORT[name]] = total
                continue
            told, odd = _counters_of(_AER[name], self._text(name) or "")
            counters |= told
            self.errors += [f"{name} holds {line!r}" for line in odd]
        return counters

    def config_ones(self) -> bool | None:
        """Tell whether the first two bytes of the config space read as ones, None where they cannot be read."""
        try:
            begins = _bytes("config", 2, self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.errors.append(f"config: {error.strerror or error}")
            return None
        return begins == b"\xff\xff" if len(begins) == 2 else None

    def _text(self, name: str) -> str | None:
        try:
            return _bytes(name, _TEXT_LIMIT, self._descriptor).decode("ascii", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.errors.append(f"{name}: {error.strerror or error}")
            return None


@functools.lru_cache(maxsize=256)
def _counters_of(prefix: str, text: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Give the counters of a file by name, and the lines that are none. Most devices show the same text for ever."""
    counters: dict[str, int] = {}
    odd: list[str] = []
    for line in text.splitlines():
        words = line.rsplit(None, 1)
        if len(words) != 2 or not _is_count(words[1]):
            odd.append(line[:40])
        elif not words[0].startswith("TOTAL_ERR_"):
            counters[f"{prefix}.{' '.join(words[0].split())[:40]}"] = int(words[1])
    return counters, tuple(odd)


def _read(path: Path | str, limit: int = _TEXT_LIMIT) -> str:
    return _bytes(path, limit).decode("ascii", errors="replace")


def _bytes(path: Path | str, limit: int, folder: int | None = None) -> bytes:
    """Read once, without the layers of a file object: some hundreds of these are one look. `folder`: an open one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def _hexadecimal(path: Path) -> int:
    text = _read(path).strip()
    try:
        return _hexadecimal_of(text)
    except ValueError:
        raise ValueError(f"{path} holds {text[:40]!r}; it must hold a number such as 0x10de") from None


def _hexadecimal_of(text: str) -> int:
    if not re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text):
        raise ValueError(text)
    return int(text, 16)


@functools.lru_cache(maxsize=64)
def _speed_of(text: str) -> int | None:
    """Give tenths of GT/s; None for `Unknown` and `Unknown speed`, and for 0, which is no link."""
    if text.startswith("Unknown"):
        return None
    found = _SPEED.match(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * 10 + int(found[2] or 0) or None


def _width_of(text: str) -> int | None:
    """Give lanes. 255 is the kernel's own mark of an unknown width (PCIE_LNK_WIDTH_UNKNOWN)."""
    width = _count_of(text)
    return None if width == 255 else width


def _numa_of(text: str) -> int | None:
    return None if text == "-1" else _count_of(text)


def _count_of(text: str) -> int:
    if not _is_count(text):
        raise ValueError(text)
    return int(text)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _slots(folder: Path) -> dict[str, str]:
    """Give the names of the physical slots by the address in them, without function; a name is all that is lost here."""
    return dict(_slot_names(folder))


def _slot_names(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        slots = sorted(folder.iterdir())[:MOST_DEVICES]
    except OSError:
        return
    for slot in slots:
        try:
            yield _read(slot / "address").strip(), slot.name[:32]
        except OSError:
            continue


def _is_guest(sys_root: Path, proc_root: Path) -> bool:
    """Tell a virtual machine: x86 processors say so, elsewhere the firmware's names do."""
    cpuinfo = _read_if_there(proc_root / "cpuinfo", _CPUINFO_LIMIT)
    if re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
        return True
    if re.search(r"^flags\s*:", cpuinfo, re.MULTILINE):
        return False
    dmi = sys_root / "class/dmi/id"
    vendor, product = _read_if_there(dmi / "sys_vendor"), _read_if_there(dmi / "product_name")
    # Amazon names its bare-metal types `p5.metal` and its guests by the plain type.
    amazons = vendor.startswith("Amazon EC2") and ".metal" not in product
    return amazons or _GUESTS.search(f"{vendor} {product}") is not None


def _read_if_there(path: Path, limit: int = _TEXT_LIMIT) -> str:
    try:
        return _read(path, limit)
    except OSError:
        return ""
