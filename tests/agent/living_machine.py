"""A machine that lives: eight GPUs and eight ports, with noise below every threshold. Whoever wants breaks parts of it.

`World` is the truth of the machine at an instant and makes the readings of it. No clock but the simulated one.
"""

from datetime import UTC, datetime, timedelta
from random import Random

from checks.gpu_health import Clocks, Ecc, Fabric, GpuHealth, NvLink, NvLinks, Pcie, RemappedRows
from checks.infiniband_reading import INFINIBAND, HcaReading, InfinibandRead, PciHca, PortReading
from checks.observation import (
    KERNEL_LOG,
    GpuReading,
    KernelRecord,
    NvmlError,
    NvmlFailed,
    NvmlRead,
    NvmlReleased,
    Observation,
    SourceFailed,
    SourceRead,
)
from checks.pci_reading import PCI, PciDevice, PciRead

START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
STEP_S = 60
GPUS, PORTS, LINKS = 8, 8, 18
INSTANCE = {"node.kubernetes.io/instance-type": "", "nvidia.com/gpu.count": str(GPUS)}
HEALTHY_MASK = 0x1AA
MINUTE_NS = 60_000_000_000


def gpu_pci(number: int) -> str:
    return f"0000:{0x18 + number:02x}:00"


def hca_pci(number: int) -> str:
    return f"0000:{0x50 + number:02x}:00"


class Gpu:
    """One GPU as it is; counters since the driver was loaded begin anew with each load."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lost = False
        self.pending = self.failure = False
        self.remapped = 0
        self.aggregate = 0
        self.down_links: set[int] = set()
        self.width = 16
        self.hot_share = 0
        self.load_driver()

    def load_driver(self) -> None:
        self.corrected = self.uncorrected = self.replay = self.thermal_ns = self.brake_ns = 0
        self.link_errors = 0

    def reading(self) -> GpuReading:
        pci = gpu_pci(self.number)
        if self.lost:
            error = NvmlError(call="nvmlDeviceGetHandleByIndex_v2", code=15, name="GpuIsLost")
            return GpuReading(index=self.number, pci=pci, errors=(error,))
        return GpuReading(
            index=self.number,
            pci=pci,
            uuid=f"GPU-00000000-0000-0000-0000-{self.number:012d}",
            serial=f"16509230{self.number:05d}",
            model="NVIDIA H100 80GB HBM3",
            mig=False,
            recovery=0,
            health=self._health(),
        )

    def _health(self) -> GpuHealth:
        links = tuple(
            NvLink(
                index=number,
                state=0 if number in self.down_links else 1,
                mbps=26_562,
                counters={"replay": self.link_errors if number == 3 else 0, "recovery": 0, "crc_flit": 0},
            )
            for number in range(LINKS)
        )
        return GpuHealth(
            architecture=9,
            remapped=RemappedRows(
                correctable=self.remapped,
                uncorrectable=0,
                pending=self.pending,
                failure=self.failure,
                banks_max=2560,
                banks_high=0,
                banks_partial=0,
                banks_low=0,
                banks_none=0,
            ),
            ecc=Ecc(
                enabled=True,
                volatile_corrected=self.corrected,
                volatile_uncorrected=self.uncorrected,
                aggregate_corrected=self.aggregate + self.corrected,
                aggregate_uncorrected=self.uncorrected,
                sram_volatile_uncorrected=0,
                sram_aggregate_uncorrected=0,
                sram_threshold=False,
            ),
            nvlinks=NvLinks(count=LINKS, version=6, links=links),
            fabric=Fabric(state=3, status=0, mask=HEALTHY_MASK, summary=1),
            pcie=Pcie(
                generation=5,
                width=self.width,
                max_generation=5,
                max_width=16,
                device_max_generation=5,
                pstate_before=0,
                pstate_after=0,
                bus_type=2,
                c2c_links=0,
                counters={"replay": self.replay},
            ),
            clocks=Clocks(
                reasons=0x40 if self.hot_share else 0,
                throttled_ns={
                    "hw_thermal": self.thermal_ns,
                    "sw_thermal": 0,
                    "power_brake": self.brake_ns,
                    "power_cap": self.thermal_ns,
                },
                pstate=0,
                temperature_c=64,
                slowdown_c=87,
                sm_mhz=1980,
                sm_max_mhz=1980,
                utilisation_percent=97,
                persistence=True,
            ),
        )


class Port:
    """One port of the compute fabric as it is."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.down = False
        self.mbps = 400_000
        self.load_driver()

    def load_driver(self) -> None:
        self.symbol_errors = self.link_downed = 0

    def go(self, *, down: bool) -> None:
        if down and not self.down:
            self.link_downed += 1
        self.down = down

    def reading(self) -> HcaReading:
        rates = {400_000: "400 Gb/sec (4X NDR)", 200_000: "200 Gb/sec (4X HDR)"}
        port = PortReading(
            number=1,
            state="1: DOWN" if self.down else "4: ACTIVE",
            phys_state="2: Polling" if self.down else "5: LinkUp",
            rate="10 Gb/sec (4X SDR)" if self.down else rates[self.mbps],
            link_layer="InfiniBand",
            lid="0x0" if self.down else hex(40 + self.number),
            sm_lid="0x0" if self.down else "0x1",
            counters={
                "symbol_error": min(self.symbol_errors, 65535),
                "link_downed": min(self.link_downed, 255),
                "link_error_recovery": 0,
                "port_rcv_errors": 0,
                "port_xmit_wait": 1000 * self.symbol_errors,
            },
        )
        return HcaReading(
            name=f"mlx5_{self.number}",
            pci=f"{hca_pci(self.number)}.0",
            vendor=0x15B3,
            hca_type="MT4129",
            board_id="MT_0000000838",
            firmware="28.39.1002",
            node_type="1: CA",
            driver="mlx5_core",
            numa=0 if self.number < PORTS // 2 else 1,
            ports=(port,),
        )


