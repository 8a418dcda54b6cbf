"""Every reason of the condition GpuXidError, with what it means and what on-call does about it.

XID reasons come from the catalogue, one per code; 144 to 150 and 94 have a second one, for lines that ask for more than
their code does. SXIDs (NVSwitch) have one reason per class, since NVIDIA tells classes apart and not codes. A few reasons
are about the log itself: what it said and could not be placed is shown, never dropped.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from checks import nvlink5
from checks.finding import Action, Effect, Reason, Severity, Urgency
from checks.reason_rows import fault
from checks.reason_rows import warning as _warning
from checks.sxid import Stops, reach
from checks.xid_catalog import Category, Xid, catalog

FALLEN_OFF_BUS = 79

_DOES: Mapping[Action, str] = MappingProxyType(
    {
        Action.NONE: "nodemend shows it and does nothing.",
        Action.RESTART_APP: "nodemend shows it and leaves the node alone: the program has to be restarted by its owner.",
        Action.RESET_GPU: "nodemend keeps new work off, then brings the part back through a reset or a reboot.",
        Action.REBOOT: "nodemend keeps new work off and reboots the node.",
        Action.CONTACT_SUPPORT: "nodemend keeps new work off and pages: no automatic step ends this.",
    }
)
_WHEN: Mapping[Urgency, str] = MappingProxyType(
    {
        Urgency.NOW: "Running work is drained for it.",
        Urgency.WHEN_IDLE: "Running work is let finish first.",
        Urgency.PERSON: "Running work is left alone until a person decides.",
    }
)
_ON_CALL: Mapping[Category, str] = MappingProxyType(
    {
        Category.APP: "Look at the program named in the evidence. Suspect the GPU only if different programs fail on it.",
        Category.DRIVER: "Compare the driver with the newest of its branch; collect nvidia-bug-report.sh if it comes back.",
        Category.FIRMWARE: "Update driver and firmware if it comes back on one GPU; then ask for its replacement.",
        Category.HARDWARE: "If it comes back after a reset and a reboot, ask for a replacement with the evidence below.",
        Category.MEMORY: "Read row remaps and ECC counters (nvidia-smi -q -d ECC,ROW_REMAPPER); replace the board if a "
        "remap failed or the SRAM threshold was passed.",
        Category.NVLINK: "Compare with errors of the peers and switches: the cause may sit at the other end. A link that "
        "repeats needs its cable, connector or board looked at.",
        Category.PCIE: "If it comes back after a reboot, have the card, riser and power reseated, then replaced.",
        Category.THERMAL: "Look at fans, airflow and power of the machine.",
    }
)


def _xid_reason(xid: Xid) -> Reason:
    steps = [f"{xid.meaning}.", _DOES[xid.action]]
    if xid.effect is not Effect.NONE:
        steps.append(_WHEN[xid.urgency])
    steps.append(_ON_CALL[xid.category])
    if xid.note:
        steps.append(f"Note: {xid.note}.")
    steps.append(f"NVIDIA's bucket: {xid.bucket}; {xid.mnemonic} ({xid.source}).")
    return Reason(
        name=xid.reason,
        severity=xid.severity,
        effect=xid.effect,
        urgency=xid.urgency,
        action=xid.action,
        summary=f"XID {xid.code}: {xid.meaning}",
        runbook=" ".join(steps),
    )


SXID_ALWAYS_FATAL = Reason(
    name="SxidSwitchFatal",
    severity=Severity.FAULT,
    effect=Effect.NODE_OUT,
    urgency=Urgency.NOW,
    action=Action.REBOOT,
    summary="SXID that NVIDIA lists as fatal for the switch: NVLink between the GPUs of this machine is down",
    runbook="An NVSwitch stopped for good. "
    + _DOES[Action.REBOOT]
    + " If it comes back after the reboot, the switch "
    "board needs replacement: give support the SXID and the switch's PCI address from the evidence.",
)
SXID_FATAL = Reason(
    name="SxidLinkFatal",
    severity=Severity.FAULT,
    effect=Effect.NO_MULTI_GPU,
    urgency=Urgency.WHEN_IDLE,
    action=Action.RESET_GPU,
    summary="SXID that the driver calls fatal: a switch port is down, and with it the jobs that used that link",
    runbook="Fatal for the link that the evidence names, not for the machine: work on one GPU goes on. "
    + _DOES[Action.RESET_GPU]
    + " Beside XID 74 or 79 it is the same incident. A port that repeats needs its GPU's board or the switch looked at.",
)
SXID_NONFATAL = _warning(
    "SxidNonFatal",
    "SXID that is not fatal, or that does not say",
    "An NVSwitch recovered by itself or reported something that its line does not rate. Look at it when NVLink errors "
    "or slow collectives are reported for the same machine.",
)
UNKNOWN_CODE = _warning(
    "XidUnknownCode",
    "XID that the catalogue does not hold: shown, and nothing is done on a guess",
    "The driver is newer than this catalogue. Read the evidence and NVIDIA's XID catalogue, decide by hand, and add a "
    "row to checks/xid_catalog.csv.",
)
UNREADABLE_LINE = _warning(
    "XidLineUnreadable",
    "A line of the driver reports an error and could not be placed on a GPU",
    "Read the line in the evidence: it may be cut off, or a GPU fell off the bus and the line that named it was lost. "
    "Compare the number of GPUs that nvidia-smi -L shows with what the machine should have.",
)
RECORDS_LOST = _warning(
    "KernelRecordsLost",
    "Records of the kernel log were lost before they could be read: an XID may be among them",
    "The log ran over or held damaged records. Look at dmesg and the journal of that time for Xid lines, and for what "
    "floods the log. A larger ring (log_buf_len) helps against storms.",
)
FINDINGS_OMITTED = _warning(
    "XidFindingsOmitted",
    "More different findings stand than are kept; the mildest were left out",
    "The worst findings are kept, so the condition is right; the list is not complete. The journal holds every line.",
)
LOG_UNREADABLE = _warning(
    "KernelLogUnreadable",
    "The kernel log cannot be read, so XIDs cannot be seen",
    "The message names the cause. A pod needs to be privileged to read /dev/kmsg; with kernel.dmesg_restrict=1 a process "
    "needs CAP_SYSLOG. Findings that stood before still stand. The agent keeps trying and recovers by itself.",
)
LOG_NOT_READ = _warning(
    "KernelLogNotRead",
    "The kernel log has not been read yet",
    "Passes within seconds of the agent's start. Where it stays, look at the agent's own log.",
)

HELD_BACK = _warning(
    "XidAwaitsCompanion",
    "An XID was seen that another line explains, which may follow within half a minute",
    "Passes by itself: XID 45 and some NVLink errors mean what an XID 154 or their cause says, and an XID that NVML told of "
    "what its line in the kernel log says. A condition that stood before is left as it is meanwhile.",
)
NVLINK_PEER = _warning(
    "XidNvLinkPeerAtFault",
    "NVLink error whose source is the device at the other end of the link, not this GPU",
    "Look for errors of the peer: the evidence names the link, `nvidia-smi nvlink -R -i INDEX` what is at its other end, on "
    "NVSwitch systems a switch. Nothing is done to this GPU for it, unless the driver asks for that in an XID 154.",
)
NVLINK_CORRECTED = _warning(
    "Xid74NvLinkCorrected",
    "XID 74 whose registers hold nothing but corrected errors and bits without meaning (Hopper)",
    "NVIDIA says to go on: ECC errors on a link passed a threshold and all were corrected. Where it repeats on one link, "
    "look at its error counters (`nvidia-smi nvlink -e`). Any other bit in a line makes it Xid74NvLinkError.",
)
CONTAINED_RESET = fault(
    "Xid94ContainedResetNow",
    Effect.PART_OUT,
    Urgency.NOW,
    Action.RESET_GPU,
    "XID 94 with RST: Yes: the error is contained, and the driver asks for a reset of the GPU",
    "A contained error lets other programs go on, but this line says that the GPU needs its reset now. "
    + " ".join((_DOES[Action.RESET_GPU], _WHEN[Urgency.NOW], _ON_CALL[Category.MEMORY])),
)

XID_REASONS: Mapping[int, Reason] = MappingProxyType(
    {code: _xid_reason(xid) for code, xid in catalog().items()}
)


def _nvlink5_reason(xid: Xid) -> Reason:
    """The links are lost to work on several GPUs; the GPU itself goes on, as with XID 74, 136 and 155."""
    return fault(
        xid.reason.replace("Error", "Fault"),
        Effect.NO_MULTI_GPU,
        Urgency.WHEN_IDLE,
        Action.RESET_GPU,
        f"XID {xid.code} that NVIDIA's decode table answers with a reset: {xid.meaning}",
        f"{xid.meaning}; unit, sub-code and status of the line ask for a reset. {_DOES[Action.RESET_GPU]} "
        f"{_WHEN[Urgency.WHEN_IDLE]} {_ON_CALL[xid.category]} The finding says where to look. "
        f"Other lines of this code are only shown, as {xid.reason}.",
    )


def _may_reset(rule: nvlink5.Rule) -> bool:
    """Tell a rule that can make a fault: a peer's is a warning about the peer."""
    return nvlink5.Action.RESET_GPU in (rule.action, rule.when_fatal) and rule.look is not nvlink5.Look.PEER


