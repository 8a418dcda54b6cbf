"""What the demo sees of the cluster: stores of the objects that kubectl shows, and stories that look at each change."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from kube import paths
from kube.api import Api
from kube.clock import Clock
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.store import Store, Stored
from kube.types import Node, Pod
from kube.watch import Reflector
from sandbox.receiver import Message, Receiver
from sandbox.story import Scene, Story

T = TypeVar("T", bound=Stored)
WORK_NAMESPACE = "team-a"


class Watching:
    """Stores of nodes, their health, remediations, policies and the teams' pods, each kept by a watch of its own."""

    def __init__(self, api: Api, clock: Clock, receiver: Receiver) -> None:
        self._api = api
        self._clock = clock
        self._receiver = receiver
        self._stop = threading.Event()
        self._stories: list[Story] = []
        self.nodes: Store[Node] = Store()
        self.healths: Store[NodeHealth] = Store()
        self.remediations: Store[Remediation] = Store()
        self.policies: Store[RemediationPolicy] = Store()
        self.pods: Store[Pod] = Store(index=lambda pod: pod.spec.node_name)

    def __enter__(self) -> Self:
        self.keep(paths.nodes(), Node, self.nodes)
        self.keep(paths.node_healths(), NodeHealth, self.healths)
        self.keep(paths.remediations(), Remediation, self.remediations)
        self.keep(paths.policies(), RemediationPolicy, self.policies)
        self.keep(paths.pods(WORK_NAMESPACE), Pod, self.pods)
        pages = threading.Thread(target=self._look_at_pages, name="pages", daemon=True)
        pages.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look no more. A watch that hears nothing just then ends with its session: waiting for it would take long."""
        self._stop.set()

    def follow(self, story: Story) -> None:
        """Let a story look at every change from now on."""
        self._stories = [*self._stories, story]
        story.look(self.scene(story.node))

    def wait_for(self, true: Callable[[], bool], timeout_s: float) -> bool:
        """Ask until it is so; False when the time ran out."""
        deadline = self._clock.monotonic() + timeout_s
        while not true():
            if self._clock.monotonic() > deadline:
                return False
            self._clock.sleep(0.05)
        return True

    def scene(self, name: str) -> Scene:
        """Give what can be seen of one node now; of several Remediations the newest one counts."""
        stories = [one for one in self.remediations.values() if one.spec.node_name == name]
        newest = max(stories, key=lambda one: one.spec.opened_at, default=None)
        incident = newest.metadata.name if newest else ""
        return Scene(
            node=self.nodes.get(name),
            health=self.healths.get(name),
            remediation=newest,
            work_pods=len(self.work_on(name)),
            pages=tuple(
                message.type.rpartition(".")[2]
                for message in self._receiver.accepted
                if incident and data_of(message).get("incident") == incident
            ),
        )

    def work_on(self, name: str) -> list[Pod]:
        """Give the teams' pods on a node that have not ended."""
        return [pod for pod in self.pods.by_index(name) if pod.status.phase not in ("Succeeded", "Failed")]

    def keep(self, path: str, type_: type[T], store: Store[T]) -> None:
        """Keep one more store by a watch of its own, for as long as this one looks."""
        store.subscribe(lambda _change, _object: self._look())
        reflector = Reflector(self._api, path, type_, store, clock=self._clock, stop=self._stop)
        thread = threading.Thread(target=reflector.run, name=f"watch {path}", daemon=True)
        thread.start()

    def _look(self) -> None:
        for story in self._stories:
            story.look(self.scene(story.node))

    def _look_at_pages(self) -> None:
        seen = 0
        while not self._stop.wait(0.02):
            count = len(self._receiver.messages)
            if count != seen:
                seen = count
                self._look()


def data_of(message: Message) -> Mapping[str, object]:
    """Give the `data` of a page's event; empty where it has none."""
    data = message.event.get("data")
    return data if isinstance(data, dict) else {}
