"""Each way into GpuDriverFault, and each way back."""

from collections.abc import Callable

import pytest

from checks.driver import CHECK
from checks.driver_reasons import GPU_REASONS, REASONS, UNKNOWN_OF_WHOLE, WHOLE_REASONS
from checks.nvml_error import MEANINGS, OnGpu, Whole
from tests.checks.kernel import NEXT_BOOT
from tests.checks.nvml import Watched, dead, failed, gpu, hung, pci, read, released, sound, uuid

GRACE_S, HUNG_S, SETTLE_S, GPU_ERRORS_S, PATIENCE_S = 600, 60, 60, 180, 90
FALSE = "False DriverUsable"
STARTING = "Unknown DriverStarting"


def watched() -> Watched:
    return Watched(CHECK)


def usable() -> Watched:
    return watched().hears(sound(8))


def broken(code: int = 9) -> Watched:
    return usable().waits(GRACE_S + 30, failed(code))


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.hears(), "", id="nothing was asked yet: nothing is said"),
        pytest.param(lambda w: w.waits(PATIENCE_S + 30), "Unknown NvmlSilent", id="nobody ever speaks"),
        pytest.param(lambda w: w.hears(sound(8)), FALSE, id="every GPU answers"),
        pytest.param(
            lambda w: w.hears(sound(8)).waits(290), FALSE, id="a good round counts for five minutes"
        ),
        pytest.param(
            lambda w: w.hears(sound(8)).waits(420), "Unknown NvmlSilent", id="a good round grows old"
        ),
        pytest.param(lambda w: w.hears(failed()), "", id="one failure at the start says nothing yet"),
        pytest.param(
            lambda w: w.waits(PATIENCE_S + 30, failed()), STARTING, id="the driver is not there yet"
        ),
        pytest.param(lambda w: w.waits(GRACE_S, failed()), STARTING, id="the grace period is not over"),
        pytest.param(
            lambda w: w.waits(GRACE_S + 30, failed()), "True DriverNotLoaded", id="the grace period is over"
        ),
        pytest.param(lambda w: w.waits(GRACE_S + 30, failed(12)), "True LibraryNotFound", id="no user space"),
        pytest.param(
            lambda w: w.waits(GRACE_S + 30, failed(18)),
            "True LibraryMismatch",
            id="a fresh process finds two versions",
        ),
        pytest.param(
            lambda w: w.waits(5 * GRACE_S, failed(18, fresh=False)),
            STARTING,
            id="an old process alone proves no mismatch",
        ),
        pytest.param(
            lambda w: w.waits(GRACE_S + 30, failed(999)), "True NvmlUnusable", id="the driver fails inside"
        ),
        pytest.param(
            lambda w: w.waits(5 * GRACE_S, failed(4)),
            "Unknown NvmlNotPermitted",
            id="no permission is no fault",
        ),
        pytest.param(
            lambda w: w.waits(5 * GRACE_S, failed(13)),
            "Unknown NvmlCallRefused",
            id="an old library is no fault",
        ),
        pytest.param(lambda w: w.hears(released()), "Unknown DriverUpgrade", id="the driver was released"),
        pytest.param(
            lambda w: w.waits(5 * GRACE_S, released()),
            "Unknown DriverUpgrade",
            id="it stays released for long",
        ),
    ],
)
def test_the_driver_is_judged_as_a_whole(go: Callable[[Watched], Watched], shown: str) -> None:
    """Only a fresh process and the grace period make a fault; everything else has a name of its own."""
    assert go(watched()).shown == shown


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.hears(hung()), FALSE, id="a call is slow: what stood stands"),
        pytest.param(
            lambda w: w.hears(hung(3)).waits(HUNG_S, hung(3)), "True ProbeHung", id="it hangs and hangs"
        ),
        pytest.param(lambda w: w.hears(hung(3)).waits(HUNG_S), "True ProbeHung", id="it hangs, said once"),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(HUNG_S),
            FALSE,
            id="a process that could be ended proves nothing by itself",
        ),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(PATIENCE_S),
            "Unknown ProbeOverdue",
            id="and nobody asks again",
        ),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(30).hears(hung(3, child=2, gone=True)),
            "True ProbeHung",
            id="the next process hangs as well",
        ),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(30).hears(hung(4, child=2, gone=True)),
            FALSE,
            id="the next process hangs on another GPU",
        ),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(HUNG_S, read(gpu(2), gpu(3, quiet="a call hung"))),
            "True ProbeHung",
            id="the GPU is left alone since",
        ),
        pytest.param(
            lambda w: w.hears(hung(3, gone=True)).waits(90, sound(8, child=2)),
            FALSE,
            id="the next process is answered",
        ),
        pytest.param(
            lambda w: (
                w.hears(hung(3, gone=True)).waits(30, sound(8, child=2)).hears(hung(3, child=2, gone=True))
            ),
            "True ProbeHung",
            id="it hangs again before it was well for long",
        ),
        pytest.param(
            lambda w: w.hears(hung(gone=True)).waits(30).hears(hung(child=2)),
            "True ProbeHung",
            id="NVML as a whole hangs twice",
        ),
    ],
)
def test_a_call_that_hangs(go: Callable[[Watched], Watched], shown: str) -> None:
    """One slow call is no fault; one that lasts or comes again is."""
    assert go(usable()).shown == shown


