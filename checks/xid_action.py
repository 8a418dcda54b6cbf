"""What one line of the driver asks for, in one word, from the line alone: time and neighbours are for the judge.

The most specific word counts: XID 154 says itself what the driver wants; 144 to 150 are decoded (checks/nvlink5.py); the
flag RST in a 94 or 95 asks for a reset; else NVIDIA's bucket of the code. A code that the catalogue lacks is
UNKNOWN_CODE, a 144 to 150 or 154 that cannot be decoded is UNKNOWN: both are shown and nothing is repaired for them.

RST only ever raises what the bucket says. `RST: No` beside a 95 means that the driver has not marked this GPU for reset,
not that the memory is sound; D-RST asks for a reset once the GPU is drained, which is no word for now: see `reset_deferred`.

Gates. The catalogue's notes say on which products a code is seen, and from which driver an XID 154 follows it. Missing
evidence (no product, a product of no known family, no driver version, a note without the words) leaves a gate open:
`on_product` and `recovery_follows` are then None, and None never takes a word away nor adds one. A code seen on a product
that its note does not name keeps its word too; `on_product` False says that NVIDIA does not vouch for it there.
"""

import functools
import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from checks import nvlink5, recovery
from checks.nvlink5 import Fault, Look
from checks.recovery import Recovery
from checks.xid_catalog import Xid
from checks.xid_line import OffBusLine, XidLine

UNKNOWN = "UNKNOWN"
UNKNOWN_CODE = "UNKNOWN_CODE"
RESET_GPU = "RESET_GPU"
XID_154_EVAL = nvlink5.Action.XID_154_EVAL.value

FALLEN_OFF_BUS = 79
CONTAINMENT_CODES = frozenset({94, 95})


class Source(StrEnum):
    """Where the word of an action comes from, the most specific first."""

    RECOVERY = "recovery-action"
    NVLINK5 = "nvlink5-rule"
    RESET_FLAG = "reset-flag"
    CATALOGUE = "catalogue"
    NOWHERE = "nowhere"


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """What one line asks for.

    `action` is one word: a bucket of the catalogue (RESET_GPU, RESTART_APP, ...), a rule's (IGNORE, RESET_GPU,
    XID_154_EVAL), a Recovery, UNKNOWN or UNKNOWN_CODE. `fault` is the decoded 144 to 150, with its rule. `peer`: the other
    end of the link is the source, do not blame this GPU. `report_alone`, `report_daily`: worth reporting only where it
    comes alone, or more than once a day. `recovery` is what a 154 says. `reset_deferred`: D-RST, drain and then reset.
    """

    code: int
    action: str
    source: Source
    fault: Fault | None = None
    recovery: Recovery | None = None
    peer: bool = False
    report_alone: bool = False
    report_daily: bool = False
    reset_deferred: bool = False
    on_product: bool | None = None
    recovery_follows: bool | None = None

    @property
    def awaits_recovery(self) -> bool:
        """Whether an XID 154 of the same GPU decides (else the program is to be restarted)."""
        return self.action == XID_154_EVAL


def action_of(
    line: XidLine | OffBusLine, catalog: Mapping[int, Xid], *, product: str = "", driver: str = ""
) -> Decoded:
    """Say what a line asks for. `product` is NVML's name of the GPU, `driver` its version; empty where not known."""
    code = FALLEN_OFF_BUS if isinstance(line, OffBusLine) else line.code
    row = catalog.get(code)
    gate = gate_of(row.note) if row else Gate()
    decoded = Decoded(
        code=code,
        action=row.bucket if row else UNKNOWN_CODE,
        source=Source.CATALOGUE if row else Source.NOWHERE,
        on_product=gate.covers(product),
        recovery_follows=gate.recovery_follows(driver),
    )
    return decoded if isinstance(line, OffBusLine) else _by_text(line, decoded)


def _by_text(line: XidLine, decoded: Decoded) -> Decoded:
    replace = msgspec.structs.replace
    if line.code == recovery.CODE:
        wanted = recovery.of_text(line.text)
        return replace(decoded, action=wanted.value, source=Source.RECOVERY, recovery=wanted)
    if line.code in nvlink5.CODES:
        return _nvlink5(line, decoded)
    if line.code in CONTAINMENT_CODES:
        decoded = replace(decoded, reset_deferred=bool(line.reset_deferred))
        if line.reset_required:
            return replace(decoded, action=RESET_GPU, source=Source.RESET_FLAG)
    return decoded


def _nvlink5(line: XidLine, decoded: Decoded) -> Decoded:
    fault = nvlink5.decode(line.code, line.text)
    if fault is None or fault.rule is None or fault.action is None:
        return msgspec.structs.replace(decoded, action=UNKNOWN, source=Source.NOWHERE, fault=fault)
    return msgspec.structs.replace(
        decoded,
        action=fault.action.value,
        source=Source.NVLINK5,
        fault=fault,
        peer=fault.rule.look is Look.PEER,
        report_alone=fault.rule.look is Look.REPORT_ALONE,
        report_daily=fault.rule.look is Look.REPORT_DAILY,
    )


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """On which products NVIDIA's catalogue has seen a code, and from which driver branch an XID 154 follows it."""

    products: frozenset[str] = frozenset()
    driver: int | None = None

    def covers(self, product: str) -> bool | None:
        """Tell whether the catalogue names this product; None where that cannot be told."""
        family = family_of(product)
        return None if family is None or not self.products else family in self.products

    def recovery_follows(self, driver: str) -> bool | None:
        """Tell whether this driver says in an XID 154 what it wants after the code; None where that cannot be told."""
        branch = _BRANCH.match(driver)
        return None if branch is None or self.driver is None else int(branch[1]) >= self.driver


_SEEN_ON = re.compile(r"\bseen on ((?:(?:A100|H100|B100|GB200)\b\s*)+)")
_FOLLOWS = re.compile(r"\bXID 154 follows from driver R(\d{3})\b")
_BRANCH = re.compile(r"(\d{3,4})(?:\.|$)", re.ASCII)
# The catalogue names one product a family. Longest first: GB200 holds B200, GH200 holds H200.
_FAMILY = re.compile(r"\b(GB[23]00|GH200|B[123]00|H(?:100|200|800|20)|A(?:100|800|30))(?![0-9])")
_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("GB200", "GB300"), "GB200"),
        **dict.fromkeys(("B100", "B200", "B300"), "B100"),
        **dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), "H100"),
        **dict.fromkeys(("A100", "A800", "A30"), "A100"),
    }
)


@functools.cache
def gate_of(note: str) -> Gate:
    """Read the gates out of a note of the catalogue."""
    seen, follows = _SEEN_ON.search(note), _FOLLOWS.search(note)
    return Gate(
        products=frozenset(seen[1].split()) if seen else frozenset(),
        driver=int(follows[1]) if follows else None,
    )


def family_of(product: str) -> str | None:
    """Give the catalogue's name for the family of a product (`NVIDIA H200` -> `H100`); None for one it does not have."""
    found = _FAMILY.search(product)
    return _FAMILIES[found[1]] if found else None
