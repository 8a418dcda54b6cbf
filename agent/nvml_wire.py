"""What the agent and its NVML child say to each other: one JSON value a line. Whatever does not fit is garbage, and said so.

The child (agent.host.nvml_child) writes plain dictionaries, since it does without msgspec; this is their shape.
"""

from typing import Annotated

import msgspec

from checks.gpu_health import (
    Clocks,
    Count,
    Ecc,
    Fabric,
    NvmlRefusal,
    Pcie,
    RemappedRows,
    RetiredPages,
)
from checks.observation import NvmlError

_Text = Annotated[str, msgspec.Meta(max_length=128)]
_Index = Annotated[int, msgspec.Meta(ge=-1, le=1024)]
_Pci = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})?$")]

# A round of 256 GPUs with 18 links each, every counter in the millions, is below this.
LINE_LIMIT = 2 * 1024 * 1024


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for one round. Where `by_pci` or anything is `quiet`, the GPUs of `known` (index, PCI address) are asked alone.

    `event_wait_ms`: the longest single wait for events, 0 for none at all.
    """

    round: int
    known: tuple[tuple[int, str], ...] = ()
    quiet: tuple[str, ...] = ()
    by_pci: bool = False
    event_wait_ms: int = 0


class CallBegins(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="call"):
    """A `t`hread of the child (`round`, `events`) is about to make a call; without a name it is in none for a while."""

    t: _Text
    call: _Text
    index: _Index = -1
    pci: _Pci = ""


class LinkSaid(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One link: state, speed in MB/s, and a value for each name of `LinksSaid`, None where it was not told."""

    state: Count | None
    mbps: Count | None
    values: Annotated[tuple[Count | None, ...], msgspec.Meta(max_length=64)]


class LinksSaid(msgspec.Struct, frozen=True, kw_only=True):
    """checks.gpu_health.NvLinks with the names of the counters once, since 256 GPUs have thousands of links."""

    count: Annotated[int, msgspec.Meta(ge=0, le=64)]
    version: Count | None = None
    names: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    links: Annotated[tuple[LinkSaid, ...], msgspec.Meta(max_length=64)] = ()


class HealthSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What checks.gpu_health.GpuHealth says; what was not told is not there."""

    remapped: RemappedRows | None = None
    retired: RetiredPages | None = None
    ecc: Ecc | None = None
    nvlinks: LinksSaid | None = None
    fabric: Fabric | None = None
    pcie: Pcie | None = None
    clocks: Clocks | None = None
    architecture: Count | None = None
    errors: Annotated[dict[_Text, NvmlRefusal], msgspec.Meta(max_length=16)] = {}
    absent: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=16)] = ()


class GpuSaid(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU answered; a field is absent where it gave no value."""

    index: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    pci: _Pci = ""
    uuid: _Text = ""
    serial: _Text = ""
    model: _Text = ""
    minor: int | None = None
    mig: bool | None = None
    mig_devices: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    memory_mib: int | None = None
    recovery: int | None = None
    errors: tuple[NvmlError, ...] = ()
    health: HealthSaid | None = None


class RoundSaid(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="round"):
    """One whole round; `spent_us` by group of calls."""

    n: int
    driver: _Text
    library: _Text
    count: Annotated[int, msgspec.Meta(ge=0, le=1024)]
    gpus: tuple[GpuSaid, ...] = ()
    spent_us: dict[str, int] = {}


class FailedSaid(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="failed"):
    """NVML as a whole cannot be used; the child ends after this."""

    n: int
    error: NvmlError
    detail: str = ""


class EventSaid(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="event"):
    kind: int
    data: int
    pci: _Pci = ""
    uuid: _Text = ""


class EventsSaid(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="events"):
    """Why no events come, None once they come again."""

    error: NvmlError | None = None


class Broke(msgspec.Struct, frozen=True, kw_only=True, tag_field="k", tag="broke"):
    """A defect in the child, in words."""

    error: str


Message = CallBegins | RoundSaid | FailedSaid | EventSaid | EventsSaid | Broke


class Garbage(Exception):
    """What came is none of these messages; the text says why and shows its beginning."""


_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def read(line: bytes) -> Message:
    """Read one line. Raises Garbage."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Garbage(f"{error}: {line[:80]!r}") from None


def write(order: Order) -> bytes:
    return msgspec.json.encode(order) + b"\n"


class Lines:
    """Puts what a pipe gives back together into lines, bounded."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held = b""

    def take(self, data: bytes) -> list[bytes]:
        """Give the lines that ended in `data`. Raises Garbage where one does not end."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) > self._limit:
            self._held = b""
            raise Garbage(f"a line of more than {self._limit} bytes")
        return lines
