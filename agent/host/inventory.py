"""Which NVIDIA GPUs this machine holds, from sysfs, and what the driver says of each, from procfs. No NVML: it works
while the driver is broken, and tells a machine without GPUs from one whose GPUs cannot be seen.

A sysfs that cannot be read is an `InventoryFailed`, never an empty list. What only the driver knows (UUID, model, minor
number, version) stays empty where the driver is not there: that is another check's fault to report.
"""

import re
from pathlib import Path

import msgspec

from checks.finding import Part, PartKind

NVIDIA = 0x10DE
DISPLAY_CLASSES = {0x0300, 0x0302}  # VGA controller, 3D controller; NVSwitches are bridges (0x0680)

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_TEXT_LIMIT = 4096


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. `part` is named without function, as the driver's log names it; `minor` is N of /dev/nvidiaN."""

    part: Part
    model: str = ""
    minor: int | None = None


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, in PCI order; a GPU's index is its place in that order, as the driver counts by default."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(gpu.part for gpu in self.gpus)


class InventoryFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Why it is not known what this machine holds; `error` names the file and the cause."""

    error: str


def read_inventory(sys_root: Path, proc_root: Path) -> Inventory | InventoryFailed:
    """Look at the machine whose sysfs and procfs are mounted at these roots."""
    devices = sys_root / "bus/pci/devices"
    try:
        addresses = sorted(
            (device.name for device in devices.iterdir() if _ADDRESS.fullmatch(device.name)), key=_order
        )
        present = [address for address in addresses if _is_gpu(devices / address)]
    except (OSError, ValueError) as error:
        return InventoryFailed(error=f"cannot tell which GPUs this machine holds: {error}")
    driver_root = proc_root / "driver/nvidia"
    gpus = tuple(_gpu(index, address, driver_root) for index, address in enumerate(present))
    return Inventory(gpus=gpus, driver=_driver_version(driver_root / "version"))


def _is_gpu(device: Path) -> bool:
    try:
        vendor, kind = _hexadecimal(device / "vendor"), _hexadecimal(device / "class")
    except FileNotFoundError:
        if device.exists():
            raise  # a device without these files cannot be judged; one that went away meanwhile is not there
        return False
    # A virtual function of a GPU that is here is no card of its own; in a guest, which has the function alone, it is.
    return vendor == NVIDIA and kind >> 8 in DISPLAY_CLASSES and not (device / "physfn").exists()


def _gpu(index: int, address: str, driver_root: Path) -> Gpu:
    facts = _information(driver_root / "gpus" / address / "information")
    uuid = facts.get("GPU UUID", "").lower().replace("gpu-", "GPU-", 1)
    minor = facts.get("Device Minor", "")
    return Gpu(
        part=Part(
            kind=PartKind.GPU,
            pci=address.partition(".")[0],
            # The driver prints question marks for a GPU that it could not initialise.
            uuid=uuid if _UUID.fullmatch(uuid) else "",
            index=index,
        ),
        model=facts.get("Model", "")[:64],
        minor=int(minor) if minor.isascii() and minor.isdigit() and len(minor) < 5 else None,
    )


def _information(path: Path) -> dict[str, str]:
    """Read the `Name: value` lines of one GPU; nothing where the driver has nothing to say of it."""
    lines = _read_if_there(path).splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _driver_version(path: Path) -> str:
    found = _VERSION.search(_read_if_there(path))
    return found[1] if found else ""


def _read_if_there(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_TEXT_LIMIT)
    except OSError:
        return ""


def _hexadecimal(path: Path) -> int:
    text = path.read_text(encoding="ascii", errors="replace").strip()
    try:
        return int(text, 16)
    except ValueError:
        raise ValueError(f"{path} holds {text[:40]!r}; it must hold a number such as 0x10de") from None


def _order(address: str) -> tuple[int, int, int, int]:
    domain, bus, rest = address.split(":")
    device, _, function = rest.partition(".")
    return int(domain, 16), int(bus, 16), int(device, 16), int(function, 16)
