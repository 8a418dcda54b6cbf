"""PCI buses of GPU machines as sysfs shows them, in a folder: devices in their tree, links to them that lead there.

`Bus` lays out any tree; `dgx_h100`, `dgx_a100`, `dgx_b200`, `gb200` and `guest` give whole machines. Any file can be set,
taken away or made unreadable afterwards, which is how a link trains narrow, a device leaves the bus, errors are counted.
"""

from pathlib import Path

CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
UNCORRECTABLE = (
    *(
        "Undefined",
        "DLP",
        "SDES",
        "TLP",
        "FCP",
        "CmpltTO",
        "CmpltAbrt",
        "UnxCmplt",
        "RxOF",
        "MalfTLP",
        "ECRC",
    ),
    *("UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr"),
)
BARE_METAL_FLAGS = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme de pse tsc msr\n"
GUEST_FLAGS = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme de pse tsc msr hypervisor\n"


class Bus:
    """One machine's bus under `root`/sys, and what of its procfs tells a guest."""

    def __init__(self, root: Path) -> None:
        self.sys, self.proc = root / "sys", root / "proc"
        self.devices = self.sys / "bus/pci/devices"
        self.devices.mkdir(parents=True)
        self.proc.mkdir(parents=True, exist_ok=True)
        (self.proc / "cpuinfo").write_text(BARE_METAL_FLAGS)

    def add(
        self,
        address: str,
        *,
        under: str = "",
        vendor: int = 0x8086,
        device: int = 0x1234,
        kind: int = 0x060400,
        gts: str = "32.0 GT/s PCIe",
        lanes: int = 16,
        aer: bool = True,
    ) -> str:
        """Put a device below the one at `under`, or at a root; give its address."""
        domain = address.rpartition(":")[0]
        folder = (self._at(under) if under else self.sys / f"devices/pci{domain}") / address
        folder.mkdir(parents=True)
        way = "../" * 3 + str(folder.relative_to(self.sys))
        (self.devices / address).symlink_to(way)
        self.set(address, vendor=f"0x{vendor:04x}", device=f"0x{device:04x}", **{"class": f"0x{kind:06x}"})
        self.set(address, current_link_speed=gts, max_link_speed=gts, numa_node="0")
        self.set(address, current_link_width=str(lanes), max_link_width=str(lanes))
        (folder / "config").write_bytes(vendor.to_bytes(2, "little") + device.to_bytes(2, "little"))
        if aer:
            self.set_errors(address)
        return address

    def set(self, address: str, **files: str) -> None:
        """Write files of a device, one line each."""
        for name, text in files.items():
            (self._at(address) / name).write_text(f"{text}\n")

    def drop(self, address: str, *names: str) -> None:
        """Take files of a device away."""
        for name in names:
            (self._at(address) / name).unlink(missing_ok=True)

    def set_errors(self, address: str, **counts: int) -> None:
        """Write the AER counters of a device; `fatal_DLP=1`, `nonfatal_CmpltTO=2`, `correctable_RxErr=3`, the rest 0."""
        for group, total, names in (
            ("correctable", "COR", CORRECTABLE),
            ("fatal", "FATAL", UNCORRECTABLE),
            ("nonfatal", "NONFATAL", UNCORRECTABLE),
        ):
            values = [(name, counts.get(f"{group}_{name}", 0)) for name in names]
            rows = [*values, (f"TOTAL_ERR_{total}", sum(value for _, value in values))]
            self.set(address, **{f"aer_dev_{group}": "\n".join(f"{name} {value}" for name, value in rows)})

    def leaves(self, address: str) -> None:
        """Let a device answer all ones, as one does that fell off the bus while its folder is still there."""
        self.set(address, current_link_speed="Unknown", current_link_width="63")
        (self._at(address) / "config").write_bytes(b"\xff" * 64)

    def slot(self, name: str, address: str) -> None:
        """Name the physical slot of a device."""
        folder = self.sys / "bus/pci/slots" / name
        folder.mkdir(parents=True)
        (folder / "address").write_text(f"{address.partition('.')[0]}\n")

    def becomes_guest(self) -> None:
        """Let the processors say that a hypervisor is there."""
        (self.proc / "cpuinfo").write_text(GUEST_FLAGS)

    def switched(self, bus: int, gts: str = "32.0 GT/s PCIe") -> list[str]:
        """Put a root port and a switch with two downstream ports there; give root, upstream and downstream ports."""
        root = self.add(f"0000:{bus:02x}:01.0", gts=gts)
        upstream = self.add(f"0000:{bus + 1:02x}:00.0", under=root, vendor=0x1000, gts=gts)
        down = [
            self.add(f"0000:{bus + 2:02x}:0{number}.0", under=upstream, vendor=0x1000, gts=gts)
            for number in range(2)
        ]
        return [root, upstream, *down]

    def gpu(self, address: str, under: str = "", device: int = 0x2330, gts: str = "32.0 GT/s PCIe") -> str:
        return self.add(address, under=under, vendor=0x10DE, device=device, kind=0x030200, gts=gts)

    def hca(self, address: str, under: str = "", device: int = 0x1021, gts: str = "32.0 GT/s PCIe") -> str:
        return self.add(address, under=under, vendor=0x15B3, device=device, kind=0x020700, gts=gts)

    def nvswitch(self, address: str, under: str = "", gts: str = "16.0 GT/s PCIe") -> str:
        return self.add(
            address, under=under, vendor=0x10DE, device=0x22A3, kind=0x068000, gts=gts, lanes=2, aer=False
        )

    def _at(self, address: str) -> Path:
        return (self.devices / address).resolve()


