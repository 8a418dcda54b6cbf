"""What the real child reads of each GPU's health from the fake driver: every model, every value, every older way to ask."""

from pathlib import Path

import pytest

from agent.host.nvml_asked import ASK_AGAIN_S, Memory
from agent.host.nvml_health import GROUPS
from agent.host.nvml_links import SOURCES
from checks.gpu_health import Clocks, Ecc, Fabric, GpuHealth, NvLink, Pcie, RemappedRows, RetiredPages
from tests.agent.nvml.driver import asking
from tests.agent.nvml.health import (
    A100,
    B200,
    FIELDS,
    GB200,
    H100,
    L4,
    MODELS,
    V100,
    first,
    health,
    machine,
    said,
)

OF_NVLINK_3 = {"replay", "recovery", "crc_flit", "crc_data", "ecc_data"}
OF_NVLINK_5 = {source.name for source in SOURCES if 206 <= source.scoped <= 222}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GpuHealth]:
    """One GPU of each model, all well, as the second round of a child sees them."""
    root = tmp_path_factory.mktemp("sound")
    machine(root, *MODELS)
    with asking(root) as child:
        said(child)
        answer = said(child)
    assert not any(gpu.errors for gpu in answer.gpus)
    return dict(zip(MODELS, map(health, answer.gpus), strict=True))


# What each model shows: groups that it lacks, links and their version, counters of links, whether it has C2C.
SHOWN = {
    V100: ({"remapped", "fabric"}, 6, 2, OF_NVLINK_3, 0),
    A100: ({"retired", "fabric"}, 12, 4, OF_NVLINK_3, 0),
    H100: ({"retired"}, 18, 6, OF_NVLINK_3, 0),
    B200: ({"retired"}, 18, 7, OF_NVLINK_5, 0),
    GB200: ({"retired"}, 18, 7, OF_NVLINK_5, 10),
    L4: ({"retired", "fabric"}, 0, None, set[str](), 0),
}


@pytest.mark.parametrize("model", MODELS)
def test_a_well_gpu_shows_what_its_model_has(sound: dict[str, GpuHealth], model: str) -> None:
    """Every group is told or absent, none is in error, and the counters are those of its generation."""
    seen = sound[model]
    absent, count, version, counters, c2c = SHOWN[model]
    assert (set(seen.absent), seen.errors) == (absent, {})
    assert {group for group in GROUPS if getattr(seen, group) is not None} == set(GROUPS) - absent
    assert seen.pcie is not None
    assert seen.pcie.c2c_links == c2c
    assert set(seen.pcie.counters) >= {"replay", "replay_rollover", "correctable", "fatal", "lane"}
    if seen.nvlinks is not None:
        assert (seen.nvlinks.count, seen.nvlinks.version, len(seen.nvlinks.links)) == (count, version, count)
        assert {name for link in seen.nvlinks.links for name in link.counters} == counters
        assert {(link.state, link.mbps is None) for link in seen.nvlinks.links} <= {(1, False)}


