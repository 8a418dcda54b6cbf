"""ResourceClaims: which devices of a node a pod's claims get. Pure.

Semantics: Kubernetes, "Dynamic Resource Allocation" (resource.k8s.io): a claim is allocated once, to one node, and shared by
at most 256 pods; All means every device of the class on the node, and none may be taken. Rule device_taints: a tainted
device goes only to who tolerates the taint (KAI's allocator has taints off). A GPU that its agent calls sick or Unknown is
given to nobody, taint or not.

What is taken is read off the pods as the ledger has them (`TaskState.claim_devices` of whoever is on the node), so that an
eviction or an undo needs no second book. Besides, devices of claims stay taken whose users are not in the snapshot.
"""

from collections.abc import Iterable

from controller.scheduler.device_search import CANNOT_ALLOCATE, FEW_STEPS, MOST_STEPS, DeviceSearch, variants
from controller.scheduler.ledger import Ledger
from controller.scheduler.model import ACTIVE_USED, Snapshot, TaskStatus
from controller.scheduler.node_terms import HARD_EFFECTS, tolerates
from controller.scheduler.nodes import Claim, Device, DeviceRequest, PartHealth
from controller.scheduler.rules import Rules
from controller.scheduler.state import NodeState, TaskState

MOST_USERS = 256
MOST_STEPS_OF_A_CYCLE = 100_000
"""Of searches that take more than a few; a second or two. Then all have to do with a few for each node."""

Given = tuple[tuple[str, tuple[str, ...]], ...]


def is_gpu_class(name: str) -> bool:
    """Tell whether a device class is one of GPUs, by its name (KAI's rule: it says gpu)."""
    return "gpu" in name.lower()


