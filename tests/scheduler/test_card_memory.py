"""What pods may use of a card's memory: what its driver leaves, where the agent could read that, else the label."""

import msgspec
import pytest

from controller.scheduler.health import node_of
from controller.scheduler.node_findings import Seen
from controller.scheduler.nodes import Node
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from kube.nodehealth import NodeHealth
from tests.scheduler.kube_words import NOW, health, node
from tests.scheduler.words import bound, cluster, decide, job, queue

LABEL_MIB, USABLE_MIB = 81_559, 81_037


def seen(known: NodeHealth | None, rules: Rules = DEFAULT, label: str = str(LABEL_MIB)) -> Node:
    """Give a node of one card as the cycle sees it."""
    kube = node(gpus=1, labels={"nvidia.com/gpu.memory": label})
    return node_of(Seen(node=kube, health=known), NOW, rules)


READ = health(gpus=1, gpu0={"memory_mib": USABLE_MIB})


@pytest.mark.parametrize(
    ("known", "rules", "mib"),
    [
        pytest.param(READ, DEFAULT, USABLE_MIB, id="what the agent read counts"),
        pytest.param(health(gpus=1), DEFAULT, LABEL_MIB, id="where it could not, the label does"),
        pytest.param(None, DEFAULT, LABEL_MIB, id="and where there is no agent"),
        pytest.param(READ, COMPATIBLE, LABEL_MIB, id="KAI knows the label alone"),
    ],
)
def test_memory_of_a_card(known: NodeHealth | None, rules: Rules, mib: int) -> None:
    """One card, this much."""
    assert [gpu.memory_mib for gpu in seen(known, rules).gpus] == [mib]


def test_memory_that_the_agent_read_needs_no_label() -> None:
    """Requests by memory are served without GPU feature discovery; in KAI's mode they are not."""
    assert seen(READ, label="").gpu_memory_known
    assert not seen(health(gpus=1), label="").gpu_memory_known
    assert not seen(READ, COMPATIBLE, label="").gpu_memory_known


def test_two_halves_of_what_may_be_used_fit_and_two_halves_of_the_label_do_not() -> None:
    """Nobody is promised the driver's reserve."""
    ready = msgspec.structs.replace(seen(READ), name="n1")

    def placed(mib: int) -> int:
        asked = Request(gpu_memory_mib=mib, cpu_milli=100, memory_bytes=1 << 30)
        jobs = [job(f"half-{n}", "team", request=asked) for n in range(2)]
        return len(bound(decide(cluster([ready], [queue("team", 2)], jobs))))

    assert placed(USABLE_MIB // 2) == 2
    assert placed(LABEL_MIB // 2) == 1
