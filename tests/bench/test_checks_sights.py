"""What the storm's watch keeps of a node: each turn of a condition, once."""

import msgspec

from bench.checks_sights import Sights
from kube.types import Node, NodeCondition
from tests import build


def shows(status: str, *, type_: str = "GpuXidError", name: str = "gpu-1") -> Node:
    condition = NodeCondition(type=type_, status=status, reason="R", message="m")
    node = build.node(name)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(condition,)))


def test_turns_are_kept_once_with_their_time() -> None:
    """Seeing the same again is no turn, another node or another type is none of ours."""
    sights = Sights("gpu-1", ["GpuXidError"])
    sights.see(shows("False"), 1.0)
    sights.see(shows("False"), 2.0)
    sights.see(shows("True", name="gpu-2"), 3.0)
    sights.see(shows("True", type_="Ready"), 3.0)
    sights.see(shows("True"), 4.0)
    told = [(turn.at, turn.before, turn.status) for turn in sights.turns(0.0)]
    assert told == [(1.0, "", "False"), (4.0, "False", "True")]
    assert [turn.status for turn in sights.turns(2.0)] == ["True"]
    assert sights.shown["GpuXidError"].status == "True"


def test_when_a_condition_turned_true_is_told() -> None:
    """The first time after a given one; None where it did not."""
    sights = Sights("gpu-1", ["GpuXidError"])
    sights.see(shows("True"), 1.0)
    assert sights.true_since("GpuXidError", 0.5) == 1.0
    assert sights.true_since("GpuXidError", 1.5) is None
    sights.see(shows("Unknown"), 2.0)
    sights.see(shows("True"), 3.0)
    assert sights.true_since("GpuXidError", 1.5) == 3.0
