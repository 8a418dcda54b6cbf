"""`nodemend-agent replay FILE`: what today's rules say to each line of a saved kernel log. Needs no GPU, root or cluster.

`replay` is the seam: it takes any lines (agent/saved_log.py cuts them from a file) and gives a Verdict for each. Each line
is judged by itself, but for messages that arrive as several records; what follows from time and neighbours (an XID 154
beside another, repeats) is the running agent's to say.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from agent.saved_log import SavedLine
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
from checks.xid_reasons import UNKNOWN_CODE, UNREADABLE_LINE, XID_REASONS, sxid_reason

FALLEN_OFF_BUS = 79


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


# People and tools join the lines of one message with a backslash and an n.
_JOINED = re.compile(r"\\n\s*(?=NVRM:|nvidia-nvswitch)")


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
            reason = XID_REASONS.get(line.code, UNKNOWN_CODE)
            return Verdict(
                line="",
                codes=(str(line.code),),
                pci=line.pci,
                mig=_mig(line),
                link=_number(line.link),
                action=action_of(line, catalog()).action,
                rst={None: "", True: "Yes", False: "No"}[line.reset_required],
                reason=reason.name,
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


def _mig(line: XidLine) -> str:
    if line.gpu_instance is None:
        return ""
    compute = "" if line.compute_instance is None else f"/{line.compute_instance}"
    return f"{line.gpu_instance}{compute}"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def as_json(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Give one JSON object for each line."""
    for verdict in verdicts:
        yield msgspec.json.encode(verdict).decode()


_ROW = "{:>7}  {:<10} {:<14} {:<6} {:<5} {:<20} {:<4} {:<32} {}"
_SHOWN = 120


def as_table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Give the lines that say something, and how many lines were read."""
    yield _ROW.format("LINE", "CODE", "PCI", "MIG", "LINK", "ACTION", "RST", "REASON", "TEXT")
    read_lines = shown = 0
    for number, verdict in enumerate(verdicts, 1):
        read_lines = number
        if not verdict.says_something:
            continue
        shown += 1
        yield _ROW.format(
            number,
            ",".join(verdict.codes) or f"({verdict.continuation})" * bool(verdict.continuation) or "-",
            verdict.pci or "-",
            verdict.mig or "-",
            verdict.link or "-",
            verdict.action or "-",
            verdict.rst or "-",
            verdict.reason or "-",
            printable(verdict.line, _SHOWN),
        ).rstrip()
    yield f"{read_lines} lines read, {shown} shown"
