"""Agents over scripted readings: the product's own words on a fake server, condition and NodeHealth alike."""

from pathlib import Path

import msgspec
import pytest

from bench.reporters import Reporter, Script
from kube import paths
from kube.clock import SYSTEM
from kube.nodehealth import NodeHealth
from kube.types import Node
from tests.fakes import FakeApi

BOOT = "5d0c5a10-0000-4000-8000-000000000001"


def server() -> FakeApi:
    api = FakeApi(SYSTEM)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "fleet-1"}, "status": {}}
    api.add(paths.nodes(), node)
    return api


def seen(api: FakeApi) -> tuple[str, str, list[str]]:
    """Give the condition's status and reason, and the reasons in NodeHealth."""
    node = msgspec.convert(api.read(paths.node("fleet-1")), Node)
    health = msgspec.convert(api.read(paths.node_health("fleet-1")), NodeHealth)
    condition = node.condition("GpuXidError")
    assert condition is not None
    assert health.status.boot_id == BOOT
    return condition.status, condition.reason, [one.reason for one in health.status.findings]


def test_a_node_is_healthy_then_fails(tmp_path: Path) -> None:
    """When a call returns, condition and NodeHealth are both in."""
    api = server()
    reporter = Reporter(api, "fleet-1", BOOT, tmp_path / "fleet-1")
    reporter.begin()
    assert seen(api) == ("False", "NoXidError", [])
    reporter.fail()
    assert seen(api) == ("True", "Xid79FallenOffBus", ["Xid79FallenOffBus"])


def test_a_node_is_found_ill(tmp_path: Path) -> None:
    """At the first look already; it is never shown as healthy in between."""
    api = server()
    Reporter(api, "fleet-1", BOOT, tmp_path / "fleet-1").begin_sick()
    assert seen(api) == ("True", "Xid79FallenOffBus", ["Xid79FallenOffBus"])
    patches = [one for one in api.requests if one.path == paths.node_status("fleet-1")]
    assert len(patches) == 1


def test_a_script_is_not_written_before_it_is_read() -> None:
    """What nobody reads would be lost without a word."""
    with pytest.raises(ValueError, match="does not read"):
        Script().write("NVRM: Xid")
