"""Memory and processor of a program with its children, read from /proc."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.footprint import Memory, Stopwatch, family, memory, memory_of

ROLLUP = """55d0c0a00000-7ffd3a1f3000 ---p 00000000 00:00 0                          [rollup]
Rss:                9000 kB
Pss:                4321 kB
Pss_Dirty:          4000 kB
Shared_Clean:       3000 kB
Private_Clean:       100 kB
Private_Dirty:      2000 kB
"""


def test_memory_of_reads_the_rollup() -> None:
    """Private pages are clean and dirty ones together."""
    assert memory_of(ROLLUP) == Memory(pss=4321, rss=9000, private=2100)
    assert memory_of("") == Memory()


@pytest.fixture
def program() -> Iterator["subprocess.Popen[bytes]"]:
    """A program with a child: both wait until their input ends."""
    code = "import subprocess, sys; subprocess.run(['cat'], stdin=sys.stdin); input()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as started:
        yield started


def test_a_program_counts_with_its_children(program: "subprocess.Popen[bytes]") -> None:
    """Both are found, both have memory, and what has gone has none."""
    found = [program.pid]
    while len(found) < 2:
        found = family(program.pid)
    both = memory(found)
    assert both.pss > memory(found[1:]).pss > 0
    assert both.rss >= both.pss
    assert memory([2**22 + 1]) == Memory()


def test_a_stopwatch_counts_what_is_spent_from_now_on() -> None:
    """A program that computes without pause spends most of a core, and its dead children's time is in it."""
    child = "[sys.executable, '-S', '-c', 'sum(range(10**7))']"
    code = f"import subprocess, sys\nfor _ in range(3): subprocess.run({child})\ninput()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as started:
        watch = Stopwatch(started.pid)
        first = watch.percent()
        while watch.percent() <= 1.0:
            assert started.poll() is None
        assert first < 100.0
