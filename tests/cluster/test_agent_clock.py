"""What is published while a machine's clock is set forward and back: nothing anew, but what really comes.

The clock cannot be set for one pod alone (a time namespace has no realtime clock of its own), so the agents are the
product's class in this process, with a clock that they are given; API server, kernel log and NVML's child are real.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from kube.clock import SYSTEM, Clock
from sandbox import nodes as simulated
from sandbox.agents import AgentHost
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from sandbox.install import install
from sandbox.nodes import SimulatedNode
from tests.cluster.survivors import FAULTS, HEALTHY, ILL, Account, kept, strike, until
from tests.sandbox.nvml_program import built_or_skip

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class SetClock:
    """This machine's clock, set forward or back by `ahead`."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.clock = Clock(now=self._now, monotonic=SYSTEM.monotonic, sleep=SYSTEM.sleep)

    def _now(self) -> datetime:
        return SYSTEM.now() + self.ahead


class Fleet:
    """A healthy and an ill node whose agents share a clock."""

    def __init__(self, host: AgentHost, clock: SetClock, nodes: list[SimulatedNode]) -> None:
        self.host = host
        self.clock = clock
        self.nodes = nodes
        self.healthy, self.ill = (Account(node.name) for node in nodes)

    def set_clock(self, ahead: timedelta) -> None:
        """Set the clock, and let every agent judge in its new time."""
        self.clock.ahead = ahead
        self.judge()

    def restart(self) -> None:
        """Kill and start every agent."""
        for node in self.nodes:
            self.host.agents[node.name].power_off()
            self.host.agents[node.name].power_on()
        self.judge()

    def judge(self) -> None:
        """Wait until every agent has judged a line that is written now, and heard NVML since its start."""
        lines = {node.name: node.write_kernel_line("eth0: link is up", level=6) for node in self.nodes}
        until(lambda: all(self._has_judged(name, line) for name, line in lines.items()))

    def _has_judged(self, name: str, line: int) -> bool:
        agent = self.host.agents[name].agent
        assert agent is not None
        self.host.agents[name].wake()  # what NVML says waits for the next look, which is 5 s away at most
        cursor = agent.judging.cursor
        read = cursor is not None and cursor.sequence >= line
        return read and agent.judging.nvml is not None and agent.publisher.ready


@pytest.fixture(scope="module")
def fleet(sandbox: Sandbox) -> Iterator[Fleet]:
    """Both nodes, their agents and the faults of one; no controller."""
    built_or_skip()
    install(sandbox, "observe")
    nodes = simulated.create(sandbox, ["clock-healthy", "clock-ill"])
    for node in nodes:
        node.install_driver()
    clock = SetClock()
    identities = AgentIdentities(sandbox)
    host = AgentHost(identities, nodes, settings={"nvml": {"period": "5s"}}, clock=clock.clock)
    fleet = Fleet(host, clock, nodes)
    with kept(sandbox.admin, fleet.healthy, fleet.ill):
        host.start()
        until(lambda: fleet.healthy.shows() == HEALTHY == fleet.ill.shows())
        strike(nodes[1])
        until(lambda: fleet.ill.shows() == ILL and fleet.ill.says("faults") == FAULTS)
        fleet.healthy.take()
        fleet.ill.take()
        yield fleet
    host.stop()
    identities.close()
    for node in nodes:
        node.delete(sandbox.admin)
        node.close()


@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param(HOUR, id="an hour forward"),
        pytest.param(timedelta(), id="an hour back to where it was"),
        pytest.param(-HOUR, id="an hour back"),
        pytest.param(DAY, id="a day and an hour forward"),
    ],
)
def test_a_clock_that_is_set_publishes_nothing(fleet: Fleet, ahead: timedelta) -> None:
    """Neither in a running agent nor in one that is killed and starts in the new time."""
    fleet.set_clock(ahead)
    fleet.restart()
    assert (fleet.healthy.take(), fleet.ill.take()) == (([], []), ([], []))


def test_a_fault_that_comes_while_the_clock_is_behind_stands(fleet: Fleet) -> None:
    """Also once the clock is right again, and over a restart."""
    fleet.set_clock(-HOUR)
    fleet.nodes[0].write_xid(79, "GPU has fallen off the bus.", gpu=5)
    until(lambda: "Xid79" in fleet.healthy.says("faults"))
    fleet.set_clock(timedelta())
    fleet.restart()
    assert fleet.healthy.take() == (
        ["GpuXidError True Xid79FallenOffBus, transition"],
        ["faults: Xid79FallenOffBus 0000:ab:00"],
    )
    assert fleet.ill.take() == ([], [])
