"""The last validated count through restarts, boots and words: what finds the GPU that is missing when a machine comes up."""

from pathlib import Path

import pytest

from agent.config import Config, NvmlSection
from agent.host.inventory import Gpu, Inventory
from agent.judging import Judging
from agent.state_file import State, StateFile
from agent.validate import Result, _gpu_count
from checks.finding import Part, PartKind
from checks.gpu_missing import CHECK
from checks.observation import Observation
from kube.nodehealth import (
    PERSON,
    Expected,
    LastValidated,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    accepted_at,
)
from kube.types import Node, ObjectMeta
from tests.checks.kernel import BOOT, NEXT_BOOT, at
from tests.checks.nvml import dead, failed, gpu, hung, pci, read, released, sound

UID = "uid-1"
NODE = Node(metadata=ObjectMeta(name="gpu-1", uid=UID))


def inventory(gpus: int) -> Inventory:
    """Give a machine that shows so many GPUs on its bus."""
    return Inventory(gpus=tuple(Gpu(part=Part(kind=PartKind.GPU, pci=pci(n), index=n)) for n in range(gpus)))


def health(
    *, validated: int | None = None, node_uid: str = UID, spec: NodeHealthSpec | None = None
) -> NodeHealth:
    return NodeHealth(
        metadata=ObjectMeta(name="gpu-1"),
        spec=spec or NodeHealthSpec(),
        status=NodeHealthStatus(
            node_uid=node_uid,
            last_validated=LastValidated(gpus=validated, at=at(0)) if validated is not None else None,
        ),
    )


def agent(
    gpus: int = 8, *, boot_id: str = BOOT, saved: State | None = None, known: NodeHealth | None = None
) -> Judging:
    """Start on a machine with so many GPUs on its bus."""
    judging = Judging([CHECK], Config(nvml=NvmlSection(enabled=True)))
    judging.count_parts(inventory(gpus))
    judging.begin_boot(boot_id, saved)
    judging.meet(NODE, known)
    return judging


def hears(judging: Judging, *observations: Observation, seconds: float = 1) -> list[str]:
    """Judge; give the reasons that stand."""
    judging.judge(observations, None, at(seconds))
    return [finding.reason for _, finding in judging.findings()]


def saved_by(judging: Judging, folder: Path) -> State:
    """Give what a later start reads from the state file."""
    file = StateFile(folder)
    file.save(judging.state(at(5)))
    state = file.load()
    assert state is not None
    return state


def test_a_gpu_that_is_missing_after_a_reboot_is_found_by_the_count_of_before(tmp_path: Path) -> None:
    """The state file is of another boot, and the count is the machine's; it knows which slot is empty."""
    first = agent()
    assert hears(first, sound(8)) == []
    next_boot = agent(7, boot_id=NEXT_BOOT, saved=saved_by(first, tmp_path))
    assert hears(next_boot, sound(7), seconds=2) == ["GpuCountBelowExpected"]
    (_, finding) = next_boot.findings()[0]
    assert f"(last validated count); gone since last time: {pci(7)}" in finding.detail


def test_where_the_state_file_is_lost_nodehealth_remembers() -> None:
    """It holds the number, without the addresses."""
    assert hears(agent(7, known=health(validated=8)), sound(7)) == ["GpuCountBelowExpected"]


@pytest.mark.parametrize(
    "known", [pytest.param(None, id="nobody counted before"), pytest.param(8, id="eight were there")]
)
def test_a_single_look_does_not_bear_itself_out(known: int | None) -> None:
    """Its own count is no word on how many there should be, so it says that there is none."""
    judging = Judging([CHECK], Config(nvml=NvmlSection(enabled=True)), single_look=True)
    judging.count_parts(inventory(7))
    judging.begin_boot(BOOT)
    judging.meet(NODE, health(validated=known))
    assert hears(judging, sound(7)) == ([] if known is None else ["GpuCountBelowExpected"])
    rows = [row.why for state in judging.states.values() for row in state.not_evaluated]
    assert any("nobody says how many GPUs there should be" in why for why in rows) == (known is None)


def test_what_was_counted_on_another_node_object_does_not_count() -> None:
    """Another machine may have had the name."""
    assert hears(agent(7, known=health(validated=8, node_uid="uid-0")), sound(7)) == []