def _eight(root: Path, *, device: int, hca: int, gts: str, switches: int) -> Bus:
    bus = Bus(root)
    for number in range(8):
        first = 0x10 + number * 0x10
        _, _, down_gpu, down_hca = bus.switched(first, gts)
        bus.gpu(f"0000:{first + 3:02x}:00.0", down_gpu, device, gts)
        bus.hca(f"0000:{first + 4:02x}:00.0", down_hca, hca, gts)
    for number in range(switches):
        port = bus.add(f"0000:0{number}:02.0", gts="16.0 GT/s PCIe", lanes=2)
        bus.nvswitch(f"0000:0{number}:05.0", port)
    return bus


def dgx_h100(root: Path) -> Bus:
    """Eight H100 and eight ConnectX-7 behind switches, four NVSwitches."""
    return _eight(root, device=0x2330, hca=0x1021, gts="32.0 GT/s PCIe", switches=4)


def dgx_a100(root: Path) -> Bus:
    """Eight A100 and eight ConnectX-6 behind switches, six NVSwitches, on a kernel that writes speeds the old way."""
    return _eight(root, device=0x20B2, hca=0x101B, gts="16 GT/s", switches=6)


def dgx_b200(root: Path) -> Bus:
    """Eight B200 and eight ConnectX-7; its NVSwitches are no PCI devices of the host's."""
    return _eight(root, device=0x2901, hca=0x1021, gts="32.0 GT/s PCIe", switches=0)


def gb200(root: Path) -> Bus:
    """Four GPUs that hang on their processors by C2C, with a link of PCIe in name only, and four ConnectX-7."""
    bus = Bus(root)
    (bus.proc / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd\n")
    (bus.sys / "class/dmi/id").mkdir(parents=True)
    (bus.sys / "class/dmi/id/sys_vendor").write_text("NVIDIA\n")
    for number, domain in enumerate(("0008", "0009", "0018", "0019")):
        port = bus.add(f"{domain}:00:00.0", gts="2.5 GT/s PCIe", lanes=1)
        bus.gpu(f"{domain}:01:00.0", port, 0x2941, "2.5 GT/s PCIe")
        bus.set(f"{domain}:01:00.0", current_link_width="1")
        root_port = bus.add(f"000{number}:00:00.0")
        bus.hca(f"000{number}:03:00.0", root_port)
    return bus


def guest(root: Path) -> Bus:
    """Give a virtual machine with two GPUs: ports that are made up, no AER, no slots."""
    bus = Bus(root)
    bus.becomes_guest()
    for number in range(2):
        port = bus.add(f"0000:00:0{number + 2}.0", gts="2.5 GT/s PCIe", lanes=1, aer=False)
        gpu = bus.gpu(f"0000:0{number + 1}:00.0", port)
        bus.drop(gpu, "aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal")
    return bus