def test_a_hang_names_its_call_and_its_gpu() -> None:
    """On-call reads which card it is."""
    one = usable().hears(hung(3)).waits(HUNG_S)
    assert one.message == f"GPU 3 at {pci(3)}: ProbeHung (nvmlDeviceGetUUID does not come back)"
    (finding,) = one.judgement.findings
    assert (finding.effect, finding.urgency, finding.action) == ("node-out", "now", "REBOOT")


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.hears(sound(8)), "True DriverNotLoaded", id="one good round is not enough"),
        pytest.param(
            lambda w: w.waits(SETTLE_S, sound(8)),
            "True DriverNotLoaded",
            id="nor is a minute from the last bad one",
        ),
        pytest.param(lambda w: w.waits(SETTLE_S + 30, sound(8)), FALSE, id="a minute of good rounds is"),
        pytest.param(
            lambda w: w.waits(SETTLE_S, sound(8)).hears(failed()).waits(SETTLE_S, sound(8)),
            "True DriverNotLoaded",
            id="a bad round in between begins the minute anew",
        ),
        pytest.param(lambda w: w.waits(900), "True DriverNotLoaded", id="silence does not heal"),
        pytest.param(
            lambda w: w.waits(900, released()), "True DriverNotLoaded", id="a proven fault outlasts a release"
        ),
        pytest.param(
            lambda w: w.hears(released()).waits(SETTLE_S + 30, sound(8)), FALSE, id="the upgrade mended it"
        ),
        pytest.param(
            lambda w: w.waits(30, failed(12)), "True LibraryNotFound", id="the same trouble, another name"
        ),
        pytest.param(
            lambda w: w.waits(30, failed(4)), "True DriverNotLoaded", id="not being allowed does not heal"
        ),
        pytest.param(
            lambda w: w.is_cleared().hears(failed()), "Unknown DriverStarting", id="cleared, and still away"
        ),
        pytest.param(
            lambda w: w.is_cleared().waits(GRACE_S + 60, failed()),
            "True DriverNotLoaded",
            id="cleared, and away for long again",
        ),
        pytest.param(lambda w: w.is_cleared().hears(sound(8)), FALSE, id="cleared, and it answers"),
        pytest.param(lambda w: w.set(boot_id=NEXT_BOOT).hears(sound(8)), FALSE, id="the node boots"),
    ],
)
def test_the_ways_back(go: Callable[[Watched], Watched], shown: str) -> None:
    """Only answers that last end the fault."""
    assert go(broken()).shown == shown


def test_a_driver_that_comes_and_goes_is_found() -> None:
    """A good round between bad ones neither ends the wait nor lets it begin anew."""
    one = usable()
    for _ in range(40):
        one.waits(30, failed()).waits(30, sound(8))
    assert one.shown == "True DriverNotLoaded"


def test_a_library_that_is_merely_out_of_date_is_nothing_that_anybody_sees() -> None:
    """Patience begins with the first bad word, not with the good one before it, so it outlasts the settling."""
    one = usable().waits(30, failed(18, fresh=False)).waits(1, sound(8)).waits(59.6, sound(8))
    assert one.shown == FALSE


