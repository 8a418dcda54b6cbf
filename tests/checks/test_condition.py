"""How findings become the one condition of a class: what outweighs what, which words it uses, and when its time moves."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.condition import MESSAGE_LIMIT, Condition, Healthy, Status, Unreadable, fold
from checks.finding import Action, Effect, Finding, Part, PartKind, Severity, Urgency

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE = NOW - timedelta(hours=1)
FINE = Healthy(reason="Fine", message="all is fine")
GONE = Unreadable(reason="Gone", message="the log is gone")


def finding(
    reason: str = "Bad",
    *,
    number: int = 0,
    effect: Effect = Effect.PART_OUT,
    severity: Severity = Severity.FAULT,
    detail: str = "",
    drill: bool = False,
) -> Finding:
    return Finding(
        reason=reason,
        severity=severity,
        effect=effect,
        urgency=Urgency.NOW,
        action=Action.REBOOT,
        part=Part(kind=PartKind.GPU, pci=f"0000:{number:02x}:00", index=number),
        boot_id="boot-1",
        first_seen=NOW,
        last_seen=NOW,
        detail=detail,
        drill=drill,
    )


def folded(
    *findings: Finding, unreadable: Unreadable | None = None, previous: Condition | None = None
) -> Condition:
    return fold(
        "GateFault", findings=findings, unreadable=unreadable, healthy=FINE, previous=previous, now=NOW
    )


@pytest.mark.parametrize(
    ("findings", "unreadable", "status", "reason"),
    [
        pytest.param([], None, Status.FALSE, "Fine", id="looked and fine"),
        pytest.param([], GONE, Status.UNKNOWN, "Gone", id="not readable"),
        pytest.param([finding()], None, Status.TRUE, "Bad", id="a fault"),
        pytest.param(
            [finding()], GONE, Status.TRUE, "Bad", id="losing sight of a sick part does not heal it"
        ),
        pytest.param(
            [finding(severity=Severity.WARNING)], None, Status.FALSE, "Fine", id="a warning is no fault"
        ),
        pytest.param(
            [finding(severity=Severity.WARNING)], GONE, Status.UNKNOWN, "Gone", id="nor does it hide silence"
        ),
        pytest.param(
            [finding("Aside", effect=Effect.PREFER_NOT), finding("Out", effect=Effect.NODE_OUT)],
            None,
            Status.TRUE,
            "Out",
            id="the reason is that of the worst effect",
        ),
    ],
)
def test_what_outweighs_what(
    findings: list[Finding], unreadable: Unreadable | None, status: Status, reason: str
) -> None:
    """A fault is True, else silence is Unknown, else False."""
    condition = folded(*findings, unreadable=unreadable)
    assert (condition.status, condition.reason) == (status, reason)


def test_each_part_is_named_with_its_reason() -> None:
    """Worst first, then by reason and part; a drill says that it is one."""
    condition = folded(finding(number=2, drill=True), finding(number=1, detail="why"))
    assert condition.message == "GPU 1 at 0000:01:00: Bad (why); drill: GPU 2 at 0000:02:00: Bad"


@given(st.integers(1, 60), st.integers(0, 400))
def test_a_message_fits_and_says_how_many_it_leaves_out(parts: int, width: int) -> None:
    """It is cut between parts, and those that it names and those that it counts are all."""
    faults = [finding(number=number, detail="x" * width) for number in range(parts)]
    message = folded(*faults).message
    assert len(message) <= MESSAGE_LIMIT
    named, _, left = message.partition("; and ")
    count = int(left.removesuffix(" more")) if left else 0
    assert named.count(": Bad") + count == parts
    assert message == folded(*reversed(faults)).message


def test_a_cause_of_any_length_fits() -> None:
    """The API server takes no longer message, and would refuse the whole patch."""
    assert len(folded(unreadable=Unreadable(reason="Gone", message="x" * 5000)).message) == MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("status", "moves"),
    [
        pytest.param(Status.TRUE, False, id="another fault of the same class"),
        pytest.param(Status.FALSE, True, id="it was fine"),
        pytest.param(Status.UNKNOWN, True, id="it was not known"),
    ],
)
def test_its_time_moves_with_its_status_alone(status: Status, moves: bool) -> None:
    """Another reason or message is no transition."""
    previous = msgspec.structs.replace(
        folded(), status=status, reason="Other", message="other", last_transition=BEFORE
    )
    assert folded(finding(), previous=previous).last_transition == (NOW if moves else BEFORE)
