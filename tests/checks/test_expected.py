"""How many GPUs a node should hold, who says so, and what was validated last."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.check import Context
from checks.expected import expectation
from checks.last_validated import Validated, validated
from checks.observation import NvmlRead
from tests.checks.kernel import BOOT, at
from tests.checks.nvml import dead, gpu, pci, read, sound

TYPE, COUNT, PRODUCT = (
    "node.kubernetes.io/instance-type",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.product",
)


def context(**fields: object) -> Context:
    return msgspec.structs.replace(Context(now=at(0), boot_id=BOOT), **fields)


@pytest.mark.parametrize(
    ("fields", "gpus", "source", "others"),
    [
        pytest.param({}, None, "", 0, id="nobody says anything"),
        pytest.param({"labels": {TYPE: "m5.large"}}, None, "", 0, id="an instance type that is not known"),
        pytest.param(
            {"labels": {TYPE: "p5.48xlarge"}}, 8, "instance type p5.48xlarge", 0, id="an instance type"
        ),
        pytest.param({"labels": {COUNT: "4"}}, 4, f"label {COUNT}", 0, id="the label"),
        pytest.param({"last_validated": 4}, 4, "last validated count", 0, id="the validated count"),
        pytest.param(
            {"labels": {TYPE: "p5.48xlarge", COUNT: "8"}, "last_validated": 8},
            8,
            "instance type p5.48xlarge",
            0,
            id="all say the same: the first one names it",
        ),
        pytest.param(
            {"labels": {TYPE: "p5.48xlarge", COUNT: "7"}, "last_validated": 7},
            8,
            "instance type p5.48xlarge",
            2,
            id="it booted with seven: label and count hide nothing",
        ),
        pytest.param(
            {"labels": {COUNT: "7"}, "last_validated": 8},
            8,
            "last validated count",
            1,
            id="the label shrank with the GPU",
        ),
        pytest.param(
            {"labels": {COUNT: "8"}, "last_validated": 7},
            8,
            f"label {COUNT}",
            1,
            id="validated when one was gone",
        ),
        pytest.param(
            {
                "expected": 7,
                "expected_source": "ticket 7",
                "labels": {TYPE: "p5.48xlarge"},
                "last_validated": 8,
            },
            7,
            "NodeHealth.spec.expected (ticket 7)",
            2,
            id="the stated number decides alone",
        ),
        pytest.param(
            {"expected": 8, "last_validated": 4}, 8, "NodeHealth.spec.expected", 1, id="upwards too"
        ),
        pytest.param(
            {"labels": {COUNT: "56", PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"}},
            None,
            "",
            1,
            id="the label counts MIG devices",
        ),
        pytest.param(
            {"labels": {COUNT: "0", PRODUCT: "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}, "last_validated": 8},
            8,
            "last validated count",
            1,
            id="the label gave up on MIG",
        ),
        pytest.param({"labels": {COUNT: "eight"}}, None, "", 1, id="the label is no number"),
        pytest.param({"labels": {COUNT: "٨"}}, None, "", 1, id="the label is no number of ours"),
        pytest.param({"labels": {COUNT: "0"}}, 0, f"label {COUNT}", 0, id="the label says none"),
    ],
)
def test_who_says_how_many(fields: dict[str, object], gpus: int | None, source: str, others: int) -> None:
    """Stated goes first, below it the largest; what is not followed is told."""
    told = expectation(context(**fields))
    assert (told.gpus, told.source, len(told.others)) == (gpus, source, others)


@given(
    st.none() | st.integers(0, 16),
    st.sampled_from(["", "p5.48xlarge", "p6e-gb200.36xlarge", "unknown"]),
    st.none() | st.integers(0, 16),
    st.none() | st.integers(0, 16),
    st.integers(0, 16),
)
def test_a_label_that_shrinks_never_lowers_what_is_expected(
    stated: int | None, instance_type: str, label: int | None, last: int | None, shrunk: int
) -> None:
    """Whatever the label falls to: the number does not fall below what anybody else says."""
    labels = {TYPE: instance_type} if instance_type else {}

    def asked(count: int | None) -> int | None:
        held = labels if count is None else {**labels, COUNT: str(count)}
        return expectation(context(expected=stated, labels=held, last_validated=last)).gpus

    without = asked(None)
    with_label = asked(min(shrunk, label) if label is not None else None)
    if without is not None:
        assert with_label is not None
        assert with_label >= without
        assert stated is None or with_label == stated


OLD = Validated(gpus=8, at=at(0), pci=tuple(pci(n) for n in range(8)))


@pytest.mark.parametrize(
    ("before", "seen", "bus", "demanded", "accepted", "gpus"),
    [
        pytest.param(None, sound(8, seconds=9), 8, None, None, 8, id="the first whole round"),
        pytest.param(None, sound(7, seconds=9), 8, None, None, None, id="the bus shows one more"),
        pytest.param(None, sound(8, seconds=9), 7, None, None, None, id="the bus shows one less"),
        pytest.param(
            None, read(*(gpu(n) for n in range(7)), dead(7, 15)), 8, None, None, None, id="one is lost"
        ),
        pytest.param(None, read(*(gpu(n, 999) for n in range(8))), 8, None, None, None, id="errors"),
        pytest.param(
            None, read(*(gpu(n, 4) for n in range(8))), 8, None, None, 8, id="what is not permitted"
        ),
        pytest.param(
            None,
            read(*(gpu(n) for n in range(7)), gpu(7, quiet="XID 79")),
            8,
            None,
            None,
            None,
            id="one is left alone",
        ),
        pytest.param(None, read(gpu(0), count=2), 2, None, None, None, id="one was never asked"),
        pytest.param(OLD, sound(9, seconds=9), 9, None, None, 9, id="more than before"),
        pytest.param(OLD, sound(7, seconds=9), 7, None, None, 8, id="fewer than before"),
        pytest.param(OLD, sound(7, seconds=9), 7, 8, None, 8, id="fewer than is stated"),
        pytest.param(OLD, sound(7, seconds=9), 7, 7, None, 7, id="as many as is stated"),
        pytest.param(OLD, sound(7, seconds=9), 7, None, at(5), 7, id="a person cleared the node"),
        pytest.param(
            OLD, sound(7, seconds=9), 8, None, at(5), 8, id="a person cleared it, and one does not answer"
        ),
    ],
)
def test_what_was_validated_last(
    before: Validated | None,
    seen: NvmlRead,
    bus: int,
    demanded: int | None,
    accepted: datetime | None,
    gpus: int | None,
) -> None:
    """It rises by itself and sinks only by a word."""
    shown = tuple(pci(number) for number in range(bus))
    after = validated(before, seen, bus=shown, demanded=demanded, accepted=accepted)
    assert (after.gpus if after is not None else None) == gpus


def test_a_persons_word_counts_once() -> None:
    """A GPU that is lost after it is missed, even where this machine's clock lags behind the person's."""
    word = at(1000)
    once = validated(OLD, sound(7, seconds=9), bus=None, demanded=None, accepted=word)
    assert once is not None
    assert once.gpus == 7
    again = validated(once, sound(6, seconds=10), bus=None, demanded=None, accepted=word)
    assert again == once


@given(st.lists(st.integers(1, 10), min_size=1, max_size=8))
def test_without_a_word_it_never_sinks(counts: list[int]) -> None:
    """The most that was ever counted, dated when it was first counted."""
    held = None
    for seconds, count in enumerate(counts):
        held = validated(held, sound(count, seconds=seconds), bus=None, demanded=None, accepted=None)
    assert held is not None
    assert held.gpus == max(counts)
    assert held.at == at(counts.index(max(counts)))
