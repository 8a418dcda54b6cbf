"""Running the checks: what breaks is Unknown, what was not read is never False, and one defect stays one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import Config
from agent.judge import BROKEN, CheckState, Surroundings, judge, restore
from agent.judging import Judging
from agent.state_file import State
from checks.check import Context, Judgement, discover
from checks.condition import Status, Unreadable
from checks.finding import Part
from checks.infiniband_reading import INFINIBAND
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceFailed, SourceRead
from checks.pci_reading import PCI
from tests.agent.living_machine import START, World, gpu_pci
from tests.agent.scene import BOOT, GATE, GPU, finding

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Surroundings(boot_id=BOOT, parts=(GPU,), parts_known=True)
READ = SourceRead(source=KERNEL_LOG, seen_at=NOW)


def record(text: str, sequence: int = 1) -> KernelRecord:
    return KernelRecord(
        boot_id=BOOT, sequence=sequence, facility=0, level=4, monotonic_us=0, seen_at=NOW, text=text
    )


def after(
    *observations: Observation, around: Surroundings = HERE, state: CheckState | None = None
) -> CheckState:
    return judge(GATE, state or CheckState(), observations, around, {}, NOW)


def shown(state: CheckState) -> tuple[str, str] | None:
    return (state.condition.status.value, state.condition.reason) if state.condition is not None else None


FAULT = record("FAULT GateStuck 0000:01:00")
ON_NODE = record("WARN GateUnheard node")
FAILED = SourceFailed(source=KERNEL_LOG, error="gone", tries=3, seen_at=NOW)
BLIND = msgspec.structs.replace(HERE, blind=Unreadable(reason="BootIdUnreadable", message="why"))
NO_GPU = msgspec.structs.replace(HERE, parts=())
UNCOUNTED = Surroundings(boot_id=BOOT)


def test_a_class_of_warnings_has_no_condition() -> None:
    """Neither when it warns, nor when it breaks, nor when nothing can be dated: its findings are shown all the same."""
    warns = msgspec.structs.replace(GATE, condition="", reasons=(), unknown_reasons=())
    for around in (HERE, BLIND):
        state = judge(warns, CheckState(), [READ, ON_NODE], around, {}, NOW)
        assert (state.condition, [finding.reason for finding in state.findings]) == (None, ["GateUnheard"])
    broken = judge(warns, CheckState(), [record("CRASH")], HERE, {}, NOW)
    assert broken.condition is None
    assert "ValueError" in broken.broken


@pytest.mark.parametrize(
    ("observations", "around", "wanted"),
    [
        pytest.param([], HERE, None, id="nothing was read: nothing is said"),
        pytest.param([READ], HERE, ("False", "GateMoves"), id="read and fine"),
        pytest.param([FAULT], HERE, ("True", "GateStuck"), id="a fault"),
        pytest.param([FAILED], HERE, ("Unknown", "GateUnreadable"), id="not readable"),
        pytest.param([READ], BLIND, ("Unknown", "BootIdUnreadable"), id="nothing can be dated"),
        pytest.param([FAULT, FAILED], HERE, ("True", "GateStuck"), id="a fault outweighs silence"),
        pytest.param([record("CRASH")], HERE, ("Unknown", BROKEN), id="the check breaks"),
        pytest.param(
            [record("CRASH"), FAULT], HERE, ("True", "GateStuck"), id="a fault beside what breaks it"
        ),
        pytest.param([READ], NO_GPU, None, id="no part of this class"),
        pytest.param([FAULT], NO_GPU, ("True", "GateStuck"), id="what is ill exists"),
        pytest.param([READ, ON_NODE], NO_GPU, None, id="a warning about the log is no part of this class"),
        pytest.param(
            [READ], UNCOUNTED, ("False", "GateMoves"), id="parts that cannot be counted are not ruled out"
        ),
    ],
)
def test_a_class_is_judged(
    observations: Sequence[Observation], around: Surroundings, wanted: tuple[str, str] | None
) -> None:
    """True, False, Unknown, or nothing at all."""
    assert shown(after(*observations, around=around)) == wanted


def test_a_check_that_broke_stays_unknown_until_the_agent_starts_again() -> None:
    """The line that it could not bear is gone for good, and may have been a fault."""
    broken = after(record("CRASH"))
    assert broken.failures == 1
    assert "ValueError" in broken.traceback
    assert shown(after(READ, state=broken)) == ("Unknown", BROKEN)


def test_a_class_that_could_not_be_ruled_out_is_not_kept_once_it_can() -> None:
    """Only what was really seen stays."""
    guessed = after(READ, around=UNCOUNTED)
    assert shown(after(READ, around=NO_GPU, state=guessed)) is None


@pytest.mark.parametrize(
    "applies",
    [pytest.param(True, id="applies breaks"), pytest.param(False, id="judge breaks")],
)
def test_any_function_of_a_check_may_break(applies: bool) -> None:
    """The class is then Unknown and the agent lives."""

    def breaks(*_: Any) -> Any:
        raise ZeroDivisionError

    check = msgspec.structs.replace(GATE, **{"applies" if applies else "judge": breaks})
    state = judge(check, CheckState(), [READ], HERE, {}, NOW)
    assert shown(state) == ("Unknown", BROKEN)


def test_a_restore_that_breaks_is_unknown_too() -> None:
    """Otherwise a latched fault would be lost in silence."""

    def breaks(*_: Any) -> Any:
        raise ZeroDivisionError

    check = msgspec.structs.replace(GATE, restore=breaks)
    state = restore(check, CheckState(), [finding(at=NOW)], BOOT)
    assert shown(judge(check, state, [READ], HERE, {}, NOW)) == ("Unknown", BROKEN)


def test_only_faults_of_this_boot_are_restored() -> None:
    """Evidence of another boot is void."""
    old = finding(at=NOW, boot_id="boot-0")
    assert restore(GATE, CheckState(), [old], BOOT) == CheckState()
    assert restore(GATE, CheckState(), [finding(at=NOW)], BOOT).seen
    assert not restore(GATE, CheckState(), [finding(at=NOW, part="node")], BOOT).seen


def test_settings_of_the_configuration_win_over_the_checks_own() -> None:
    """The rest of its defaults stays."""
    given_settings: list[dict[str, Any]] = []

    def look(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:  # noqa: ARG001
        given_settings.append(context.settings)
        return Judgement()

    check = msgspec.structs.replace(GATE, judge=look, default_settings={"limit": 3, "other": 1})
    judge(check, CheckState(), [], HERE, {"limit": 5}, NOW)
    assert given_settings == [{"limit": 5, "other": 1}]


LINES = st.sampled_from(["CRASH", "FAULT A p", "FAULT B q", "WARN C p", "eth0: up", "FAULT", ""])


@given(st.lists(st.one_of(LINES, st.none(), st.just(3)), max_size=30), st.integers(1, 5))
def test_no_batch_of_lines_hides_a_fault_or_turns_silence_into_health(
    script: list[str | int | None], batch: int
) -> None:
    """Whatever comes in whatever batches: a fault that was seen is True, a broken check is never False."""
    state = CheckState()
    observations: list[Observation] = []
    for number, word in enumerate(script):
        if isinstance(word, str):
            observations.append(record(word, number))
        else:
            observations.append(READ if word is None else FAILED)
    for start in range(0, len(observations), batch):
        state = judge(GATE, state, observations[start : start + batch], HERE, {}, NOW)
    faults = any(word in ("FAULT A p", "FAULT B q") for word in script)
    status = state.condition.status if state.condition is not None else None
    if faults:
        assert status is Status.TRUE
    elif "CRASH" in script:
        assert status is Status.UNKNOWN
    elif not script:
        assert status is None


def test_parts_that_a_check_is_told_of_are_the_machines() -> None:
    """It sees what the inventory found."""
    told: list[tuple[Part, ...]] = []

    def look(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:  # noqa: ARG001
        told.append(context.parts)
        return Judgement()

    judge(msgspec.structs.replace(GATE, judge=look), CheckState(), [], HERE, {}, NOW)
    assert told == [(GPU,)]


@pytest.mark.parametrize(
    ("exists", "around", "wanted"),
    [
        pytest.param(None, NO_GPU, None, id="the check leaves it to the parts"),
        pytest.param(True, NO_GPU, ("False", "GateMoves"), id="a part that is expected and gone is a part"),
        pytest.param(False, HERE, None, id="what cannot be seen here is not published"),
    ],
)
def test_a_check_may_know_better_whether_its_class_exists(
    exists: bool | None, around: Surroundings, wanted: tuple[str, str] | None
) -> None:
    """A GPU that is missing at boot is not among the parts."""

    def knows(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
        return msgspec.structs.replace(GATE.judge(observations, memory, context), exists=exists)

    state = judge(msgspec.structs.replace(GATE, judge=knows), CheckState(), [READ], around, {}, NOW)
    assert (shown(state) if state.exists else None) == wanted


def test_every_memory_comes_back_from_the_state_file_as_it_was() -> None:
    """JSON knows no numbers as keys and no dates; one memory that does not fit would cost all of them."""
    world = World(7)
    world.gpus[1].pending, world.ports[2].down = True, True
    for code in (79, 48, 63, 45, 13, 31, 144):
        world.lines.append(f"NVRM: Xid (PCI:{gpu_pci(2)}): {code}, pid=1, name=x, Ch 00000008")
    checks = discover()
    judging = Judging(checks, Config(), looked_at=(PCI, INFINIBAND))
    judging.begin_boot("boot-1")
    for minute in range(3):
        seen = [
            msgspec.structs.replace(one, boot_id="boot-1") if isinstance(one, KernelRecord) else one
            for one in world.look(60 * minute)
        ]
        judging.judge(seen, None, START + timedelta(minutes=minute), 60_000)
    saved = msgspec.json.decode(msgspec.json.encode(judging.state(START)), type=State)

    again = Judging(checks, Config(), looked_at=(PCI, INFINIBAND))
    assert again.begin_boot("boot-1", saved) is None
    assert {name: state.memory for name, state in again.states.items()} == {
        name: state.memory for name, state in judging.states.items()
    }
