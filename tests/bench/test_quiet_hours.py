"""The hours that run ahead: the clock, and an agent that is told nothing for two of them."""

from pathlib import Path

from bench.quiet_hours import FastClock, QuietHours
from kube import paths
from sandbox.nodes import SimulatedNode
from sandbox.platforms import platform
from sandbox.pod_resources import PodResourcesServer, allocatable, pod
from tests.agent.pod_resources_server import socket_path
from tests.fakes import FakeApi, FakeClock


def test_the_clock_moves_only_when_told() -> None:
    """Both of its hands, by the same step; sleeping is a step."""
    fast = FastClock()
    now, monotonic = fast.clock.now(), fast.clock.monotonic()
    assert (fast.clock.now(), fast.clock.monotonic()) == (now, monotonic)
    fast.advance(90)
    fast.clock.sleep(10)
    assert (fast.clock.now() - now).total_seconds() == 100
    assert fast.clock.monotonic() - monotonic == 100


def test_two_hours_of_nothing_stay_within_twelve_writes_each(tmp_path: Path) -> None:
    """With all GPUs read by NVML, offered by kubelet and held by pods; Leases are not among the writes."""
    api = FakeApi(FakeClock())
    node = SimulatedNode("gpu-0", platform("HGX H100 8-GPU"), tmp_path / "gpu-0")
    api.add(paths.nodes(), {**node.body(), "metadata": {**node.body()["metadata"], "uid": "uid-1"}})
    uuids = [gpu.uuid for gpu in node.gpus]
    with socket_path() as path, PodResourcesServer(path) as kubelet:
        kubelet.allocatable = allocatable("nvidia.com/gpu", *uuids)
        kubelet.pods = pod("team-a", "trainer-0", "nvidia.com/gpu", *uuids)
        hours = QuietHours(api, node, path)
        parts = api.read(paths.node_health("gpu-0"))["status"]["parts"]
        assert [(part["offered"], part["held"], part["serial"] != "") for part in parts] == [
            (True, True, True)
        ] * 8
        before = len(api.writes())
        hours.pass_by(2 * 3600)
        hours.end()
    node.machine.close()
    assert 8 <= len(api.writes()) - before <= 24
