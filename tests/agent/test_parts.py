"""Tests of agent.parts: sysfs says what is there, NVML says what it is, and one call that fails takes nothing away."""

from datetime import UTC, datetime

from agent.host.inventory import Gpu, Inventory
from agent.parts import Known, identity, learn, parts_of
from checks.finding import Part, PartKind
from checks.observation import GpuReading, NvmlError, NvmlFailed, NvmlRead
from kube.nodehealth import PartState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = NvmlError(call="nvmlDeviceGetUUID", code=15, name="GpuIsLost")
INVENTORY = Inventory(
    gpus=tuple(
        Gpu(part=Part(kind=PartKind.GPU, pci=f"0000:{n + 1:02x}:00", index=n), model="H100") for n in range(2)
    )
)
FIRST = GpuReading(
    index=0,
    pci="0000:01:00",
    uuid="GPU-1",
    serial="165",
    model="NVIDIA H100",
    minor=0,
    mig=False,
    memory_mib=81_037,
)
SECOND = GpuReading(
    index=1, pci="0000:02:00", uuid="GPU-2", serial="166", model="NVIDIA H100", minor=1, mig=True
)


def read(*gpus: GpuReading, count: int | None = None, at: datetime = NOW) -> NvmlRead:
    """Build a round of NVML."""
    return NvmlRead(
        seen_at=at,
        child=1,
        driver="580.95.05",
        library="13.580.95.05",
        count=len(gpus) if count is None else count,
        gpus=gpus,
    )


def test_nvml_names_what_sysfs_shows() -> None:
    """UUID, serial, model and MIG come from NVML, joined by PCI address; what NVML does not know stays as sysfs says."""
    known = learn(Known(), [read(SECOND)])
    first, second = parts_of(INVENTORY, known)
    assert first == PartState(kind="gpu", pci="0000:01:00", index=0, model="H100")
    assert second == PartState(
        kind="gpu", pci="0000:02:00", index=1, uuid="GPU-2", serial="166", model="NVIDIA H100", mig=True
    )
    assert identity(second) == Part(kind=PartKind.GPU, pci="0000:02:00", uuid="GPU-2", index=1, serial="166")


def test_a_gpu_that_only_nvml_knows_is_a_part() -> None:
    """Where sysfs shows fewer GPUs than NVML counts, the others come last."""
    third = GpuReading(index=2, pci="0000:03:00", uuid="GPU-3")
    assert [part.pci for part in parts_of(INVENTORY, learn(Known(), [read(FIRST, SECOND, third)]))] == [
        "0000:01:00",
        "0000:02:00",
        "0000:03:00",
    ]


def test_a_failed_call_takes_no_identity_away() -> None:
    """A lost or quiet GPU keeps the UUID and serial number that it had."""
    known = learn(Known(), [read(FIRST, SECOND)])
    lost = GpuReading(index=1, pci="0000:02:00", errors=(LOST,))
    known = learn(known, [read(FIRST, lost), read(GpuReading(index=0, errors=(LOST,)), SECOND)])
    assert [part.uuid for part in parts_of(INVENTORY, known)] == ["GPU-1", "GPU-2"]
    assert [part.memory_mib for part in parts_of(INVENTORY, known)] == [81_037, None]
    assert known.gpus["0000:02:00"].errors == ()


def test_the_version_of_a_driver_that_cannot_be_asked_is_not_claimed() -> None:
    """After a failure of NVML as a whole only procfs knows the version."""
    failed = NvmlFailed(seen_at=NOW, child=1, error=LOST, since=NOW, fresh=True)
    assert learn(Known(), [read(FIRST)]).driver == "580.95.05"
    assert learn(Known(), [read(FIRST), failed]).driver == ""
