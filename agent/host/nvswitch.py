"""Whether NVSwitches sit on this machine's PCI bus: bridges (class 0x0680) whose vendor is NVIDIA."""

from pathlib import Path

_NVIDIA = 0x10DE
_OTHER_BRIDGE = 0x0680


def has_nvswitch(sys_root: Path) -> bool:
    """Look for one. Raises OSError where the bus cannot be read."""
    return any(_is_nvswitch(device) for device in (sys_root / "bus/pci/devices").iterdir())


def _is_nvswitch(device: Path) -> bool:
    try:
        vendor = int((device / "vendor").read_text(), 16)
        kind = int((device / "class").read_text(), 16) >> 8
    except (FileNotFoundError, ValueError):
        return False  # it went away meanwhile, or is no device as others are
    return (vendor, kind) == (_NVIDIA, _OTHER_BRIDGE)
