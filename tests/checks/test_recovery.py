"""What the driver says a GPU needs: XID 154 in its texts over drivers, and the number that NVML gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import recovery
from checks.recovery import Recovery


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param("from 0x0 (None) to 0x1 (GPU Reset Required)", Recovery.RESET_GPU, id="a reset"),
        pytest.param("from 0x0 (None) to 0x2 (Node Reboot Required)", Recovery.RESTART_BM, id="a reboot"),
        pytest.param(
            "from 0x1 (GPU Reset Required) to 0x3 (Drain P2P)", Recovery.DRAIN_P2P, id="drain peers"
        ),
        pytest.param(
            "from 0x0 (None) to 0x4 (Drain and Reset)", Recovery.DRAIN_AND_RESET, id="drain and reset"
        ),
        pytest.param("from 0x2 (Node Reboot Required) to 0x0 (None)", Recovery.NONE, id="it recovered"),
        pytest.param("from 0x0 (None) to 0x5 (Recover IMEX Domain)", Recovery.UNKNOWN, id="another's part"),
        pytest.param(
            "from 0x0 (None) to 0x1 (PF FLR)", Recovery.RESET_GPU, id="a reset, in the words of 610"
        ),
        pytest.param(
            "from 0x0 (None) to 0x2 (OS Reboot)", Recovery.RESTART_BM, id="a reboot, in the words of 610"
        ),
        pytest.param(
            "from 0x0 (None) to 0x1 (Something New)", Recovery.RESET_GPU, id="new words for a known number"
        ),
        pytest.param("from 0x0 (None) to 0x9 (Something New)", Recovery.UNKNOWN, id="a new number"),
        pytest.param("from 0x0 (None) to 0x6 (Bus Reset)", Recovery.RESET_GPU, id="a bus reset, said so"),
        pytest.param(
            "from 0x0 (None) to 0x7 (System Reboot)", Recovery.RESTART_BM, id="a system reboot, said so"
        ),
        pytest.param("from 0x0 (None) to 0x6 (Unknown)", Recovery.UNKNOWN, id="a number nobody explains"),
        pytest.param(
            "from 0x0 (None) to 0x0 (GPU Reset Required)", Recovery.UNKNOWN, id="it contradicts itself"
        ),
        pytest.param("from 0x0 (None) to 0x2 (Node Reb", Recovery.RESTART_BM, id="cut off in the words"),
        pytest.param("from 0x0 (None) to 0x2", Recovery.RESTART_BM, id="cut off behind the number"),
        pytest.param("from 0x0 (None) to 0x", Recovery.UNKNOWN, id="cut off in the number"),
        pytest.param("from 0x0 (None)", Recovery.UNKNOWN, id="cut off before the new action"),
        pytest.param("from None to (Drain and Reset)", Recovery.DRAIN_AND_RESET, id="no numbers"),
        pytest.param(
            "from  0x0  (None)  to  0x4  (Drain  and  Reset)", Recovery.DRAIN_AND_RESET, id="runs of blanks"
        ),
    ],
)
def test_the_new_action_is_read(change: str, expected: Recovery) -> None:
    """Number and text have to fit together."""
    assert recovery.of_text(f"GPU recovery action changed {change}") is expected


@pytest.mark.parametrize("text", ["", "(", "GPU recovery action", "changed from a to b"])
def test_other_words_say_nothing(text: str) -> None:
    """A line that is cut off wants nothing that we know of."""
    assert recovery.of_text(text) is Recovery.UNKNOWN


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, Recovery.NONE),
        (1, Recovery.RESET_GPU),
        (2, Recovery.RESTART_BM),
        (3, Recovery.DRAIN_P2P),
        (4, Recovery.DRAIN_AND_RESET),
        (5, Recovery.UNKNOWN),
        (6, Recovery.RESET_GPU),
        (7, Recovery.RESTART_BM),
        (8, Recovery.UNKNOWN),
        (-1, Recovery.UNKNOWN),
    ],
)
def test_the_polled_number_is_read(number: int, expected: Recovery) -> None:
    """NVML's values, in the words of the log."""
    assert recovery.of_number(number) is expected


@given(st.text())
def test_no_text_raises(text: str) -> None:
    """Whatever stands behind the code."""
    assert recovery.of_text(text) in set(Recovery)
    assert recovery.of_text(f"GPU recovery action changed from {text} to {text}") in set(Recovery)
