"""What kubelet and its device plugin do, for a node that has neither: choose cards, withhold sick ones, and say so.

The choice is simulated, the PodResources service that tells of it is a real gRPC server (`sandbox.pod_resources`):
whoever asks sees the node's pods as the API has them at that moment.
"""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from kube import paths
from kube.api import Api
from kube.types import Pod, Struct
from sandbox.pod_resources import PodResourcesServer, allocatable, pod

RESOURCE: Final = "nvidia.com/gpu"
_ENDED = ("Succeeded", "Failed")


class _PodList(Struct, frozen=True, kw_only=True):
    items: tuple[Pod, ...] = ()


class Cards:
    """Which pod has which cards. A card that is withheld goes to no further pod, and stays with the one that has it."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self._withheld: set[str] = set()
        self._given: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, tuple[str, str]] = {}
        self.refused: dict[str, str] = {}

    @property
    def offered(self) -> tuple[str, ...]:
        return tuple(uuid for uuid in self._uuids if uuid not in self._withheld)

    def withhold(self, uuid: str) -> None:
        self._withheld.add(uuid)

    def held(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Give the cards of each pod by its namespace and name."""
        return {self._names[uid]: uuids for uid, uuids in self._given.items() if uuids}

    def look(self, pods: Sequence[Pod]) -> None:
        """Take the node's pods as they are now: who came is given the first free cards, who ended or left gives his back.

        A pod for which there are too few is noted in `refused`: a kubelet would let it fail (UnexpectedAdmissionError).
        """
        here = {one.metadata.uid: one for one in pods if one.status.phase not in _ENDED}
        self._given = {uid: uuids for uid, uuids in self._given.items() if uid in here}
        self._names = {uid: (one.metadata.namespace, one.metadata.name) for uid, one in here.items()}
        for uid in sorted(here.keys() - self._given, key=self._names.__getitem__):
            wanted = gpus_of(here[uid])
            taken = {uuid for uuids in self._given.values() for uuid in uuids}
            free = [uuid for uuid in self.offered if uuid not in taken]
            if wanted > len(free):
                self.refused[here[uid].metadata.name] = f"wants {wanted} GPUs, {len(free)} are free"
            self._given[uid] = tuple(free[:wanted]) if wanted <= len(free) else ()


class PlayedKubelet:
    """One node's kubelet as far as GPUs go, within its block. `socket` is where an agent asks it."""

    def __init__(self, api: Api, node: str, uuids: Sequence[str]) -> None:
        self._api, self._node = api, node
        self._cards = Cards(uuids)
        self._lock = threading.Lock()
        # A path for a Unix socket has 107 bytes at most, which a state folder's may exceed.
        self._folder = tempfile.TemporaryDirectory(prefix="kubelet-")
        self.socket = Path(self._folder.name) / "kubelet.sock"
        self._server = PodResourcesServer(self.socket)
        self._server.answer_by(self._answer)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._folder.cleanup()

    def withhold(self, uuid: str) -> None:
        """Let the device plugin have called a card unhealthy, as NVIDIA's does at an XID: it is offered no more."""
        with self._lock:
            self._cards.withhold(uuid)

    def held(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Give the cards that each pod has now, by namespace and name. Raises ApiError."""
        self._look()
        with self._lock:
            return self._cards.held()

    @property
    def refused(self) -> Mapping[str, str]:
        """Pods for which there were too few cards, and how few."""
        with self._lock:
            return dict(self._cards.refused)

    def _look(self) -> None:
        with self._lock:
            query = {"fieldSelector": f"spec.nodeName={self._node}"}
            listed = msgspec.json.decode(self._api.get(paths.pods(), query), type=_PodList)
            self._cards.look(listed.items)

    def _answer(self, method: str, _context: Any) -> bytes:
        if method != "List":
            with self._lock:
                return allocatable(RESOURCE, *self._cards.offered)
        held = self.held()
        return b"".join(pod(*name, RESOURCE, *uuids) for name, uuids in sorted(held.items()))


def gpus_of(one: Pod) -> int:
    """Give how many GPUs the containers of a pod ask for."""
    return sum(int(container.resources.limits.get(RESOURCE, "0")) for container in one.spec.containers)
