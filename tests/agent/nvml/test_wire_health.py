"""Tests of what the child says of GPUs' health: read strictly, bounded, and handed on to the checks under its names."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.nvml_links import SOURCES
from agent.nvml_reading import Readings, health_of
from agent.nvml_wire import LINE_LIMIT, Garbage, RoundSaid, read
from checks.gpu_health import NvLink, Pcie
from tests.fakes import EPOCH


def round_with(*healths: dict[str, Any]) -> bytes:
    """Write a round as the child does, of as many GPUs as there are healths."""
    gpus = [{"index": index, "errors": [], "health": health} for index, health in enumerate(healths)]
    message = {"k": "round", "n": 1, "driver": "580", "library": "13", "count": len(gpus), "gpus": gpus}
    return json.dumps(message, separators=(",", ":")).encode()


HEALTH: dict[str, Any] = {
    "nvlinks": {"count": 2, "version": 6, "names": ["replay", "crc_data"],
                "links": [[1, 26562, [7, None]], [None, None, [0, 8]]]},
    "pcie": {"width": 16, "counters": {"replay": 18446744073709551614}},
    "clocks": {"temperature_c": -5},
    "errors": {"ecc": {"call": "nvmlDeviceGetEccMode", "code": 999, "name": "Unknown"}},
    "absent": ["retired"],
}  # fmt: skip


def test_health_is_read_and_goes_on_to_the_checks() -> None:
    """Counters get their names back, what was not told is not there; of a GPU that is left alone later nothing is kept."""
    said = read(round_with(HEALTH))
    assert isinstance(said, RoundSaid)
    said = msgspec.structs.replace(said, gpus=(msgspec.structs.replace(said.gpus[0], pci="0000:01:00"),))
    readings = Readings()
    (gpu,) = readings.take(said, {}, child=1, at=EPOCH).gpus
    health = gpu.health
    assert health is not None
    assert health.nvlinks is not None
    assert health.nvlinks.links == (
        NvLink(index=0, state=1, mbps=26562, counters={"replay": 7}),
        NvLink(index=1, counters={"replay": 0, "crc_data": 8}),
    )
    assert health.pcie == Pcie(width=16, counters={"replay": 18446744073709551614})
    assert health.clocks is not None
    assert (health.clocks.temperature_c, health.errors["ecc"].code, health.absent) == (-5, 999, ("retired",))
    quiet = readings.take(msgspec.structs.replace(said, gpus=()), {"0000:01:00": "XID 79"}, child=1, at=EPOCH)
    assert [(one.quiet, one.health) for one in quiet.gpus] == [("XID 79", None)]


@pytest.mark.parametrize(
    "health",
    [
        pytest.param({"pcie": {"width": -1}}, id="a width below zero"),
        pytest.param({"pcie": {"counters": {"replay": 1.5}}}, id="half a replay"),
        pytest.param({"pcie": {"counters": {f"c{n}": 0 for n in range(65)}}}, id="counters without end"),
        pytest.param({"clocks": {"throttled_ns": {"x" * 65: 1}}}, id="a name without end"),
        pytest.param({"remapped": {"correctable": 0, "uncorrectable": 0, "pending": 1}}, id="a flag that is a number"),
        pytest.param({"retired": {"single_bit": 0, "double_bit": 0}}, id="pages without their pending state"),
        pytest.param({"nvlinks": {"count": 65}}, id="more links than there are"),
        pytest.param({"nvlinks": {"count": 1, "links": [[1, 1, []]] * 65}}, id="links without end"),
        pytest.param({"nvlinks": {"count": 1, "links": [[1, 1]]}}, id="a link that is cut short"),
        pytest.param({"nvlinks": {"count": 1, "links": [[1, 1, [], 1]]}}, id="a link that is too long"),
        pytest.param({"nvlinks": {"count": 1, "links": [[1, 1, [0] * 65]]}}, id="values without end"),
        pytest.param({"errors": {"ecc": 999}}, id="an error that is a number"),
        pytest.param({"absent": ["x"] * 17}, id="more absent than there is"),
        pytest.param(7, id="a number"),
    ],
)  # fmt: skip
def test_health_that_cannot_be_is_garbage(health: Any) -> None:
    """One thing that does not fit, and nothing of the round is believed."""
    with pytest.raises(Garbage):
        read(round_with(health))


NAMES = st.sampled_from(["nvlinks", "pcie", "links", "count", "names", "counters", "errors", "x"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
ANYTHING = st.recursive(
    LEAVES, lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(NAMES, deeper, max_size=5)
)


@given(ANYTHING)
def test_no_health_breaks_the_reader(health: Any) -> None:
    """It is read or garbage, and what is read can be handed on."""
    with contextlib.suppress(Garbage):
        said = read(round_with(health))
        assert isinstance(said, RoundSaid)
        assert [gpu.health is None or health_of(gpu.health) for gpu in said.gpus]


def test_a_round_of_256_gpus_fits_into_a_line() -> None:
    """With 18 links each, every counter of its generation in the millions, and the most that the other groups say."""
    counters = [source.name for source in SOURCES if source.scoped > 200]
    links = [[1, 53_125, [9_999_999] * len(counters)]] * 18
    nvlinks = {"count": 18, "version": 7, "names": counters, "links": links}
    refusal = {"call": "nvmlDeviceGetUnrepairableMemoryFlag_v1", "code": 999, "name": "InsufficientResources"}
    said = {
        "nvlinks": nvlinks,
        "pcie": {"counters": {f"unsupported_request_{n}": 10**9 for n in range(14)}},
        "clocks": {"throttled_ns": {f"low_utilization_{n}": 10**17 for n in range(11)}},
        "ecc": {f"sram_aggregate_uncorrected_{n}": 10**9 for n in range(30)},
        "errors": {f"group-{n}": refusal for n in range(7)},
    }
    line = round_with(*[said] * 256)
    assert isinstance(read(line), RoundSaid)
    assert len(line) < LINE_LIMIT
