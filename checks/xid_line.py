"""Reads one line of the NVIDIA driver's kernel log into a value: XID, SXID, off the bus, identity. Judges nothing.

Tolerant where drivers differ (no `PCI:`, a `.0` suffix, MIG instances, `pid='<unknown>'`, a code with nothing behind it,
a tail that was cut off) and strict where a tenant could write: a line counts only if the driver's own words stand at its
very start, because other kernel messages carry names that a container chose. Of a record with several lines only the
driver's probe message is read past its first. Formats: NVIDIA driver 595 kernel_rc.c, nv.c and common_nvswitch.h.
"""

import re

import msgspec

TEXT_LIMIT = 256
PROCESS_LIMIT = 32
JOIN_WITHIN = 8
"""Records that may lie between the parts of one message that arrives as several records."""


class XidLine(msgspec.Struct, frozen=True, kw_only=True):
    """`NVRM: Xid (PCI:dddd:bb:dd ...): code, ...`; `text` is what follows pid and name. `pci` is normalised.

    `link` is as printed: -1 where the driver says that no single link is meant. `reset_required` and `reset_deferred` are
    the flags RST and D-RST of 94 and 95 (reset now; drain, then reset), `caused_by` the XID that 45 names as its cause.
    """

    code: int
    pci: str
    text: str = ""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid: int | None = None
    process: str = ""
    link: int | None = None
    caused_by: int | None = None
    reset_required: bool | None = None
    reset_deferred: bool | None = None


class OffBusLine(msgspec.Struct, frozen=True, kw_only=True):
    """The driver says that a GPU fell off the bus without giving an XID."""

    pci: str
    text: str


class SxidLine(msgspec.Struct, frozen=True, kw_only=True):
    """An NVSwitch error. `fatal` is None where the line does not say; a continuation adds data to the one before.

    `function` is the PCI function where the line gives one.
    """

    code: int
    pci: str
    switch: str
    text: str = ""
    fatal: bool | None = None
    link: int | None = None
    continuation: bool = False
    function: int | None = None


