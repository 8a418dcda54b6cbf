"""Kubelet's answers on their way into what is judged: when kubelet is asked, and what is said of its silence."""

from collections.abc import Callable
from random import Random

import structlog

from agent.config import Config
from agent.host.pod_resources import read_pod_resources
from agent.judging import Judging
from agent.kubelet_feed import Kubelet, KubeletFeed
from kube.clock import Clock


class Hearing:
    """Belongs to the judging loop's thread. A machine without a GPU asks nothing."""

    def __init__(
        self,
        config: Config,
        judging: Judging,
        clock: Clock,
        random: Random,
        wake: Callable[[], None],
        kubelet: Kubelet | None = None,
    ) -> None:
        settings = config.kubelet
        self._enabled = settings.enabled
        self._judging = judging
        self._clock = clock
        self._log = structlog.get_logger().bind(node=config.node_name)
        self._kubelet = kubelet or KubeletFeed(
            lambda: read_pod_resources(settings.pod_resources, clock=clock),
            settings.interval.total_seconds(),
            random,
            wake,
        )

    def round(self) -> bool:
        """Take kubelet's newest answer; give whether it brought something new."""
        if not self._kubelet.begun:
            if self._enabled and self._judging.parts:
                self._kubelet.begin()
            return False
        answer = self._kubelet.take()
        if answer is None:
            return False
        before = self._judging.offers.error
        new = self._judging.hear_kubelet(answer, self._clock.now())
        offers = self._judging.offers
        if offers.error and offers.error != before:
            self._log.warning("kubelet.unreadable", error=offers.error)
        elif before and not offers.error:
            self._log.info("kubelet.answered")
        if not offers.settled:
            self._kubelet.soon()
        return new

    def end(self) -> None:
        """Ask no more."""
        self._kubelet.end()
