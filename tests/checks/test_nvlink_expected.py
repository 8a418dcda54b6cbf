"""What is expected of NVLinks where no table and no instance type says it: by peers, by model, by what was seen."""

import msgspec
import pytest

from checks.observation import GpuReading, NvmlRead
from tests.checks import nvml
from tests.checks.nvlink import A100_PCIE, gpu, links, watched

NEW = "NVIDIA Z900"  # no table knows it


def cards(model: str, count: int, down: dict[int, list[int]], architecture: int = 8) -> NvmlRead:
    """Build a machine of cards whose links are active but for those that are named by the number of the GPU."""

    def card(number: int) -> GpuReading:
        one = gpu(number, links(down.get(number, []), count=count), None, model=model, absent=("fabric",))
        assert one.health is not None
        health = msgspec.structs.replace(one.health, architecture=architecture)
        return msgspec.structs.replace(one, health=health)

    return nvml.read(*(card(number) for number in range(max(4, *down, 0) + 1)))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            cards("NVIDIA A40", 4, {4: [0, 1, 2, 3]}), id="two pairs of A40 and one without a bridge"
        ),
        pytest.param(cards(A100_PCIE, 12, {4: list(range(12))}), id="A100 PCIe, in capitals"),
        pytest.param(cards("NVIDIA H100 NVL", 18, {4: list(range(18))}, 9), id="H100 NVL"),
        pytest.param(
            cards("Tesla V100-SXM2-16GB", 6, {number: [4, 5] for number in range(4)}, 5),
            id="half a board of V100, whose other half is in another machine",
        ),
    ],
)
def test_links_that_nobody_plugged_are_not_down(read: NvmlRead) -> None:
    """Cards are bridged in pairs or not at all; half a board has links that lead nowhere."""
    assert watched(read).reasons == []


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(cards("NVIDIA A100-SXM4-80GB", 12, {0: [3]}), id="a board of Ampere, by the table"),
        pytest.param(cards("NVIDIA X1-SXM7", 18, {0: [3]}, 20), id="a board by its name"),
        pytest.param(cards(NEW, 18, {0: [3]}, 20), id="by its peers"),
        pytest.param(cards(NEW, 18, {0: [3], 1: [5]}, 20), id="by most of its peers"),
    ],
)
def test_links_of_a_board_are_missed(read: NvmlRead) -> None:
    """Although they were never active in this boot."""
    assert "NvLinkDown" in watched(read).reasons


def test_peers_say_how_many_links_there_should_be() -> None:
    """Not what the GPU itself showed first, unless that was more."""
    fewer = [gpu(0, links(count=16), model=NEW), *(gpu(number, links(), model=NEW) for number in range(1, 8))]
    watch = watched(nvml.read(*fewer))
    assert watch.reasons == ["NvLinkCountBelowExpected"]
    assert "16 NVLinks; 18 are expected (most GPUs of its model on this node)" in watch.message