def test_every_value_of_a_hopper_is_read_into_its_place(tmp_path: Path) -> None:
    """Each value is another number, so that none can be taken for another."""
    fake = machine(tmp_path, H100)
    values: dict[str, int | tuple[int, ...]] = {
        "remapped_rows": (1, 2, 1, 1),
        "row_remapper_histogram": (600, 30, 6, 3, 1),
        "ecc.0.0": 11, "ecc.1.0": 12, "ecc.0.1": 13, "ecc.1.1": 14,
        "sram": (1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 1),
        "repair": (1, 0),
        "unrepairable_memory": 1,
        "nvlink_states": (1, 0, 2, 3, *(1,) * 14),
        "nvlink_errors.0": tuple(range(100, 118)),
        "nvlink_errors.1": tuple(range(200, 218)),
        "nvlink_errors.2": tuple(range(300, 318)),
        "fabric": (2, 0, 7, 0x2AA, 3),
        "pcie_generation": 4, "pcie_width": 8, "pcie_width_max": 15, "pcie_replays": 99,
        "pcie_generation_max": 5, "pcie_generation_gpu_max": 6, "pstate": 2, "bus_type": 3,
        "clocks_event_reasons": 0x48, "temperature": 71, "temperature_margin": -3,
        "temperature_thresholds": (95, 93, 96, 87), "memory_temperature": 81, "clock_sm": 1200,
        "clock_sm_max": 1980, "clock_sm_application": 1500, "utilization": (77, 5), "persistence": 0,
    }  # fmt: skip
    for name, value in values.items():
        fake.set(0, name, value)
    for field, number in ((180, 5), (269, 1_000_000_007), (81, 6), (75, 8)):
        fake.field(0, field, number, kind="ulonglong")
    with asking(tmp_path) as child:
        seen = first(child)
    assert seen.remapped == RemappedRows(
        correctable=1, uncorrectable=2, pending=True, failure=True,
        banks_max=600, banks_high=30, banks_partial=6, banks_low=3, banks_none=1,
    )  # fmt: skip
    assert seen.ecc == Ecc(
        enabled=True, volatile_corrected=11, volatile_uncorrected=12, aggregate_corrected=13,
        aggregate_uncorrected=14, sram_volatile_uncorrected=4 + 5, sram_aggregate_uncorrected=1 + 2,
        sram_threshold=True, unrepairable=True, channel_repair=True, tpc_repair=False,
    )  # fmt: skip
    assert seen.nvlinks is not None
    assert [link.state for link in seen.nvlinks.links[:5]] == [1, 0, 2, 3, 1]
    counters = {"replay": 103, "recovery": 203, "crc_flit": 303, "crc_data": 0, "ecc_data": 0}
    assert seen.nvlinks.links[3] == NvLink(index=3, state=3, mbps=26_562, counters=counters)
    assert seen.nvlinks.links[17].counters == {"replay": 117, "recovery": 217, "crc_flit": 317}
    assert seen.fabric == Fabric(state=2, status=0, clique=7, mask=0x2AA, summary=3)
    assert seen.pcie is not None
    assert (seen.pcie.counters["replay"], seen.pcie.counters["fatal"]) == (99, 5)
    assert seen.pcie == Pcie(
        generation=4, width=8, max_generation=5, max_width=15, device_max_generation=6, pstate_before=2,
        pstate_after=2, bus_type=3, c2c_links=0, counters=seen.pcie.counters,
    )  # fmt: skip
    assert seen.clocks is not None
    throttled = seen.clocks.throttled_ns
    assert (throttled["sw_thermal"], throttled["base_clocks"], throttled["thermal"]) == (1_000_000_007, 6, 8)
    assert seen.clocks == Clocks(
        reasons=0x48, throttled_ns=throttled, pstate=2, temperature_c=71, margin_c=-3, slowdown_c=93,
        memory_temperature_c=81, sm_mhz=1200, sm_max_mhz=1980, sm_app_mhz=1500, utilisation_percent=77,
        persistence=False,
    )  # fmt: skip
    assert seen.architecture == 9


def test_retired_pages_of_an_old_board(tmp_path: Path) -> None:
    """Counted by cause; where the driver has no fields for them, by the functions."""
    fake = machine(tmp_path, V100)
    fake.set(0, "retired_pages.0", (0x1000,))
    fake.set(0, "retired_pages.1", (0x2000, 0x3000))
    fake.set(0, "retired_pending", 1)
    wanted = RetiredPages(single_bit=1, double_bit=2, pending=True)
    with asking(tmp_path) as child:
        assert first(child).retired == wanted
    for field in (29, 30, 31):
        fake.field(0, field, 0, code=3)
    with asking(tmp_path) as child:
        assert first(child).retired == wanted
        fake.set(0, "retired_pending", None)
        assert first(child).retired is None, "pages whose pending state is not told would look like none"


def test_blackwells_bit_error_rates_are_given_raw(tmp_path: Path) -> None:
    """Packed as they are; one link's counter is not another's."""
    fake = machine(tmp_path, B200)
    fake.field(0, 220, 0x30C, scope=4, kind="ulonglong")
    fake.field(0, 206, 9, scope=17, kind="ulonglong")
    with asking(tmp_path) as child:
        seen = first(child)
    assert seen.nvlinks is not None
    links = seen.nvlinks.links
    assert [link.counters["effective_ber"] for link in links[3:6]] == [0xFFF, 0x30C, 0xFFF]
    assert [link.counters["malformed"] for link in links[16:]] == [0, 9]


@pytest.mark.parametrize("code", [3, 2])
def test_what_newer_fields_do_not_tell_older_ways_do(tmp_path: Path, code: int) -> None:
    """An older driver calls a field that it does not know not supported, or an invalid argument."""
    fake = machine(tmp_path, H100)
    fake.set(0, "nvlink_states", (0, *(1,) * 17))
    for counter in range(5):
        fake.set(0, f"nvlink_errors.{counter}", tuple(range(10 * counter, 10 * counter + 18)))
    fake.set(0, "ecc.1.0", 7)
    fake.set(0, "pcie_replays", 8)
    gone = [*range(1, 7), 94, 96, 102, 108, 114, 161, 162, 163, 164, 165]
    gone += [*range(32, 38), *range(39, 45), *range(46, 52), *range(53, 59), *range(148, 160)]
    gone += [first + link for first in (96, 102, 108, 114) for link in range(6)]
    for field in dict.fromkeys(gone):
        fake.field(0, field, 0, code=code)
    fake.setting("fabric_version", 2)
    fake.omit("nvmlDeviceGetTemperatureV")
    with asking(tmp_path) as child:
        for _ in range(2):
            seen = first(child)
    assert seen.errors == {}
    assert seen.nvlinks is not None
    assert [link.state for link in seen.nvlinks.links] == [0] + [1] * 17
    assert seen.nvlinks.links[17].counters == {
        "replay": 17, "recovery": 27, "crc_flit": 37, "crc_data": 47, "ecc_data": 57
    }  # fmt: skip
    assert seen.nvlinks.links[0].mbps is None
    assert seen.ecc is not None
    assert (seen.ecc.enabled, seen.ecc.volatile_uncorrected) == (True, 7)
    assert seen.pcie is not None
    assert seen.pcie.counters["replay"] == 8
    assert seen.fabric == Fabric(state=3, mask=0x1AA)
    assert seen.clocks is not None
    assert seen.clocks.temperature_c == 31


