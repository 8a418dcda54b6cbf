"""XID 13 and 31 on one GPU for different programs: who is suspected, and who is not."""

import msgspec
import pytest

from checks.check import Clearing
from checks.xid_repeats import workload_of, workloads_of
from tests.checks.kernel import at
from tests.checks.xid_scene import CARD, OTHER, PCI, PEER, Machine

HOUR = 3600
UNIT = "Graphics SM Warp Exception on (GPC 9, TPC 1, SM 1): Out Of Range Address"
OTHER_UNIT = "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 1): Out Of Range Address"
REGISTERS = "Graphics Exception: ESR 0x546fb0=0x11f000e 0x546fb4=0x24"
REASON = "XidRepeatsAcrossPods"


def crash(machine: Machine, seconds: float, pod: str, code: int = 31, text: str = "MMU Fault") -> Machine:
    """Let a pod that has the GPU crash with this XID, and half a minute pass."""
    machine.holders = {CARD: pod, PCI: pod} if pod else {}
    return machine.xid(seconds, code, text).wait(seconds + 31)


@pytest.mark.parametrize(
    ("code", "texts", "suspected"),
    [
        pytest.param(31, ["MMU Fault", "MMU Fault"], True, id="31"),
        pytest.param(13, [UNIT, UNIT], True, id="13 on one unit"),
        pytest.param(13, [UNIT, OTHER_UNIT], False, id="13 on two units"),
        pytest.param(13, [REGISTERS, REGISTERS], False, id="13, the registers alone"),
        pytest.param(13, ["Graphics Exception on GPC", "Illegal Instruction"], True, id="13, no unit named"),
        pytest.param(43, ["Ch 1", "Ch 1"], False, id="a follower"),
    ],
)
def test_two_programs_on_one_gpu(code: int, texts: list[str], *, suspected: bool) -> None:
    """Suspected once the second one crashed, with both named; it takes new work elsewhere and no running job."""
    machine = Machine()
    for number, (pod, text) in enumerate(zip(["a/train", "b/serve"], texts, strict=True)):
        crash(machine, number * HOUR, pod, code, text)
    assert machine.faults == ([REASON] if suspected else [])
    if suspected:
        found = machine.the(REASON)
        assert (found.effect, found.urgency, found.action) == ("prefer-not", "when-idle", "RESET_GPU")
        assert found.detail.endswith("in a/train, b/serve")
        assert found.part.pci == PCI
        assert machine.restart().wait(9 * HOUR).faults == [REASON]


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(["a/train", "a/train"], id="one pod twice"),
        pytest.param(["a/train-x7k2p", "a/train-b9fzq"], id="a Job's next try"),
        pytest.param(["a/train-0", "a/train-1"], id="two of a set"),
        pytest.param(["a/serve-6d4cf56db6-x7k2p", "a/serve-6d4cf56db6-b9fzq"], id="replicas"),
        pytest.param(["a/train", ""], id="nobody is known to hold it"),
        pytest.param(["a/x, b/y", "a/x, c/z"], id="a shared card, one of the pods was there both times"),
        pytest.param(["a/x and 3 more", "b/y"], id="not all that share it are named"),
    ],
)
def test_one_program_is_no_suspicion(pods: list[str]) -> None:
    """However often it crashes."""
    machine = Machine()
    for number, pod in enumerate(pods * 3):
        crash(machine, number * HOUR, pod)
    assert machine.faults == []


def test_a_program_that_crashes_without_end_is_judged_too() -> None:
    """It need not fall silent first."""
    machine = crash(Machine(), 0, "a/train")
    machine.holders = {CARD: "b/serve"}
    for second in range(HOUR, HOUR + 60, 5):
        machine.xid(second, 31)
    assert machine.faults == [REASON]


def test_a_day_later_is_too_late() -> None:
    """Twice in 24 hours."""
    machine = crash(crash(Machine(), 0, "a/train"), 24 * HOUR + 1, "b/serve")
    assert machine.faults == []
    assert crash(crash(Machine(), 0, "a/train"), 24 * HOUR - 60, "b/serve").faults == [REASON]


def test_a_job_on_several_gpus_is_at_fault_itself() -> None:
    """Another program crashed on this card before; the job crashes on all of its cards."""
    machine = crash(Machine(), 0, "b/serve")
    machine.holders = dict.fromkeys([CARD, PCI, OTHER, PEER], "a/train")
    machine.xid(HOUR, 31).xid(HOUR + 1, 31, pci=PEER).wait(HOUR + 60)
    assert machine.faults == []


def test_a_clearing_takes_the_sights_along() -> None:
    """After a reset two programs must fail anew."""
    machine = crash(crash(Machine(), 0, "a/train"), HOUR, "b/serve")
    machine.cleared = (Clearing(uuid=CARD, pci=PCI, before=at(2 * HOUR)),)
    assert machine.wait(2 * HOUR + 1).faults == []
    assert crash(machine, 3 * HOUR, "c/other").faults == []
    assert crash(machine, 4 * HOUR, "d/another").faults == [REASON]


def test_the_drivers_word_of_recovery_takes_the_sights_along() -> None:
    """The GPU was reset: two programs must fail anew."""
    machine = crash(crash(Machine(), 0, "a/train"), HOUR, "b/serve").wants(2 * HOUR, "reset")
    assert REASON not in machine.wants(3 * HOUR, "none", "reset").faults
    assert crash(machine, 4 * HOUR, "c/other").faults == []


def test_a_storm_of_pods_stays_bounded() -> None:
    """The memory is a file."""
    machine = Machine()
    for number in range(400):
        machine.holders = {PCI: f"a/{'abcdefghij'[number % 10]}{number}"}
        machine.xid(number / 10, 31)
    assert machine.memory is not None
    assert len(machine.memory.joins.sights) <= 64
    assert len(msgspec.json.encode(machine.memory.joins)) < 16 * 1024


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        pytest.param("ns/train", "ns/train", id="a bare pod"),
        pytest.param("ns/train-0-x7k2p", "ns/train", id="an indexed Job"),
        pytest.param("ns/serve-6d4cf56db6-x7k2p", "ns/serve", id="a Deployment"),
        pytest.param("ns/llm-train", "ns/llm-train", id="a word with vowels is no ending"),
        pytest.param("ns/0", "ns/0", id="nothing would be left"),
        pytest.param("ns/-0", "ns/-0", id="nothing but the ending"),
    ],
)
def test_the_name_of_a_workload(pod: str, workload: str) -> None:
    """The endings that Kubernetes gives are taken off."""
    assert workload_of(pod) == workload
    assert workloads_of(f"{pod}, {pod}") == (workload,)


def test_a_finding_names_the_pod_that_had_the_gpu_first() -> None:
    """Frozen at first sight: whoever comes next has nothing to do with it."""
    machine = Machine({CARD: "team-a/train-0"}).xid(1, 119)
    machine.holders = {CARD: "team-b/serve-1"}
    assert machine.xid(2, 119).the("Xid119GspTimeout").holder == "team-a/train-0"
    assert machine.condition is not None
    assert machine.condition.message.endswith("Xid119GspTimeout (x, held by team-a/train-0)")
    assert Machine().xid(1, 119).the("Xid119GspTimeout").holder == ""
