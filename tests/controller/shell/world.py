"""A controller's shell over a fake server: everything real but the API server, the clock and the core's guard."""

from collections.abc import Callable
from typing import Any

import msgspec

from controller.apply import Applier, World
from controller.config import Config, JobsSection, parse
from controller.fresh import Glance, Reread
from kube import paths
from kube.remediation import Phase
from kube.types import Node
from tests.controller.shell.samples import (
    INCIDENT,
    NODE,
    NOW,
    UID,
    attempt,
    node_json,
    raw,
    remediation,
)
from tests.fakes import FakeApi, FakeClock

IMAGE = "nodemend@sha256:0"


def config(**changes: Any) -> Config:
    """The defaults, with an image."""
    return msgspec.structs.replace(parse("", "test"), **{"jobs": JobsSection(image=IMAGE), **changes})


class Bench:
    """One applier over one fake server that holds one node under repair."""

    def __init__(
        self,
        *,
        guard: Callable[[Reread], str | None] = lambda _: None,
        eviction_guard: Callable[[Glance], str | None] = lambda _: None,
        validation_guard: Callable[[Glance], str | None] = lambda _: None,
        why_not_write: Callable[[], str | None] = lambda: None,
        **changes: Any,
    ) -> None:
        self.clock = FakeClock(now=NOW)
        self.api = FakeApi(self.clock)
        self.api.add(paths.nodes(), node_json())
        self.applier = Applier(
            World(
                api=self.api,
                clock=self.clock.clock,
                config=config(**changes),
                held_node=self.node,
                why_not_repair=guard,
                why_not_evict=eviction_guard,
                why_not_validate=validation_guard,
                why_not_write=why_not_write,
            )
        )

    def node(self, name: str) -> Node | None:
        """Give the Node as the store would hold it, without leaving a request behind."""
        if name not in self.api.names(paths.nodes()):
            return None
        return msgspec.convert(self.api.read(paths.node(name)), Node)

    def draining(self) -> None:
        """Put in what an eviction re-reads beside the Node: the incident."""
        incident = remediation(phase=Phase.DRAINING)
        self.api.add(paths.remediations(), {**raw(incident), "metadata": {"name": INCIDENT}})

    def under_repair(self) -> None:
        """Put in what a repair re-reads: the incident with its open attempt, NodeHealth, the policy."""
        incident = remediation(phase=Phase.REPAIRING, attempts=(attempt(),))
        self.api.add(paths.remediations(), {**raw(incident), "metadata": {"name": INCIDENT}})
        self.api.add(
            paths.node_healths(),
            {"metadata": {"name": NODE}, "status": {"nodeUID": UID, "bootID": "boot-1", "findings": []}},
        )
        self.api.add(paths.policies(), {"metadata": {"name": "gpus"}, "spec": {"mode": "Enforce"}})
