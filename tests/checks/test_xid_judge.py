"""What the XID check makes of the kernel log: which lines fire, how findings stand, and what ends them."""

import pytest

from checks.condition import Status
from checks.finding import NODE, Action, Finding, Part, PartKind, Severity
from checks.observation import Observation, SourceRead
from checks.xid import CHECK
from checks.xid_line import TEXT_LIMIT
from tests.checks.kernel import BOOT, GPU, UUID, at, condition, context, judged, record, was_read, xid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "Xid79FallenOffBus", id="XID 79"
        ),
        pytest.param(
            "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            "Xid79FallenOffBus",
            id="off the bus, no XID",
        ),
        pytest.param(
            "NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            "Xid79FallenOffBus",
            id="off the bus at probe",
        ),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 119, Timeout", "Xid119GspTimeout", id="XID 119"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 48", "Xid48DoubleBitEcc", id="XID 48"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 94, Contained", "Xid94ContainedEcc", id="XID 94"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 63", "Xid63RowRemapRecorded", id="XID 63"),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 23001, Fatal, Link 3",
            "SxidSwitchFatal",
            id="an SXID that stops the switch",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Fatal, Link 3",
            "SxidLinkFatal",
            id="an SXID that stops a link",
        ),
    ],
)
def test_a_line_that_needs_action_fires(text: str, reason: str) -> None:
    """One such line is enough, and the message names the part."""
    fired = condition([was_read(), record(1, text)])
    assert (fired.status, fired.reason) == (Status.TRUE, reason)
    assert "0000:3b:00" in fired.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception", "Xid13GraphicsException", id="XID 13"
        ),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 31, MMU Fault", "Xid31MmuFault", id="XID 31"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 43, Ch 8", "Xid43ChannelResetAfterFault", id="XID 43"),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 45, Ch 8", "Xid45PreemptiveChannelRemoval", id="XID 45"),
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 149, NETIR Fatal Link 8",
            "Xid149NvLinkNetirError",
            id="not decoded yet",
        ),
        pytest.param("NVRM: Xid (PCI:0000:3b:00): 154, changed", "Xid154RecoveryActionChanged", id="XID 154"),
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 171, DRAM", "Xid171DramUncorrectable", id="a detail beside XID 48"
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 9999, news", "XidUnknownCode", id="a code that nobody knows"
        ),
        pytest.param("NVRM: Xid (PCI:0000:3b", "XidLineUnreadable", id="a line cut off before its code"),
        pytest.param(
            "NVRM: fallen off the bus and is not responding",
            "XidLineUnreadable",
            id="off the bus, not said which",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20009, Non-fatal",
            "SxidNonFatal",
            id="SXID, not fatal",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 26006, SOE HALTED",
            "SxidNonFatal",
            id="SXID, not rated",
        ),
    ],
)
def test_a_line_that_needs_no_action_is_shown_and_does_not_fire(text: str, reason: str) -> None:
    """Application XIDs, unknown codes and what cannot be placed are warnings with their line as evidence."""
    observations: list[Observation] = [was_read(), record(1, text)]
    findings = judged(observations).findings
    assert [(f.reason, f.severity, f.evidence) for f in findings] == [(reason, Severity.WARNING, (text,))]
    assert condition(observations).status is Status.FALSE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("eth0: link up", id="another driver"),
        pytest.param(
            "bash[1]: NVRM: Xid (PCI:0000:3b:00): 79, x", id="the driver's words behind a program's"
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Data {0x1}", id="more data of an SXID"
        ),
        pytest.param(f"NVRM: GPU at PCI:0000:3b:00: {UUID}", id="the preamble"),
    ],
)
def test_a_line_without_an_error_is_no_finding(text: str) -> None:
    """Silence is the right answer to most of the log."""
    assert judged([record(1, text)]).findings == ()


def test_sixty_application_xids_do_not_fire() -> None:
    """However often a program crashes, its lines alone never touch the node."""
    observations: list[Observation] = [xid(number, code) for number, code in enumerate([13, 31, 43, 45] * 15)]
    assert condition(observations).status is Status.FALSE


def test_a_finding_carries_what_the_catalogue_says_and_the_line_proves() -> None:
    """Reason, effect, urgency, action, part, times, count and evidence of one fault."""
    text = (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 79, pid=9, name=trainer, GPU has fallen off the bus."
    )
    (finding,) = judged([record(7, text)]).findings
    assert finding == Finding(
        reason="Xid79FallenOffBus",
        severity=Severity.FAULT,
        effect=finding.effect,
        urgency=finding.urgency,
        action=Action.REBOOT,
        part=GPU,
        boot_id=BOOT,
        first_seen=at(7),
        last_seen=at(7),
        count=1,
        evidence=(text,),
        detail="MIG GI 5 CI 1: GPU has fallen off the bus.",
    )
    assert (finding.effect.value, finding.urgency.value) == ("node-out", "now")


def test_the_same_reason_on_the_same_part_is_one_finding() -> None:
    """It counts, keeps its first line and its newest ones, and its message does not change."""
    observations: list[Observation] = [xid(number, 119, text=f"call {number}") for number in range(20)]
    (finding,) = judged(observations).findings
    assert (finding.count, finding.first_seen, finding.last_seen) == (20, at(0), at(19))
    assert [line.rpartition(" ")[2] for line in finding.evidence] == ["0", "16", "17", "18", "19"]
    assert finding.detail == "call 0"


