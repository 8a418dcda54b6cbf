"""What holds for every check of GPU health, whatever NVML says: the strategies and the two properties."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from checks.check import Check
from checks.condition import Status
from checks.finding import Finding
from checks.gpu_health import Clocks, Ecc, GpuHealth, NvmlRefusal, Pcie, RemappedRows, RetiredPages
from checks.observation import GpuReading
from tests.checks.nvml import Watched, failed, gpu, read, released

NUMBERS = st.integers(-(2**70), 2**70) | st.integers(0, 600) | st.sampled_from([0, 0, 0, 1, 2**64 - 1])
MAYBE_NUMBER = st.none() | NUMBERS
MAYBE = st.none() | st.booleans()
GROUPS = ("remapped", "retired", "ecc", "clocks")
REMAPPED = st.builds(
    RemappedRows,
    correctable=NUMBERS,
    uncorrectable=NUMBERS,
    pending=st.booleans(),
    failure=st.booleans(),
    banks_max=MAYBE_NUMBER,
    banks_high=MAYBE_NUMBER,
    banks_partial=MAYBE_NUMBER,
    banks_low=MAYBE_NUMBER,
    banks_none=MAYBE_NUMBER,
)
RETIRED = st.builds(RetiredPages, single_bit=NUMBERS, double_bit=NUMBERS, pending=st.booleans())
ECC = st.builds(
    Ecc,
    enabled=MAYBE,
    volatile_corrected=MAYBE_NUMBER,
    volatile_uncorrected=MAYBE_NUMBER,
    aggregate_corrected=MAYBE_NUMBER,
    aggregate_uncorrected=MAYBE_NUMBER,
    sram_volatile_uncorrected=MAYBE_NUMBER,
    sram_aggregate_uncorrected=MAYBE_NUMBER,
    sram_threshold=MAYBE,
    unrepairable=MAYBE,
    channel_repair=MAYBE,
    tpc_repair=MAYBE,
)
DURATIONS = st.dictionaries(
    st.sampled_from(["hw_thermal", "sw_thermal", "power_brake", "power_cap", "x"]), NUMBERS, max_size=5
)
CLOCKS = st.builds(
    Clocks,
    reasons=MAYBE_NUMBER,
    throttled_ns=DURATIONS,
    pstate=MAYBE_NUMBER,
    temperature_c=MAYBE_NUMBER,
    margin_c=MAYBE_NUMBER,
    slowdown_c=MAYBE_NUMBER,
    memory_temperature_c=MAYBE_NUMBER,
    sm_mhz=MAYBE_NUMBER,
    sm_max_mhz=MAYBE_NUMBER,
    sm_app_mhz=MAYBE_NUMBER,
    utilisation_percent=MAYBE_NUMBER,
    persistence=MAYBE,
)
REFUSALS = st.builds(
    NvmlRefusal, call=st.text(max_size=8), code=st.integers(-1, 1000), name=st.text(max_size=8)
)
HEALTH = st.builds(
    GpuHealth,
    remapped=st.none() | REMAPPED,
    retired=st.none() | RETIRED,
    ecc=st.none() | ECC,
    pcie=st.none() | st.builds(Pcie, width=MAYBE_NUMBER),
    clocks=st.none() | CLOCKS,
    architecture=st.none() | st.sampled_from([5, 7, 9, 10]) | NUMBERS,
    errors=st.dictionaries(st.sampled_from([*GROUPS, "x"]), REFUSALS, max_size=3),
    absent=st.lists(st.sampled_from([*GROUPS, "x"]), max_size=3).map(tuple),
)
SILENT = st.builds(
    GpuHealth,
    architecture=st.none() | st.sampled_from([5, 7, 9]),
    errors=st.dictionaries(st.sampled_from(GROUPS), REFUSALS, max_size=4),
    absent=st.lists(st.sampled_from(GROUPS), max_size=4).map(tuple),
)
"""A GPU that answers and tells nothing of its health, for whatever reason."""


def readings(health: st.SearchStrategy[GpuHealth]) -> st.SearchStrategy[list[GpuReading]]:
    """Give one to three GPUs that say so, some of them quiet, under MIG, or without a word."""

    def numbered(said: list[tuple[GpuHealth | None, bool | None, str]]) -> list[GpuReading]:
        return [
            msgspec.structs.replace(gpu(number), health=one, mig=mig, quiet=quiet)
            for number, (one, mig, quiet) in enumerate(said)
        ]

    one = st.tuples(st.none() | health, MAYBE, st.sampled_from(["", "", "", "XID 79"]))
    return st.lists(one, min_size=1, max_size=3).map(numbered)


def no_history_raises(check: Check, data: st.DataObject) -> None:
    """Judge a drawn history: findings keep to the table, the memory survives a file, the message holds no raw value."""
    one = Watched(check, bus=3)
    declared = {reason.name: reason for reason in check.reasons}
    for _ in range(data.draw(st.integers(1, 4))):
        said = data.draw(
            st.one_of(
                readings(HEALTH).map(lambda drawn: read(*drawn)), st.builds(failed), st.builds(released)
            )
        )
        one.waits(data.draw(st.sampled_from([1, 30, 600])), said)
        for finding in one.judgement.findings:
            reason = declared[finding.reason]
            assert (finding.severity, finding.effect) == (reason.severity, reason.effect)
        _keeps(check, one)


def _keeps(check: Check, one: Watched) -> None:
    memory: Any = one.judgement.memory
    again = msgspec.json.decode(msgspec.json.encode(memory), type=check.memory_type)
    assert again == memory
    assert len(msgspec.json.encode(one.judgement.not_evaluated)) < 16_384


def nothing_told_is_never_well(check: Check, data: st.DataObject) -> None:
    """Let GPUs answer and tell nothing of their health: no condition, or Unknown; and what stood stands."""
    one = Watched(check, bus=3)
    for _ in range(data.draw(st.integers(1, 5))):
        one.waits(30, read(*data.draw(readings(SILENT))))
        assert one.condition is None or one.condition.status is Status.UNKNOWN


def a_fault_outlives_silence(
    check: Check, data: st.DataObject, ill: list[GpuReading], seconds: float
) -> None:
    """Let a fault be found, then NVML tell nothing more of it, in whatever way: it stands."""
    one = Watched(check, bus=3).waits(seconds, read(*ill))
    before = _faults(one)
    assert before
    for _ in range(data.draw(st.integers(1, 5))):
        drawn = data.draw(readings(SILENT))
        one.waits(data.draw(st.sampled_from([30, 600])), read(*drawn))
        assert _faults(one) == before
        assert one.condition is not None
        assert one.condition.status is Status.TRUE


def a_fault_outlives_half_a_reading(
    check: Check, data: st.DataObject, ill: GpuReading, group: str, seconds: float
) -> None:
    """Let a fault be found, then the same GPU say the same with parts of it left out: it stands."""
    one = Watched(check, bus=1).waits(seconds, read(ill))
    before = _faults(one)
    assert before
    assert ill.health is not None
    told = getattr(ill.health, group)
    optional = sorted(field.name for field in msgspec.structs.fields(told) if field.default is None)
    for _ in range(data.draw(st.integers(1, 4))):
        left_out = data.draw(st.lists(st.sampled_from(optional), unique=True))
        part = msgspec.structs.replace(told, **dict.fromkeys(left_out))
        errors = data.draw(st.dictionaries(st.just(group), REFUSALS, max_size=1))
        health = msgspec.structs.replace(ill.health, **{group: part}, errors=errors)
        one.waits(data.draw(st.sampled_from([30, 600])), read(msgspec.structs.replace(ill, health=health)))
        assert _faults(one) == before


def _faults(one: Watched) -> list[tuple[str, str]]:
    return sorted(_key(finding) for finding in one.judgement.findings if finding.severity == "Fault")


def _key(finding: Finding) -> tuple[str, str]:
    return finding.reason, finding.part.key()
