"""The RDMA devices and their ports, from sysfs: InfiniBand, RoCE and EFA alike. No library, no ioctl.

Formats: Documentation/ABI/testing/sysfs-class-infiniband and drivers/infiniband/core/sysfs.c. What traps there are:

- a counter may say `N/A (no PMA)`, and one that the firmware keeps to itself gives EINVAL and floods the kernel log with
  each try (mlx5 ACCESS_REG): such a file is not opened again for as long as this program runs;
- board_id and hca_type are mlx's own, hw_counters belong to the port or to the device, EFA has no counters/ at all.

Only what is judged is read, since each read of a counter is a command to the card's firmware. What a device is (board,
firmware, address, NUMA node) is read when the devices change and every ten minutes.
"""

import errno
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from agent.config import InfinibandSection
from agent.host.rdma_netdevs import Netdevs
from agent.host.sysfs_text import (
    GONE,
    MOST_NAMES,
    SHOWN,
    TEXT_LIMIT,
    Disk,
    Files,
    Texts,
    exists,
    is_folder,
    last_name,
    link_of,
    listed,
    names_in,
    real_path,
    target,
    why,
)
from checks.infiniband_names import COUNTERS, EFA, MLX5
from checks.infiniband_reading import HcaReading, InfinibandRead, PciHca, PortReading
from kube.clock import Clock

NVIDIA, MELLANOX, AMAZON = 0x10DE, 0x15B3, 0x1D0F
ETHERNET_CLASS, INFINIBAND_CLASS, DISPLAY_CLASSES = 0x0200, 0x0207, {0x0300, 0x0302}
IDENTITY_SECONDS = 600
MOST_PORTS = 4
MOST_REFUSED = 8192
_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA}

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_COUNT = re.compile(r"[0-9]{1,20}")


class _Bus(msgspec.Struct, frozen=True, kw_only=True):
    """What a PCI device is; that does not change while it has its address."""

    kind: int
    vendor: int
    number: int
    numa: int | None = None
    virtual: bool = False

    @property
    def is_gpu(self) -> bool:
        return self.vendor == NVIDIA and self.kind in DISPLAY_CLASSES

    @property
    def is_hca(self) -> bool:
        return (
            self.kind == INFINIBAND_CLASS
            or (self.kind == ETHERNET_CLASS and self.vendor == MELLANOX)
            or (self.vendor == AMAZON and self.number >> 4 == 0xEFA)
        )


