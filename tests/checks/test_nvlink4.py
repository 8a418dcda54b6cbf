"""The registers of an XID 74: which bits are harmless, and on which product they count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.finding import Action, Effect
from checks.nvlink4 import bits_of, is_harmless, where_to_look
from checks.observation import GpuReading, NvmlRead
from tests.checks.kernel import at
from tests.checks.xid_scene import CARD, PCI, Machine


def line(*registers: int) -> str:
    words = ", ".join(f"{value:#x}" for value in (*registers, *[0] * (7 - len(registers))))
    return f"NVLink: fatal error detected on link 14({words})"


def known(model: str) -> Machine:
    machine = Machine()
    gpu = GpuReading(index=0, pci=PCI, uuid=CARD, model=model)
    machine.judge(NvmlRead(seen_at=at(0), child=1, driver="570", library="", count=1, gpus=(gpu,)))
    return machine


@pytest.mark.parametrize(
    ("registers", "harmless", "words"),
    [
        pytest.param((1 << 0,), True, "", id="without meaning"),
        pytest.param((0, 0, 0, 0, 1 << 20 | 1 << 29), True, "", id="corrected errors alone"),
        pytest.param((0, 0, 0, 0, 1 << 20 | 1 << 18), False, "ECC or parity", id="corrected and not"),
        pytest.param((1 << 4,), False, "ECC or parity", id="parity"),
        pytest.param((0, 0, 1 << 6), False, "ECC or parity", id="parity, third register"),
        pytest.param((1 << 21,), False, "marginal signal", id="signal"),
        pytest.param((1 << 8,), False, "connections", id="connections"),
        pytest.param((0, 0, 0x10000), False, "where it repeats", id="repeats"),
        pytest.param((1 << 1,), False, "follows other errors", id="a follower"),
        pytest.param((0, 0, 0, 1 << 18), False, "follows other errors", id="a follower, fourth register"),
        pytest.param((0, 1), False, "ask support", id="a register that is not explained"),
        pytest.param((1 << 31,), False, "ask support", id="a bit that is not explained"),
        pytest.param((), False, "", id="nothing set"),
    ],
)
def test_bits(registers: tuple[int, ...], *, harmless: bool, words: str) -> None:
    """As NVIDIA's flow for XID 74 says."""
    bits = bits_of(line(*registers))
    assert bits is not None
    assert is_harmless(bits) is harmless
    assert words in where_to_look(bits)
    assert bool(words) == bool(where_to_look(bits))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(line(1)[:-1], id="cut off"),
        pytest.param("link 14(0x1, 0x0, 0x0)", id="too few"),
        pytest.param("link 14(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, y)", id="no number"),
        pytest.param("NVLink: link 14 is down", id="none"),
    ],
)
def test_what_cannot_be_read_is_not_decoded(text: str) -> None:
    """A register that is missing may hold anything."""
    assert bits_of(text) is None


def test_a_harmless_one_is_a_warning_on_hopper() -> None:
    machine = known("NVIDIA H200").xid(1, 74, line(0, 0, 0, 0, 1 << 20))
    assert (machine.faults, machine.warnings) == ([], ["Xid74NvLinkCorrected"])
    machine.xid(2, 74, line(1 << 4))
    assert (machine.faults, machine.warnings) == (["Xid74NvLinkError"], ["Xid74NvLinkCorrected"])
    assert "ECC or parity" in machine.the("Xid74NvLinkError").detail


@pytest.mark.parametrize(
    "model", ["", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"], ids=["unknown", "A100", "L40S"]
)
def test_elsewhere_every_one_counts(model: str) -> None:
    """The bits are explained for Hopper alone."""
    found = known(model).xid(1, 74, line(0, 0, 0, 0, 1 << 20)).the("Xid74NvLinkError")
    assert (found.effect, found.action) == (Effect.NO_MULTI_GPU, Action.RESET_GPU)


def test_one_that_is_cut_off_counts_on_hopper_too() -> None:
    assert known("NVIDIA H100 80GB HBM3").xid(1, 74, line(1)[:-4]).faults == ["Xid74NvLinkError"]


@given(st.text(), st.lists(st.integers(0, 2**40), max_size=9))
def test_no_text_raises(text: str, numbers: list[int]) -> None:
    """Nor is anything harmless that has a bit set which is not."""
    for words in (text, f"link 1({text})", f"link 1({' '.join(map(hex, numbers))})"):
        bits = bits_of(words)
        if bits is not None:
            assert not (is_harmless(bits) and where_to_look(bits))
