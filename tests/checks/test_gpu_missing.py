"""Each way into GpuMissing, and each way back."""

from collections.abc import Callable

import pytest

from checks.check import Judgement
from checks.gpu_missing import CHECK
from checks.observation import GpuReading, NvmlRead
from tests.checks.kernel import NEXT_BOOT
from tests.checks.nvml import Watched, dead, failed, gpu, hung, pci, read, released, sound, uuid

CONFIRM_S, PATIENCE_S = 90, 180
FALSE = "False AllGpusPresent"
COUNT, LOST = "True GpuCountBelowExpected", "True GpuLost"
NOT_ASKED = "Unknown GpusNotAsked"
GFD = {"nvidia.com/gpu.count": "8"}
P5 = {"node.kubernetes.io/instance-type": "p5.48xlarge"}


def lost(*numbers: int, of: int = 8) -> NvmlRead:
    """Build a round in which these GPUs are lost."""
    return read(*(dead(n, 15) if n in numbers else gpu(n) for n in range(of)))


def quiet(number: int, why: str = "XID 79") -> NvmlRead:
    return read(*(gpu(n, quiet=why if n == number else "") for n in range(8)))


def nameless(*numbers: int) -> NvmlRead:
    """Build a round in which these GPUs have no address, and nothing says why."""
    return read(*(GpuReading(index=n) if n in numbers else gpu(n) for n in range(8)))