def test_parts_and_reasons_are_told_apart() -> None:
    """Two GPUs with one reason and one GPU with two reasons are three findings, the gravest first."""
    findings = judged([xid(1, 119, pci="0000:5e:00"), xid(2, 119), xid(3, 79)]).findings
    assert [(f.reason, f.part.pci) for f in findings] == [
        ("Xid79FallenOffBus", "0000:3b:00"),
        ("Xid119GspTimeout", "0000:3b:00"),
        ("Xid119GspTimeout", "0000:5e:00"),
    ]


OFF_BUS = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("observations", "count", "detail"),
    [
        pytest.param([xid(1, 79), record(2, OFF_BUS)], 1, "Ch 00000008", id="behind its XID"),
        pytest.param([record(1, OFF_BUS), xid(2, 79)], 1, "Ch 00000008", id="before its XID"),
        pytest.param(
            [record(1, OFF_BUS), record(2, OFF_BUS)], 1, "fell off the bus without an XID", id="alone"
        ),
        pytest.param([record(1, OFF_BUS), xid(2, 79), xid(3, 79)], 2, "Ch 00000008", id="a second XID"),
        pytest.param(
            [record(1, OFF_BUS), xid(2, 79, drill=True)], 1, "fell off the bus without an XID", id="a drill"
        ),
        pytest.param(
            [record(1, OFF_BUS), xid(2, 79, pci="0000:5e:00"), xid(3, 79)], 1, "Ch 00000008", id="another GPU"
        ),
    ],
)
def test_a_fall_from_the_bus_is_one_event(observations: list[Observation], count: int, detail: str) -> None:
    """The driver tells it with an XID, without one, or both ways: it is counted once, in the words of the XID."""
    finding = next(f for f in judged(observations).findings if f.part == GPU)
    assert (finding.reason, finding.count, finding.detail) == ("Xid79FallenOffBus", count, detail)
    one_by_one = judged([])
    for observation in observations:
        one_by_one = judged([observation], one_by_one.memory)
    assert finding in one_by_one.findings


def test_unknown_codes_of_one_gpu_are_listed() -> None:
    """Each new code is named once."""
    (finding,) = judged([xid(1, 900), xid(2, 901), xid(3, 900)]).findings
    assert (finding.detail, finding.count) == ("code 900, code 901", 3)


def test_a_name_with_control_characters_does_no_harm() -> None:
    """Process names are tenant text: evidence is short and printable, and the message does not hold them."""
    text = "NVRM: Xid (PCI:0000:3b:00): 119, pid=9, name=\x1b[31m\u202e\udcff, " + "x" * 5000
    (finding,) = judged([record(1, text)]).findings
    assert all(line.isprintable() and len(line) <= TEXT_LIMIT for line in finding.evidence)
    assert "31m" not in finding.detail


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            (),
            Part(kind=PartKind.GPU, pci="0000:3b:00", uuid=UUID, serial="132"),
            id="from the driver's preamble",
        ),
        pytest.param(
            (Part(kind=PartKind.GPU, pci="0000:3b:00", index=3, uuid="GPU-of-the-inventory"),),
            Part(kind=PartKind.GPU, pci="0000:3b:00", index=3, uuid="GPU-of-the-inventory", serial="132"),
            id="from the inventory, the rest from the preamble",
        ),
        pytest.param(
            (Part(kind=PartKind.GPU, pci="0000:5e:00", index=4),),
            Part(kind=PartKind.GPU, pci="0000:3b:00", uuid=UUID, serial="132"),
            id="another GPU's entry says nothing",
        ),
    ],
)
def test_a_sick_gpu_is_named(parts: tuple[Part, ...], expected: Part) -> None:
    """UUID, index and serial come from wherever they are known; the driver's log works with NVML dead."""
    observations = [
        record(1, f"NVRM: GPU at PCI:0000:3b:00: {UUID}"),
        record(2, "NVRM: GPU Board Serial Number: 132"),
        xid(3, 79),
    ]
    assert [f.part for f in judged(observations, None, context(parts=parts)).findings] == [expected]


def test_a_gpu_is_named_once_it_is_known() -> None:
    """A finding opened before the inventory could be read is completed later, and never overwritten."""
    first = judged([xid(1, 79)])
    known = Part(kind=PartKind.GPU, pci="0000:3b:00", index=3, uuid=UUID)
    other = Part(kind=PartKind.GPU, pci="0000:3b:00", index=5, uuid="GPU-another")
    second = judged([], first.memory, context(parts=[known]))
    third = judged([], second.memory, context(parts=[other]))
    assert [j.findings[0].part for j in (second, third)] == [known, known]


def test_the_check_applies_where_there_is_a_gpu() -> None:
    """A node without GPUs has no such class."""
    assert not CHECK.applies([NODE])
    assert CHECK.applies([NODE, GPU])


def test_other_sources_leave_memory_as_it_is() -> None:
    """What another source says is not evidence for the kernel log."""
    first = judged([was_read()])
    other: list[Observation] = [SourceRead(source="nvml", seen_at=at(0))]
    assert judged(other, first.memory).memory == first.memory
