"""Sources that are looked at every so often: each in its own thread, none waited for."""

import threading
from collections.abc import Callable
from random import Random

import pytest

from agent.probes import Probe, Probes, look_once
from checks.observation import Observation, SourceFailed, SourceRead
from checks.pci_reading import PciRead
from kube.clock import SYSTEM
from tests.fakes import wait_until


def seen() -> Observation:
    return PciRead(seen_at=SYSTEM.now())


def probe(read: Callable[[], Observation], deadline_s: float = 5.0) -> Probe:
    return Probe(source="pci", read=read, period_s=0.05, deadline_s=deadline_s)


def gather(probes: Probes, into: list[Observation], enough: Callable[[], bool]) -> None:
    def more() -> bool:
        into.extend(probes.take())
        return enough()

    wait_until(more, timeout_s=10)


def test_a_source_is_looked_at_again_and_again() -> None:
    """Each look is followed by the word that the source was read."""
    probes = Probes([probe(seen)], SYSTEM, Random(1), lambda: None)
    probes.follow("boot-1", may_begin=True)
    got: list[Observation] = []
    try:
        gather(probes, got, lambda: sum(isinstance(one, PciRead) for one in got) >= 3)
    finally:
        probes.end()
    assert isinstance(got[1], SourceRead)


def test_nothing_is_read_before_it_may_begin() -> None:
    """Neither without a boot id."""
    looked = threading.Event()

    def look() -> Observation:
        looked.set()
        return seen()

    probes = Probes([probe(look)], SYSTEM, Random(1), lambda: None)
    probes.follow("boot-1", may_begin=False)
    probes.follow("", may_begin=True)
    assert not looked.wait(0.1)
    probes.end()


@pytest.mark.parametrize(
    "error",
    [pytest.param(OSError(5, "EIO", "x"), id="io"), pytest.param(KeyError("gone"), id="a defect of ours")],
)
def test_a_look_that_fails_is_counted(error: Exception) -> None:
    """The tries go on counting until one succeeds."""
    failing = threading.Event()
    failing.set()

    def look() -> Observation:
        if failing.is_set():
            raise error
        return seen()

    probes = Probes([probe(look)], SYSTEM, Random(1), lambda: None)
    probes.follow("boot-1", may_begin=True)
    got: list[Observation] = []
    try:
        gather(probes, got, lambda: len(got) >= 3)
        assert [one.tries for one in got[:3] if isinstance(one, SourceFailed)] == [1, 2, 3]
        failing.clear()
        gather(probes, got, lambda: isinstance(got[-1], SourceRead))
        failing.set()
        gather(probes, got, lambda: isinstance(got[-1], SourceFailed))
    finally:
        probes.end()
    again = [one for one in got if isinstance(one, SourceFailed) and one.tries == 1]
    assert len(again) == 2


def test_a_look_that_hangs_is_a_source_that_fails_and_no_second_one_is_begun() -> None:
    """It is said once a deadline; when the look comes back, it goes on."""
    release, looks = threading.Event(), []

    def look() -> Observation:
        looks.append(1)
        release.wait(20)
        return seen()

    probes = Probes([probe(look, deadline_s=0.1)], SYSTEM, Random(1), lambda: None)
    probes.follow("boot-1", may_begin=True)
    got: list[Observation] = []
    try:
        gather(probes, got, lambda: len(got) >= 3)
        assert [one.tries for one in got if isinstance(one, SourceFailed)][:3] == [1, 2, 3]
        assert len(looks) == 1
        release.set()
        gather(probes, got, lambda: any(isinstance(one, PciRead) for one in got))
    finally:
        release.set()
        probes.end()


def test_a_new_boot_drops_what_the_old_one_still_brings() -> None:
    """A look that began before it is about another machine."""
    release = threading.Event()

    def look() -> Observation:
        release.wait(20)
        return seen()

    probes = Probes([probe(look)], SYSTEM, Random(1), lambda: None)
    probes.follow("boot-1", may_begin=True)
    probes.follow("boot-2", may_begin=False)
    release.set()
    assert probes.take() == []
    probes.end()


def test_one_look_at_all_sources() -> None:
    """A source that hangs costs its deadline and is said."""
    release = threading.Event()

    def hang() -> Observation:
        release.wait(20)
        return seen()

    other = Probe(source="host", read=hang, period_s=1, deadline_s=0.3)
    calm = Probe(source="pci", read=seen, period_s=60, deadline_s=5)
    got = look_once([calm, other], SYSTEM)
    release.set()
    assert [type(one) for one in got] == [PciRead, SourceRead, SourceFailed]
