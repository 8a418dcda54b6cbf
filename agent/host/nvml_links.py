"""NVLinks of one GPU: all fields of all links in one call, as far as this GPU has them. See checks.gpu_health.NvLink.

Generations differ in what they tell: Hopper has fields whose scope is the link, before it each of twelve links has fields of
its own, NVLink 5 has other counters altogether. Which ones this GPU has, the driver says, once: what every link refuses as
unknown is not asked again for a while, and the next older way is tried. No link beyond the count of field 91 is asked, since
that is an InvalidArgument; the capability is never asked, since it says yes for 36 links whatever there is.
"""

from functools import partial
from typing import Any, NamedTuple

from agent.host.nvml_asked import FIELD_NOT_SHOWN, FIELD_VALUES, Asked
from agent.host.nvml_codes import UNKNOWN, Refused
from agent.host.nvml_fields import Answers, Key, Query

LINK_COUNT = 91
"""Field; it has no scope."""
MOST_LINKS = 64
"""NVML_NVLINK_MAX_LINKS is 36; a count beyond this is none."""
VERSION: Key = (166, 0)
STATE_CALL, ERRORS_CALL = "nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkErrorCounter"


class Source(NamedTuple):
    """Where one value of a link comes from: a field with the link as scope, else fields of links 0-5 and of links 6-11."""

    name: str
    scoped: int = 0
    first: int = 0
    second: int = 0

    def field(self, absent: set[str | int]) -> int:
        """Give the field that stands for the way to ask now; 0 where there is none."""
        ways = (field for field in (self.scoped, self.first) if field and field not in absent)
        return next(ways, 0)

    def key(self, field: int, link: int) -> Key | None:
        """Give what is asked of a link that way."""
        if field == self.scoped:
            return field, link
        return (self.first + link, 0) if link < 6 else (self.second + link - 6, 0) if link < 12 else None


SOURCES = (
    Source("state", 165),
    Source("mbps", 164, 84, 132),
    Source("replay", 161, 46, 108),
    Source("recovery", 162, 53, 114),
    Source("crc_flit", 163, 32, 96),
    Source("crc_data", 0, 39, 102),
    Source("ecc_data", 0, 148, 154),
    Source("malformed", 206),
    Source("buffer_overrun", 207),
    Source("receive", 208),
    Source("remote", 209),
    Source("general", 210),
    Source("link_integrity", 211),
    Source("transmit_discards", 212),
    Source("recovery_ok", 213),
    Source("recovery_failed", 214),
    Source("recovery_total", 215),
    Source("effective_errors", 219),
    Source("effective_ber", 220),
    Source("symbol_errors", 221),
    Source("symbol_ber", 222),
)
OF_CALL = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
"""What nvmlDeviceGetNvLinkErrorCounter counts, by its number there."""


class Plan:
    """One query, and what each of its keys is."""

    def __init__(self, count: int, absent: set[str | int]) -> None:
        self.made_for = count, len(absent)
        fields = {source: source.field(absent) for source in SOURCES}
        self.asked = tuple(
            (source, field, tuple(source.key(field, link) for link in range(count)))
            for source, field in fields.items()
            if field
        )
        keys = {key for _, _, of_links in self.asked for key in of_links if key is not None}
        self.query = Query((VERSION, *sorted(keys)))


def links(gpu: Asked) -> dict[str, Any] | None:
    """Give the group as agent.nvml_wire.LinksSaid has it."""
    count = gpu.field("nvlinks", LINK_COUNT)
    if not count:
        return None if count is None else {"count": 0}
    if count > MOST_LINKS:
        gpu.field_refused("nvlinks", UNKNOWN)
        return None
    try:
        answers, columns = _by_field(gpu, count)
    except Refused as refused:
        gpu.refused("nvlinks", refused, FIELD_VALUES)
        return None
    if "state" not in columns and "nvlinks" not in gpu.errors:
        columns["state"] = [gpu.get("nvlinks", STATE_CALL, link) for link in range(count)]
    if columns.keys() <= {"state", "mbps"} and "nvlinks" not in gpu.errors:
        columns |= _counted_by_call(gpu, count)
    empty: list[int | None] = [None] * count
    states, speeds = columns.pop("state", empty), columns.pop("mbps", empty)
    names = list(columns)
    return {
        "count": count,
        "version": answers.values.get(VERSION),
        "names": names,
        "links": [
            [states[link], speeds[link], [columns[name][link] for name in names]] for link in range(count)
        ],
    }


def _by_field(gpu: Asked, count: int) -> tuple[Answers, dict[str, list[int | None]]]:
    """Give what each source gave, a value a link; where one turns out to be absent, its next way is tried at once."""
    while True:  # ends: each time round a field becomes absent, and there are few
        plan = gpu.memory.links
        if plan is None or plan.made_for != (count, len(gpu.memory.absent)):
            plan = gpu.memory.links = Plan(count, gpu.memory.absent)
        answers = gpu.fields(plan.query)
        columns: dict[str, list[int | None]] = {}
        again = False
        for source, field, keys in plan.asked:
            asked = [key for key in keys if key is not None]
            codes = [answers.refused[key] for key in asked if key in answers.refused]
            if asked and len(codes) == len(asked) and FIELD_NOT_SHOWN.issuperset(codes):
                gpu.memory.absent.add(field)
                again = again or source.field(gpu.memory.absent) != 0
                continue
            columns[source.name] = [answers.values.get(key) if key else None for key in keys]
            for code in codes:
                if code not in FIELD_NOT_SHOWN:
                    gpu.field_refused("nvlinks", code)
        if not again:
            return answers, columns


def _counted_by_call(gpu: Asked, count: int) -> dict[str, list[int | None]]:
    """Ask each link for each counter; one that the first link does not have is left out."""
    columns: dict[str, list[int | None]] = {}
    for number, name in enumerate(OF_CALL):
        ask = partial(gpu.get, "nvlinks", ERRORS_CALL, read=gpu.nvml.counter)
        first = ask(number, 0)
        if first is not None:
            columns[name] = [first, *(ask(number, link) for link in range(1, count))]
    return columns