@pytest.mark.parametrize(
    ("spec", "reasons", "published"),
    [
        pytest.param(NodeHealthSpec(), ["GpuCountBelowExpected"], 8, id="nobody says anything"),
        pytest.param(
            NodeHealthSpec(cleared_before=at(3), cleared_by="inc-0a1b2c3d4e5f"),
            ["GpuCountBelowExpected"],
            8,
            id="a repair was proven: it brought no GPU back",
        ),
        pytest.param(
            NodeHealthSpec(cleared_before=at(3), cleared_by="a person, on inc-0a1b2c3d4e5f"),
            [],
            7,
            id="a person says that it is right as it is",
        ),
        pytest.param(NodeHealthSpec(expected=Expected(gpus=7)), [], 7, id="seven are stated"),
        pytest.param(
            NodeHealthSpec(expected=Expected(gpus=8)), ["GpuCountBelowExpected"], 8, id="eight are stated"
        ),
    ],
)
def test_what_lowers_it(spec: NodeHealthSpec, reasons: list[str], published: int, tmp_path: Path) -> None:
    """A word about this node, and then a round in which every GPU answers."""
    first = agent()
    hears(first, sound(8))
    judging = agent(
        7, boot_id=NEXT_BOOT, saved=saved_by(first, tmp_path), known=health(validated=8, spec=spec)
    )
    assert hears(judging, read(*(gpu(n) for n in range(6)), dead(6, 15)), seconds=4) != []
    assert hears(judging, sound(7), seconds=5) == reasons
    report = judging.report("1", ())
    assert report.last_validated is not None
    assert report.last_validated.gpus == published
    again = agent(
        7, boot_id=NEXT_BOOT, saved=saved_by(judging, tmp_path), known=health(validated=published, spec=spec)
    )
    assert hears(again, sound(7), seconds=6) == reasons


def test_counting_the_same_again_is_no_news() -> None:
    """The date is the first one: a write for each round would be one every half minute."""
    judging = agent()
    hears(judging, sound(8, seconds=1))
    first = judging.report("1", ()).last_validated
    hears(judging, sound(8, seconds=31), seconds=31)
    assert judging.report("1", ()).last_validated == first


def test_a_persons_word_is_told_from_a_repairs() -> None:
    """By how clearedBy begins; the controller writes both."""
    assert PERSON == "a person"
    spec = NodeHealthSpec(cleared_before=at(1), cleared_by="a person, on inc-1")
    assert accepted_at(spec) == at(1)
    assert accepted_at(NodeHealthSpec(cleared_before=at(1), cleared_by="inc-1")) is None


@pytest.mark.parametrize(
    ("said", "demanded", "asked", "result", "message"),
    [
        pytest.param([sound(8)], 8, True, Result.PASSED, "8 found, 8 answer, 8 demanded", id="all answer"),
        pytest.param([], 8, False, Result.PASSED, "8 found, 8 demanded", id="NVML is switched off"),
        pytest.param([sound(8)], None, True, Result.PASSED, "8 found, no number demanded", id="no number"),
        pytest.param(
            [sound(7)], 7, True, Result.PASSED, "8 found, 7 answer, 7 demanded", id="one more on the bus"
        ),
        pytest.param([sound(8)], 9, True, Result.FAILED, "8 found, 9 demanded", id="one is missing"),
        pytest.param(
            [sound(7)], 8, True, Result.FAILED, "8 found, 7 answer, 8 demanded", id="NVML counts fewer"
        ),
        pytest.param(
            [read(*(gpu(n) for n in range(7)), dead(7, 15))],
            8,
            True,
            Result.FAILED,
            "8 found, 7 answer, 8 demanded; GPU 7: nvmlDeviceGetHandleByIndex_v2: GpuIsLost (15)",
            id="one is lost",
        ),
        pytest.param(
            [read(*(gpu(n) for n in range(7)), gpu(7, quiet="XID 79"))],
            8,
            True,
            Result.FAILED,
            "8 found, 7 answer, 8 demanded; GPU 7: it is not asked: XID 79",
            id="one is left alone",
        ),
        pytest.param(
            [sound(8), failed(seconds=1)],
            8,
            True,
            Result.UNKNOWN,
            "8 found, 8 demanded, and none could be asked: NVML cannot be used: the kernel module is not loaded "
            "(nvmlInitWithFlags: DriverNotLoaded (9))",
            id="the driver is away",
        ),
        pytest.param(
            [sound(8), hung(seconds=1)], 8, True, Result.UNKNOWN, "has not come back", id="a call hangs"
        ),
        pytest.param(
            [released()], 8, True, Result.UNKNOWN, "none could be asked", id="the driver is released"
        ),
        pytest.param([], 8, True, Result.UNKNOWN, "NVML has not said anything", id="nothing was said"),
    ],
)
def test_validate_demands_that_every_gpu_answers(
    said: list[Observation], demanded: int | None, asked: bool, result: Result, message: str
) -> None:
    """On the bus alone is not there; a driver that cannot be used proves nothing either way."""
    judging = agent()
    hears(judging, *said)
    row = _gpu_count(judging, demanded, asked=asked)
    assert row.result is result
    assert message in row.message
