"""Platforms: what a node of a known kind holds, as data with a source for every row (`platforms.csv`).

A row of a cloud provider carries the `instance_type` that Kubernetes shows in the label node.kubernetes.io/instance-type;
rows without one describe a kind of machine that no label names. An empty cell means not applicable or not known, never
zero. Nothing is guessed: a column, number or name that does not fit is a load error that names file, row, field and value.

nvlink_gbps_per_link is the raw signalling rate in one direction, ib_rate_gbps the rate of one port, ib_ports the RDMA
devices of the compute fabric.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from checks.check import CheckDefect
from checks.table import Row, read_file, rows

PLATFORMS_FILE = "platforms.csv"
COLUMNS = (
    "platform",
    "instance_type",
    "gpus",
    "gpu_model",
    "nvlink_links_per_gpu",
    "nvlink_gen",
    "nvlink_gbps_per_link",
    "pcie_gen",
    "pcie_width",
    "ib_ports",
    "ib_rate_gbps",
    "source",
)
_WHOLE = r"0|[1-9][0-9]{0,5}"


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node. None = not applicable or not known. Rates are Mb/s, so that they are whole numbers."""

    name: str
    instance_type: str
    gpus: int
    gpu_model: str
    nvlink_links_per_gpu: int | None
    nvlink_gen: int | None
    nvlink_mbps_per_link: int | None
    pcie_gen: int | None
    pcie_width: int | None
    ib_ports: int | None
    ib_rate_mbps: int | None
    source: str


class Platforms(msgspec.Struct, frozen=True):
    """The table, by name and by instance type."""

    by_name: Mapping[str, Platform]
    by_instance_type: Mapping[str, Platform]


@functools.cache
def platforms() -> Platforms:
    """Give the table that came with the program. Raises CheckDefect if it is damaged."""
    return parse(read_file(PLATFORMS_FILE), PLATFORMS_FILE)


def parse(text: str, file: str) -> Platforms:
    """Read a table. `file` is its name for errors. Raises CheckDefect for the first thing that is wrong in it."""
    by_name: dict[str, Platform] = {}
    by_type: dict[str, Platform] = {}
    for row in rows(text, file, _Row):
        platform = _platform(row)
        if platform.name in by_name:
            raise row.defect("platform", "is there twice; each platform has one row")
        if platform.instance_type in by_type:
            raise row.defect("instance_type", "is there twice; each instance type has one row")
        by_name[platform.name] = platform
        if platform.instance_type:
            by_type[platform.instance_type] = platform
    if not by_name:
        raise CheckDefect(f"{file}: holds no row; one row per platform is needed")
    return Platforms(MappingProxyType(by_name), MappingProxyType(by_type))


class _Row(Row):
    columns = COLUMNS

    def number(self, field: str) -> int | None:
        value = self.text(field, rf"{_WHOLE}|", "a whole number, or empty where it is not known")
        return int(value) if value else None

    def mbps(self, field: str) -> int | None:
        """Read Gb/s, with at most one decimal, as Mb/s."""
        value = self.text(field, rf"(?:{_WHOLE})(?:\.[0-9])?|", "Gb/s with at most one decimal, or empty")
        whole, _, tenth = value.partition(".")
        return int(whole) * 1000 + int(tenth or 0) * 100 if value else None


def _platform(row: _Row) -> Platform:
    return Platform(
        name=row.text("platform", r"\S.*\S", "the name of the platform"),
        # A label's value, as Kubernetes admits it.
        instance_type=row.text(
            "instance_type", r"(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", "a label's value, or empty"
        ),
        gpus=int(row.text("gpus", r"[1-9][0-9]{0,3}", "a whole number from 1 on")),
        gpu_model=row.text("gpu_model", r"NVIDIA \S.*", "the model as the driver names it"),
        nvlink_links_per_gpu=row.number("nvlink_links_per_gpu"),
        nvlink_gen=row.number("nvlink_gen"),
        nvlink_mbps_per_link=row.mbps("nvlink_gbps_per_link"),
        pcie_gen=row.number("pcie_gen"),
        pcie_width=row.number("pcie_width"),
        ib_ports=row.number("ib_ports"),
        ib_rate_mbps=row.mbps("ib_rate_gbps"),
        source=row.text("source", r"\S.*\S", "where the row comes from"),
    )