class World:
    """The machine. `noise` happens each minute, by the seed; what the script does is done to its parts."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.gpus = [Gpu(number) for number in range(GPUS)]
        self.ports = [Port(number) for number in range(PORTS)]
        self.boot = 1
        self.sequence = 0
        self.off_until_s = -1
        self.released = False
        self.loaded = True
        self.log_error = ""
        self.lines: list[str] = []

    @property
    def boot_id(self) -> str:
        return f"00000000-0000-4000-8000-{self.boot:012d}"

    def reboot(self, now_s: int) -> None:
        """End this boot; the machine is back three minutes later. What is broken stays so, unless a reboot mends it."""
        self.boot += 1
        self.off_until_s = now_s + 180
        self.lines = []
        for gpu in self.gpus:
            gpu.lost = gpu.pending = False
            gpu.load_driver()
        for port in self.ports:
            port.load_driver()

    def load_driver(self) -> None:
        for gpu in self.gpus:
            gpu.load_driver()

    def noise(self) -> None:
        """Let happen what happens on a sound machine: all of it below every threshold."""
        random = self.random
        for gpu in self.gpus:
            gpu.corrected += random.random() < 0.02
            gpu.replay += random.random() < 0.01
            gpu.thermal_ns += 400_000_000 if random.random() < 0.01 else 0  # a flash at a change of clocks
            gpu.link_errors += random.random() < 0.0005
            gpu.remapped = min(3, gpu.remapped + (random.random() < 0.0002))
            gpu.thermal_ns += MINUTE_NS * gpu.hot_share // 100
        for port in self.ports:
            port.symbol_errors += random.random() < 0.02
        if random.random() < 0.02:
            code = random.choice((13, 31, 43, 45))
            pci = gpu_pci(random.randrange(GPUS))
            self.lines.append(f"NVRM: Xid (PCI:{pci}): {code}, pid=4242, name=python, Ch 00000008")
        if random.random() < 0.1:
            self.lines.append("eth0: link is up")

    def look(self, now_s: int) -> list[Observation]:
        """Give what all sources say now."""
        now = START + timedelta(seconds=now_s)
        return [*self._kernel(now), self._nvml(now), *self._pci(now), *self._infiniband(now)]

    def _kernel(self, now: datetime) -> list[Observation]:
        if self.log_error:
            return [SourceFailed(source=KERNEL_LOG, error=self.log_error, tries=3, seen_at=now)]
        records: list[Observation] = []
        for text in self.lines:
            self.sequence += 1
            records.append(
                KernelRecord(
                    boot_id=self.boot_id,
                    sequence=self.sequence,
                    facility=0,
                    level=4,
                    monotonic_us=self.sequence,
                    seen_at=now,
                    text=text,
                )
            )
        self.lines = []
        return [*records, SourceRead(source=KERNEL_LOG, seen_at=now)]

    def _nvml(self, now: datetime) -> Observation:
        if self.released:
            return NvmlReleased(seen_at=now, why="label nvidia.com/gpu-driver-upgrade-state=upgrade-required")
        if not self.loaded:
            error = NvmlError(call="nvmlInitWithFlags", code=9, name="DriverNotLoaded")
            return NvmlFailed(seen_at=now, child=2, error=error, since=now, fresh=True)
        return NvmlRead(
            seen_at=now,
            child=1,
            driver="580.95.05",
            library="13.580.95.05",
            count=GPUS,
            gpus=tuple(gpu.reading() for gpu in self.gpus),
        )

    def _pci(self, now: datetime) -> list[Observation]:
        gpus = [
            PciDevice(
                address=f"{gpu_pci(gpu.number)}.0",
                role="gpu",
                vendor=0x10DE,
                speed=320,
                max_speed=320,
                width=gpu.width,
                max_width=16,
                numa=0,
                aer={"correctable.RxErr": 0, "fatal.TLP": 0, "nonfatal.CmpltTO": 0},
                config_ones=False,
            )
            for gpu in self.gpus
        ]
        hcas = [
            PciDevice(
                address=f"{hca_pci(number)}.0",
                role="hca",
                vendor=0x15B3,
                speed=320,
                max_speed=320,
                width=16,
                max_width=16,
                config_ones=False,
            )
            for number in range(PORTS)
        ]
        return [PciRead(seen_at=now, devices=(*gpus, *hcas)), SourceRead(source=PCI, seen_at=now)]

    def _infiniband(self, now: datetime) -> list[Observation]:
        read = InfinibandRead(
            seen_at=now,
            devices=tuple(port.reading() for port in self.ports),
            pci_hcas=tuple(
                PciHca(pci=f"{hca_pci(number)}.0", infiniband=True, driver="mlx5_core")
                for number in range(PORTS)
            ),
            gpu_numa=(0, 1),
        )
        return [read, SourceRead(source=INFINIBAND, seen_at=now)]
