"""What ends a sample: the watch's sight of its own words, and nothing else."""

import msgspec

from bench.agents_metrics import added, count
from bench.detect_sights import Looking
from kube.types import Node, NodeCondition
from tests import build


def shows(status: str, message: str, name: str = "gpu-1") -> Node:
    """Build a node whose condition says this."""
    condition = NodeCondition(type="GpuXidError", status=status, reason="R", message=message)
    node = build.node(name)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(condition,)))


def test_a_sample_ends_when_its_words_are_shown() -> None:
    """On its own node, with status True, once."""
    looking = Looking()
    looking.expect("gpu-1", "at 0000:18:00: Xid48", "one", 1.0)
    looking.expect("gpu-1", "at 0000:2a:00: Xid48", "two", 1.5)
    looking.see(shows("True", "GPU 0 at 0000:18:00: Xid48", "gpu-2"), 2.0)
    looking.see(shows("False", "GPU 0 at 0000:18:00: Xid48"), 2.0)
    assert set(looking.pairs.missing()) == {"one", "two"}
    looking.see(shows("True", "GPU 0 at 0000:18:00: Xid48"), 3.0)
    looking.see(shows("True", "GPU 1 at 0000:2a:00: Xid48; GPU 0 at 0000:18:00: Xid48"), 4.0)
    assert dict(looking.pairs.seconds()) == {"one": 2.0, "two": 2.5}


def test_healthy_nodes_are_known() -> None:
    """An agent has spoken when its condition is False; a node without condition says nothing."""
    looking = Looking()
    looking.see(build.node("gpu-3", conditions={}), 1.0)
    looking.see(shows("False", "fine"), 1.0)
    assert looking.healthy == {"gpu-1"}


def test_metrics_are_added_up_over_agents_and_labels() -> None:
    """Counters by name, whatever their labels."""
    page = (
        "# TYPE nodemend_source_records_total counter\n"
        'nodemend_source_records_total{source="kernel-log"} 3.0\n'
        'nodemend_source_records_total{source="other"} 1.0\n'
    )
    sums = added([page, page])
    assert count(sums, "nodemend_source_records_total") == 8
    assert count(sums, "nodemend_source_lost_total") == 0
