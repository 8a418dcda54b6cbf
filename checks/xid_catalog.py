"""The XID catalogue: what each code means and what it takes away, as data with a source for every row.

`xid_catalog.csv` gives each code NVIDIA's immediate bucket; `BUCKETS` gives each bucket its meaning here. A row may
override action, effect and urgency where the bucket's default is wrong for that one code, and says why in its note.
Nothing is guessed: a bucket, category or word that is not in the tables below is a load error that names file, row,
field, value and what would be right. This module does not read log lines (checks/xid_line.py) nor judge (checks/xid.py).
"""

import functools
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

import msgspec

from checks.check import CheckDefect
from checks.finding import Action, Effect, Severity, Urgency
from checks.table import Row, read_file, rows

CATALOG_FILE = "xid_catalog.csv"
COLUMNS = (
    "code",
    "mnemonic",
    "reason",
    "meaning",
    "category",
    "bucket",
    "action",
    "effect",
    "urgency",
    "note",
    "source",
)
HIGHEST_CODE = 65535


class Category(StrEnum):
    """What kind of trouble a code stands for."""

    APP = "app"
    DRIVER = "driver"
    FIRMWARE = "firmware"
    HARDWARE = "hardware"
    MEMORY = "memory"
    NVLINK = "nvlink"
    PCIE = "pcie"
    THERMAL = "thermal"


class Bucket(msgspec.Struct, frozen=True):
    """The meaning of one of NVIDIA's buckets here: default severity, action, effect and urgency of its codes."""

    severity: Severity
    action: Action
    effect: Effect
    urgency: Urgency


_WARN, _FAULT = Severity.WARNING, Severity.FAULT

BUCKETS: Mapping[str, Bucket] = MappingProxyType(
    {
        # NVIDIA: nothing to do. Shown, never more.
        "IGNORE": Bucket(_WARN, Action.NONE, Effect.NONE, Urgency.WHEN_IDLE),
        # The program is at fault and its restart is its owner's: one application XID never fires the condition.
        "RESTART_APP": Bucket(_WARN, Action.RESTART_APP, Effect.NONE, Urgency.WHEN_IDLE),
        # The GPU does not work right until it is reset, so what runs on it is lost or suspect already.
        "RESET_GPU": Bucket(_FAULT, Action.RESET_GPU, Effect.PART_OUT, Urgency.NOW),
        # NVIDIA: restart the bare-metal node. A lost GPU takes the node: the device plugin then fails every pod.
        "RESTART_BM": Bucket(_FAULT, Action.REBOOT, Effect.NODE_OUT, Urgency.NOW),
        # NVIDIA: restart the virtual machine, which is the node; confidential work cannot go on without its keys.
        "RESTART_VM": Bucket(_FAULT, Action.REBOOT, Effect.NODE_OUT, Urgency.NOW),
        # NVIDIA wants to be asked and does not say whether the GPU still works: new work elsewhere, a person decides,
        # and nothing is repaired automatically on a guess.
        "CONTACT_SUPPORT": Bucket(_FAULT, Action.CONTACT_SUPPORT, Effect.PREFER_NOT, Urgency.PERSON),
        # A cable or connector: no software step helps, and a card without its power is not to be trusted.
        "CHECK_MECHANICALS": Bucket(_FAULT, Action.CONTACT_SUPPORT, Effect.PART_OUT, Urgency.PERSON),
        # Software must be updated, which is a person's choice of version; the part itself is sound.
        "UPDATE_SWFW": Bucket(_FAULT, Action.CONTACT_SUPPORT, Effect.PREFER_NOT, Urgency.PERSON),
        # Reset if unified memory is in use, else ignore. The log does not say which, so: reset, but at no job's price.
        "CHECK_UVM": Bucket(_FAULT, Action.RESET_GPU, Effect.PREFER_NOT, Urgency.WHEN_IDLE),
        # The driver's own wish for another XID. Shown with its text; the XID it is about decides.
        "XID_154": Bucket(_WARN, Action.NONE, Effect.NONE, Urgency.WHEN_IDLE),
        # 45 follows another XID, or a job that ended: that XID decides, and by the thousand it is normal.
        "WORKFLOW_XID_45": Bucket(_WARN, Action.NONE, Effect.NONE, Urgency.WHEN_IDLE),
        # NVIDIA's flow for 48 ends in a reset on every branch, alone or beside 63 and 64.
        "WORKFLOW_XID_48": Bucket(_FAULT, Action.RESET_GPU, Effect.PART_OUT, Urgency.NOW),
        # NVIDIA's flow for 74 ranges from nothing to a report by its register words (checks/nvlink4.py, for Hopper). Else:
        # the link is degraded, work on one GPU goes on, and the reset waits until the part is idle.
        "WORKFLOW_NVLINK_ERR": Bucket(_FAULT, Action.RESET_GPU, Effect.NO_MULTI_GPU, Urgency.WHEN_IDLE),
        # 144 to 150 range from ignore to reset by unit and status, and some blame the peer. Not decoded: shown only.
        "WORKFLOW_NVLINK5_ERR": Bucket(_WARN, Action.NONE, Effect.NONE, Urgency.WHEN_IDLE),
        # NVIDIA has published no action. No action is not "contact support" (as one product reads it) nor "ignore":
        # shown, for a person to read; rows whose name says that something failed for good say so themselves.
        "(none)": Bucket(_WARN, Action.NONE, Effect.NONE, Urgency.PERSON),
    }
)


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """One code with its meaning resolved: a code whose effect takes something away is a fault, whatever its bucket."""

    code: int
    mnemonic: str
    reason: str
    meaning: str
    category: Category
    bucket: str
    severity: Severity
    action: Action
    effect: Effect
    urgency: Urgency
    note: str
    source: str