class InfinibandReader:
    """Reads one machine again and again; it remembers which counters were refused, and for a while what the devices are."""

    def __init__(
        self,
        sys_root: Path,
        proc_root: Path,
        section: InfinibandSection,
        clock: Clock,
        files: Files | None = None,
    ) -> None:
        self._sys, self._proc = str(sys_root), str(proc_root)
        self._section = section
        self._clock = clock
        self._files: Files = files or Disk()
        self._texts = Texts(self._files)
        self._netdevs = Netdevs(self._sys, self._proc, self._texts)
        self._refused: dict[str, str] = {}
        self._bus: dict[str, _Bus] = {}
        self._links: dict[str, str] = {}
        self._known: dict[str, tuple[str, HcaReading]] = {}
        self._known_at: float | None = None

    def read(self) -> InfinibandRead:
        """Look at all devices. Raises OSError or ValueError, naming the file, where sysfs itself cannot be read."""
        routed = self._netdevs.routed()
        names = listed(f"{self._sys}/class/infiniband")
        self._forget(names)
        hcas, gpu_numa = self._pci()
        return InfinibandRead(
            seen_at=self._clock.now(),
            devices=tuple(self._device(name, routed) for name in names),
            pci_hcas=hcas,
            gpu_numa=gpu_numa,
            exclusive=self._texts.text(f"{self._sys}/module/ib_core/parameters/netns_mode", {}) == "N",
        )

    def _forget(self, names: Iterable[str]) -> None:
        """Let go of what the devices are where there are others now, or where it is long since that was read."""
        links = {name: link_of(f"{self._sys}/class/infiniband/{name}") for name in names}
        now = self._clock.monotonic()
        if self._known_at is None or now - self._known_at >= IDENTITY_SECONDS:
            self._bus, self._known, self._known_at = {}, {}, now
        if links != self._links:
            self._known, self._links = {}, links

    # PCI

    def _pci(self) -> tuple[tuple[PciHca, ...], tuple[int, ...]]:
        bus = f"{self._sys}/bus/pci/devices"
        addresses = sorted(name for name in names_in(bus) if _ADDRESS.fullmatch(name))[:MOST_NAMES]
        # One that is only just coming tells nothing yet.
        known = {a: one for a, one in self._bus.items() if one.kind and one.vendor and one.number}
        self._bus = {a: known[a] if a in known else self._on_bus(f"{bus}/{a}") for a in addresses}
        hcas = [
            PciHca(
                pci=address,
                infiniband=one.kind == INFINIBAND_CLASS,
                driver=target(f"{bus}/{address}/driver"),
            )
            for address, one in self._bus.items()
            if one.is_hca and not one.virtual
        ]
        numa = {one.numa for one in self._bus.values() if one.is_gpu and one.numa is not None}
        return tuple(hcas), tuple(sorted(node for node in numa if node >= 0))

    def _on_bus(self, device: str) -> _Bus:
        names = ("class", "vendor", "device")
        kind, vendor, number = (self._texts.number(f"{device}/{name}") or 0 for name in names)
        one = _Bus(kind=kind >> 8, vendor=vendor, number=number)
        if one.is_gpu:
            return msgspec.structs.replace(one, numa=self._texts.number(f"{device}/numa_node"))
        return msgspec.structs.replace(one, virtual=one.is_hca and exists(f"{device}/physfn"))

    # A device

    def _device(self, name: str, routed: set[str]) -> HcaReading:
        folder = f"{self._sys}/class/infiniband/{name}"
        if name not in self._known:
            identified = self._identified(name, folder)
            if identified[1].errors:
                return self._with_ports(folder, *identified, routed)
            self._known[name] = identified
        return self._with_ports(folder, *self._known[name], routed)

    def _identified(self, name: str, folder: str) -> tuple[str, HcaReading]:
        """Give the folder of the device below it, and all that does not change."""
        parent = real_path(f"{folder}/device")
        pci = next((one for one in reversed(parent.split("/")) if _ADDRESS.fullmatch(one)), "")
        errors: dict[str, str] = {}
        reading = HcaReading(
            name=name,
            pci=pci,
            vendor=self._texts.number(f"{parent}/vendor"),
            hca_type=self._texts.text(f"{folder}/hca_type", errors),
            board_id=self._texts.text(f"{folder}/board_id", errors),
            firmware=self._texts.text(f"{folder}/fw_ver", errors),
            node_guid=self._texts.text(f"{folder}/node_guid", errors),
            node_type=self._texts.text(f"{folder}/node_type", errors),
            driver=target(f"{parent}/driver"),
            numa=self._texts.number(f"{parent}/numa_node"),
            virtual=exists(f"{parent}/physfn"),
            subfunction=exists(f"{parent}/sfnum"),
            role=self._role(name, pci),
            errors=errors,
        )
        return parent, msgspec.structs.replace(reading, left_out=self._why_left_out(reading))

    def _with_ports(self, folder: str, parent: str, reading: HcaReading, routed: set[str]) -> HcaReading:
        if reading.left_out:
            return reading
        errors = dict(reading.errors)
        ports = tuple(self._ports(folder, EFA if reading.is_efa else MLX5, errors))
        netdevs = tuple(self._netdevs.of(folder, parent, ports, routed))
        return msgspec.structs.replace(
            reading, ports=ports, netdevs=netdevs, legs=self._netdevs.legs(netdevs), errors=errors
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
        self, device: str, hw_counters: tuple[str, ...], errors: dict[str, str]
    ) -> Iterator[PortReading]:
        try:
            names = listed(f"{device}/ports")
        except OSError as error:
            errors["ports"] = why(error)
            return
        numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 4)
        for number in numbers[:MOST_PORTS]:
            yield self._port(device, number, hw_counters)

    def _port(self, device: str, number: int, hw_counters: tuple[str, ...]) -> PortReading:
        folder = f"{device}/ports/{number}"
        errors: dict[str, str] = {}
        not_shown: dict[str, str] = {}
        state = self._texts.text(f"{folder}/state", errors)
        active = "ACTIVE" in state
        software = [f"{folder}/counters"]
        hardware = [f"{folder}/hw_counters", f"{device}/hw_counters"]
        return PortReading(
            number=number,
            state=state,
            phys_state=self._texts.text(f"{folder}/phys_state", errors),
            rate=self._texts.text(f"{folder}/rate", errors),
            link_layer=self._texts.text(f"{folder}/link_layer", errors),
            # Each of these asks the firmware for all of the port; who it belongs to matters where it does not work.
            lid="" if active else self._texts.text(f"{folder}/lid", errors),
            sm_lid="" if active else self._texts.text(f"{folder}/sm_lid", errors),
            counters=self._counters(software, COUNTERS, not_shown, errors),
            hw_counters=self._counters(hardware, hw_counters, not_shown, errors),
            not_shown=not_shown,
            errors=errors,
        )

    def _counters(
        self, folders: Iterable[str], names: Iterable[str], not_shown: dict[str, str], errors: dict[str, str]
    ) -> dict[str, int]:
        """Read these counters in the first of the folders that there is."""
        counters: dict[str, int] = {}
        folder = next((one for one in folders if is_folder(one)), None)
        if folder is None:
            return counters
        for name in names:
            path = f"{folder}/{name}"
            if path in self._refused:
                not_shown[name] = self._refused[path]
                continue
            try:
                text = self._files.read(path, TEXT_LIMIT).strip()
            except OSError as error:
                self._failed(path, error, not_shown, errors)
                continue
            if _COUNT.fullmatch(text):
                counters[name] = int(text)
            elif text.startswith("N/A"):
                not_shown[name] = "N/A"
            else:
                errors[name] = f"holds {text[:SHOWN]!r}, which is no number"
        return counters

    def _failed(self, path: str, error: OSError, not_shown: dict[str, str], errors: dict[str, str]) -> None:
        if error.errno in GONE:
            return
        name = last_name(path)
        if error.errno not in _REFUSED:
            errors[name] = why(error)
            return
        not_shown[name] = why(error)
        if len(self._refused) < MOST_REFUSED:
            self._refused[path] = why(error)


def _matches(patterns: Iterable[str], *names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names if name)
