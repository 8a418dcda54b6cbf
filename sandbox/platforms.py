"""Platforms that the sandbox can simulate: what a node of that kind holds, from public sources (`platforms.csv`)."""

import csv
import re
from functools import cache
from pathlib import Path

import msgspec

_FILE = Path(__file__).with_name("platforms.csv")
_COLUMNS = ("platform", "gpus", "gpu_model", "ib_ports", "ib_rate_gbps", "source")


class PlatformDefect(Exception):
    """A row of the table, or a name that is asked for, is wrong; the text names it and what would be right."""


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node. `ib_rate_gbps` is per port, None where there is none."""

    name: str
    gpus: int
    gpu_model: str
    ib_ports: int
    ib_rate_gbps: int | None
    source: str

    @property
    def arch(self) -> str:
        """GOARCH of the host: the GB200 superchip's own processor is Arm."""
        return "arm64" if "GB200" in self.gpu_model else "amd64"

    @property
    def gpu_product(self) -> str:
        """The value of the label `nvidia.com/gpu.product`, as gpu-feature-discovery writes it."""
        return self.gpu_model.replace(" ", "-")

    @property
    def slug(self) -> str:
        """The name as a label's value."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def platform(name: str) -> Platform:
    """Give a platform by name. Raises PlatformDefect, naming those that there are."""
    found = platforms().get(name)
    if found is None:
        raise PlatformDefect(f"{name!r} is no platform of {_FILE.name}; known are {', '.join(platforms())}")
    return found


@cache
def platforms() -> dict[str, Platform]:
    """Read the table. Raises PlatformDefect, naming the row."""
    return parse(_FILE.read_text(), _FILE.name)


def parse(text: str, source: str) -> dict[str, Platform]:
    """Make platforms of the table's text. Raises PlatformDefect, naming `source` and the row."""
    reader = csv.DictReader(text.splitlines(), strict=True)
    if tuple(reader.fieldnames or ()) != _COLUMNS:
        raise PlatformDefect(f"{source}: columns are {reader.fieldnames}, should be {list(_COLUMNS)}")
    found: dict[str, Platform] = {}
    for row in reader:
        where = f"{source} line {reader.line_num}"
        if None in row or None in row.values() or not row["platform"] or not row["source"]:
            raise PlatformDefect(f"{where}: each of {', '.join(_COLUMNS)} must be there, with a source")
        if row["platform"] in found:
            raise PlatformDefect(f"{where}: {row['platform']} stands there twice")
        try:
            found[row["platform"]] = Platform(
                name=row["platform"],
                gpus=int(row["gpus"]),
                gpu_model=row["gpu_model"],
                ib_ports=int(row["ib_ports"]),
                ib_rate_gbps=int(row["ib_rate_gbps"]) if row["ib_rate_gbps"] else None,
                source=row["source"],
            )
        except ValueError as error:
            raise PlatformDefect(
                f"{where}: {error}; gpus, ib_ports and ib_rate_gbps are whole numbers"
            ) from error
    return found