def whole(**fields: object) -> Watched:
    """Give a node of eight GPUs that are all there."""
    return Watched(CHECK, labels=GFD).set(**fields).hears(sound(8))


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.hears(), "", id="nothing was asked yet"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30), NOT_ASKED, id="nobody ever speaks"),
        pytest.param(lambda w: w.hears(sound(8)), FALSE, id="all are there and answer"),
        pytest.param(lambda w: w.on_bus(9).waits(90, sound(9)), FALSE, id="one more than expected"),
        pytest.param(
            lambda w: w.on_bus(7).hears(), COUNT, id="the bus shows seven, with or without a driver"
        ),
        pytest.param(lambda w: w.on_bus(0).hears(), COUNT, id="the bus shows none"),
        pytest.param(
            lambda w: w.on_bus(7).hears(failed()), COUNT, id="the bus decides where the driver is away"
        ),
        pytest.param(lambda w: w.on_bus(7).hears(sound(7)), COUNT, id="missing at boot from bus and NVML"),
        pytest.param(
            lambda w: w.hears(sound(7)), "", id="NVML counts seven, once: the bus may be read later"
        ),
        pytest.param(
            lambda w: w.hears(sound(7)).waits(CONFIRM_S, sound(7)), LOST, id="NVML counts seven and goes on"
        ),
        pytest.param(lambda w: w.hears(lost(3)), LOST, id="NVML says that it is lost"),
        pytest.param(lambda w: w.hears(lost(*range(8))), LOST, id="all are lost"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30, failed()), NOT_ASKED, id="the driver is away"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30, hung(3)), NOT_ASKED, id="a call hangs"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30, released()), NOT_ASKED, id="the driver is released"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30, quiet(3)), NOT_ASKED, id="one GPU is left alone"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30, nameless(3)), NOT_ASKED, id="one GPU says nothing"),
        pytest.param(
            lambda w: w.waits(PATIENCE_S + 30, read(*(gpu(n) for n in range(7)), count=8)),
            LOST,
            id="one GPU is counted and never asked",
        ),
        pytest.param(
            lambda w: w.waits(PATIENCE_S + 30, read(*(gpu(n, 20) for n in range(8)))),
            FALSE,
            id="other errors",
        ),
        pytest.param(lambda w: w.on_bus(None).hears(sound(8)), "", id="the bus was not read yet"),
        pytest.param(
            lambda w: w.on_bus(None, "no /sys").waits(PATIENCE_S + 30, sound(8)),
            "Unknown PciBusUnread",
            id="the bus cannot be read",
        ),
        pytest.param(
            lambda w: w.on_bus(8, "no /sys").waits(PATIENCE_S + 30, sound(8)),
            "Unknown PciBusUnread",
            id="the bus cannot be read any more",
        ),
    ],
)
def test_gpus_are_counted(go: Callable[[Watched], Watched], shown: str) -> None:
    """On a node of which the label says that it has eight."""
    assert go(Watched(CHECK, labels=GFD)).shown == shown


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.on_bus([0, 1, 2, 4, 5, 6, 7]).hears(sound(8)), COUNT, id="it left the bus"),
        pytest.param(lambda w: w.hears(failed()), FALSE, id="one failure: what stood stands"),
        pytest.param(lambda w: w.waits(PATIENCE_S - 30, failed()), FALSE, id="some failures"),
        pytest.param(
            lambda w: w.waits(PATIENCE_S, failed()), NOT_ASKED, id="three minutes of failures: nobody knows"
        ),
        pytest.param(
            lambda w: w.waits(PATIENCE_S - 30, released()), FALSE, id="a short release changes nothing"
        ),
        pytest.param(lambda w: w.set(labels={}).waits(90, sound(8)), FALSE, id="the label goes"),
        pytest.param(
            lambda w: w.set(labels={}, last_validated=8).on_bus(7).hears(sound(7)),
            COUNT,
            id="the label goes with the GPU, the validated count stays",
        ),
        pytest.param(
            lambda w: w.set(labels={}).on_bus(7).hears(sound(7)), LOST, id="it was there in this boot"
        ),
        pytest.param(
            lambda w: w.waits(CONFIRM_S, sound(9)), FALSE, id="NVML counts one that the bus lacks, so far"
        ),
        pytest.param(
            lambda w: w.waits(CONFIRM_S + 30, sound(9)), LOST, id="NVML counts one that the bus lacks"
        ),
    ],
)
def test_gpus_are_missed(go: Callable[[Watched], Watched], shown: str) -> None:
    """On a node where all eight were there."""
    assert go(whole()).shown == shown


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.hears(sound(8)), FALSE, id="it answers again"),
        pytest.param(lambda w: w.waits(600, sound(7)), LOST, id="it is not counted any more"),
        pytest.param(lambda w: w.waits(600, quiet(3)), LOST, id="it is left alone"),
        pytest.param(lambda w: w.waits(600, failed()), LOST, id="the driver goes away"),
        pytest.param(lambda w: w.waits(600, released()), LOST, id="the driver is released"),
        pytest.param(lambda w: w.waits(600), LOST, id="nobody says anything"),
        pytest.param(
            lambda w: w.on_bus([0, 1, 2, 4, 5, 6, 7]).hears(sound(8)),
            COUNT,
            id="it left the bus and NVML answers from memory",
        ),
        pytest.param(
            lambda w: w.is_cleared().hears(),
            LOST,
            id="cleared: what stood stands until it is asked",
        ),
        pytest.param(lambda w: w.is_cleared().hears(sound(8)), FALSE, id="cleared, and it answers"),
        pytest.param(lambda w: w.is_cleared().hears(lost(3)), LOST, id="cleared, and still lost"),
        pytest.param(lambda w: w.gpu_is_cleared(3).hears(sound(8)), FALSE, id="reset, and it answers"),
        pytest.param(lambda w: w.set(boot_id=NEXT_BOOT).hears(sound(8)), FALSE, id="the node boots"),
        pytest.param(
            lambda w: w.set(boot_id=NEXT_BOOT).on_bus(7).hears(sound(7)), COUNT, id="it boots with seven"
        ),
    ],
)
def test_the_ways_back_of_a_lost_gpu(go: Callable[[Watched], Watched], shown: str) -> None:
    """It answers, it is cleared, or the node boots; nothing else."""
    assert go(whole().hears(lost(3))).shown == shown


