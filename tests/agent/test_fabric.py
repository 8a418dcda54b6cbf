"""The compute fabric through restarts, boots and words: what is published of it, and what finds a loss after a boot."""

from datetime import timedelta

import msgspec
import pytest

from agent import fabric
from agent.config import Config
from agent.host.inventory import Gpu, Inventory
from agent.judging import Judging
from agent.state_file import State
from checks.finding import Part, PartKind
from checks.infiniband import CHECK
from checks.infiniband_reading import INFINIBAND, HcaReading, InfinibandRead
from checks.last_validated import Validated, with_fabric
from kube.nodehealth import (
    PERSON,
    LastValidated,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Peers,
)
from kube.types import Node, ObjectMeta
from tests.checks.infiniband import HDR, down, eight, hca, port
from tests.checks.kernel import BOOT, NEXT_BOOT, at
from tests.checks.nvml import pci, read

UID = "uid-1"
NODE = Node(metadata=ObjectMeta(name="gpu-1", uid=UID))
EIGHT = tuple(Gpu(part=Part(kind=PartKind.GPU, pci=pci(n), index=n)) for n in range(8))


def agent(*, boot_id: str = BOOT, saved: State | None = None, known: NodeHealth | None = None) -> Judging:
    """Start on a machine with eight GPUs."""
    judging = Judging([CHECK], Config(), looked_at=[INFINIBAND])
    judging.count_parts(Inventory(gpus=EIGHT))
    judging.begin_boot(boot_id, saved)
    judging.meet(NODE, known)
    return judging


def look(judging: Judging, *devices: HcaReading, seconds: int, gpus: bool = True) -> None:
    """See these devices, after a whole round of NVML."""
    now = at(seconds)
    judging.judge([read(seconds=seconds)] if gpus else [], None, now, 10_000)
    judging.judge([InfinibandRead(seen_at=now, devices=devices, gpu_numa=(0, 1))], None, now, 10_000)


def fabric_of(judging: Judging) -> tuple[int | None, int | None]:
    held = judging.report("1", ()).last_validated
    return (held.ports, held.rate_mbps) if held is not None else (None, None)


def reasons(judging: Judging) -> list[str]:
    return [finding.reason for _, finding in judging.findings()]


def test_what_is_published() -> None:
    """NodeHealth shows the ports that are active now, and what was validated; a loss lowers the first alone."""
    judging = agent()
    assert judging.report("1", ()).fabric_ports is None
    look(judging, *eight(), seconds=30)
    shown = judging.report("1", ()).fabric_ports
    assert shown is not None
    assert (shown.active, shown.rate_mbps, shown.at) == (8, 400_000, at(30))
    assert fabric_of(judging) == (8, 400_000)
    look(judging, *eight(_3=hca(3, down())), seconds=60)
    shown = judging.report("1", ()).fabric_ports
    assert shown is not None
    assert (shown.active, shown.at) == (7, at(60))
    assert fabric_of(judging) == (8, 400_000)


def test_a_card_that_does_not_come_up_again() -> None:
    """After a boot the state file says what there was; without it NodeHealth does."""
    before = agent()
    look(before, *eight(), seconds=30)
    saved = before.state(at(40))
    health = NodeHealth(
        metadata=ObjectMeta(name="gpu-1"),
        status=NodeHealthStatus(
            node_uid=UID, last_validated=LastValidated(gpus=8, at=at(30), ports=8, rate_mbps=400_000)
        ),
    )
    for after in (agent(boot_id=NEXT_BOOT, saved=saved), agent(boot_id=NEXT_BOOT, known=health)):
        for second in range(100, 160, 10):
            look(after, *eight(_3=None), seconds=second)
        assert reasons(after) == ["HcaMissing"]
        assert fabric_of(after) == (8, 400_000)


