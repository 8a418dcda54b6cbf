"""Tests of agent.parts: sysfs says what is there, NVML says what it is, and one call that fails takes nothing away."""

from datetime import UTC, datetime, timedelta

import pytest

from agent.host.inventory import Gpu, Inventory
from agent.parts import Known, identity, learn, most, parts_of
from checks.finding import Part, PartKind
from checks.observation import GpuReading, NvmlError, NvmlFailed, NvmlRead
from kube.nodehealth import LastValidated, PartState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = NvmlError(call="nvmlDeviceGetUUID", code=15, name="GpuIsLost")
INVENTORY = Inventory(
    gpus=tuple(
        Gpu(part=Part(kind=PartKind.GPU, pci=f"0000:{n + 1:02x}:00", index=n), model="H100") for n in range(2)
    )
)
FIRST = GpuReading(
    index=0, pci="0000:01:00", uuid="GPU-1", serial="165", model="NVIDIA H100", minor=0, mig=False
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
    assert known.gpus["0000:02:00"].errors == ()


def test_the_version_of_a_driver_that_cannot_be_asked_is_not_claimed() -> None:
    """After a failure of NVML as a whole only procfs knows the version."""
    failed = NvmlFailed(seen_at=NOW, child=1, error=LOST, since=NOW, fresh=True)
    assert learn(Known(), [read(FIRST)]).driver == "580.95.05"
    assert learn(Known(), [read(FIRST), failed]).driver == ""


@pytest.mark.parametrize(
    ("round_", "gpus"),
    [
        pytest.param(read(FIRST, SECOND), 2, id="every GPU answered: the count is taken"),
        pytest.param(read(FIRST, SECOND, count=3), None, id="more are counted than answered: not taken"),
        pytest.param(
            read(FIRST, GpuReading(index=1, pci="0000:02:00", errors=(LOST,))),
            None,
            id="one is lost: not taken",
        ),
        pytest.param(
            read(FIRST, GpuReading(index=1, pci="0000:02:00", quiet="XID 79")),
            None,
            id="one is quiet: not taken",
        ),
        pytest.param(read(), None, id="no GPU at all validates nothing"),
    ],
)
def test_only_a_whole_round_validates_a_count(round_: NvmlRead, gpus: int | None) -> None:
    """A count is held against later ones only if every GPU answered it."""
    validated = learn(Known(), [round_]).last_validated
    assert (validated.gpus if validated is not None else None) == gpus


def test_the_highest_count_stays_with_its_first_time() -> None:
    """Counting the same or less later changes nothing."""
    later = NOW + timedelta(minutes=5)
    known = learn(Known(), [read(FIRST, SECOND), read(FIRST, at=later), read(FIRST, SECOND, at=later)])
    assert known.last_validated == LastValidated(gpus=2, at=NOW)
    assert most(None, known.last_validated) == known.last_validated
