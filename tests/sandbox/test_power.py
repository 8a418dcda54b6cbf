"""A simulated machine's power: what orders do to it, without a cluster."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube import paths
from sandbox import power
from sandbox.nodes import Reboots, SimulatedNode
from sandbox.platforms import platform
from tests.fakes import FakeApi, wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimulatedNode]:
    """A simulated node that is down for no time at all."""
    node = SimulatedNode("gpu-1", platform("HGX H100 8-GPU"), tmp_path / "gpu-1")
    node.reboots = Reboots(down_s=0.0, not_ready_s=0.0)
    yield node
    node.close()


@pytest.fixture
def api(node: SimulatedNode) -> FakeApi:
    """An API server that knows the node."""
    api = FakeApi()
    api.create(paths.nodes(), node.body())
    return api


def test_two_orders_for_one_boot_end_one_boot(node: SimulatedNode, api: FakeApi) -> None:
    """Also where the second is carried out while the machine is down, or after it came back."""
    before = node.boot_id
    down = threading.Event()

    def sleep(_seconds: float) -> None:
        assert down.wait(10)

    first = threading.Thread(target=power.reboot, args=(node, api), kwargs={"ending": before, "sleep": sleep})
    first.start()
    wait_until(lambda: not node.up.is_set())
    power.reboot(node, api, ending=before)
    down.set()
    first.join(10)
    power.reboot(node, api, ending=before)
    assert (node.rebooted, node.up.is_set(), node.boot_id != before) == (1, True, True)


def test_an_order_for_the_boot_that_runs_ends_it(node: SimulatedNode, api: FakeApi) -> None:
    """One boot after the other, each by its own order."""
    for _ in range(2):
        power.reboot(node, api, ending=node.boot_id, sleep=lambda _: None)
    assert node.rebooted == 2
