"""The thread that asks kubelet: newest answer, asked again soon, a defect that is a failed source."""

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

from agent.host.pod_resources import KubeletDevices, KubeletFailed, read_pod_resources
from agent.kubelet_feed import Answer, KubeletFeed
from sandbox.pod_resources import PodResourcesServer
from tests.agent.pod_resources_server import GO_ALLOCATABLE, GO_LIST, socket_path
from tests.fakes import wait_until


class Box:
    """Counts how often the loop was woken."""

    def __init__(self) -> None:
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1


def feed(ask: Callable[[], Answer], period_s: float, box: Box) -> KubeletFeed:
    return KubeletFeed(ask, period_s, Random(1), box.wake)


def test_a_real_kubelet_api_is_asked_again_and_again_through_its_restart() -> None:
    """Each answer wakes the loop; between them the newest is given once."""
    box = Box()
    with socket_path() as path:
        asking = feed(lambda: read_pod_resources(path), 0.02, box)
        with PodResourcesServer(path) as server:
            server.allocatable, server.pods = GO_ALLOCATABLE, GO_LIST
            asking.begin()
            wait_until(lambda: isinstance(asking.take(), KubeletDevices))
        wait_until(lambda: isinstance(asking.take(), KubeletFailed))
        path.unlink(missing_ok=True)
        with PodResourcesServer(path):
            wait_until(lambda: isinstance(asking.take(), KubeletDevices))
        asking.end()
    assert box.woken >= 3


def test_the_newest_answer_is_given_once() -> None:
    """What was not taken in time is replaced, and nothing is given twice."""
    numbers = iter(range(1000))
    asking = feed(
        lambda: KubeletDevices() if next(numbers) < 3 else read_pod_resources(Path("/nowhere")), 0.005, Box()
    )
    asking.begin()
    wait_until(lambda: next(numbers) > 10)
    asking.end()
    assert isinstance(asking.take(), KubeletFailed)


def test_soon_ends_the_wait() -> None:
    """A doubt is not left standing for a whole period."""
    box = Box()
    asking = feed(KubeletDevices, 300.0, box)
    asking.begin()
    wait_until(lambda: box.woken == 1)
    asking.soon()
    asking.end()
    wait_until(lambda: not any(thread.name == "kubelet" for thread in threading.enumerate()))


def test_a_defect_in_the_asking_is_a_failed_source() -> None:
    """The thread lives on and says what broke."""

    def broken() -> Answer:
        raise ZeroDivisionError("one by none")

    box = Box()
    asking = feed(broken, 0.01, box)
    asking.begin()
    wait_until(lambda: box.woken >= 2)
    asking.end()
    answer = asking.take()
    assert isinstance(answer, KubeletFailed)
    assert answer.error == "ZeroDivisionError: one by none"
