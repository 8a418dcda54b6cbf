"""What stands of PCIe and what counts while a look does not show all of it."""

import msgspec
import pytest

from checks.gpu_health import GpuHealth
from checks.observation import Observation
from tests.checks import nvml
from tests.checks.pcie import AWAKE, GPU, QUIET, bus, gpu, told, watch


@pytest.mark.parametrize(
    ("sick", "then"),
    [
        pytest.param(
            (bus(), told(generation=3)),
            (
                bus(),
                nvml.read(
                    gpu(msgspec.structs.replace(AWAKE, generation=None), errors={"pcie": nvml.refusal()})
                ),
            ),
            id="an error keeps the generation back",
        ),
        pytest.param(
            (bus(), told(generation=3)), (bus(), nvml.read(gpu(None, absent=("pcie",)))), id="another driver"
        ),
        pytest.param((bus(GPU, width=8), told()), (bus(GPU, width=0), told()), id="the link shows no width"),
        pytest.param((bus(GPU, width=8), told()), (bus(GPU, width=None), told()), id="nor has a file of it"),
    ],
)
def test_what_is_not_told_any_more_ends_nothing(
    sick: tuple[Observation, ...], then: tuple[Observation, ...]
) -> None:
    """Only a look that shows it well does."""
    seen = watch().waits(240, *sick)
    reasons = seen.reasons
    assert reasons
    assert seen.waits(600, *then).reasons == reasons
    assert seen.waits(120, bus(), told()).reasons == []


def test_counted_errors_outlive_files_that_cannot_be_read() -> None:
    """Nobody can say meanwhile that no more were counted."""
    seen = watch().waits(60, bus(), told()).waits(30, bus(GPU, aer={**QUIET, "fatal.DLP": 1}), told())
    dark = [msgspec.structs.replace(one, aer={}, errors=("aer_dev_fatal: EIO",)) for one in bus().devices]
    seen.waits(7200, msgspec.structs.replace(bus(), devices=tuple(dark)), told())
    assert seen.reasons == ["PcieFatalErrors"]


def test_a_gpu_that_is_told_late_to_hang_on_its_processor_had_no_slow_link() -> None:
    """What NVML shows in place of a link is taken back once it is known."""
    seen = watch().waits(240, bus(), told(width=1, c2c_links=None))
    assert seen.reasons == ["PcieWidthReduced"]
    assert seen.waits(30, bus(), told(width=1, c2c_links=10)).reasons == []


def test_counters_that_stood_high_before_the_first_look_are_no_growth() -> None:
    """Neither beside others of the same file that stand at zero, nor in the look after the first; what grows then is."""
    high = {**QUIET, "fatal.TLP": 5, "nonfatal.ECRC": 9, "correctable.BadTLP": 10**6, "rootport.fatal": 4}
    seen = watch().waits(90, bus(GPU, aer=high), told())
    assert (seen.reasons, seen.shown) == ([], "False PcieLinksHealthy")
    assert seen.waits(30, bus(GPU, aer={**high, "fatal.DLP": 1}), told()).reasons == ["PcieFatalErrors"]


def test_requests_that_software_should_not_have_made_are_no_lost_transactions() -> None:
    """The GPU counts them among its non-fatal errors, too, as the kernel does; what is beyond them counts."""
    none = {"non_fatal": 0, "unsupported_request": 0}
    seen = watch().waits(60, bus(), told(counters=none))
    asked = told(counters={"non_fatal": 3, "unsupported_request": 3})
    assert seen.waits(60, bus(), asked).reasons == []
    lost = told(counters={"non_fatal": 4, "unsupported_request": 3})
    assert seen.waits(30, bus(), lost).reasons == ["PcieNonFatalErrors"]


def test_a_card_in_a_virtual_machine_is_measured_by_those_beside_it() -> None:
    """Its slot is not shown there: eight lanes for a card of sixteen are how the host was built, unless others have more."""
    narrow = msgspec.structs.replace(AWAKE, width=8, generation=3)
    others = ("0000:11:00.0", "0000:12:00.0")
    device = bus().devices[-1]

    def machine(*widths: int) -> tuple[Observation, ...]:
        wide = dict(zip((GPU, *others), widths, strict=False))
        devices = [
            msgspec.structs.replace(device, address=address, role="gpu", width=width, parent="")
            for address, width in wide.items()
        ]
        gpus = [
            nvml.healthy(number, GpuHealth(pcie=narrow if width == 8 else AWAKE))
            for number, width in enumerate(widths)
        ]
        shown = msgspec.structs.replace(bus(guest=True), devices=tuple(devices))
        return shown, nvml.read(*gpus)

    assert watch().waits(600, *machine(8)).shown == "False PcieLinksHealthy"
    assert watch().waits(600, *machine(8, 8, 8)).shown == "False PcieLinksHealthy"
    seen = watch().waits(600, *machine(8, 16, 16))
    assert seen.reasons == ["PcieSpeedReduced", "PcieWidthReduced"]
    assert seen.waits(600, *machine(8)).reasons == ["PcieSpeedReduced", "PcieWidthReduced"]
    assert seen.waits(600, *machine(16)).reasons == []
