"""The demo's eyes: what happened to one node, when, seen from outside through the same API that kubectl reads.

A `Milestone` is a question about the world (`Scene`) that is answered once; a `Story` asks the open ones after every change
and notes the instant of each answer. It judges nothing and changes nothing.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kube.clock import Clock
from kube.nodehealth import NodeHealth
from kube.remediation import Remediation
from kube.types import Node


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What can be seen of one node now; None = not there (yet). `pages` are the transitions that reached the receiver."""

    node: Node | None
    health: NodeHealth | None
    remediation: Remediation | None
    work_pods: int
    pages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Milestone:
    """One thing that must happen. `seen` gives words for it once it has happened, before that None."""

    name: str
    title: str
    seen: Callable[[Scene], str | None]


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A milestone that was reached, `after_s` seconds after the story's start."""

    name: str
    title: str
    words: str
    after_s: float
    at: datetime


@dataclass
class Story:
    """Ask `milestones` about one node until all are reached."""

    node: str
    milestones: Sequence[Milestone]
    clock: Clock
    tell: Callable[[Reached], None]
    started: float = field(init=False)
    reached: list[Reached] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self.started = self.clock.monotonic()

    def restart_clock(self) -> None:
        """Set the instant that latencies are counted from."""
        self.started = self.clock.monotonic()

    def look(self, scene: Scene) -> None:
        """Ask every open milestone about this scene. May be called from any thread."""
        with self._lock:
            open_ones = [m for m in self.milestones if all(r.name != m.name for r in self.reached)]
            for milestone in open_ones:
                words = milestone.seen(scene)
                if words is None:
                    continue
                reached = Reached(
                    name=milestone.name,
                    title=milestone.title,
                    words=words,
                    after_s=self.clock.monotonic() - self.started,
                    at=self.clock.now(),
                )
                self.reached.append(reached)
                self.tell(reached)
            if len(self.reached) == len(self.milestones):
                self._finished.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until all milestones are reached; False when the time ran out."""
        return self._finished.wait(timeout_s)

    def missing(self) -> list[str]:
        """Name the milestones that were not reached."""
        with self._lock:
            return [m.title for m in self.milestones if all(r.name != m.name for r in self.reached)]