def test_a_release_forgets_what_was_only_suspected() -> None:
    """Whoever upgrades the driver unloads it: the grace period begins when they say that they are done."""
    one = usable().waits(GRACE_S - 60, failed()).hears(released())
    assert one.waits(3600, released()).waits(GRACE_S, failed()).shown == STARTING
    assert one.waits(60, failed()).shown == "True DriverNotLoaded"


def test_a_clock_that_is_set_ends_no_wait() -> None:
    """Nine days forward and back again: only what was watched counts."""
    one = usable().waits(60, failed())
    one.seconds += 9 * 86400
    one.hears(failed())
    assert one.shown in (FALSE, STARTING)
    one.seconds -= 18 * 86400
    assert one.waits(120, failed()).shown == STARTING


def test_an_agent_that_says_how_long_it_watched_is_believed_more_than_the_dates() -> None:
    """A clock that jumps an hour makes no Unknown and no fault, and an absence between two failures is no wait."""
    one = usable().set(watched_ms=1000)
    one.hears(failed())
    one.seconds += 3600
    assert one.hears(failed()).shown == FALSE
    one.seconds -= 7200
    assert one.hears(failed()).shown == FALSE
    one.set(watched_ms=0)
    one.seconds += 110
    assert one.hears(failed()).shown == FALSE
    one.set(watched_ms=120_000)
    one.seconds += 1
    assert one.hears(failed()).shown == STARTING


def test_a_fault_keeps_its_first_date_and_its_message() -> None:
    """Waits of a policy run from the first failure; nothing moves while nothing changes."""
    one = broken()
    (first,) = one.judgement.findings
    assert first.first_seen.timestamp() <= one.context.now.timestamp() - GRACE_S
    message = one.message
    one.waits(300, failed())
    assert (one.judgement.findings, one.message) == ((first,), message)
    assert message == "node: DriverNotLoaded (nvmlInitWithFlags: DriverNotLoaded (9))"


@pytest.mark.parametrize(
    ("code", "after_s", "reasons", "shown"),
    [
        pytest.param(16, 0, ["GpuResetRequired"], "True GpuResetRequired", id="it must be reset"),
        pytest.param(8, 0, ["GpuPowerMissing"], "True GpuPowerMissing", id="its power is missing"),
        pytest.param(14, 0, ["GpuInforomDamaged"], FALSE, id="a damaged infoROM is a warning"),
        pytest.param(999, 0, [], FALSE, id="an unknown error is asked again"),
        pytest.param(
            999, GPU_ERRORS_S, ["GpuCallsFail"], "True GpuCallsFail", id="an unknown error that lasts"
        ),
        pytest.param(10, GPU_ERRORS_S, ["GpuCallsFail"], "True GpuCallsFail", id="timeouts that last"),
        pytest.param(
            4711, GPU_ERRORS_S, ["GpuCallsFail"], "True GpuCallsFail", id="a code of a newer driver"
        ),
        pytest.param(20, GPU_ERRORS_S, ["GpuCallsRefused"], FALSE, id="out of memory says nothing of it"),
        pytest.param(15, GPU_ERRORS_S, [], FALSE, id="a lost GPU is told by GpuMissing"),
        pytest.param(3, GPU_ERRORS_S, [], FALSE, id="what the hardware lacks is no error"),
        pytest.param(4, GPU_ERRORS_S, [], FALSE, id="what is not permitted is not evaluated"),
    ],
)
def test_errors_of_one_gpu(code: int, after_s: int, reasons: list[str], shown: str) -> None:
    """A GPU's error is that GPU's finding."""
    one = usable().hears(read(gpu(2), gpu(3, code)))
    one.waits(after_s, read(gpu(2), gpu(3, code)))
    assert (one.reasons, one.shown) == (reasons, shown)
    assert {finding.part.pci for finding in one.judgement.findings} <= {pci(3)}
    assert bool(one.rows) == (code == 4)


