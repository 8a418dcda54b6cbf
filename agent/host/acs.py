"""Whether PCI bridges redirect what goes from device to device: Access Control Services, from the config space in sysfs.

Between a GPU and an HCA below one PCIe switch, GPUDirect RDMA goes straight through the switch, unless the switch's ports
redirect requests or completions up to the processor (PCI Express base specification, 6.12; ACS Control register, bits 2 and
3): then every transfer takes the way twice and slowly. On bare metal nothing needs that; a hypervisor does. Root ports do
not count: what passes them goes by the processor anyhow.
"""

import os
from pathlib import Path

_ADDRESS_PARTS = 3  # dddd:bb:dd.f
_NVIDIA, _MELLANOX = 0x10DE, 0x15B3
_DISPLAY, _NETWORK = {0x0300, 0x0302}, {0x0200, 0x0207}
_EXTENDED, _HEADER_BYTES, _MOST_CAPABILITIES = 0x100, 4, 64
_ACS, _CONTROL_AT = 0x000D, 6
_REDIRECT = 0x04 | 0x08


def redirecting_bridges(sys_root: Path) -> tuple[str, ...] | None:
    """Give the bridges above GPUs and HCAs, root ports left out, that redirect; None where there is no such bridge.

    Raises OSError, or ValueError naming a bridge whose config space may not be read beyond its first part.
    """
    bridges: dict[str, Path] = {}
    for device in sorted((sys_root / "bus/pci/devices").iterdir()):
        if _counts(device):
            way = [
                folder for folder in device.resolve().parents if folder.name.count(":") == _ADDRESS_PARTS - 1
            ]
            bridges |= {folder.name: folder for folder in way[:-1]}
    if not bridges:
        return None
    return tuple(name for name, folder in sorted(bridges.items()) if _redirects(folder))


def _counts(device: Path) -> bool:
    try:
        vendor = int((device / "vendor").read_text(), 16)
        kind = int((device / "class").read_text(), 16) >> 8
    except (FileNotFoundError, ValueError):
        return False  # it went away meanwhile, or is no device as others are
    return (vendor == _NVIDIA and kind in _DISPLAY) or (vendor == _MELLANOX and kind in _NETWORK)


def _redirects(bridge: Path) -> bool:
    file = os.open(bridge / "config", os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = _EXTENDED
        for _ in range(_MOST_CAPABILITIES):
            header = os.pread(file, _HEADER_BYTES, at)
            if len(header) < _HEADER_BYTES:
                raise ValueError(
                    f"{bridge.name}: its config space ends at {at:#x}; CAP_SYS_ADMIN shows all of it"
                )
            word = int.from_bytes(header, "little")
            if word in (0, 0xFFFFFFFF):
                return False
            if word & 0xFFFF == _ACS:
                return bool(int.from_bytes(os.pread(file, 2, at + _CONTROL_AT), "little") & _REDIRECT)
            at = word >> 20
            if at < _EXTENDED:
                return False
        return False
    finally:
        os.close(file)