@functools.cache
def catalog() -> Mapping[int, Xid]:
    """Give the catalogue that came with the program, by code. Raises CheckDefect if it is damaged."""
    return parse(read_file(CATALOG_FILE), CATALOG_FILE)


def parse(text: str, file: str) -> Mapping[int, Xid]:
    """Read a catalogue. `file` is its name for errors. Raises CheckDefect for the first thing that is wrong in it."""
    by_code: dict[int, Xid] = {}
    claimed: dict[str, int] = {}
    for row in rows(text, file, _Row):
        xid = _resolve(row)
        if xid.code in by_code:
            raise row.defect("code", "is there twice; each code has one row")
        if xid.reason in claimed:
            raise row.defect("reason", f"is already the reason of code {claimed[xid.reason]}")
        by_code[xid.code] = xid
        claimed[xid.reason] = xid.code
    if not by_code:
        raise CheckDefect(f"{file}: holds no row; one row per code is needed")
    return MappingProxyType(by_code)


_Word = TypeVar("_Word", bound=StrEnum)


class _Row(Row):
    columns = COLUMNS

    @property
    def named(self) -> str:
        return f"code {super().named}"

    def word(self, field: str, words: type[_Word]) -> _Word:
        value = self._cells[field]
        if value not in set(words):
            raise self.defect(field, f"is unknown; allowed: {', '.join(words)}")
        return words(value)

    def override(self, field: str, default: _Word) -> _Word:
        """Give the row's own word, or the bucket's default where the cell is empty."""
        return self.word(field, type(default)) if self._cells[field] else default

    def bucket(self) -> tuple[str, Bucket]:
        value = self._cells["bucket"]
        if value not in BUCKETS:
            raise self.defect("bucket", f"is unknown; allowed: {', '.join(BUCKETS)}")
        return value, BUCKETS[value]


def _resolve(row: _Row) -> Xid:
    code = int(row.text("code", r"[1-9][0-9]{0,4}", f"a whole number from 1 to {HIGHEST_CODE}"))
    if code > HIGHEST_CODE:
        raise row.defect("code", f"is not valid; it must be a whole number from 1 to {HIGHEST_CODE}")
    name, bucket = row.bucket()
    effect = row.override("effect", bucket.effect)
    action = row.override("action", bucket.action)
    takes_away = effect is not Effect.NONE
    if takes_away and action in {Action.NONE, Action.RESTART_APP}:
        raise row.defect(
            "effect", f"needs an action that ends it; {action} does not: name a reset, reboot or support"
        )
    return Xid(
        code=code,
        mnemonic=row.text("mnemonic", r"[A-Z0-9_ /]+", "the driver's name of the code, in capitals"),
        reason=row.text("reason", rf"Xid{code}[A-Z][A-Za-z0-9]{{1,60}}", f"Xid{code} and a CamelCase name"),
        meaning=row.text("meaning", r"\S.*\S", "one sentence"),
        category=row.word("category", Category),
        bucket=name,
        severity=Severity.FAULT if takes_away else bucket.severity,
        action=action,
        effect=effect,
        urgency=row.override("urgency", bucket.urgency),
        note=row.text("note", r"[^\r\n]*", "one line or nothing"),
        source=row.text("source", r"\S.*\S", "where the row comes from"),
    )
