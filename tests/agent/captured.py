"""Captures of machines that live in tests: `python -m tests.agent.captured` writes them anew into tests/captures.

A user's report needs none of this: its file is put beside them as it came.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.capture import Capture, Look, redacted, replay_capture, write
from checks.check import MachineFacts, discover
from checks.finding import Part, PartKind
from checks.infiniband_reading import INFINIBAND
from checks.observation import Observation, SourceRead
from checks.pci_reading import PCI
from checks.storage_reading import DISKS, MOUNTS, DisksRead, MountReading, MountsRead, NvmeReading
from tests.agent.living_machine import GPUS, INSTANCE, PORTS, START, World, gpu_pci

FOLDER = Path(__file__).parents[1] / "captures"
HOST = "gpu-17.acme.example"
CHECKS = discover()
ROOT = MountReading(
    path="/",
    shared=False,
    fstype="ext4",
    source="/dev/nvme0n1p2",
    options="rw,relatime rw,errors=remount-ro",
    read_only=False,
    took_ms=1,
    free_percent=61,
    free_inodes_percent=97,
)
DATA = MountReading(
    path="/projects/acme",
    mounted=True,
    fstype="nfs4",
    source="filer.acme.example:/projects",
    options="rw,relatime rw,vers=4.2,addr=10.20.30.40,clientaddr=10.20.30.17",
    read_only=False,
    hangs_ms=70_000,
)
DISK = NvmeReading(
    name="nvme0",
    pci="0000:01:00",
    state="live",
    model="SAMSUNG MZWLJ3T8HBLS-00007",
    serial="S4YPNE0R500123",
    firmware="EPK9AB5Q",
    critical_warning=4,
    used_percent=31,
    spare_percent=100,
    spare_threshold_percent=10,
)


def a_lost_gpu(world: World) -> None:
    """One GPU falls off the bus while another waits for a row to be remapped."""
    world.gpus[3].lost = True
    world.gpus[6].pending = True
    world.lines.append(
        f"NVRM: Xid (PCI:{gpu_pci(3)}): 79, pid=4242, name=acme-train, GPU has fallen off the bus."
    )


def two_bad_ports(world: World) -> None:
    """One port of the fabric is down, another came up at half its rate."""
    world.ports[2].go(down=True)
    world.ports[5].mbps = 200_000


def bad_storage(world: World) -> None:
    """A file server is gone, and a local disk warns."""
    world.lines.append("nfs: server filer.acme.example not responding, still trying")


FAULTS: dict[str, Callable[[World], None]] = {
    "gpu-lost": a_lost_gpu,
    "ports-bad": two_bad_ports,
    "storage-bad": bad_storage,
}


def facts(world: World) -> MachineFacts:
    """Give what is known of the machine beside its readings."""
    parts = tuple(
        Part(kind=PartKind.GPU, pci=gpu_pci(n), uuid=f"GPU-00000000-0000-0000-0000-{n:012d}", index=n)
        for n in range(GPUS)
    )
    return MachineFacts(
        boot_id=world.boot_id,
        parts=parts,
        labels={**INSTANCE, "acme.example/team": "vision"},
        nvml=True,
        bus=tuple(gpu_pci(number) for number in range(GPUS)),
        looked_at=(PCI, INFINIBAND, MOUNTS, DISKS),
        expected=GPUS,
        expected_source="policy",
        expected_ports=PORTS,
        expected_rate_mbps=400_000,
        expected_ports_source="policy",
        holders={part.uuid: "vision/acme-train-0" for part in parts},
    )


def storage(name: str) -> list[Observation]:
    """Give a look at mounts and disks."""
    is_bad = name == "storage-bad"
    data = DATA if is_bad else msgspec.structs.replace(DATA, hangs_ms=None, took_ms=2)
    disk = DISK if is_bad else msgspec.structs.replace(DISK, critical_warning=0)
    return [
        MountsRead(seen_at=START, mounts=(data,)),
        SourceRead(source=MOUNTS, seen_at=START),
        DisksRead(seen_at=START, nvmes=(disk,), bus={disk.pci: "nvme"}, local=(ROOT,)),
        SourceRead(source=DISKS, seen_at=START),
    ]


def captured(name: str) -> Capture:
    """Capture a machine with the fault of this name, as `nodemend-agent capture` would: one look that waits for nothing."""
    world = World(7)
    FAULTS[name](world)
    capture = Capture(
        version="test",
        taken=START,
        machine=facts(world),
        looks=(Look(now=START, observations=(*world.look(0), *storage(name))),),
        settings={check.name: dict(check.single_look) for check in CHECKS if check.single_look},
    )
    return redacted(msgspec.structs.replace(capture, found=replay_capture(capture, CHECKS)), (HOST,))


if __name__ == "__main__":
    for known in FAULTS:
        write(captured(known), FOLDER / f"{known}.json")
