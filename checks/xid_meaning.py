"""What one XID line means by itself: its reason, its words, and where to look for the cause. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from checks.finding import Reason
from checks.nvlink5 import CODES as NVLINK5_CODES
from checks.nvlink5 import Look
from checks.xid_action import RESET_GPU, Decoded, action_of
from checks.xid_catalog import catalog
from checks.xid_line import XidLine
from checks.xid_reasons import (
    CONTAINED_RESET,
    NVLINK5_FAULTS,
    NVLINK_PEER,
    UNKNOWN_CODE,
    XID_REASONS,
)

CONTAINED = 94
_LOOKS: Mapping[Look, str] = MappingProxyType(
    {
        Look.SIGNAL: "look at the link's signal",
        Look.SIGNAL_AND_CABLES: "look at the link's signal and cables",
        Look.SOFTWARE: "look at the software that uses the link",
        Look.SOFTWARE_AND_SIGNAL: "look at the software that uses the link, then at its signal",
        Look.HOST: "look at the host",
        Look.SUPPORT: "ask support",
        Look.REPORT_ALONE: "worth a report where nothing else is wrong",
        Look.REPORT_DAILY: "worth a report where it comes more than once a day",
    }
)


def decode(line: XidLine) -> Decoded | None:
    """Decode the lines whose text says more than their code does; the others cost nothing."""
    return action_of(line, catalog()) if line.code in NVLINK5_CODES or line.code == CONTAINED else None


def reason_of(line: XidLine, decoded: Decoded | None) -> Reason:
    """Give the reason: of what the line asks for where it was decoded, else of its code."""
    if decoded is not None:
        if decoded.peer:
            return NVLINK_PEER
        if decoded.action == RESET_GPU:
            return CONTAINED_RESET if line.code == CONTAINED else NVLINK5_FAULTS[line.code]
    return XID_REASONS.get(line.code, UNKNOWN_CODE)


def where_to_look(line: XidLine, decoded: Decoded) -> str:
    """Say where the cause of a decoded line may be; empty where its table does not say."""
    if decoded.peer and line.link is not None:
        return f"the source is the device at the other end of link {line.link}"
    rule = decoded.fault.rule if decoded.fault is not None else None
    return _LOOKS.get(rule.look, "") if rule is not None else ""


def detail_of(line: XidLine) -> str:
    """Say what the finding's first line said; later lines do not change it, so the condition's message stands still."""
    if line.gpu_instance is None:
        return line.text
    instance = f"MIG GI {line.gpu_instance}"
    if line.compute_instance is not None:
        instance += f" CI {line.compute_instance}"
    return f"{instance}: {line.text}" if line.text else instance