def test_a_cleared_loss_is_no_finding_until_it_is_seen_again() -> None:
    """The controller was told that it is dealt with; the condition waits for the next round."""
    one = whole().hears(lost(3)).is_cleared().hears()
    assert one.reasons == []
    (again,) = one.waits(30, lost(3)).judgement.findings
    assert again.first_seen > one.context.cleared_before  # type: ignore[operator]


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.on_bus(8).hears(sound(8)), FALSE, id="it is back and answers"),
        pytest.param(lambda w: w.on_bus(8).hears(), COUNT, id="it is back on the bus and was not asked"),
        pytest.param(
            lambda w: w.on_bus(8).waits(CONFIRM_S, sound(7)), COUNT, id="it is back on the bus alone, so far"
        ),
        pytest.param(
            lambda w: w.on_bus(8).waits(CONFIRM_S + 30, sound(7)), LOST, id="it is back on the bus alone"
        ),
        pytest.param(
            lambda w: w.on_bus(7, "no /sys").waits(600, sound(8)), COUNT, id="the bus cannot be read any more"
        ),
        pytest.param(lambda w: w.is_cleared().hears(sound(7)), COUNT, id="a word alone brings no GPU"),
        pytest.param(lambda w: w.set(labels={}).hears(sound(7)), FALSE, id="nobody expects it any more"),
        pytest.param(lambda w: w.set(expected=7).hears(sound(7)), FALSE, id="spec.expected says seven"),
        pytest.param(
            lambda w: w.set(labels={"nvidia.com/gpu.count": "7"}).hears(sound(7)),
            FALSE,
            id="the label alone had said eight",
        ),
        pytest.param(
            lambda w: w.set(labels={"nvidia.com/gpu.count": "7"}, last_validated=8).hears(sound(7)),
            COUNT,
            id="the label shrinks with the GPU",
        ),
    ],
)
def test_the_ways_back_of_a_count(go: Callable[[Watched], Watched], shown: str) -> None:
    """The GPU is back, or the one who may say so says that fewer are right."""
    one = go(Watched(CHECK, bus=7, labels=GFD).hears(sound(7)))
    assert one.shown == shown
    assert bool(one.judgement.findings) == shown.startswith("True")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"labels": GFD}, "(label nvidia.com/gpu.count)", id="the label"),
        pytest.param(
            {"labels": {**GFD, **P5}}, "(instance type p5.48xlarge)", id="the instance type goes first"
        ),
        pytest.param({"last_validated": 8}, "(last validated count)", id="the validated count"),
        pytest.param(
            {"expected": 8, "expected_source": "7 peers", "labels": P5},
            "(NodeHealth.spec.expected (7 peers))",
            id="the stated number",
        ),
    ],
)
def test_the_message_names_the_number_and_its_source(fields: dict[str, object], told: str) -> None:
    """And, where it is remembered, which slot is empty."""
    one = Watched(CHECK, bus=7).set(last_validated_pci=tuple(pci(n) for n in range(8)), **fields).hears()
    assert one.message == (
        f"node: GpuCountBelowExpected (7 of 8 GPUs on the PCI bus; 8 are expected {told}; "
        f"gone since last time: {pci(7)})"
    )


def test_a_lost_gpu_is_named_with_its_address_and_nvmls_word() -> None:
    """The UUID is what NVML said before."""
    one = whole()
    one.set(
        parts=tuple(
            p.__class__(kind=p.kind, pci=p.pci, uuid=uuid(p.index or 0), index=p.index)
            for p in one.context.parts
        )
    )
    (finding,) = one.hears(lost(3)).judgement.findings
    assert (finding.part.pci, finding.part.uuid) == (pci(3), uuid(3))
    assert finding.evidence == ("nvmlDeviceGetHandleByIndex_v2: GpuIsLost (15)",)
    assert (finding.effect, finding.urgency, finding.action) == ("node-out", "now", "REBOOT")


