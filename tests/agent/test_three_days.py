"""Three days of a machine by a script: every fault is found in its time, nothing else is, over reboots and restarts.

All the time there is the noise of `living_machine.World.noise`, below every threshold. The rows of FAULTS begin and end at
their hours. Between them QUIET happens, which must turn nothing: reboots, a round of NVML that fails, a storm of XID 45, and
the agent is started again, also in the middle of faults and of waits.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import pytest

from checks.check import discover
from tests.agent.living_machine import gpu_pci
from tests.agent.three_days import Act, Days, Turn

HOUR, MINUTE = 3600, 60
END = 72 * HOUR


def line(code: int, gpu: int, text: str, times: int = 1) -> Act:
    xid = f"NVRM: Xid (PCI:{gpu_pci(gpu)}): {code}, pid=1, name=x, {text}"
    return lambda days: days.world.lines.extend([xid] * times)


def gpu(number: int, **values: object) -> Act:
    return lambda days: _set(days.world.gpus[number], values)


def port(number: int, **values: object) -> Act:
    return lambda days: _set(days.world.ports[number], values)


def world(**values: object) -> Act:
    return lambda days: _set(days.world, values)


def _set(thing: object, values: dict[str, object]) -> None:
    for name, value in values.items():
        setattr(thing, name, value)


def uncorrectable(number: int) -> Act:
    def act(days: Days) -> None:
        days.world.gpus[number].uncorrected += 1

    return act


def reboot(days: Days) -> None:
    days.world.reboot(days.now_s)


def restart(days: Days) -> None:
    days.restart_agent()


def upgraded(days: Days) -> None:
    days.world.released = False
    days.world.load_driver()


def go_down(number: int, *, down: bool) -> Act:
    return lambda days: days.world.ports[number].go(down=down)


def nothing(_days: Days) -> None:
    """The row is about another class that the same act turns."""


class Fault(NamedTuple):
    """What begins at `at` and ends at `until`, and how many seconds later at most the condition must have turned."""

    at: int
    until: int
    begin: Act
    end: Act
    type: str
    turns: str
    raised_within: int
    cleared_within: int


def unseen(at: int, until: int, *, cleared_within: int) -> list[Fault]:
    """Give what nobody can say while NVML is not asked."""
    reasons = {
        "GpuEccFault": "EccUnreadable",
        "GpuNvLinkDegraded": "NvLinkUnreadable",
        "GpuRowRemapFault": "RowRemapUnreadable",
        "GpuPcieDegraded": "PcieUnreadable",
        "GpuThrottled": "ThrottleUnreadable",
        "GpuMissing": "GpusNotAsked",
    }
    return [
        Fault(at, until, nothing, nothing, kind, f"Unknown {reason}", 5 * MINUTE, cleared_within)
        for kind, reason in reasons.items()
    ]


UPGRADE, UNLOADED = 18 * HOUR, 56 * HOUR
FAULTS = [
    Fault(
        *(2 * HOUR, 3 * HOUR, line(79, 3, "GPU has fallen off the bus."), reboot),
        *("GpuXidError", "True Xid79FallenOffBus", MINUTE, 5 * MINUTE),
    ),
    Fault(
        *(5 * HOUR, 6 * HOUR, gpu(1, pending=True), gpu(1, pending=False)),
        *("GpuRowRemapFault", "True RowRemapPending", 2 * MINUTE, 5 * MINUTE),
    ),
    Fault(
        *(8 * HOUR, 9 * HOUR, uncorrectable(4), reboot),
        *("GpuEccFault", "True UncorrectableEcc", 2 * MINUTE, 5 * MINUTE),
    ),
    Fault(
        *(12 * HOUR, 13 * HOUR, go_down(2, down=True), go_down(2, down=False)),
        *("InfinibandPortDegraded", "True PortDown", 4 * MINUTE, 15 * MINUTE),
    ),
    Fault(
        *(UPGRADE, UPGRADE + 10 * MINUTE, world(released=True), upgraded),
        *("GpuDriverFault", "Unknown DriverUpgrade", MINUTE, 5 * MINUTE),
    ),
    *unseen(UPGRADE, UPGRADE + 10 * MINUTE, cleared_within=5 * MINUTE),
    Fault(
        *(24 * HOUR, 25 * HOUR, gpu(5, down_links={7}), gpu(5, down_links=set())),
        *("GpuNvLinkDegraded", "True NvLinkDown", 5 * MINUTE, 10 * MINUTE),
    ),
    Fault(
        *(27 * HOUR, 28 * HOUR, gpu(6, width=8), gpu(6, width=16)),
        *("GpuPcieDegraded", "True PcieWidthReduced", 5 * MINUTE, 10 * MINUTE),
    ),
    Fault(
        *(30 * HOUR, 31 * HOUR, gpu(2, hot_share=60), gpu(2, hot_share=0)),
        *("GpuThrottled", "True HwThermalSlowdown", 15 * MINUTE, 25 * MINUTE),
    ),
    Fault(
        *(38 * HOUR, 39 * HOUR, gpu(7, lost=True), reboot),
        *("GpuMissing", "True GpuLost", 5 * MINUTE, 5 * MINUTE),
    ),
    Fault(
        *(50 * HOUR, 51 * HOUR, port(3, mbps=200_000), port(3, mbps=400_000)),
        *("InfinibandPortDegraded", "True RateBelowExpected", 6 * MINUTE, 15 * MINUTE),
    ),
    Fault(
        *(UNLOADED, UNLOADED + HOUR, world(loaded=False), world(loaded=True)),
        *("GpuDriverFault", "True DriverNotLoaded", 15 * MINUTE, 5 * MINUTE),
    ),
    *unseen(UNLOADED, UNLOADED + HOUR, cleared_within=5 * MINUTE),
    # Six times down and up within minutes; what was over for twelve hours is forgotten.
    Fault(
        *(52 * HOUR, 52 * HOUR + 22 * MINUTE, nothing, nothing),
        *("InfinibandPortDegraded", "True PortFlapping", 40 * MINUTE, 12 * HOUR + 30 * MINUTE),
    ),
    Fault(
        *(66 * HOUR, 66 * HOUR + 20 * MINUTE, world(log_error="EIO"), world(log_error="")),
        *("GpuXidError", "Unknown KernelLogUnreadable", MINUTE, 2 * MINUTE),
    ),
]
FLAPS = [
    (52 * HOUR + number * 4 * MINUTE + half * 2 * MINUTE, go_down(4, down=not half))
    for number in range(6)
    for half in (0, 1)
]
QUIET: list[tuple[int, Act]] = [
    (12 * HOUR + MINUTE, restart),  # a port has been down for a minute
    (21 * HOUR, reboot),
    (30 * HOUR + 5 * MINUTE, restart),  # in the middle of a window
    (34 * HOUR, world(loaded=False)),
    (34 * HOUR + MINUTE, world(loaded=True)),
    (38 * HOUR + 30 * MINUTE, restart),  # while a fault stands
    (45 * HOUR, reboot),
    (48 * HOUR, line(45, 1, "Ch 00000008", times=1000)),
    (UNLOADED + 5 * MINUTE, restart),  # in the middle of a wait
]


class Stretch(NamedTuple):
    """One condition, for as long as it was not False: `turns` as (second, what it turned)."""

    type: str
    begin: int
    end: int
    turns: tuple[tuple[int, str], ...]


def stretches(turns: Sequence[Turn]) -> list[Stretch]:
    """Cut the turns of each type into stretches; one that never ends does so at END."""
    found: list[Stretch] = []
    for kind in sorted({turn.type for turn in turns}):
        under_way: list[tuple[int, str]] = []
        for turn in (turn for turn in turns if turn.type == kind):
            if turn.status != "False":
                under_way.append((turn.at_s, f"{turn.status} {turn.reason}"))
            elif under_way:
                found.append(Stretch(kind, under_way[0][0], turn.at_s, tuple(under_way)))
                under_way = []
        if under_way:
            found.append(Stretch(kind, under_way[0][0], END + 1, tuple(under_way)))
    return found


def is_this(fault: Fault, stretch: Stretch) -> bool:
    """Tell whether this stretch is that fault, in its words and in time, both ways."""
    latest = fault.at + fault.raised_within
    return (
        stretch.type == fault.type
        and fault.at <= stretch.begin <= latest
        and any(at <= latest and said == fault.turns for at, said in stretch.turns)
        and fault.until <= stretch.end <= fault.until + fault.cleared_within
    )


def play(seed: int) -> list[Stretch]:
    random = Random(seed)
    script = [(fault.at, fault.begin) for fault in FAULTS] + [(fault.until, fault.end) for fault in FAULTS]
    anywhere: Callable[[], int] = lambda: random.randrange(HOUR, END)  # noqa: E731 - a name for a draw
    script += [*FLAPS, *QUIET, *((anywhere(), restart) for _ in range(20))]
    days = Days(discover(), seed, script)
    days.run(END)
    return stretches(days.turns)


@pytest.mark.parametrize("seed", [20260302])
def test_every_fault_is_found_in_its_time_and_nothing_else_is(seed: int) -> None:
    """As many stretches as faults, each one a fault of the script."""
    found = play(seed)
    missed = [fault for fault in FAULTS if not any(is_this(fault, stretch) for stretch in found)]
    false = [stretch for stretch in found if not any(is_this(fault, stretch) for fault in FAULTS)]
    assert [(fault.type, fault.turns, fault.at) for fault in missed] == []
    assert false == []
    assert len(found) == len(FAULTS)
