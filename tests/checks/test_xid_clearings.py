"""A repair of one GPU ends that GPU's findings and no other's (`spec.cleared`)."""

from typing import Any

import msgspec
import pytest

from checks.check import Clearing, Context
from checks.finding import Part, PartKind
from checks.xid import XidMemory, restore
from tests.checks.kernel import UUID, at, context, judged, reasons, record, xid

SICK, OTHER = "0000:3b:00", "0000:5d:00"
BOTH = (xid(1, 95, pci=SICK), xid(2, 95, pci=OTHER), xid(3, 79, pci=OTHER))


def reset(seconds: float, *, pci: str = SICK, uuid: str = "") -> Context:
    """Give the context after a proven reset of one GPU."""
    clearing = Clearing(pci=pci, uuid=uuid, before=at(seconds))
    return msgspec.structs.replace(context(), clearings=(clearing,))


@pytest.mark.parametrize(
    ("clearing", "part", "covered"),
    [
        pytest.param({"pci": SICK}, {"pci": SICK}, True, id="the same slot"),
        pytest.param({"pci": SICK}, {"pci": OTHER}, False, id="another slot"),
        pytest.param({"uuid": UUID, "pci": SICK}, {"pci": SICK}, True, id="a finding that knows no UUID"),
        pytest.param({"uuid": UUID}, {"uuid": UUID, "pci": SICK}, True, id="the same UUID"),
        pytest.param(
            {"uuid": UUID, "pci": SICK}, {"uuid": "GPU-other", "pci": SICK}, False, id="another card there"
        ),
        pytest.param({"uuid": UUID}, {"pci": SICK}, False, id="nothing in common"),
        pytest.param({}, {}, False, id="nothing at all"),
    ],
)
def test_which_part_a_clearing_is_about(
    clearing: dict[str, Any], part: dict[str, Any], *, covered: bool
) -> None:
    """By UUID where both have one, else by slot; two unknowns are not the same."""
    assert Clearing(before=at(1), **clearing).covers(Part(kind=PartKind.GPU, **part)) == covered


@pytest.mark.parametrize("seconds", [1, 50])
def test_the_neighbours_findings_stand(seconds: float) -> None:
    """Clearing the whole node would hide the other GPU, which nobody has repaired."""
    standing = judged(BOTH)
    left = judged([], standing.memory, reset(seconds)).findings
    assert {finding.part.pci for finding in left} == {OTHER}
    assert sorted(reasons(left)) == ["Xid79FallenOffBus", "Xid95UncontainedEcc"]


def test_a_fault_after_the_reset_stands() -> None:
    """Also where the clock stepped back behind it: a clearing counts once."""
    memory = judged([], judged(BOTH).memory, reset(50)).memory
    again = judged([xid(9, 95, pci=SICK)], memory, reset(50))
    assert [f.count for f in again.findings if f.part.pci == SICK] == [1]


def test_a_newer_reset_of_the_same_gpu_counts_again() -> None:
    memory = judged([], judged(BOTH).memory, reset(5)).memory
    ill = judged([xid(9, 95, pci=SICK)], memory, reset(5)).memory
    assert {f.part.pci for f in judged([], ill, reset(10)).findings} == {OTHER}


def test_old_lines_read_again_after_the_reset_fire_for_the_neighbours_alone() -> None:
    """An agent that lost its memory reads the whole log again."""
    lines = [
        record(1, f"NVRM: Xid (PCI:{SICK}): 95", seen_at=at(90), happened_at=at(1)),
        record(2, f"NVRM: Xid (PCI:{OTHER}): 95", seen_at=at(90), happened_at=at(2)),
        record(3, f"NVRM: Xid (PCI:{SICK}): 95", seen_at=at(90), happened_at=at(60)),
    ]
    found = judged(lines, None, reset(50)).findings
    assert {(f.part.pci, f.last_seen) for f in found} == {(OTHER, at(2)), (SICK, at(60))}


def test_what_a_reset_ended_is_not_read_back() -> None:
    """The agent acted on the clearing, and was killed before NodeHealth said so."""
    standing = judged(BOTH)
    memory = judged([], standing.memory, reset(50)).memory
    back = restore(standing.findings, memory)
    assert {finding.part.pci for finding in back.findings} == {OTHER}


def test_the_memory_survives_a_restart_of_the_agent() -> None:
    """It is JSON in the state file."""
    memory = judged([], judged(BOTH).memory, reset(50)).memory
    assert msgspec.convert(msgspec.to_builtins(memory), type=XidMemory) == memory
