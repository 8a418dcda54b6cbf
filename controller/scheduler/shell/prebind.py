"""What has to be written before a pod may be bound: its ResourceClaims, then its volumes. Shell.

`prepare` is asked again, cycle after cycle, until it says ready, or that it gave up: then everything is taken back and the
pod goes back to the queue. Claims come first, since they can be taken back; a volume that is bound stays where it is. A pod
that has neither costs nothing.

A crash leaves nothing for ever. A claim that was reserved for a pod which was not bound holds its devices for that pod, so
that the next leader places it there again; if the pod is gone, Kubernetes' claim controller releases it. A claim for a
volume with a node written on it goes to that node. Where the pod cannot be bound there in time, `tidy` takes it back.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from controller.scheduler.plan import Bind
from controller.scheduler.shell.claim_binding import ClaimBinding
from controller.scheduler.shell.leftovers import Leftovers, leftovers
from controller.scheduler.shell.prebind_words import Outcome, Reserved, Settings, Undo
from controller.scheduler.shell.volume_binding import VolumeBinding
from kube import paths
from kube.api import Api, ApiError, NotFound
from kube.clock import Clock
from kube.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kube.store import Store
from kube.types import Node, Pod

log = structlog.get_logger(__name__)

_REMEMBERED: Final = 10_000
DEFAULT: Final = Settings()


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """`ready`: bind now. Else `why`, and with `waits` the pod keeps its place and is to be prepared again; without, all was
    taken back and the pod goes back. `pod` (namespace/name) and `uid`: whose; `undo`: what was written for it.
    """

    ready: bool
    why: str = ""
    waits: bool = False
    pod: str = ""
    uid: str = ""
    undo: tuple[Undo, ...] = ()


READY: Final = Prepared(ready=True)


class Prebind:
    """Used from many threads, for one pod by one thread at a time.

    `claims` is indexed by `claim_allocation.node_of_claim`, `slices` by `claim_allocation.node_of_slice`.
    """

    def __init__(
        self,
        *,
        api: Api,
        pods: Store[Pod],
        nodes: Store[Node],
        claims: Store[ResourceClaim],
        slices: Store[ResourceSlice],
        taint_rules: Store[DeviceTaintRule],
        device_classes: Store[DeviceClass],
        volume_claims: Store[PersistentVolumeClaim],
        volumes: Store[PersistentVolume],
        storage_classes: Store[StorageClass],
        clock: Clock,
        scheduler_name: str,
        settings: Settings = DEFAULT,
    ) -> None:
        self._api = api
        self._pods = pods
        self._claims = claims
        self._volume_claims = volume_claims
        self._clock = clock
        self._scheduler_name = scheduler_name
        self._settings = settings
        self._claim_binding = ClaimBinding(
            api=api,
            pods=pods,
            claims=claims,
            slices=slices,
            taint_rules=taint_rules,
            device_classes=device_classes,
            clock=clock,
            scheduler_name=scheduler_name,
            settings=settings,
        )
        self._volume_binding = VolumeBinding(
            api=api,
            nodes=nodes,
            volume_claims=volume_claims,
            volumes=volumes,
            storage_classes=storage_classes,
        )
        self._lock = threading.Lock()
        self._waits_since: OrderedDict[str, float] = OrderedDict()
        self._touched: OrderedDict[str, float] = OrderedDict()
        self._seen: dict[str, float] = {}
        self._tidied = float("-inf")

    def prepare(self, bind: Bind, pod: Pod) -> Prepared:
        """Do what is left to do, and tell whether the pod may be bound. Never raises an ApiError."""
        return self._prepare(bind, pod) if self.has_work(bind, pod) else READY

    def has_work(self, bind: Bind, pod: Pod) -> bool:
        """Tell whether a pod needs anything before it is bound; most need nothing."""
        return bool(pod.spec.resource_claims or bind.devices) or any(
            volume.persistent_volume_claim is not None or volume.ephemeral is not None
            for volume in pod.spec.volumes
        )

    def _prepare(self, bind: Bind, pod: Pod) -> Prepared:
        uid, now = pod.metadata.uid, self._clock.monotonic()
        with self._lock:
            _keep(self._touched, uid, now)
        outcome = self._claim_binding.reserve(pod, bind)
        if not outcome.why:
            volumes = self._volume_binding.bind(pod, bind.node)
            outcome = msgspec.structs.replace(volumes, undo=(*outcome.undo, *volumes.undo))
        why, waits = self._within_time(uid, outcome, now)
        prepared = Prepared(ready=not why, why=why, waits=waits, pod=bind.task, uid=uid, undo=outcome.undo)
        if waits:
            return prepared
        self._volume_binding.forget(uid)
        if why:
            self.undo(prepared)
            return msgspec.structs.replace(prepared, undo=())
        return prepared

    def _within_time(self, uid: str, outcome: Outcome, now: float) -> tuple[str, bool]:
        """Give why a pod is not ready, and whether it waits on."""
        with self._lock:
            if not outcome.waits:
                self._waits_since.pop(uid, None)
                return outcome.why, False
            since = self._waits_since.get(uid)
            if since is None:
                _keep(self._waits_since, uid, now)
                return outcome.why, True
            if now - since < self._settings.wait_s:
                return outcome.why, True
            del self._waits_since[uid]
        return f"{outcome.why}: given up after {self._settings.wait_s:g} s", False

    def undo(self, prepared: Prepared) -> None:
        """Take back what was written for a pod that was not bound. One that is bound all the same keeps it.

        What cannot be taken back now, since the server does not answer, is left to `tidy`.
        """
        if not prepared.undo:
            return
        with self._lock:
            self._waits_since.pop(prepared.uid, None)
        self._volume_binding.forget(prepared.uid)
        try:
            if self._is_bound(prepared.pod, prepared.uid):
                return
            self._release(prepared.undo)
        except ApiError as error:
            log.warning("prebind.not_undone", pod=prepared.pod, error=str(error))

    def _release(self, entries: Iterable[Undo]) -> None:
        for entry in entries:
            if isinstance(entry, Reserved):
                self._claim_binding.release(entry)
            else:
                self._volume_binding.release(entry)

    def _is_bound(self, pod: str, uid: str) -> bool:
        namespace, _, name = pod.partition("/")
        try:
            found = msgspec.json.decode(self._api.get(paths.pod(namespace, name)), type=Pod)
        except NotFound:
            return False
        return found.metadata.uid == uid and bool(found.spec.node_name)

    # What earlier leaders left

    def tidy(self) -> None:
        """Take back what was written for pods that nobody could bind since. For one thread; cheap, so call it often."""
        now = self._clock.monotonic()
        if now - self._tidied < self._settings.tidy_every_s:
            return
        self._tidied = now
        found = leftovers(
            self._pods.values(), self._claims.snapshot(), self._volume_claims.snapshot(), self._scheduler_name
        )
        seen = {one.uid: self._seen.get(one.uid, now) for one in found}
        for one in found:
            if now - self._last_touched(one, seen[one.uid]) >= self._settings.wait_s:
                self._take_back(one)
                del seen[one.uid]
        self._seen = seen

    def _last_touched(self, one: Leftovers, seen: float) -> float:
        with self._lock:
            return max([seen, *(self._touched.get(uid, seen) for _, uid in one.pods)])

    def _take_back(self, one: Leftovers) -> None:
        try:
            if any(self._is_bound(pod, uid) for pod, uid in one.pods):
                return
            log.info("prebind.taken_back", object=one.name, pods=[pod for pod, _ in one.pods])
            self._release(one.undo)
        except ApiError as error:
            log.warning("prebind.not_taken_back", object=one.name, error=str(error))


def _keep(memory: OrderedDict[str, float], key: str, at: float) -> None:
    memory[key] = at
    memory.move_to_end(key)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
