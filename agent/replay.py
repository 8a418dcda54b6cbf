"""`nodemend-agent replay FILE`: what today's rules say to a saved kernel log or a capture. Needs no GPU, root or cluster.

Each line of a log is judged by itself, but for messages that arrive as several records; what follows from time and
neighbours (an XID 154 beside another, repeats) takes a capture, which is judged as a whole, as the agent would have.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agent.capture import Capture, Found
from agent.saved_log import SavedLine
from checks import recovery
from checks.recovery import Recovery
from checks.xid_action import action_of
from checks.xid_catalog import catalog
from checks.xid_line import (
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    SxidLine,
    UnreadableLine,
    XidLine,
    printable,
    read,
)
from checks.xid_meaning import decode, reason_of
from checks.xid_reasons import FALLEN_OFF_BUS, UNREADABLE_LINE, XID_REASONS, sxid_reason
from checks.xid_recovery import RECOVERY_REASONS, Wish, wish_of_text


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one line says: XID and SXID codes, where, and what is asked for, in the words of NVIDIA's catalogue.

    `mig` is the GPU instance, with `/` and the compute instance where the line has one. `continuation` names the SXID
    that a line without event of its own adds data to. `reason` is the finding that such a line raises; empty for a line
    that raises none, or that the kernel did not write.
    """

    line: str
    codes: tuple[str, ...] = ()
    pci: str = ""
    mig: str = ""
    link: str = ""
    action: str = ""
    rst: str = ""
    continuation: str = ""
    reason: str = ""

    @property
    def says_something(self) -> bool:
        """Whether a reader of the table wants to see it."""
        return bool(self.codes or self.continuation or self.reason)


def replay(lines: Iterable[SavedLine]) -> Iterator[Verdict]:
    """Give a verdict for each line, in order, holding no more than the message under way."""
    pending: Pending | None = None
    sequence = 0
    for saved in lines:
        verdict = Verdict(line=saved.line)
        for text in _records(saved, pending):
            sequence += 1
            said, pending = read(text, sequence, pending)
            if said is not None:
                verdict = _add(verdict, said)
        yield verdict if saved.from_kernel else msgspec.structs.replace(verdict, reason="")


# People and tools join the lines of one message with a backslash and an n, with or without the time of each.
_JOINED = re.compile(r"\\n\s*(?:\[[^\]\n]{0,64}\]\s*)?(?=NVRM:|nvidia-nvswitch)")


def _records(saved: SavedLine, pending: Pending | None) -> list[str]:
    """Give the records that a line stands for: none where it is the rest of another that says nothing by itself."""
    if saved.continues and not (pending is not None and pending.probed):
        return []  # a process can put anything behind a line feed, and only the driver's probe goes on there
    return _JOINED.split(saved.text) if saved.text.strip() else []


def _add(verdict: Verdict, line: Line) -> Verdict:
    """Put what a record says into its line's verdict; of several the first gives the action."""
    said = _verdict(line)
    return msgspec.structs.replace(
        said,
        line=verdict.line,
        codes=verdict.codes + said.codes,
        **{
            name: getattr(verdict, name) or getattr(said, name)
            for name in ("pci", "mig", "link", "action", "rst", "continuation", "reason")
        },
    )


def _verdict(line: Line) -> Verdict:
    match line:
        case XidLine():
            return Verdict(
                line="",
                codes=(str(line.code),),
                pci=line.pci,
                mig=_mig(line),
                link=_number(line.link),
                action=action_of(line, catalog()).action,
                rst={None: "", True: "Yes", False: "No"}[line.reset_required],
                reason=_reason(line),
            )
        case OffBusLine():
            return Verdict(
                line="",
                codes=(str(FALLEN_OFF_BUS),),
                pci=line.pci,
                action=action_of(line, catalog()).action,
                reason=XID_REASONS[FALLEN_OFF_BUS].name,
            )
        case SxidLine():
            return _sxid(line)
        case IdentityLine():
            return Verdict(line="", pci=line.pci)
        case UnreadableLine():
            return Verdict(line="", reason=UNREADABLE_LINE.name)


def _sxid(line: SxidLine) -> Verdict:
    pci = line.pci if line.function is None else f"{line.pci}.{line.function:x}"
    if line.continuation:
        return Verdict(line="", pci=pci, continuation=f"SXID{line.code}")
    return Verdict(
        line="",
        codes=(f"SXID{line.code}",),
        pci=pci,
        link=_number(line.link),
        reason=sxid_reason(line.code, fatal=line.fatal).name,
    )


def _reason(line: XidLine) -> str:
    """Name the finding that a line raises by itself; "to None" in an XID 154 raises none."""
    if line.code != recovery.CODE:
        return reason_of(line, decode(line)).name
    wish = wish_of_text(line.text)
    if isinstance(wish, Wish):
        return RECOVERY_REASONS[wish].name
    return "" if wish is Recovery.NONE else XID_REASONS[recovery.CODE].name


def _mig(line: XidLine) -> str:
    if line.gpu_instance is None:
        return ""
    compute = "" if line.compute_instance is None else f"/{line.compute_instance}"
    return f"{line.gpu_instance}{compute}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def log_lines(lines: Iterable[SavedLine], output: str) -> Iterator[str]:
    """Give what is printed about a log: an object for each line, or a table of the lines that say something."""
    verdicts = replay(lines)
    if output == "json":
        return (msgspec.json.encode(verdict).decode() for verdict in verdicts)
    return _table(verdicts)


_ROW = "{:>7}  {:<11} {:<12} {:<5} {:<4} {:<19} {:<3} {:<32} {}"
_SHOWN = 120


def _table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    yield _ROW.format("LINE", "CODE", "PCI", "MIG", "LINK", "ACTION", "RST", "REASON", "TEXT")
    number = shown = 0
    for number, verdict in enumerate(verdicts, 1):
        if not verdict.says_something:
            continue
        shown += 1
        codes = ",".join(verdict.codes) or (f"({verdict.continuation})" if verdict.continuation else "")
        cells = (codes, verdict.pci, verdict.mig, verdict.link, verdict.action, verdict.rst, verdict.reason)
        yield _ROW.format(number, *(cell or "-" for cell in cells), printable(verdict.line, _SHOWN))
    yield f"{number} lines read, {shown} shown"


def capture_lines(capture: Capture, now: Sequence[Found], output: str) -> Iterator[str]:
    """Give what is printed about a capture: an object for each condition, or a table beside what was found then."""
    if output == "json":
        yield from (msgspec.json.encode(found).decode() for found in now)
        return
    row = "{:<24} {:<34} {:<34} {}"
    then = {found.check: found for found in capture.found}
    yield row.format("CONDITION", f"THEN ({capture.version})", "NOW", "MESSAGE")
    for found in now:
        before = then.get(found.check, Found(condition=found.condition, check=found.check))
        yield row.format(
            found.condition or found.check, _stands(before), _stands(found), printable(found.message, _SHOWN)
        )


def _stands(found: Found) -> str:
    if found.condition:
        return f"{found.status} {found.reason}" if found.status else "-"
    return ", ".join(dict.fromkeys(finding.reason for finding in found.findings)) or "-"
