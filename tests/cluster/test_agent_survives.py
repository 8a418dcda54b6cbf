"""What the agent's pod on a real node survives, and what is published of it meanwhile: nothing false, and nothing is lost.

Two nodes bear the same: one is healthy, on the other stand three faults from three sources (the kernel log, a GPU that NVML
has lost, a GPU that asks for a reset). Each test says all that may be published anew while it lasts; a change that came and
went counts, and so does a transition time that moved. The tests stand in an order: each goes on where the last one ended.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kube import paths
from kube.clock import SYSTEM
from sandbox.cluster import Sandbox
from sandbox.kubelet_node import KubeletNode
from sandbox.kubelet_parts import Parts
from tests.cluster.real_node import configure
from tests.cluster.survivors import (
    FAULTS,
    HEALTHY,
    ILL,
    LOST,
    STATE,
    SYSTEM_NAMESPACE,
    Survivor,
    kept,
    said,
    strike,
    until,
)

WHILE_FULL, MORE = 4, "Xid95UncontainedEcc 0000:9a:00"
OUTAGE_S = 20.0
# Of conditions, and in NodeHealth.
News = tuple[Sequence[str], Sequence[str]]
NOTHING: News = ((), ())


class Pair:
    """The healthy and the ill node."""

    def __init__(self, healthy: Survivor, ill: Survivor) -> None:
        self.healthy = healthy
        self.ill = ill

    def both(self, act: Callable[[Survivor], object]) -> None:
        """Let the same befall both at once."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(act, (self.healthy, self.ill)))

    def assert_news(self, healthy: News = NOTHING, ill: News = NOTHING) -> None:
        """Assert that this was published since the last time, and nothing else.

        How many GPUs are offered is left out: kubelet itself does not know for as long as its device plugin is away, be it
        for a second or for a quarter of a minute. That none was taken back belongs to it.
        """
        told = self.healthy.account.take(), self.ill.account.take()
        assert tuple(map(_settled, told)) == tuple(map(_settled, (healthy, ill)))


def _settled(news: News) -> News:
    conditions, health = news
    return sorted(conditions), sorted(word for word in health if not word.startswith("offered: "))


@pytest.fixture(scope="module")
def pair(kubelet_sandbox: Sandbox, kubelet_node: KubeletNode, kubelet_parts: Parts) -> Iterator[Pair]:
    """Both nodes, whose agents ask NVML and kubelet every few seconds, and the faults of one."""
    configure(kubelet_sandbox, {"nvml": {"period": "5s"}, "kubelet": {"interval": "5s"}})
    with KubeletNode(kubelet_sandbox, "kubelet-ill", parts=kubelet_parts) as second:
        pair = Pair(Survivor(kubelet_sandbox, kubelet_node), Survivor(kubelet_sandbox, second))
        healthy, ill = pair.healthy.account, pair.ill.account
        with kept(kubelet_sandbox.admin, healthy, ill):
            pair.both(begin)
            until(lambda: healthy.shows() == HEALTHY == ill.shows())
            until(lambda: healthy.says("offered") == "8" == ill.says("offered"))
            strike(second)
            until(lambda: ill.shows() == ILL and ill.says("faults") == FAULTS, 30)
            healthy.take()
            ill.take()
            yield pair
    pair.healthy.sh(f"umount --lazy {STATE} || true")  # a reboot has ended it already
    configure(kubelet_sandbox, {"nvml": {"period": "30s"}, "kubelet": {"interval": "30s"}})


def begin(one: Survivor) -> None:
    """Let the agent's pod begin anew, with its settings and with its state on a small disk of its own."""
    one.sh(f"mkdir -p {STATE} && mount -t tmpfs -o size=256k tmpfs {STATE}")
    one.node.wait_allocatable("nvidia.com/gpu", len(one.node.gpus))
    until(lambda: bool(one.pod()))
    at = SYSTEM.now()
    one.sandbox.admin.delete(paths.pod(SYSTEM_NAMESPACE, one.pod()["metadata"]["name"]))
    one.await_agent(since=at)


def test_kubelet_and_containerd_are_restarted(pair: Pair) -> None:
    """Stopped and killed, one after the other, while the agent runs on."""

    def act(one: Survivor) -> None:
        for kill in (False, True):
            one.node.restart_containerd(kill=kill)
            one.node.restart_kubelet(kill=kill)
            one.node.wait_ready()

    pair.both(act)
    pair.assert_news()