NVLINK5_FAULTS: Mapping[int, Reason] = MappingProxyType(
    {
        code: _nvlink5_reason(catalog()[code])
        for code in sorted({rule.code for rule in nvlink5.all_rules() if _may_reset(rule)})
    }
)
"""By code, of those for which any rule asks for a reset; the others are only ever shown."""
OTHER_REASONS: tuple[Reason, ...] = (
    *(*NVLINK5_FAULTS.values(), CONTAINED_RESET, NVLINK_PEER, NVLINK_CORRECTED),
    *(SXID_ALWAYS_FATAL, SXID_FATAL, SXID_NONFATAL),
    *(UNKNOWN_CODE, UNREADABLE_LINE, RECORDS_LOST, FINDINGS_OMITTED),
)
UNKNOWN_REASONS: tuple[Reason, ...] = (LOG_UNREADABLE, LOG_NOT_READ, HELD_BACK)


def all_reasons() -> Iterable[Reason]:
    """Give every reason that a line alone can give, XIDs by code first."""
    yield from (XID_REASONS[code] for code in sorted(XID_REASONS))
    yield from OTHER_REASONS


def sxid_reason(code: int, *, fatal: bool | None) -> Reason:
    """Class an SXID by how far it reaches; what nobody rates is shown as a warning.

    To reset all GPUs and switches of a machine at once is what its reboot does.
    """
    match reach(code, fatal=fatal):
        case Stops.HOST | Stops.FABRIC:
            return SXID_ALWAYS_FATAL
        case Stops.PORT:
            return SXID_FATAL
        case Stops.NONE | Stops.UNKNOWN:
            return SXID_NONFATAL
