"""ResourceClaims before a bind: write the devices that the cycle chose and reserve the claim for the pod. Shell.

Two requests for a new allocation, as Kubernetes' scheduler sends them: the finalizer, without which the claim controller
never takes an allocation back, then the allocation with the reservation, under the resource version that was read. A pod
that joins an allocated claim costs one, which needs no version, since entries are merged by the pod's UID.

Nothing in the API keeps two claims from holding one device. So after a write the watch is awaited until it has shown that
write, and with it all that came before; where another claim has the same device, whoever wrote first keeps it, and whoever
cannot be sure to be first gives way. Of two schedulers that do so exactly one wins.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.scheduler.claims import MOST_USERS
from controller.scheduler.device_rules import with_rules
from controller.scheduler.plan import Bind
from controller.scheduler.pod_tasks import claims_of
from controller.scheduler.shell.claim_allocation import (
    Given,
    allocation_of,
    already_given,
    consumer_of,
    devices_held,
    devices_kept,
    given_to,
    is_reserved_for,
    offered,
    why_not_devices,
    why_not_pod,
)
from controller.scheduler.shell.prebind_words import TRIES, Outcome, Reserved, Settings, Undo
from kube import paths
from kube.api import Api, ApiError, Conflict, Invalid, NotFound, PatchType
from kube.clock import Clock
from kube.devices import (
    CLAIM_FINALIZER,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from kube.store import Store, key_of, version_of
from kube.types import Pod

FIELD_MANAGER: Final = {"fieldManager": "nodemend-scheduler"}
Planned = tuple[tuple[str, ...], tuple[str, ...]]
"""A claim's devices in the plan, and the request that each is for, where the plan says it."""
_REMEMBERED: Final = 10_000
_LOOK_S: Final = 0.005