def test_a_person_accepts_fewer() -> None:
    """`kubectl-nodemend repaired` says that what is there is what should be there; the next sound look counts anew."""
    before = agent()
    look(before, *eight(), seconds=30)
    after = agent(boot_id=NEXT_BOOT, saved=before.state(at(40)))
    for second in range(100, 160, 10):
        look(after, *eight(_3=None), seconds=second)
    after.ask(NodeHealthSpec(cleared_before=at(170), cleared_by=f"{PERSON} with kubectl"))
    for second in range(180, 320, 10):
        look(after, *eight(_3=None), seconds=second)
    assert (reasons(after), fabric_of(after)) == ([], (7, 400_000))


def test_peers_find_the_slow_node() -> None:
    """A node that was slow from its first day validated itself slow; what its peers show is more."""
    judging = agent()
    slow = [hca(number, port(rate=HDR)) for number in range(8)]
    look(judging, *slow, seconds=30)
    assert fabric_of(judging) == (8, 200_000)
    judging.ask(NodeHealthSpec(peers=Peers(ports=8, rate_mbps=400_000, counted=5, source="policy h100")))
    for second in range(40, 120, 10):
        look(judging, *slow, seconds=second)
    assert reasons(judging) == ["RateBelowExpected"] * 8


def test_a_single_look_counts_nothing() -> None:
    """`--once` and `validate` hold the fabric against what is expected, never against their own look."""
    judging = Judging([CHECK], Config(), single_look=True, looked_at=[INFINIBAND])
    judging.begin_boot(BOOT, None)
    look(judging, *eight(), seconds=30)
    assert judging.validated is None


def test_without_a_count_of_gpus() -> None:
    """A node on which no GPU was ever counted has nothing validated."""
    judging = agent()
    look(judging, *eight(), seconds=30, gpus=False)
    assert fabric_of(judging) == (None, None)
    assert judging.report("1", ()).fabric_ports is not None


HELD = Validated(gpus=8, at=at(0), ports=8, rate_mbps=400_000, ports_at=at(10), ports_accepted=None)


@pytest.mark.parametrize(
    ("ports", "rate", "seen", "accepted", "told"),
    [
        pytest.param(8, 400_000, 20, None, (8, 400_000), id="the same"),
        pytest.param(7, 200_000, 20, None, (8, 400_000), id="a loss lowers nothing"),
        pytest.param(16, 800_000, 20, None, (16, 800_000), id="more of both"),
        pytest.param(8, 0, 20, None, (8, 400_000), id="a rate that is not known"),
        pytest.param(0, 0, None, None, (8, 400_000), id="never seen well"),
        pytest.param(7, 400_000, 40, 30, (7, 400_000), id="seen after a person accepted"),
        pytest.param(8, 400_000, 20, 30, (None, None), id="seen before a person accepted"),
        pytest.param(0, 0, None, 30, (None, None), id="nothing since a person accepted"),
    ],
)
def test_with_fabric(
    ports: int, rate: int, seen: int | None, accepted: int | None, told: tuple[int | None, int | None]
) -> None:
    """Only a person lowers what is validated, and only for what was seen before."""
    when = at(seen) if seen is not None else None
    after = with_fabric(HELD, ports, rate, when, at(accepted) if accepted is not None else None)
    assert (after.ports, after.rate_mbps, after.gpus) == (*told, 8)


def test_a_clearing_counts_once() -> None:
    """What was validated after it stays, however often it is read again."""
    once = with_fabric(HELD, 7, 400_000, at(40), at(30))
    assert with_fabric(once, 0, 0, None, at(30)) == once
    later = with_fabric(once, 7, 400_000, at(50), at(30) + timedelta(seconds=5))
    assert later.ports == 7


def test_recalled() -> None:
    """NodeHealth fills in what the state file does not know, and never takes its place."""
    published = LastValidated(gpus=8, at=at(0), ports=8, rate_mbps=400_000)
    bare = Validated(gpus=8, at=at(0))
    filled = fabric.recalled(bare, published)
    assert filled is not None
    assert (filled.ports, filled.rate_mbps) == (8, 400_000)
    other = msgspec.structs.replace(bare, ports=16)
    assert fabric.recalled(other, published) == other
    assert fabric.recalled(None, None) is None
