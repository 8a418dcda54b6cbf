"""Builders of what sysfs says of RDMA devices, and a machine that is judged look by look, ten seconds apart or more."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from checks.check import Context, Judgement
from checks.finding import Finding
from checks.infiniband import CHECK
from checks.infiniband_memory import InfinibandMemory
from checks.infiniband_names import COUNTERS, EFA, MLX5
from checks.infiniband_reading import (
    EFA_VENDOR,
    INFINIBAND,
    HcaReading,
    InfinibandRead,
    Netdev,
    PciHca,
    PortReading,
)
from checks.observation import Observation, SourceFailed
from tests.checks.kernel import BOOT, START

STEP_S = 10
NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"
ZEROS = dict.fromkeys(COUNTERS, 0)
HW_ZEROS = dict.fromkeys(MLX5, 0)
EFA_ZEROS = dict.fromkeys(EFA, 0)


def port(number: int = 1, **fields: Any) -> PortReading:
    """Build a port of InfiniBand at NDR that works."""
    sound = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": NDR,
        "link_layer": "InfiniBand",
        "counters": ZEROS,
        "hw_counters": HW_ZEROS,
    }
    return PortReading(number=number, **{**sound, **fields})


def down(phys_state: str = "2: Polling", **fields: Any) -> PortReading:
    """Build a port that is down, with the rate that looks alive."""
    return port(state="1: DOWN", phys_state=phys_state, rate="10 Gb/sec (4X SDR)", **fields)


def hca(number: int, *ports: PortReading, **fields: Any) -> HcaReading:
    """Build device `mlx5_<number>`: a ConnectX-7 with one port that works."""
    sound = {
        "name": f"mlx5_{number}",
        "pci": f"0000:{0x10 + number:02x}:00.0",
        "vendor": 0x15B3,
        "hca_type": "MT4129",
        "board_id": "MT_0000000838",
        "node_guid": f"b83f:d203:00aa:{number:04x}",
        "numa": number // 4,
        "ports": ports or (port(),),
    }
    return HcaReading(**{**sound, **fields})


def efa(number: int, **counters: int) -> HcaReading:
    """Build an EFA device."""
    reading = PortReading(
        number=1,
        state="4: ACTIVE",
        phys_state="5: LinkUp",
        rate="100 Gb/sec (4X EDR)",
        link_layer="Unspecified",
        hw_counters={**EFA_ZEROS, **counters},
    )
    return hca(number, reading, name=f"rdmap{number}s0", vendor=EFA_VENDOR, hca_type="", board_id="")


def bond(name: str = "mlx5_bond_0", *, lost: str = "", **fields: Any) -> HcaReading:
    """Build a bonded BlueField-3 whose leg `lost` is down."""
    legs = tuple((leg, leg != lost) for leg in ("eth2", "eth3"))
    device = {
        "name": name,
        "hca_type": "MT41692",
        "board_id": "MT_0000000884",
        "legs": legs,
        "netdevs": (Netdev(name="eth2", bond="bond0"),),
    }
    return hca(90, port(link_layer="Ethernet", rate="200 Gb/sec (2X NDR)"), **{**device, **fields})


def eight(**changed: HcaReading | None) -> tuple[HcaReading, ...]:
    """Build eight devices, `_3=...` in the place of the fourth, None for none."""
    devices = [changed.get(f"_{number}", hca(number)) for number in range(8)]
    return tuple(device for device in devices if device is not None)


class Machine:
    """Judged look by look over one memory, which goes through JSON each time as it does in the agent."""

    def __init__(self, **facts: Any) -> None:
        self.facts: dict[str, Any] = {"looked_at": (INFINIBAND,), **facts}
        self.settings: dict[str, Any] = {}
        self.boot_id = BOOT
        self.now = START
        self.memory: InfinibandMemory | None = None
        self.last = Judgement()
        self.gpu_numa: tuple[int, ...] = (0, 1)
        self.exclusive = False
        self.pci_hcas: tuple[PciHca, ...] | None = None

    def context(self, watched_s: int = STEP_S) -> Context:
        return Context(
            boot_id=self.boot_id,
            now=self.now,
            watched_ms=watched_s * 1000,
            settings={**CHECK.default_settings, **self.settings},
            **self.facts,
        )

    def read(self, devices: Sequence[HcaReading]) -> InfinibandRead:
        physical = tuple(
            PciHca(pci=device.pci, infiniband=True, driver="mlx5_core") for device in devices if device.pci
        )
        return InfinibandRead(
            seen_at=self.now,
            devices=tuple(devices),
            pci_hcas=physical if self.pci_hcas is None else self.pci_hcas,
            gpu_numa=self.gpu_numa,
            exclusive=self.exclusive,
        )

    def hear(self, *observations: Observation, watched_s: int = STEP_S) -> Judgement:
        self.last = CHECK.judge(observations, self.memory, self.context(watched_s))
        self.memory = msgspec.json.decode(
            msgspec.json.encode(self.last.memory), type=CHECK.memory_type | None
        )
        return self.last

    def look(self, *devices: HcaReading, seconds: int = STEP_S) -> Judgement:
        """See these devices for so long; a long time goes by in longer steps."""
        step_s = STEP_S if seconds <= 12 * STEP_S else 100
        for _ in range(max(1, seconds // step_s)):
            self.now += timedelta(seconds=step_s)
            self.hear(self.read(devices), watched_s=step_s)
        return self.last

    def fail(self, tries: int = 1) -> Judgement:
        self.now += timedelta(seconds=STEP_S)
        return self.hear(SourceFailed(source=INFINIBAND, error="EIO", tries=tries, seen_at=self.now))

    def found(self) -> list[tuple[str, str]]:
        """Give what stands, as (reason, part)."""
        return sorted((one.reason, one.part.name or "node") for one in self.last.findings)

    def finding(self, reason: str) -> Finding:
        return next(one for one in self.last.findings if one.reason == reason)

    def not_evaluated(self) -> str:
        return "\n".join(f"{row.part}: {row.why}" for row in self.last.not_evaluated)
