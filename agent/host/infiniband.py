"""The RDMA devices and their ports, from sysfs: InfiniBand, RoCE and EFA alike. No library, no ioctl.

Formats: Documentation/ABI/testing/sysfs-class-infiniband and drivers/infiniband/core/sysfs.c. What traps there are:

- a counter may say `N/A (no PMA)`, and one that the firmware keeps to itself gives EINVAL and floods the kernel log with
  each try (mlx5 ACCESS_REG): such a file is not opened again for as long as this program runs;
- board_id and hca_type are mlx's own, hw_counters belong to the port or to the device, EFA has no counters/ at all;
- reading carrier or speed of an interface that is down gives EINVAL, which says nothing;
- /sys shows the interfaces of the network namespace of whoever mounted it, and /proc/net those of the reader: so the routes
  are those of process 1 where they can be had.

Only what is judged is read, since each read of a counter is a command to the card's firmware.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

import msgspec

from agent.config import InfinibandSection
from checks.infiniband_names import COUNTERS, EFA, MLX5
from checks.infiniband_reading import HcaReading, InfinibandRead, Netdev, PciHca, PortReading
from kube.clock import Clock

NVIDIA, MELLANOX, AMAZON = 0x10DE, 0x15B3, 0x1D0F
ETHERNET_CLASS, INFINIBAND_CLASS, DISPLAY_CLASSES = 0x0200, 0x0207, {0x0300, 0x0302}
MOST_DEVICES = 1024
MOST_PORTS = 4
MOST_NETDEVS = 8
MOST_UPPERS = 16
MOST_REFUSED = 8192
_TEXT_LIMIT = 4096
_SHOWN = 64
_ROUTES_LIMIT = 1 << 20
_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA}
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR}

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_COUNT = re.compile(r"[0-9]{1,20}")


class Files(Protocol):
    """The one way to a file's text, so that a test can refuse one as a firmware does."""

    def read(self, path: Path, limit: int) -> str:
        """Give the text of at most `limit` bytes. Raises OSError."""
        ...


class Disk:
    """The real files."""

    def read(self, path: Path, limit: int) -> str:
        # Hundreds of small files a look: a file object for each would cost more than all else.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(descriptor, limit)]
            while parts[-1] and sum(map(len, parts)) < limit:
                parts.append(os.read(descriptor, limit))
        finally:
            os.close(descriptor)
        return b"".join(parts)[:limit].decode("utf-8", errors="replace")