def test_a_lost_gpu_without_an_address_is_named_by_what_its_index_was() -> None:
    """A handle that cannot be had gives no address; two of them are still two."""
    rounds = [gpu(n) if n not in (3, 4) else dead(n, 15, known=False) for n in range(8)]
    told = {f.part.pci for f in whole().hears(read(*rounds)).judgement.findings}
    assert told == {pci(3), pci(4)}
    fresh = Watched(CHECK, labels=GFD).hears(read(*rounds))
    assert {f.part.name for f in fresh.judgement.findings} == {"NVML index 3", "NVML index 4"}
    assert fresh.hears(sound(8)).shown == FALSE


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        pytest.param(None, LOST, id="nobody says that it may be left alone"),
        pytest.param(7, FALSE, id="spec.expected is met without it"),
        pytest.param(8, LOST, id="spec.expected is not met"),
    ],
)
def test_a_gpu_that_the_driver_leaves_alone(expected: int | None, shown: str) -> None:
    """An excluded or foreign card on the bus is lost unless the stated number is met."""
    one = Watched(CHECK, expected=expected).waits(CONFIRM_S + 30, sound(7))
    assert one.shown == shown
    assert one.set(expected=7).hears(sound(7)).shown == FALSE


@pytest.mark.parametrize(
    ("make", "shown", "rows"),
    [
        pytest.param(
            lambda: Watched(CHECK, bus=0).hears(), "", 0, id="no GPU and none expected: no such class"
        ),
        pytest.param(lambda: Watched(CHECK, bus=0, expected=0).hears(), "", 0, id="none expected by name"),
        pytest.param(
            lambda: Watched(CHECK, labels=GFD, nvml=False).hears(), "", 1, id="NVML is switched off"
        ),
        pytest.param(
            lambda: Watched(CHECK, bus=0, nvml=False).hears(),
            "",
            0,
            id="NVML is switched off and there is no GPU",
        ),
        pytest.param(
            lambda: Watched(CHECK, labels={"nvidia.com/gpu.workload.config": "vm-passthrough"}).hears(),
            "",
            1,
            id="passed through",
        ),
        pytest.param(
            lambda: Watched(CHECK).hears(sound(8)), FALSE, 1, id="nobody says how many: said openly"
        ),
        pytest.param(
            lambda: Watched(CHECK, labels={**P5, "nvidia.com/gpu.count": "7"}).hears(sound(8)),
            FALSE,
            1,
            id="sources that disagree are told",
        ),
    ],
)
def test_what_is_not_evaluated(make: Callable[[], Watched], shown: str, rows: int) -> None:
    """A class that is not here is not published; what cannot be shown is said."""
    one = make()
    assert (one.shown, len(one.rows)) == (shown, rows)


def test_addresses_that_have_nothing_in_common_make_no_gpu_lost() -> None:
    """Where bus and NVML name GPUs otherwise, only the numbers are compared, and that is said."""
    one = Watched(CHECK, labels=GFD, bus=None).set(bus=tuple(f"00000000:{n:02x}:00" for n in range(8)))
    assert one.waits(300, sound(8)).shown == FALSE
    assert "name no GPU alike" in one.rows[0]
    assert one.waits(30, sound(7)).shown == COUNT


def test_mig_and_mixed_models_change_nothing() -> None:
    """GPUs are counted, of whatever model, whether they are cut up or not."""
    rounds = [
        GpuReading(index=n, pci=pci(n), uuid=uuid(n), model=f"NVIDIA {n % 2}", mig=n > 3) for n in range(8)
    ]
    assert Watched(CHECK, labels=P5).hears(read(*rounds)).shown == FALSE


def test_what_was_read_back_stands_until_it_answers() -> None:
    """The state file is lost: NodeHealth's account stands."""
    old = whole().hears(lost(3))
    assert CHECK.restore is not None
    one = Watched(CHECK, labels=GFD)
    one.judgement = Judgement(memory=CHECK.restore(old.judgement.findings, None))
    assert one.waits(300, failed()).shown == LOST
    assert one.judgement.findings[0].first_seen == old.judgement.findings[0].first_seen
    assert one.hears(sound(8)).shown == FALSE


def test_nothing_moves_while_nothing_changes() -> None:
    """A finding that stands costs no write for each round."""
    one = whole().hears(lost(3))
    before, message = one.judgement.findings, one.message
    one.waits(300, lost(3))
    assert (one.judgement.findings, one.message) == (before, message)
    one.waits(600, lost(3))
    assert one.judgement.findings[0].last_seen > before[0].last_seen
    assert one.judgement.findings[0].first_seen == before[0].first_seen