def test_a_gpu_with_ecc_off_says_so(tmp_path: Path) -> None:
    """And counts nothing."""
    fake = machine(tmp_path, H100)
    fake.set(0, "ecc_mode", (0, 1))
    with asking(tmp_path) as child:
        seen = first(child)
    assert seen.ecc is not None
    assert (seen.ecc.enabled, seen.ecc.volatile_uncorrected, seen.errors) == (False, None, {})


def test_numbers_and_flags_that_are_not_available_are_none(tmp_path: Path) -> None:
    """All ones is no remapped row, no bank without spare rows and no flag."""
    fake = machine(tmp_path, H100)
    ones = 2**32 - 1
    fake.set(0, "row_remapper_histogram", (ones,) * 5)
    fake.set(0, "sram", (0,) * 11 + (ones,))
    fake.set(0, "repair", (ones, ones))
    fake.set(0, "unrepairable_memory", ones)
    with asking(tmp_path) as child:
        seen = first(child)
        assert seen.remapped == RemappedRows(correctable=0, uncorrectable=0, pending=False, failure=False)
        assert seen.ecc is not None
        flags = (seen.ecc.sram_threshold, seen.ecc.unrepairable, seen.ecc.channel_repair, seen.ecc.tpc_repair)
        assert flags == (None,) * 4
        fake.set(0, "remapped_rows", (ones, ones, 0, 0))
        assert first(child).remapped is None


def test_what_is_not_there_is_asked_once_until_a_mode_changes(tmp_path: Path) -> None:
    """Calls and fields that an L4 lacks are not asked again; MIG on asks all anew each time, and no link."""
    fake = machine(tmp_path, H100)
    fake.omit("nvmlDeviceGetGpuFabricInfoV")
    fake.set(0, "row_remapper_histogram", None)
    fabric, banks = ("nvmlDeviceGetGpuFabricInfoV", 0), ("nvmlDeviceGetRowRemapperHistogram", 0)
    with asking(tmp_path) as child:
        for _ in range(4):
            assert first(child).absent == ("retired", "fabric")
        assert [fake.calls()[call] for call in (fabric, banks)] == [1, 1]
        fake.mig(0, on=True)
        for _ in range(3):
            seen = first(child)
            assert (seen.nvlinks, seen.remapped, "nvlinks" in seen.errors) == (None, None, False)
            assert seen.absent == ("remapped", "retired", "fabric")
        assert fake.calls()[fabric] == 4
        fake.mig(0, on=False)
        fake.heal()
        fake.set(0, "row_remapper_histogram", (1, 2, 3, 4, 5))
        seen = first(child)
    assert seen.absent == ("retired",)
    assert seen.remapped is not None
    assert seen.remapped.banks_none == 5
    assert seen.nvlinks is not None


def test_where_mig_cannot_be_told_no_link_is_asked(tmp_path: Path) -> None:
    """They read as down under MIG, and nobody could know why."""
    fake = machine(tmp_path, H100)
    fake.answer("nvmlDeviceGetMigMode", 999)
    with asking(tmp_path) as child:
        seen = first(child)
    assert seen.nvlinks is None
    assert "nvlinks" not in {*seen.absent, *seen.errors}


def test_nothing_is_remembered_for_longer_than_ten_minutes() -> None:
    """Nor over a switch of MIG, nor while it is on."""
    memory = Memory(1000.0, mig=False)
    assert memory.holds(1000.0 + ASK_AGAIN_S - 1, mig=False)
    assert not memory.holds(1000.0 + ASK_AGAIN_S, mig=False)
    assert not memory.holds(1001.0, mig=True)
    assert not Memory(1000.0, mig=True).holds(1001.0, mig=True)


def test_most_is_asked_in_two_calls(tmp_path: Path) -> None:
    """Two calls for all fields of a GPU whatever its links, and no link by itself."""
    machine(tmp_path, B200)
    with asking(tmp_path) as child:
        said(child)
        said(child)
        names = [begun.call for begun in child.calls]
    assert names.count(FIELDS) == 2
    assert len(names) < 35
    assert not [name for name in names if "NvLink" in name]
