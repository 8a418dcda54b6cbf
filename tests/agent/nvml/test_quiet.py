"""Tests of agent.nvml_quiet: which GPUs are left alone, and what ends that."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agent.nvml_quiet import Quiet, lifted, sick_of
from checks.check import Clearing
from checks.finding import Action, Effect, Finding, Part, PartKind, Severity, Urgency
from checks.xid_reasons import XID_REASONS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(seconds=1), NOW + timedelta(seconds=1)
GPU = Part(kind=PartKind.GPU, pci="0000:01:00", uuid="GPU-1", index=0)
QUIET = {"0000:01:00": Quiet(part=GPU, why="GpuIsLost", since=NOW)}


def finding(code: int, *, part: Part = GPU, boot_id: str = "boot-1") -> Finding:
    return Finding(
        reason=XID_REASONS[code].name,
        severity=Severity.FAULT,
        effect=Effect.NODE_OUT,
        urgency=Urgency.NOW,
        action=Action.REBOOT,
        part=part,
        boot_id=boot_id,
        first_seen=NOW,
        last_seen=NOW,
    )


@pytest.mark.parametrize(
    ("found", "sick"),
    [
        pytest.param(finding(79), {"0000:01:00": "XID 79"}, id="fallen off the bus"),
        pytest.param(finding(119), {"0000:01:00": "XID 119"}, id="the GSP does not answer"),
        pytest.param(finding(120), {"0000:01:00": "XID 120"}, id="the GSP failed"),
        pytest.param(
            msgspec.structs.replace(finding(79), reason="ProbeHung"),
            {"0000:01:00": "a call to it has not come back"},
            id="a call to it hung before this agent was started",
        ),
        pytest.param(finding(48), {}, id="another fault leaves the calls working"),
        pytest.param(finding(79, boot_id="boot-0"), {}, id="evidence of an earlier boot is void"),
        pytest.param(finding(79, part=Part(kind=PartKind.GPU)), {}, id="a GPU that is not named"),
        pytest.param(
            finding(79, part=msgspec.structs.replace(GPU, kind=PartKind.NVSWITCH)),
            {},
            id="a switch is no GPU",
        ),
    ],
)
def test_a_finding_leaves_a_gpu_alone(found: Finding, sick: dict[str, str]) -> None:
    """Three XIDs, after which NVML's own calls block or fail, and a hang; of this boot."""
    assert sick_of([found], "boot-1") == sick


@pytest.mark.parametrize(
    ("cleared_before", "clearings", "stays"),
    [
        pytest.param(None, (), True, id="nothing was cleared"),
        pytest.param(BEFORE, (), True, id="the node was cleared before it began"),
        pytest.param(AFTER, (), False, id="the node was cleared after it began"),
        pytest.param(None, (Clearing(uuid="GPU-1", before=AFTER),), False, id="this part was repaired"),
        pytest.param(
            None, (Clearing(pci="0000:01:00", before=AFTER),), False, id="this address was repaired"
        ),
        pytest.param(
            None, (Clearing(uuid="GPU-1", before=BEFORE),), True, id="it was repaired before it began"
        ),
        pytest.param(None, (Clearing(uuid="GPU-2", before=AFTER),), True, id="its neighbour was repaired"),
    ],
)
def test_a_clearing_ends_it(
    cleared_before: datetime | None, clearings: tuple[Clearing, ...], stays: bool
) -> None:
    """A clearing of the node or of the very part, that is newer than what began it."""
    assert bool(lifted(QUIET, cleared_before, clearings)) == stays