@pytest.mark.parametrize(
    ("go", "shown"),
    [
        pytest.param(lambda w: w.waits(SETTLE_S + 30, sound(8)), FALSE, id="it answers for a minute"),
        pytest.param(
            lambda w: w.waits(30, sound(8)), "True GpuResetRequired", id="it answers for half a minute"
        ),
        pytest.param(lambda w: w.gpu_is_cleared(3).hears(sound(8)), FALSE, id="the reset is proven"),
        pytest.param(
            lambda w: w.gpu_is_cleared(4).hears(sound(8)), "True GpuResetRequired", id="another GPU was reset"
        ),
        pytest.param(
            lambda w: w.waits(90, read(gpu(2), gpu(3, quiet="XID 119"))),
            "True GpuResetRequired",
            id="it is not asked",
        ),
        pytest.param(lambda w: w.waits(90, read(gpu(2))), "True GpuResetRequired", id="it is not counted"),
        pytest.param(
            lambda w: w.gpu_is_cleared(3).waits(30).hears(read(gpu(3, 16))),
            "True GpuResetRequired",
            id="it says so again after the reset",
        ),
    ],
)
def test_a_gpu_that_must_be_reset_stands_until_it_answers(
    go: Callable[[Watched], Watched], shown: str
) -> None:
    """Not being asked proves nothing."""
    assert go(usable().hears(read(gpu(2), dead(3, 16)))).shown == shown


def test_what_was_read_back_stands_until_the_driver_answers() -> None:
    """The state file is lost: NodeHealth's account stands, and no grace period is needed again."""
    old = broken()
    one = watched()
    one.judgement = type(one.judgement)(memory=CHECK.restore and CHECK.restore(old.judgement.findings, None))
    one.seconds = old.seconds
    assert one.waits(60, failed()).shown == "True DriverNotLoaded"
    assert one.judgement.findings[0].first_seen == old.judgement.findings[0].first_seen
    assert one.waits(SETTLE_S + 30, sound(8)).shown == FALSE


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"nvml": False}, "NVML is switched off in the agent's configuration", id="NVML is off"),
        pytest.param(
            {"labels": {"nvidia.com/gpu.workload.config": "vm-passthrough"}},
            "the GPUs are handed to virtual machines",
            id="passed through",
        ),
    ],
)
def test_what_cannot_be_seen_here_is_not_evaluated(fields: dict[str, object], said: str) -> None:
    """It is said openly, and no condition is published, not even Unknown."""
    one = usable().set(**fields).waits(300, failed())
    assert one.shown == ""
    assert one.rows[0].startswith(said)


@pytest.mark.parametrize("code", [pytest.param(code, id=row.name) for code, row in MEANINGS.items()])
def test_every_code_has_a_meaning_for_nvml_as_a_whole(code: int) -> None:
    """Either a fault after the grace period or an Unknown that says that it is none of the machine's."""
    whole = MEANINGS[code].whole
    shown = usable().waits(GRACE_S + 30, failed(code)).shown
    expected = WHOLE_REASONS.get(whole)
    assert shown == (f"True {expected.name}" if expected else f"Unknown {UNKNOWN_OF_WHOLE[whole].name}")


@pytest.mark.parametrize("code", [pytest.param(code, id=row.name) for code, row in MEANINGS.items()])
def test_every_code_has_a_meaning_for_one_gpu(code: int) -> None:
    """A finding on that GPU, or said as not evaluated, or none of this class's business."""
    kind = MEANINGS[code].gpu
    one = usable().waits(GPU_ERRORS_S + 30, read(gpu(2), gpu(3, code)))
    expected = GPU_REASONS.get(kind)
    assert one.reasons == ([expected.name] if expected else [])
    assert bool(one.rows) == (kind is OnGpu.NOT_SHOWN and code != 3)


def test_the_tables_leave_nothing_out() -> None:
    """Each meaning has its reason, but for those that are another class's or no fault."""
    assert set(Whole) - set(WHOLE_REASONS) == set(UNKNOWN_OF_WHOLE)
    assert set(OnGpu) - set(GPU_REASONS) == {OnGpu.LOST, OnGpu.NOT_SHOWN}
    assert {reason.name for reason in REASONS} >= {
        r.name for r in (*WHOLE_REASONS.values(), *GPU_REASONS.values())
    }
    assert uuid(3).startswith("GPU-")
