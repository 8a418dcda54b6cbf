"""Which sources are looked at, by the configuration; and that storage and host are really read of a machine in a folder."""

from pathlib import Path

import pytest

from agent.config import parse
from agent.probes import look_once
from agent.probing import probes_of
from checks.check import discover
from checks.host_reading import HOST, HostRead
from checks.storage_reading import DISKS, MOUNTS, DisksRead, MountsRead
from kube.clock import SYSTEM
from tests.agent.host.host_tree import HostTree

OURS = {MOUNTS, DISKS, HOST}


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        pytest.param("", {DISKS, HOST}, id="by default: no mount is configured"),
        pytest.param("[storage]\nmounts = ['/data']", {MOUNTS, DISKS, HOST}, id="with a mount"),
        pytest.param("[storage]\nenabled = false\nmounts = ['/data']", {HOST}, id="storage switched off"),
        pytest.param("[host]\nenabled = false", {DISKS}, id="the host switched off"),
    ],
)
def test_a_source_is_looked_at_where_it_is_switched_on(text: str, sources: set[str]) -> None:
    """Each with a deadline of its own."""
    probes = {probe.source: probe for probe in probes_of(parse(text, "agent.toml", discover(), {}))}
    assert OURS & probes.keys() == sources
    assert all(probe.deadline_s > 0 for probe in probes.values())


def test_a_machine_is_really_looked_at(tmp_path: Path) -> None:
    """Mounts, disks and the host of a machine in a folder, by the children that the agent starts."""
    host = HostTree(tmp_path)
    host.mount("/data")
    for folder in ("sys/bus/pci/devices", "sys/class"):
        (tmp_path / folder).mkdir(parents=True)
    config = parse(
        f"[roots]\nproc = '{host.proc}'\nsys = '{tmp_path}/sys'\n[storage]\nmounts = ['/data']\nwrite_probe = true\n",
        "agent.toml",
        discover(),
        {"NODE_NAME": "gpu-1"},
    )
    probes = [probe for probe in probes_of(config) if probe.source in OURS]
    seen = {type(one): one for one in look_once(probes, SYSTEM)}
    mounts, disks = seen[MountsRead], seen[DisksRead]
    assert isinstance(mounts, MountsRead)
    assert isinstance(disks, DisksRead)
    assert [(one.path, one.error, one.took_ms is not None) for one in mounts.mounts] == [("/data", "", True)]
    assert [one.path for one in disks.local] == ["/"]
    assert isinstance(seen[HostRead], HostRead)
    assert list((host.root / "data").iterdir()) == [], "the file that was written is gone"