def test_the_agent_is_killed_while_kubelet_is(pair: Pair) -> None:
    """Kill -9 of both: kubelet finds the dead container and starts another."""

    def act(one: Survivor) -> None:
        with one.agent_restarts():
            one.node.restart_kubelet(kill=True)

    pair.both(act)
    pair.assert_news()


def test_the_agent_is_killed_while_containerd_is(pair: Pair) -> None:
    """Kill -9 of both."""

    def act(one: Survivor) -> None:
        with one.agent_restarts():
            one.node.restart_containerd(kill=True)

    pair.both(act)
    pair.assert_news()


def test_the_disk_is_full(pair: Pair) -> None:
    """Nothing can be saved, a new fault comes, the agent is killed: NodeHealth remembers what the disk could not take."""

    def act(one: Survivor) -> None:
        one.sh(f"cat /dev/zero > {STATE}/filler || true")
        if one is pair.ill:
            one.node.write_xid(95, "Uncontained ECC error", gpu=WHILE_FULL)
            until(lambda: "Xid95" in one.account.says("faults"), 20)
        with one.agent_restarts():
            pass
        until(one.cannot_save, 30)
        one.sh(f"rm {STATE}/filler")

    pair.both(act)
    message = pair.ill.account.conditions["GpuXidError"]
    assert message is not None
    assert "Xid95UncontainedEcc" in message.message
    pair.assert_news(ill=([f"GpuXidError says {message.message}"], [f"faults: {FAULTS}, {MORE}"]))


def test_the_disk_is_read_only(pair: Pair) -> None:
    """The agent is killed and begins on a state folder that takes nothing."""

    def act(one: Survivor) -> None:
        one.sh(f"mount -o remount,ro {STATE}")
        with one.agent_restarts():
            pass
        until(one.cannot_save, 30)
        one.sh(f"mount -o remount,rw {STATE}")
        one.writable_since = SYSTEM.now()

    pair.both(act)
    pair.assert_news()


def test_the_agent_restarts_while_the_api_server_is_away(pair: Pair) -> None:
    """Away for 20 s; kubelet starts the killed container without it, and the agent begins with what its state holds."""
    killed = {one: one.kill_agent() for one in (pair.healthy, pair.ill)}
    at, down = SYSTEM.now(), time.monotonic()
    pair.healthy.sandbox.stop_apiserver()
    time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - down)))
    pair.healthy.sandbox.start_apiserver()

    pair.both(lambda one: one.await_agent(killed[one], at))
    pair.assert_news()


def test_nodehealth_is_deleted_by_hand(pair: Pair) -> None:
    """Under a running agent, and again with a kill -9 of it: the same comes back, from the disk that is well again."""
    whole = {one: said(one.account.health) for one in (pair.healthy, pair.ill)}

    def delete(one: Survivor) -> None:
        one.await_saved()
        one.sandbox.admin.delete(paths.node_health(one.node.name))
        until(lambda: "object: written" in one.account.of_health)

    def delete_and_kill(one: Survivor) -> None:
        with one.agent_restarts():
            one.sandbox.admin.delete(paths.node_health(one.node.name))
        until(lambda: said(one.account.health) == whole[one])

    again = {
        one: ["object: deleted", "object: empty", *(f"{key}: {value}" for key, value in before.items())]
        for one, before in whole.items()
    }
    pair.both(delete)
    pair.assert_news(([], again[pair.healthy]), ([], again[pair.ill]))
    pair.both(delete_and_kill)
    pair.assert_news(([], again[pair.healthy]), ([], again[pair.ill]))


def test_the_machine_reboots(pair: Pair) -> None:
    """What the kernel log said ends with its boot, the GPU that stays lost is judged anew, and a kill changes nothing."""

    def card_stays_away() -> None:
        pair.ill.node.machine.pull(LOST)
        pair.ill.driver.remove(LOST)

    pair.ill.node.before_boot = card_stays_away

    def act(one: Survivor) -> None:
        gone = one.container()
        one.node.reboot()
        until(lambda: one.container() not in ("", gone))
        with one.agent_restarts():
            pass

    pair.both(act)
    until(lambda: pair.healthy.account.says("offered") == "8")
    until(lambda: pair.ill.account.says("offered") == "7")
    pair.assert_news(
        ([], []),
        (
            [
                "GpuDriverFault False DriverUsable, transition",
                "GpuMissing True GpuCountBelowExpected",
                "GpuXidError False NoXidError, transition",
            ],
            ["faults: GpuCountBelowExpected", "named: 7"],
        ),
    )
