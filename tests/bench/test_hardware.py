"""What the machine says of itself."""

import os

import pytest

from bench import hardware


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "processor : 0\nmodel name\t: Some CPU 7\nflags : a\n", "Some CPU 7", id="x86 names its model"
        ),
        pytest.param("processor : 0\nBogoMIPS : 2\n", "unnamed processor", id="others do not"),
    ],
)
def test_model_of(text: str, expected: str) -> None:
    """The processor's name as the kernel gives it."""
    assert expected == hardware.model_of(text)


def test_spent_of_reads_past_a_name_with_blanks_and_brackets() -> None:
    """Fields 14 and 15, counted after the name."""
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"17 (a) (b c) S {' '.join(['0'] * 10)} {3 * ticks} {ticks} 0 0"
    assert hardware.spent_of(stat) == 4.0


def test_spent_of_counts_ended_children_where_it_is_asked_to() -> None:
    """Fields 16 and 17: a child that ended took its own entry with it."""
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"17 (agent) S {' '.join(['0'] * 10)} {ticks} {ticks} {2 * ticks} {ticks} 20 0"
    assert hardware.spent_of(stat, ended_children=True) == 5.0


def test_spent_s_of_what_is_gone_is_nothing() -> None:
    """Process 0 has no entry."""
    assert hardware.spent_s(0) == 0.0
    assert hardware.spent_s(os.getpid()) > 0.0


def test_words_name_what_matters() -> None:
    """Cores, memory and what else was running."""
    seen = hardware.Hardware(cores=2, memory_mib=24 * 1024, model="CPU", load_1m=0.5)
    assert seen.words() == "2 cores (CPU), 24 GiB memory, load average 0.50 at the start"


def test_look_sees_this_machine() -> None:
    """At least one core and some memory."""
    seen = hardware.look()
    assert seen.cores >= 1
    assert seen.memory_mib > 0
