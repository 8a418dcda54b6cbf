"""What becomes of a GPU's health where the driver refuses some of it: each call with each code, through the real child."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.host.nvml_health import GROUPS
from agent.nvml_wire import FailedSaid, GpuSaid
from sandbox.fake_nvml import FakeDriver
from sandbox.fake_nvml.statefile import changed
from tests.agent.nvml.codes import OF_HEALTH
from tests.agent.nvml.driver import Asking, asking
from tests.agent.nvml.health import FIELDS, H100, first, health, machine, said

# Each call of a well H100, its group, and what of the group is None without it ("": all of it).
CALLS = {
    "nvmlDeviceGetRemappedRows": ("remapped", ""),
    "nvmlDeviceGetRowRemapperHistogram": ("remapped", "banks_none"),
    "nvmlDeviceGetSramEccErrorStatus": ("ecc", "sram_threshold"),
    "nvmlDeviceGetRepairStatus": ("ecc", "tpc_repair"),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": ("ecc", "unrepairable"),
    "nvmlDeviceGetGpuFabricInfoV": ("fabric", ""),
    "nvmlDeviceGetPerformanceState": ("pcie", "pstate_before"),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("pcie", "generation"),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie", "width"),
    "nvmlDeviceGetPersistenceMode": ("clocks", "persistence"),
    "nvmlDeviceGetCurrentClocksEventReasons": ("clocks", "reasons"),
    "nvmlDeviceGetMarginTemperature": ("clocks", "margin_c"),
    "nvmlDeviceGetClockInfo": ("clocks", "sm_mhz"),
    "nvmlDeviceGetApplicationsClock": ("clocks", "sm_app_mhz"),
    "nvmlDeviceGetUtilizationRates": ("clocks", "utilisation_percent"),
}
# Told once, these are not asked again for a while.
FIXED = {
    "nvmlDeviceGetMaxPcieLinkGeneration": ("pcie", "max_generation"),
    "nvmlDeviceGetMaxPcieLinkWidth": ("pcie", "max_width"),
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": ("pcie", "device_max_generation"),
    "nvmlDeviceGetBusType": ("pcie", "bus_type"),
    "nvmlDeviceGetTemperatureThreshold": ("clocks", "slowdown_c"),
    "nvmlDeviceGetMaxClockInfo": ("clocks", "sm_max_mhz"),
}
OF_THE_GPU = (8, 14, 16)
REFUSED = (2, 4, 10, 17, 21, 27, 777, 999, *OF_THE_GPU)
NOT_THERE = (3, 13, 26)


class Refusing:
    """A machine of H100s, of which each gives another code to a call, and its child."""

    def __init__(self, fake: FakeDriver, child: Asking) -> None:
        self._fake = fake
        self._child = child

    def give(self, call: str) -> list[GpuSaid]:
        for gpu, code in enumerate((*REFUSED, *NOT_THERE)):
            self._fake.answer(call, code, gpu)
        self._mig("1 1")  # so that nothing is remembered
        said(self._child)
        self._mig("0 0")
        gpus = said(self._child).gpus
        self._fake.heal()
        return list(gpus)

    def _mig(self, mode: str) -> None:
        with changed(self._fake.state_file) as state:
            for values in state.gpus.values():
                values["mig_mode"] = mode


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    root = tmp_path_factory.mktemp("refusing")
    fake = machine(root, *(H100,) * (len(REFUSED) + len(NOT_THERE) + 1))
    with asking(root) as child:
        yield Refusing(fake, child)


@pytest.mark.parametrize("call", [*FIXED, *CALLS])
def test_a_call_is_refused_with_each_code(refusing: Refusing, call: str) -> None:
    """The group has the error and what else it was told; what is not there is no error; the others' groups are whole."""
    group, part = (CALLS | FIXED)[call]
    *gpus, other = refusing.give(call)
    for code, gpu in zip((*REFUSED, *NOT_THERE), gpus, strict=True):
        seen = health(gpu)
        errors = {name: (error.call, error.code) for name, error in seen.errors.items()}
        of_groups = {group: (call, code)} if code in REFUSED else {}
        if call == "nvmlDeviceGetPerformanceState" and of_groups:
            of_groups["clocks"] = (call, code)
        assert errors == of_groups, code
        told = getattr(seen, group)
        assert (told is None) if not part else getattr(told, part) is None, code
        assert (group in seen.absent) == (code in NOT_THERE and not part), code
        whole = [(call, code)] if code in OF_THE_GPU else []
        assert [(error.call, error.code) for error in gpu.errors] == whole, code
    assert not health(other).errors
    assert getattr(health(other), group) is not None


def test_the_tables_know_every_call_for_health() -> None:
    """A call that is new must be refused here, too."""
    elsewhere = {"nvmlDeviceGetArchitecture", "nvmlDeviceGetTemperatureV"}
    assert set(CALLS) | set(FIXED) | elsewhere == set(OF_HEALTH)