class IdentityLine(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPU sits at an address, as the driver prints it before a GPU's first XID: works with NVML dead."""

    pci: str
    uuid: str = ""
    serial: str = ""


class UnreadableLine(msgspec.Struct, frozen=True, kw_only=True):
    """The driver reports an error that this parser cannot place: shown, never dropped."""

    text: str


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU that a message has named so far; its next part follows within JOIN_WITHIN records.

    `probed`: it was the driver's probe that named it, which alone goes on to say that a GPU fell off the bus.
    """

    pci: str
    sequence: int
    probed: bool = False


Line = XidLine | OffBusLine | SxidLine | IdentityLine | UnreadableLine

_PCI = r"(?:PCI:\s*)?(?P<pci>(?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,2}(?:\.[0-9a-fA-F]{1,2})?)"
_XID = re.compile(
    rf"NVRM:\s+Xid\s*\(\s*{_PCI}(?P<inside>[^()]{{0,64}})\)\s*:?\s*(?P<code>\d{{1,5}})(?!\d)(?P<tail>.*)",
    re.DOTALL,
)
_SXID = re.compile(
    rf"(?P<switch>nvidia-nvswitch\d{{1,3}}):\s+SXid\s*\(\s*{_PCI}\s*\)\s*:?\s*(?P<code>\d{{1,6}})(?!\d)(?P<tail>.*)",
    re.DOTALL,
)
_MIG = re.compile(r"GPU-I:\s*(?P<gpu>\d{1,3})(?:\s+GPU-CI:\s*(?P<compute>\d{1,3}))?")
# A name ends at the first comma and blank: a process called `a, b` leaves `b` in the text, which harms nobody.
_TAIL = re.compile(
    r"[\s,]*(?:pid\s*=\s*(?P<pid>'[^']*'|<[^>]*>|[^,\s]*)\s*,?\s*)?(?:name\s*=\s*(?P<name>.*?)(?:,\s+|,?$))?(?P<text>.*)",
    re.DOTALL,
)
_LINK = re.compile(r"\blink\s+(-1(?!\d)|\d{1,3})", re.IGNORECASE)
_CAUSE = re.compile(r"\bcaused by previous Xid\s+(\d{1,5})", re.IGNORECASE)
_RESET_REQUIRED = re.compile(r"(?<![-\w])RST:\s*(Yes|No)\b", re.IGNORECASE)
_RESET_DEFERRED = re.compile(r"(?<![-\w])D-RST:\s*(Yes|No)\b", re.IGNORECASE)
_SEVERITY = re.compile(r"(non-?\s?)?fatal\b", re.IGNORECASE)
_CONTINUATION = re.compile(r"(?:Severity\s|Data\s*\{)", re.IGNORECASE)
_OFF_BUS = "fallen off the bus"
_REPORTS_XID = re.compile(rf"NVRM:\s+Xid\b|NVRM:.*{_OFF_BUS}")
_REPORTS_SXID = re.compile(r"nvidia-nvswitch\S*\s+SXid\b")
_GPU_OFF_BUS = re.compile(rf"NVRM:\s+GPU\s+(?:at\s+)?{_PCI}:?\s.*{_OFF_BUS}", re.DOTALL)
_PROBED = re.compile(r"NVRM:\s+The NVIDIA GPU\s")
_PROBED_GPU = re.compile(rf"NVRM:\s+The NVIDIA GPU\s+{_PCI}(?=[\s(]|$)")
_UUID = re.compile(
    rf"NVRM:\s+GPU\s+at\s+{_PCI}:\s*(?P<uuid>GPU-[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}})\b"
)
_BOARD_SERIAL = re.compile(r"NVRM:\s+GPU Board Serial Number:\s*(?P<serial>[0-9A-Za-z]{1,32})\s*$")
_GPU_SERIAL = re.compile(rf"NVRM:\s+GPU\s+{_PCI}:\s+GPU serial number is\s+(?P<serial>[0-9A-Za-z]{{1,32}})")


def read(text: str, sequence: int, pending: Pending | None) -> tuple[Line | None, Pending | None]:
    """Read one record's text (as the kernel holds it, without prefix), joining messages that span several records.

    Gives the finished line, if one ended here, and what to hand in with the next record.
    """
    if pending is not None and not 0 <= sequence - pending.sequence <= JOIN_WITHIN:
        pending = None
    if not text.startswith(("NVRM:", "nvidia-nvswitch")):
        return None, pending
    first = text.partition("\n")[0]
    if probed := _PROBED_GPU.match(first):
        pci = normal_pci(probed["pci"])
        if _OFF_BUS in text:
            return OffBusLine(pci=pci, text=printable(text)), None
        return None, Pending(pci=pci, sequence=sequence, probed=True)
    if _PROBED.match(first):
        pending = None  # of a GPU that cannot be read: what follows is about no GPU that was named before
    if serial := _BOARD_SERIAL.match(first):
        if pending is None or pending.probed:
            return (
                None,
                pending,
            )  # the driver prints it right behind the UUID, and never for a GPU that it probes
        return IdentityLine(pci=pending.pci, serial=serial["serial"]), pending
    line = parse(first)
    if isinstance(line, IdentityLine):
        return line, Pending(pci=line.pci, sequence=sequence)
    if isinstance(line, UnreadableLine) and pending is not None and pending.probed and _OFF_BUS in first:
        return OffBusLine(pci=pending.pci, text=line.text), None
    return line, pending


def parse(line: str) -> Line | None:
    """Read one whole line that begins with the driver's words; None for a line that reports no error.

    A line that says that some GPU fell off the bus and not which is UnreadableLine: `read` joins it where it can.
    """
    if line.startswith("nvidia-nvswitch"):
        found = _SXID.match(line)
        return _sxid(found) if found else _unreadable_if(line, _REPORTS_SXID)
    if not line.startswith("NVRM:"):
        return None
    if found := _XID.match(line):
        return _xid(found)
    if found := _GPU_OFF_BUS.match(line):
        return OffBusLine(pci=normal_pci(found["pci"]), text=printable(line))
    if found := _UUID.match(line):
        return IdentityLine(pci=normal_pci(found["pci"]), uuid="GPU-" + found["uuid"][4:].lower())
    if found := _GPU_SERIAL.match(line):
        return IdentityLine(pci=normal_pci(found["pci"]), serial=found["serial"])
    return _unreadable_if(line, _REPORTS_XID)


def normal_pci(address: str) -> str:
    """Write a PCI address as `dddd:bb:dd`, lower case, without function; a missing domain is 0."""
    domain, bus, device = ("0:" + address.partition(".")[0]).split(":")[-3:]
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"


def printable(text: str, limit: int = TEXT_LIMIT) -> str:
    """Make text safe to show: one line, no control or bidirectional characters, at most `limit` characters."""
    text = text[:limit]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= limit else text[:limit]


def _xid(found: re.Match[str]) -> Line:
    tail = _TAIL.match(found["tail"])
    text = found["tail"] if tail is None else tail["text"]
    pid = "" if tail is None else tail["pid"] or ""
    name = "" if tail is None else tail["name"] or ""
    mig = _MIG.search(found["inside"])
    return XidLine(
        code=int(found["code"]),
        pci=normal_pci(found["pci"]),
        text=printable(text.strip(" ,\n")),
        gpu_instance=int(mig["gpu"]) if mig else None,
        compute_instance=int(mig["compute"]) if mig and mig["compute"] else None,
        pid=int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 11 else None,
        process="" if name in {"<unknown>", "'<unknown>'"} else printable(name, PROCESS_LIMIT),
        link=_number(_LINK.search(text)),
        caused_by=_number(_CAUSE.search(text)),
        reset_required=_yes(_last(_RESET_REQUIRED, text)),
        reset_deferred=_yes(_last(_RESET_DEFERRED, text)),
    )


def _sxid(found: re.Match[str]) -> Line:
    text = found["tail"].strip(" ,\n")
    severity = _SEVERITY.match(text)
    function = found["pci"].partition(".")[2]
    return SxidLine(
        code=int(found["code"]),
        pci=normal_pci(found["pci"]),
        switch=found["switch"],
        text=printable(text),
        fatal=None if severity is None else not severity[1],
        link=_number(_LINK.search(text)),
        continuation=_CONTINUATION.match(text) is not None,
        function=int(function, 16) if function else None,
    )


def _unreadable_if(line: str, reports: re.Pattern[str]) -> UnreadableLine | None:
    return UnreadableLine(text=printable(line)) if reports.match(line) else None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Give the last match: what the driver wrote stands behind whatever a process named itself."""
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return found


def _number(found: re.Match[str] | None) -> int | None:
    return int(found[1]) if found else None


def _yes(found: re.Match[str] | None) -> bool | None:
    return found[1].lower() == "yes" if found else None