class InfinibandReader:
    """Reads one machine again and again; it remembers which counters were refused, and nothing else that could be wrong."""

    def __init__(
        self,
        sys_root: Path,
        proc_root: Path,
        section: InfinibandSection,
        clock: Clock,
        files: Files | None = None,
    ) -> None:
        self._sys, self._proc = sys_root, proc_root
        self._section = section
        self._clock = clock
        self._files: Files = files or Disk()
        self._refused: dict[Path, str] = {}
        self._kinds: dict[str, tuple[int, int, int]] = {}

    def read(self) -> InfinibandRead:
        """Look at all devices. Raises OSError or ValueError, naming the file, where sysfs itself cannot be read."""
        routed = self._routed()
        names = _listed(self._sys / "class/infiniband")
        hcas, gpu_numa = self._pci()
        return InfinibandRead(
            seen_at=self._clock.now(),
            devices=tuple(self._device(name, routed) for name in names),
            pci_hcas=hcas,
            gpu_numa=gpu_numa,
            exclusive=self._text(self._sys / "module/ib_core/parameters/netns_mode", {}) == "N",
        )

    # PCI

    def _pci(self) -> tuple[tuple[PciHca, ...], tuple[int, ...]]:
        bus = self._sys / "bus/pci/devices"
        addresses = sorted(one.name for one in bus.iterdir() if _ADDRESS.fullmatch(one.name))[:MOST_DEVICES]
        # What a device is does not change while it has its address; one that is only just coming tells nothing yet.
        known = {a: kind for a, kind in self._kinds.items() if all(kind)}
        self._kinds = {a: known[a] if a in known else self._kind(bus / a) for a in addresses}
        hcas: list[PciHca] = []
        numa: set[int] = set()
        for address, (kind, vendor, number) in self._kinds.items():
            if vendor == NVIDIA and kind in DISPLAY_CLASSES:
                near = self._number(bus / address / "numa_node")
                numa |= {near} if near is not None and near >= 0 else set()
            elif _is_hca(kind, vendor, number) and not (bus / address / "physfn").exists():
                driver = _target(bus / address / "driver")
                hcas.append(PciHca(pci=address, infiniband=kind == INFINIBAND_CLASS, driver=driver))
        return tuple(hcas), tuple(sorted(numa))

    def _kind(self, device: Path) -> tuple[int, int, int]:
        names = ("class", "vendor", "device")
        kind, vendor, number = (self._number(device / name) or 0 for name in names)
        return kind >> 8, vendor, number

    # A device

    def _device(self, name: str, routed: set[str]) -> HcaReading:
        folder = self._sys / "class/infiniband" / name
        parent = (folder / "device").resolve()
        pci = next((one.name for one in (parent, *parent.parents) if _ADDRESS.fullmatch(one.name)), "")
        errors: dict[str, str] = {}
        reading = HcaReading(
            name=name,
            pci=pci,
            vendor=self._number(parent / "vendor"),
            hca_type=self._text(folder / "hca_type", errors),
            board_id=self._text(folder / "board_id", errors),
            firmware=self._text(folder / "fw_ver", errors),
            node_guid=self._text(folder / "node_guid", errors),
            node_type=self._text(folder / "node_type", errors),
            driver=_target(parent / "driver"),
            numa=self._number(parent / "numa_node"),
            virtual=(parent / "physfn").exists(),
            subfunction=(parent / "sfnum").exists(),
            role=self._role(name, pci),
        )
        left_out = self._why_left_out(reading)
        if left_out:
            return msgspec.structs.replace(reading, left_out=left_out, errors=errors)
        ports = tuple(self._ports(folder, EFA if reading.is_efa else MLX5, errors))
        netdevs = tuple(self._netdevs(folder, parent, ports, routed))
        return msgspec.structs.replace(
            reading, ports=ports, netdevs=netdevs, legs=self._legs(netdevs), errors=errors
        )

    def _role(self, name: str, pci: str) -> str:
        section = self._section
        told = (
            ("compute", section.compute),
            ("storage", section.storage),
            ("management", section.management),
        )
        return next((role for role, patterns in told if _matches(patterns, name, pci)), "")

    def _why_left_out(self, device: HcaReading) -> str:
        if device.virtual and not self._section.virtual_functions:
            return "it is a virtual function"
        if device.subfunction:
            return "it is a sub-function"
        named = _matches(self._section.devices, device.name, device.pci)
        if not named or _matches(self._section.exclude, device.name, device.pci):
            return "the configuration leaves it out"
        return ""

    # Its ports

    def _ports(
        self, device: Path, hw_counters: tuple[str, ...], errors: dict[str, str]
    ) -> Iterator[PortReading]:
        try:
            names = _listed(device / "ports")
        except OSError as error:
            errors["ports"] = _why(error)
            return
        numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 4)
        for number in numbers[:MOST_PORTS]:
            yield self._port(device, number, hw_counters)

    def _port(self, device: Path, number: int, hw_counters: tuple[str, ...]) -> PortReading:
        folder = device / "ports" / str(number)
        errors: dict[str, str] = {}
        not_shown: dict[str, str] = {}
        state = self._text(folder / "state", errors)
        active = "ACTIVE" in state
        software = [folder / "counters"]
        hardware = [folder / "hw_counters", device / "hw_counters"]
        return PortReading(
            number=number,
            state=state,
            phys_state=self._text(folder / "phys_state", errors),
            rate=self._text(folder / "rate", errors),
            link_layer=self._text(folder / "link_layer", errors),
            # Each of these asks the firmware for all of the port; who it belongs to matters where it does not work.
            lid="" if active else self._text(folder / "lid", errors),
            sm_lid="" if active else self._text(folder / "sm_lid", errors),
            counters=self._counters(software, COUNTERS, not_shown, errors),
            hw_counters=self._counters(hardware, hw_counters, not_shown, errors),
            not_shown=not_shown,
            errors=errors,
        )

    def _counters(
        self, folders: Iterable[Path], names: Iterable[str], not_shown: dict[str, str], errors: dict[str, str]
    ) -> dict[str, int]:
        """Read these counters in the first of the folders that there is."""
        counters: dict[str, int] = {}
        folder = next((one for one in folders if one.is_dir()), None)
        if folder is None:
            return counters
        for name in names:
            path = folder / name
            if path in self._refused:
                not_shown[name] = self._refused[path]
                continue
            try:
                text = self._files.read(path, _TEXT_LIMIT).strip()
            except OSError as error:
                self._failed(path, error, not_shown, errors)
                continue
            if _COUNT.fullmatch(text):
                counters[name] = int(text)
            elif text.startswith("N/A"):
                not_shown[name] = "N/A"
            else:
                errors[name] = f"holds {text[:_SHOWN]!r}, which is no number"
        return counters

    def _failed(self, path: Path, error: OSError, not_shown: dict[str, str], errors: dict[str, str]) -> None:
        if error.errno in _GONE:
            return
        if error.errno not in _REFUSED:
            errors[path.name] = _why(error)
            return
        not_shown[path.name] = _why(error)
        if len(self._refused) < MOST_REFUSED:
            self._refused[path] = _why(error)

    # Its network interfaces

    def _netdevs(
        self, device: Path, parent: Path, ports: Iterable[PortReading], routed: set[str]
    ) -> Iterator[Netdev]:
        names = _listed(parent / "net")
        for port in ports:
            if port.link_layer == "Ethernet":
                names.append(self._text(device / f"ports/{port.number}/gid_attrs/ndevs/0", {}))
        for name in list(dict.fromkeys(name for name in names if name and "/" not in name))[:MOST_NETDEVS]:
            folder = self._sys / "class/net" / name
            carrier = self._number(folder / "carrier")
            speed = self._number(folder / "speed")
            master = _target(folder / "master")
            bonds = [
                one for one in (name, master) if one and (self._sys / "class/net" / one / "bonding").is_dir()
            ]
            yield Netdev(
                name=name,
                operstate=self._text(folder / "operstate", {}),
                carrier=None if carrier is None else carrier == 1,
                carrier_changes=self._number(folder / "carrier_changes"),
                bond=bonds[0] if bonds else "",
                default_route=not routed.isdisjoint(self._above(name)),
                mbps=speed if speed is not None and speed > 0 else None,
            )

    def _legs(self, netdevs: Iterable[Netdev]) -> tuple[tuple[str, bool], ...]:
        bond = next((netdev.bond for netdev in netdevs if netdev.bond), "")
        if not bond:
            return ()
        net = self._sys / "class/net"
        legs = self._text(net / bond / "bonding/slaves", {}, limit=_TEXT_LIMIT).split()[:MOST_NETDEVS]
        return tuple((leg, self._is_up(net / leg)) for leg in sorted(legs) if "/" not in leg)

    def _is_up(self, leg: Path) -> bool:
        said = self._text(leg / "bonding_slave/mii_status", {}) or self._text(leg / "operstate", {})
        return said != "down"

    def _above(self, name: str) -> set[str]:
        """Give the interface and whatever stands above it: its bond, bridges, VLANs."""
        seen: set[str] = set()
        waiting = [name]
        while waiting and len(seen) < MOST_UPPERS:
            one = waiting.pop()
            seen.add(one)
            folder = self._sys / "class/net" / one
            names = [entry.removeprefix("upper_") for entry in _listed(folder) if entry.startswith("upper_")]
            names.append(_target(folder / "master"))
            waiting += [upper for upper in names if upper and upper not in seen]
        return seen

    def _routed(self) -> set[str]:
        """Give the interfaces that have a default route, of IPv4 or IPv6. Raises OSError where that cannot be told."""
        net = next((one for one in (self._proc / "1/net", self._proc / "net") if one.exists()), None)
        if net is None:
            return set()
        return {*self._routed_v4(net / "route"), *self._routed_v6(net / "ipv6_route")}

    def _routed_v4(self, path: Path) -> Iterator[str]:
        for line in self._lines(path):
            words = line.split()
            if len(words) >= 8 and words[1] == words[7] == "00000000":
                yield words[0]

    def _routed_v6(self, path: Path) -> Iterator[str]:
        for line in self._lines(path):
            words = line.split()
            if len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
                yield words[9]

    # Files

    def _lines(self, path: Path) -> list[str]:
        try:
            return self._files.read(path, _ROUTES_LIMIT).splitlines()
        except FileNotFoundError:
            return []

    def _text(self, path: Path, errors: dict[str, str], limit: int = _SHOWN) -> str:
        """Give a file's text, stripped; empty where there is none, or where it fails, which `errors` then tells."""
        try:
            return self._files.read(path, limit).strip().replace("\0", "")
        except OSError as error:
            if error.errno not in _GONE:
                errors[path.name] = _why(error)
            return ""

    def _number(self, path: Path) -> int | None:
        text = self._text(path, {})
        try:
            return int(text, 16 if text.startswith("0x") else 10)
        except ValueError:
            return None


def _listed(folder: Path) -> list[str]:
    """Give the names in a folder, in order; none where there is no such folder. Raises OSError."""
    try:
        return sorted(one.name for one in folder.iterdir())[:MOST_DEVICES]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _target(link: Path) -> str:
    """Give the name of what a symbolic link leads to, empty where it is none."""
    try:
        return link.readlink().name
    except OSError:
        return ""


def _is_hca(kind: int, vendor: int, number: int) -> bool:
    return (
        kind == INFINIBAND_CLASS
        or (kind == ETHERNET_CLASS and vendor == MELLANOX)
        or (vendor == AMAZON and number >> 4 == 0xEFA)
    )


def _matches(patterns: Iterable[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names if name)


def _why(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "")
    return f"{name} ({error.strerror})" if name else str(error)[:_SHOWN]