@pytest.mark.parametrize("code", [4, 10, 999])
def test_fields_are_refused_altogether(tmp_path: Path, code: int) -> None:
    """Each group that needs one has the error, and so has the GPU, because its recovery action is one of them."""
    fake = machine(tmp_path, H100)
    fake.answer(FIELDS, code)
    with asking(tmp_path) as child:
        (gpu,) = said(child).gpus
        seen = health(gpu)
        assert {name: error.code for name, error in seen.errors.items()} == dict.fromkeys(
            ("retired", "ecc", "nvlinks", "pcie", "clocks"), code
        )
        assert [(error.call, error.code) for error in gpu.errors] == [(FIELDS, code)]
        assert seen.pcie is not None
        assert (seen.pcie.width, seen.pcie.c2c_links, seen.nvlinks) == (16, None, None)
        fake.heal()
        assert not first(child).errors


FIELD_GROUPS = {
    1: "ecc", 4: "ecc", 31: "retired", 91: "nvlinks", 94: "pcie", 170: "pcie", 180: "pcie", 82: "clocks", 270: "clocks",
    165: "nvlinks", 161: "nvlinks",
}  # fmt: skip


def test_single_fields_are_refused(tmp_path: Path) -> None:
    """Each GPU refuses another one: its group has the error, a code that says nothing of the field; the rest is told."""
    fake = machine(tmp_path, *(H100,) * len(FIELD_GROUPS))
    for code in (4, 777, 999):
        for number, field in enumerate(FIELD_GROUPS):
            fake.field(number, field, 0, code=code)
        with asking(tmp_path) as child:
            gpus = said(child).gpus
        for gpu, group in zip(gpus, FIELD_GROUPS.values(), strict=True):
            seen = health(gpu)
            assert {name: error.code for name, error in seen.errors.items()} == {group: code}
            assert not gpu.errors
            assert (getattr(seen, group) is None) == (group == "retired" or seen.nvlinks is None)


def test_one_link_is_refused(tmp_path: Path) -> None:
    """The other links are told, and the refused one says nothing."""
    fake = machine(tmp_path, H100)
    fake.field(0, 165, 0, scope=5, code=999)
    with asking(tmp_path) as child:
        seen = first(child)
    assert seen.nvlinks is not None
    assert [link.state for link in seen.nvlinks.links] == [1] * 5 + [None] + [1] * 12
    assert seen.errors["nvlinks"].code == 999


def test_a_count_of_links_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    """No link is asked then."""
    fake = machine(tmp_path, H100)
    fake.field(0, 91, 4_000_000)
    with asking(tmp_path) as child:
        seen = first(child)
    assert (seen.nvlinks, seen.errors["nvlinks"].code) == (None, 999)


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetArchitecture", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetClockInfo"]
)
def test_a_gpu_is_lost_while_it_is_asked(tmp_path: Path, call: str) -> None:
    """Nothing more is asked of it: what was not told is refused so, and the GPU itself is in error; the next is asked."""
    fake = machine(tmp_path, H100, H100)
    fake.answer(call, 15, 0)
    with asking(tmp_path) as child:
        lost, other = said(child).gpus
        asked = [begun.call for begun in child.calls if begun.index == 0]
    assert asked[-1] == call
    seen = health(lost)
    assert {group for group in GROUPS if getattr(seen, group) is not None} | set(seen.errors) == set(GROUPS)
    assert {(error.call, error.code) for error in seen.errors.values()} == {(call, 15)}
    assert [error.code for error in lost.errors] == [15]
    assert not other.errors
    assert not health(other).errors


def test_a_gpu_that_was_lost_before_is_not_asked_for_its_health(tmp_path: Path) -> None:
    """Its identity says so already."""
    fake = machine(tmp_path, H100)
    fake.lose(0)
    fake.answer("nvmlDeviceGetHandleByIndex_v2", 0, 0)
    with asking(tmp_path) as child:
        (gpu,) = said(child).gpus
    assert gpu.health is None
    assert {error.code for error in gpu.errors} == {15}


@pytest.mark.parametrize("code", [1, 9, 18])
@pytest.mark.parametrize("call", ["nvmlDeviceGetPersistenceMode", "the field 180"])
def test_an_answer_that_is_the_drivers_ends_the_round(tmp_path: Path, call: str, code: int) -> None:
    """From whatever call for health it comes."""
    fake = machine(tmp_path, H100)
    if call.startswith("nvml"):
        fake.answer(call, code)
    else:
        fake.field(0, 180, 0, code=code)
    with asking(tmp_path) as child:
        answer = child.ask()
    assert isinstance(answer, FailedSaid)
    assert answer.error.code == code