class Claims:
    """All claims of a cycle. Construction writes to tasks what their claims hold already."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, tasks: Iterable[TaskState], rules: Rules) -> None:
        self._ledger = ledger
        self._honour_taints = rules.device_taints
        self._claims = {claim.id: claim for claim in snapshot.claims}
        self._devices = {device.id: device for device in snapshot.devices}
        self._on_node: dict[str, list[Device]] = {}
        for device in sorted(snapshot.devices, key=lambda each: each.id):
            self._on_node.setdefault(device.node, []).append(device)
        self._of_kind: dict[tuple[str, str], list[Device]] = {}
        self._chosen_now: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._requests: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}
        self._users: dict[str, list[TaskState]] = {}
        if self._claims:
            for task in tasks:
                for name in task.spec.request.claims:
                    self._users.setdefault(self._id(task, name), []).append(task)
        self._leaving: list[str] = []
        self._steps_left = MOST_STEPS_OF_A_CYCLE
        self._standing = {claim.id for claim in snapshot.claims if claim.devices and self._stands(claim)}
        self._standing_devices = frozenset(
            device for identity in self._standing for device in self._claims[identity].devices
        )
        self._load()

    def _id(self, task: TaskState, name: str) -> str:
        """Give a claim's id: the name as it is where it is one already, else in the pod's namespace."""
        return name if name in self._claims else f"{task.spec.namespace}/{name}"

    def _stands(self, claim: Claim) -> bool:
        """Tell whether a claim keeps its devices whatever the pods of this cycle do."""
        known = {task.id for task in self._users.get(claim.id, ()) if task.node is not None}
        strangers = sum(user not in known for user in self._reserved(claim))
        return not known or strangers > 0 or claim.reserved_places > len(claim.reserved_for)

    def _reserved(self, claim: Claim) -> set[str]:
        """Give who a claim is reserved for, by pod id; a bare name is a pod of the claim's namespace."""
        namespace = claim.id.rpartition("/")[0]
        bare = {task.id for task in self._users.get(claim.id, ())}
        return {user if user in bare or "/" in user else f"{namespace}/{user}" for user in claim.reserved_for}

    def _load(self) -> None:
        for identity, users in self._users.items():
            claim = self._claims.get(identity)
            if claim is None or not claim.devices:
                continue
            for task in users:
                if task.node is not None:
                    task.claim_devices = (*task.claim_devices, (identity, claim.devices))

    def has_gpus(self, node: NodeState) -> bool:
        """Tell whether a node offers GPUs as devices."""
        return any(is_gpu_class(device.device_class) for device in self._on_node.get(node.name, ()))

    def free_gpus(self, node: NodeState) -> int:
        """Count the GPU devices of a node that nobody holds who means to keep them."""
        gpus = [
            each.id
            for each in self._on_node.get(node.name, ())
            if is_gpu_class(each.device_class) and not each.closed
        ]
        held = {
            device
            for task in node.tasks.values()
            if task.node is node and _holds(task)
            for _, devices in task.claim_devices
            for device in devices
        }
        return sum(device not in held and device not in self._standing_devices for device in gpus)

    def are_its_own(self, task: TaskState) -> bool:
        """Tell whether each of a pod's claims was made for it alone and has nothing, so that it needs free devices."""
        claims = [self._claims.get(self._id(task, name)) for name in task.spec.request.claims]
        return all(claim is not None and claim.from_template and not claim.devices for claim in claims)

    def need_as_many(self, task: TaskState) -> bool:
        """Tell whether a pod's claims need as many GPUs as its request counts: an alternative may need fewer."""
        claims = (self._claims.get(self._id(task, name)) for name in task.spec.request.claims)
        return not any(request.alternatives for claim in claims if claim for request in claim.requests)

    def requests_of(self, given: Given) -> tuple[tuple[str, ...], ...]:
        """Name the request of each device of claims that were given theirs in this cycle; of others nothing."""
        return tuple([self._requests.get(one, ()) for one in given])

    def why_not(self, task: TaskState, node: NodeState, later: bool) -> str | None:
        """Say why a pod's claims cannot be served on a node; `later`: what is being released counts as free."""
        most = MOST_STEPS if self._steps_left > 0 else FEW_STEPS
        given = self._choose(task, node, later, most)
        return given if isinstance(given, str) else None

    def take(self, task: TaskState, node: NodeState, later: bool) -> bool:
        """Give a placed pod the devices of its claims, undone with the ledger's marks. False: they are not there."""
        given = self._choose(task, node, later, MOST_STEPS)
        if isinstance(given, str):
            return False
        before = task.claim_devices
        leaving = [device for _, devices in before for device in devices] if task.evicted else []
        self._leaving.extend(leaving)

        def undo() -> None:
            task.claim_devices = before
            for device in leaving:
                self._leaving.remove(device)

        task.claim_devices = given
        self._requests |= {one: self._chosen_now[one] for one in given if one in self._chosen_now}
        self._ledger.journal(undo)
        return True

    def _choose(self, task: TaskState, node: NodeState, later: bool, most_steps: int) -> Given | str:
        """Give devices to each of a pod's claims, or say why not."""
        given: list[tuple[str, tuple[str, ...]]] = []
        new: list[Claim] = []
        for name in task.spec.request.claims:
            identity = self._id(task, name)
            claim = self._claims.get(identity)
            why = self._why_not_claim(task, claim, identity)
            if claim is None or why is not None:
                return why or CANNOT_ALLOCATE
            has = self._allocated(task, claim, later)
            if has is None:
                new.append(claim)
            elif not self._is_here(has, node):
                return "node(s) didn't have the devices of an allocated resourceclaim"
            given.append((identity, has or ()))
        found = self._pick(new, task, node, later, most_steps) if new else {}
        if isinstance(found, str):
            return found
        return tuple([(identity, found.get(identity, has)) for identity, has in given])

    def _why_not_claim(self, task: TaskState, claim: Claim | None, identity: str) -> str | None:
        """Say what is wrong with a claim itself, on every node alike."""
        if claim is None:
            return f'resourceclaim "{identity}" not found'
        if claim.why_not:
            return claim.why_not
        users = {other.id for other in self._users.get(identity, ()) if _holds(other) and other is not task}
        known = self._reserved(claim) - {
            other.id for other in self._users.get(identity, ()) if not _holds(other)
        }
        places = len((known | users) - {task.id}) + max(claim.reserved_places - len(claim.reserved_for), 0)
        if places >= MOST_USERS:
            return f"resourceclaim has its maximum of {MOST_USERS} users"
        shared_gpu = not claim.from_template and any(
            is_gpu_class(one.device_class) for each in claim.requests for one in variants(each)
        )
        queue = task.job.spec.queue if task.job is not None else ""
        if shared_gpu and claim.queue != queue:
            return f'shared GPU resourceclaim belongs to queue "{claim.queue}"'
        return None

    def _allocated(self, task: TaskState, claim: Claim, later: bool) -> tuple[str, ...] | None:
        """Give the devices that a claim holds now, None where it holds none; with `later` who is leaving does not count."""
        if claim.id in self._standing:
            return claim.devices
        for user in self._users.get(claim.id, ()):
            stays = _holds(user) or (not later and user.status is TaskStatus.RELEASING)
            if user is not task and stays and user.node is not None:
                for identity, devices in user.claim_devices:
                    if identity == claim.id:
                        return devices
        return None

    def _is_here(self, devices: tuple[str, ...], node: NodeState) -> bool:
        return all(
            (device := self._devices.get(identity)) is not None and device.node == node.name
            for identity in devices
        )

    def _taken(self, task: TaskState, node: NodeState, later: bool) -> set[str]:
        """Give the devices of a node that somebody else holds."""
        taken = set(self._standing_devices)
        if not later:
            taken.update(self._leaving)
        for other in node.tasks.values():
            if other is task or (later and other.status is TaskStatus.RELEASING):
                continue
            if other.node is not node and later:
                continue
            for _, devices in other.claim_devices:
                taken.update(devices)
        return taken

    def _pick(
        self, claims: list[Claim], task: TaskState, node: NodeState, later: bool, most_steps: int
    ) -> dict[str, tuple[str, ...]] | str:
        """Choose devices for claims that have none, or say why not."""
        search = DeviceSearch(
            claims,
            lambda kind: self._devices_of_kind(node, kind),
            lambda device, request: self._is_free(device, node, request),
            self._taken(task, node, later),
            most_steps,
        )
        found = search.run()
        self._steps_left -= max(search.steps - FEW_STEPS, 0)
        if isinstance(found, str):
            return found
        given: dict[str, tuple[str, ...]] = {}
        self._chosen_now = {}
        for claim, picks in zip(claims, found, strict=True):
            devices = given[claim.id] = tuple([device for device, _ in picks])
            self._chosen_now[claim.id, devices] = tuple([name for _, name in picks])
        return given

    def _devices_of_kind(self, node: NodeState, kind: str) -> list[Device]:
        """Give the devices of a node that a request for a kind may take, and those of which nobody knows."""
        found = self._of_kind.get((node.name, kind))
        if found is None:
            found = self._of_kind[node.name, kind] = [
                device
                for device in self._on_node.get(node.name, ())
                if kind == device.device_class
                or kind in device.kinds
                or any(kind == name for name, _ in device.unanswered)
            ]
        return found

    def _is_free(self, device: Device, node: NodeState, request: DeviceRequest) -> bool:
        if device.closed:
            return False
        if device.gpu and any(
            card.uuid == device.gpu and card.spec.health is not PartHealth.HEALTHY for card in node.devices
        ):
            return False
        return not self._honour_taints or all(
            taint.effect not in HARD_EFFECTS
            or tolerates(request.tolerations, taint.key, taint.value, taint.effect)
            for taint in device.taints
        )


def _holds(task: TaskState) -> bool:
    """Tell whether a pod is reserved a place at its claims as things stand in this cycle."""
    return task.node is not None and (task.status in ACTIVE_USED or task.status is TaskStatus.STUCK)