class ClaimBinding:
    """Used from many threads. `claims` is indexed by `node_of_claim`, `slices` by `node_of_slice`."""

    def __init__(
        self,
        *,
        api: Api,
        pods: Store[Pod],
        claims: Store[ResourceClaim],
        slices: Store[ResourceSlice],
        taint_rules: Store[DeviceTaintRule],
        device_classes: Store[DeviceClass],
        clock: Clock,
        scheduler_name: str,
        settings: Settings,
    ) -> None:
        self._api = api
        self._pods = pods
        self._claims = claims
        self._slices = slices
        self._rules = taint_rules
        self._classes = device_classes
        self._clock = clock
        self._scheduler_name = scheduler_name
        self._settings = settings
        self._lock = threading.Lock()
        self._allocated_at: OrderedDict[str, int] = OrderedDict()

    def reserve(self, pod: Pod, bind: Bind) -> Outcome:
        """Reserve all claims of a pod, with the plan's devices where they have none yet. Again it costs no request."""
        node, devices = bind.node, dict(bind.devices)
        requests = {name: one for (name, _), one in zip(bind.devices, bind.requests, strict=False)}
        names, unmade = claims_of(pod)
        if unmade:
            return Outcome(why=f'resourceclaim "{unmade[0]}" is not made yet')
        undo: list[Undo] = []
        for name in names:
            if name not in devices:
                return Outcome(why=f'resourceclaim "{name}": the plan has nothing for it', undo=tuple(undo))
            try:
                plan = (devices[name], requests.get(name, ()))
                why = self._reserve(name, pod, node, plan, undo)
            except ApiError as error:
                why = str(error)
            if why:
                return Outcome(why=f'resourceclaim "{name}": {why}', undo=tuple(undo))
        for name in names:
            why, waits = self._settled(name, pod, node)
            if why:
                return Outcome(why=f'resourceclaim "{name}": {why}', waits=waits, undo=tuple(undo))
        return Outcome(undo=tuple(undo))

    def _reserve(self, name: str, pod: Pod, node: str, plan: Planned, undo: list[Undo]) -> str:
        """Say why not. What was written, or may have been, is in `undo`. Raises ApiError."""
        claim = self._claims.get(name)
        for _ in range(TRIES):
            if claim is None:
                return "is gone"
            given, why = self._look(claim, pod, node, plan)
            is_in = is_reserved_for(claim, pod.metadata.uid)
            if why:
                undo += [_reserved(claim, pod)] if is_in else []
                return why
            undo.append(_reserved(claim, pod))
            if is_in:
                return ""
            try:
                if claim.status.allocation is None:
                    self._allocate(claim, pod, node, given)
                    return ""
                if sorted(devices_held(self._join(claim, pod))) == sorted(plan[0]):
                    return ""
                return "was given other devices meanwhile"
            except (Conflict, Invalid) as error:
                undo.pop()
                tried, claim = claim, self._read(name)
                if isinstance(error, Invalid) and claim is not None and _is_same(claim, tried):
                    return str(error)
        return f"was changed by others {TRIES} times while it was being written"

    def _look(
        self, claim: ResourceClaim, pod: Pod, node: str, plan: Planned
    ) -> tuple[tuple[Given, ...], str]:
        """Decide from what is known now: the devices by request, and why they cannot be had."""
        devices = plan[0]
        if why := why_not_pod(claim, pod):
            return (), why
        if claim.status.allocation is None:
            try:
                given = given_to(claim, *plan)
            except ValueError as error:
                return (), str(error)
            if holder := self._other_holder(claim, node, frozenset(devices)):
                return (), holder
        else:
            given = already_given(claim)
            if sorted(devices_held(claim)) != sorted(devices):
                return (), "was given other devices meanwhile"
            if len(claim.status.reserved_for) >= MOST_USERS and not is_reserved_for(claim, pod.metadata.uid):
                return (), f"has its maximum of {MOST_USERS} users"
        return given, why_not_devices(given, self._offered(node))

    def _offered(self, node: str) -> Mapping[str, SliceDevice]:
        return offered(with_rules(self._slices.by_index(node), self._rules.values()))

    def _allocate(self, claim: ResourceClaim, pod: Pod, node: str, given: tuple[Given, ...]) -> None:
        meta = claim.metadata
        if CLAIM_FINALIZER not in meta.finalizers:
            path = paths.resource_claim(meta.namespace, meta.name)
            body = _with_version(claim, finalizers=[*meta.finalizers, CLAIM_FINALIZER])
            claim = self._took(self._api.patch(path, body, PatchType.MERGE, FIELD_MANAGER))
        allocation = allocation_of(
            claim,
            given,
            node=node,
            known=self._offered(node),
            classes=self._classes.snapshot(),
            now=self._clock.now(),
        )
        status = {"allocation": allocation, "reservedFor": [consumer_of(pod)]}
        claim = self._patch_status(claim, {**_with_version(claim), "status": status}, PatchType.STRATEGIC)
        with self._lock:
            self._allocated_at[claim.metadata.uid] = version_of(claim.metadata.resource_version)
            while len(self._allocated_at) > _REMEMBERED:
                self._allocated_at.popitem(last=False)

    def _join(self, claim: ResourceClaim, pod: Pod) -> ResourceClaim:
        body = {"metadata": {"uid": claim.metadata.uid}, "status": {"reservedFor": [consumer_of(pod)]}}
        return self._patch_status(claim, body, PatchType.STRATEGIC)

    def _settled(self, name: str, pod: Pod, node: str) -> tuple[str, bool]:
        """Await the watch, then say whether somebody else was given one of the devices first, and whether to wait on."""
        claim = self._claims.get(name)
        if claim is None or not is_reserved_for(claim, pod.metadata.uid):
            return "was released meanwhile", False
        kept = devices_kept(claim)
        if not kept:
            return "", False
        wanted = version_of(claim.metadata.resource_version)
        until = self._clock.monotonic() + self._settings.echo_s
        while self._claims.heard_version < wanted:
            if self._clock.monotonic() >= until:
                return "the watch has not shown the allocation yet", True
            self._clock.sleep(_LOOK_S)
        with self._lock:
            ours = self._allocated_at.get(claim.metadata.uid, wanted)
        return self._other_holder(claim, node, kept, ours), False

    def _other_holder(
        self, claim: ResourceClaim, node: str, devices: frozenset[str], ours: int | None = None
    ) -> str:
        """Say which other claim has one of these devices, and may have had it before our write; "" = none."""
        for other in self._claims.by_index(node):
            if other.metadata.uid == claim.metadata.uid:
                continue
            both = devices & devices_kept(other)
            if both and not (ours is not None and self._is_later(other, ours)):
                return f"device {min(both)} was given to {key_of(other.metadata)} meanwhile"
        return ""

    def _is_later(self, other: ResourceClaim, ours: int) -> bool:
        """Tell whether another claim was allocated after our write, for sure, and by one who gives way as we do.

        A version says when an object changed last. That was its allocation as long as one pod alone is reserved and no
        driver has said anything; all else counts as earlier.
        """
        users = other.status.reserved_for
        if len(users) != 1 or users[0].resource != "pods" or other.status.devices:
            return False
        pod = self._pods.get(f"{other.metadata.namespace}/{users[0].name}")
        is_like_us = pod is not None and pod.spec.scheduler_name == self._scheduler_name
        return is_like_us and version_of(other.metadata.resource_version) > ours

    # Taking back

    def release(self, entry: Reserved) -> None:
        """Take a pod's reservation back, and the devices where nobody else is reserved. Raises ApiError."""
        name = f"{entry.namespace}/{entry.name}"
        claim = self._read(name)
        for _ in range(TRIES):
            if claim is None or claim.metadata.uid != entry.uid or claim.status.allocation is None:
                return
            others = [one for one in claim.status.reserved_for if one.uid != entry.pod_uid]
            is_in = len(others) < len(claim.status.reserved_for)
            try:
                if not others:
                    empty = {"allocation": None, "reservedFor": None}
                    self._patch_status(claim, {**_with_version(claim), "status": empty}, PatchType.MERGE)
                    return
                if not is_in:
                    return
                entries = [{"$patch": "delete", "uid": entry.pod_uid}]
                body = {"metadata": {"uid": entry.uid}, "status": {"reservedFor": entries}}
                claim = self._patch_status(claim, body, PatchType.STRATEGIC)
                if claim.status.reserved_for:
                    return
            except (Conflict, Invalid):
                claim = self._read(name)
            except NotFound:
                return

    def _patch_status(
        self, claim: ResourceClaim, body: dict[str, Any], patch_type: PatchType
    ) -> ResourceClaim:
        path = paths.resource_claim_status(claim.metadata.namespace, claim.metadata.name)
        return self._took(self._api.patch(path, body, patch_type, FIELD_MANAGER))

    def _took(self, answer: bytes) -> ResourceClaim:
        claim = msgspec.json.decode(answer, type=ResourceClaim)
        self._claims.offer(claim)
        return claim

    def _read(self, name: str) -> ResourceClaim | None:
        namespace, _, plain = name.partition("/")
        try:
            return self._took(self._api.get(paths.resource_claim(namespace, plain)))
        except NotFound:
            return None


def _reserved(claim: ResourceClaim, pod: Pod) -> Reserved:
    meta = claim.metadata
    return Reserved(namespace=meta.namespace, name=meta.name, uid=meta.uid, pod_uid=pod.metadata.uid)


def _with_version(claim: ResourceClaim, **more: object) -> dict[str, Any]:
    meta = claim.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, **more}}


def _is_same(one: ResourceClaim, other: ResourceClaim | None) -> bool:
    return other is not None and one.metadata.resource_version == other.metadata.resource_version
