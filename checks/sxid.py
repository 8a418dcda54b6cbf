"""SXID errors of NVSwitches: what each stops, as data (`sxid.csv`), and what that means where it happened.

NVIDIA's Fabric Manager user guide lists codes as always fatal, as fatal for a scope that depends on the port (a port to a
GPU takes the jobs on that GPU, a port to another switch the whole fabric), or as not fatal. The list decides: some drivers
print Non-fatal beside a 19084, which the guide lists as fatal. Only a code whose scope depends on the port is taken at
the line's own word where that is Non-fatal, since the driver reports some of them in both ways. A code that no list holds
goes by the line's word alone; without one (SOE 26006 to 26008, a line cut off) nothing is known and nothing is done.
HGX H100 and H200 have no ports between switches; on B200 and GB200 compute trays no SXID reaches the host's log.
"""

import functools
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from checks.check import CheckDefect
from checks.table import Row, read_file, rows

SXIDS_FILE = "sxid.csv"


class Port(StrEnum):
    """What a switch port leads to."""

    ACCESS = "access"
    """A GPU."""
    TRUNK = "trunk"
    """Another switch."""


class Stops(StrEnum):
    """How far an error reaches."""

    NONE = "none"
    PORT = "port"
    """A port, by its kind: the GPU behind it, or the fabric. Where the kind is not known: a GPU, as on HGX H100 and H200."""
    FABRIC = "fabric"
    """All GPUs and switches of the machine need a reset."""
    HOST = "host"
    """The host needs a restart."""
    UNKNOWN = "unknown"


class Sxid(msgspec.Struct, frozen=True, kw_only=True):
    """One listed code. `stops` is never UNKNOWN."""

    code: int
    stops: Stops
    source: str


def reach(code: int, *, fatal: bool | None, port: Port | None = None) -> Stops:
    """Say how far one SXID reaches. `fatal` is the line's own word, None where it has none."""
    row = sxids().get(code)
    if row is None:
        stops = {None: Stops.UNKNOWN, True: Stops.PORT, False: Stops.NONE}[fatal]
    elif row.stops is Stops.PORT and fatal is False:
        stops = Stops.NONE
    else:
        stops = row.stops
    return Stops.FABRIC if stops is Stops.PORT and port is Port.TRUNK else stops


@functools.cache
def sxids() -> Mapping[int, Sxid]:
    """Give the table that came with the program, by code. Raises CheckDefect if it is damaged."""
    return parse(read_file(SXIDS_FILE), SXIDS_FILE)


def parse(text: str, file: str) -> Mapping[int, Sxid]:
    """Read a table. `file` is its name for errors. Raises CheckDefect for the first thing that is wrong in it."""
    by_code: dict[int, Sxid] = {}
    for row in rows(text, file, _Row):
        sxid = row.sxid()
        if sxid.code in by_code:
            raise row.defect("code", "is there twice; each code has one row")
        by_code[sxid.code] = sxid
    if not by_code:
        raise CheckDefect(f"{file}: holds no row; one row per code is needed")
    return MappingProxyType(by_code)


class _Row(Row):
    columns = ("code", "stops", "source")

    def sxid(self) -> Sxid:
        allowed = [word for word in Stops if word is not Stops.UNKNOWN]
        if self._cells["stops"] not in allowed:
            raise self.defect("stops", f"is unknown; allowed: {', '.join(allowed)}")
        return Sxid(
            code=int(self.text("code", r"[1-9][0-9]{4}", "a whole number of five digits")),
            stops=Stops(self._cells["stops"]),
            source=self.text("source", r"\S.*\S", "where the row comes from"),
        )
