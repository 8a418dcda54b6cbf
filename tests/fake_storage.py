"""What FakeApi keeps: objects, their history, and the rules of the server for changing them."""

import copy
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from kube.api import AlreadyExists, ApiError, Conflict, Gone, Invalid, NotFound, PatchType
from kube.timestamps import rfc3339
from tests import fake_patch

KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "jobs": "Job",
    "leases": "Lease",
    "events": "Event",
    "daemonsets": "DaemonSet",
    "namespaces": "Namespace",
    "secrets": "Secret",
    "nodehealths": "NodeHealth",
    "remediations": "Remediation",
    "remediationpolicies": "RemediationPolicy",
}
# Created with the status that the body carries: a kubelet registers its Node with status. All others start without one.
STATUS_AT_CREATE = {"nodes"}
NO_STATUS = {"leases", "events", "secrets"}


Key = tuple[str, str, str, str]


class Address(msgspec.Struct, frozen=True):
    """A path taken apart; `name` is empty for a collection, `namespace` for cluster scope and for all namespaces."""

    group: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def parse(cls, path: str) -> "Address":
        words = path.strip("/").split("/")
        taken = 2 if words[0] == "api" else 3
        group, rest = "/".join(words[1:taken]), words[taken:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        return cls(group, plural, namespace, name, subresource)

    def key(self) -> Key:
        return (self.group, self.plural, self.namespace, self.name)

    def holds(self, key: Key) -> bool:
        """Whether an object of this key is in this collection."""
        return key[:2] == (self.group, self.plural) and self.namespace in ("", key[2])


class FakeStorage:
    """Objects by key with one growing version, and the log of all changes that watches read. Not locked: FakeApi locks."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.log: list[tuple[int, str, Key, dict[str, Any]]] = []
        self.version = 100
        self.compacted = 0
        self.compactions = 0
        self._now = now
        self._objects: dict[Key, dict[str, Any]] = {}
        self._pages: dict[str, tuple[list[dict[str, Any]], int]] = {}

    def compact(self) -> None:
        self.compacted = self.version
        self.compactions += 1
        self._pages.clear()

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _record(self, kind: str, key: Key, obj: dict[str, Any]) -> None:
        self.log.append((int(obj["metadata"]["resourceVersion"]), kind, key, copy.deepcopy(obj)))

    def held(self, address: Address) -> dict[str, Any]:
        held = self._objects.get(address.key())
        if held is None:
            raise NotFound(f'{address.plural} "{address.name}" not found', code=404, reason="NotFound")
        return held

    def insert(self, address: Address, body: Mapping[str, Any], *, keep_status: bool) -> dict[str, Any]:
        obj = copy.deepcopy(dict(body))
        metadata = obj["metadata"] = dict(obj.get("metadata") or {})
        if "name" not in metadata and "generateName" in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        namespace = address.namespace or metadata.get("namespace", "")
        key = (address.group, address.plural, namespace, metadata["name"])
        if key in self._objects:
            raise AlreadyExists(
                f'{address.plural} "{metadata["name"]}" already exists', code=409, reason="AlreadyExists"
            )
        if namespace:
            metadata["namespace"] = namespace
        if not keep_status:
            obj.pop("status", None)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", rfc3339(self._now()))
        if address.plural not in {"nodes", "leases"}:
            metadata.setdefault("generation", 1)
        metadata["resourceVersion"] = str(self._next())
        obj.setdefault("apiVersion", address.group)
        obj.setdefault("kind", KINDS.get(address.plural, address.plural))
        self._objects[key] = obj
        self._record("ADDED", key, obj)
        return obj

    def patch(self, address: Address, body: Any, patch_type: PatchType) -> dict[str, Any]:
        held = self.held(address)
        match patch_type:
            case PatchType.JSON:
                patched = fake_patch.json_patch(held, body)
                return self.update(address, patched, patched["metadata"])
            case PatchType.STRATEGIC if "." in address.group.split("/")[0] and "k8s.io" not in address.group:
                raise ApiError(
                    "strategic merge is not supported for custom resources",
                    code=415,
                    reason="UnsupportedMediaType",
                )
            case PatchType.STRATEGIC:
                patched = fake_patch.strategic(held, body)
            case _:
                patched = fake_patch.merge(held, body)
        return self.update(address, patched, body.get("metadata") or {})

    def update(
        self, address: Address, wanted: dict[str, Any], preconditions: Mapping[str, Any]
    ) -> dict[str, Any]:
        held = self.held(address)
        self._check(address, held, {"resourceVersion": preconditions.get("resourceVersion")})
        if preconditions.get("uid") not in (None, held["metadata"]["uid"]):
            # Unlike on eviction and deletion, where a wrong UID is a conflict (seen on kube-apiserver 1.37.2).
            raise Invalid("metadata.uid: Invalid value: field is immutable", code=422, reason="Invalid")
        new = self._merged_by_subresource(address, held, wanted)
        for fixed in (
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "deletionTimestamp",
        ):
            if fixed in held["metadata"]:
                new["metadata"][fixed] = held["metadata"][fixed]
        if new == held:
            return held  # the server writes nothing either, and sends no event
        if "generation" in new["metadata"] and new.get("spec") != held.get("spec"):
            new["metadata"]["generation"] += 1
        new["metadata"]["resourceVersion"] = str(self._next())
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._objects[address.key()] = new
            return self.drop(address.key())
        self._objects[address.key()] = new
        self._record("MODIFIED", address.key(), new)
        return new

    @staticmethod
    def _merged_by_subresource(
        address: Address, held: dict[str, Any], wanted: dict[str, Any]
    ) -> dict[str, Any]:
        new = copy.deepcopy(held if address.subresource == "status" else wanted)
        new["metadata"] = dict(new.get("metadata") or {})
        source, field = (wanted, "status") if address.subresource == "status" else (held, "status")
        if address.plural not in NO_STATUS:
            new.pop(field, None)
            if field in source:
                new[field] = copy.deepcopy(source[field])
        return new

    def _check(self, address: Address, held: dict[str, Any], preconditions: Mapping[str, Any]) -> None:
        for field in ("uid", "resourceVersion"):
            wanted = preconditions.get(field)
            if wanted and wanted != held["metadata"][field]:
                raise Conflict(
                    f'{address.plural} "{address.name}": {field} is {held["metadata"][field]}, not {wanted}',
                    code=409,
                    reason="Conflict",
                )

    def check(self, address: Address, preconditions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer as a dry run does: whether the object is there and the one that is meant."""
        self._check(address, self.held(address), preconditions)
        return {}

    def bind(self, address: Address, binding: Mapping[str, Any]) -> dict[str, Any]:
        """Put a pod on a node and the Binding's annotations onto the pod, unless it is on one already."""
        held, metadata = self.held(address), binding.get("metadata") or {}
        self._check(address, held, {"uid": metadata.get("uid")})
        if (held.get("spec") or {}).get("nodeName"):
            raise Conflict(f'pod "{address.name}" is already assigned to a node', code=409, reason="Conflict")
        new = copy.deepcopy(held)
        new.setdefault("spec", {})["nodeName"] = binding["target"]["name"]
        new["metadata"].setdefault("annotations", {}).update(metadata.get("annotations") or {})
        self.update(address, new, {})
        return {}

    def delete(self, address: Address, preconditions: Mapping[str, Any]) -> dict[str, Any]:
        held = self.held(address)
        self._check(address, held, preconditions)
        if not held["metadata"].get("finalizers"):
            return self.drop(address.key())
        if "deletionTimestamp" not in held["metadata"]:
            held["metadata"]["deletionTimestamp"] = rfc3339(self._now())
            held["metadata"]["resourceVersion"] = str(self._next())
            self._record("MODIFIED", address.key(), held)
        return held

    def drop(self, key: Key) -> dict[str, Any]:
        obj = self._objects.pop(key)
        obj["metadata"]["resourceVersion"] = str(self._next())
        self._record("DELETED", key, obj)
        return obj

    def list_page(self, address: Address, query: Mapping[str, str]) -> dict[str, Any]:
        limit = int(query.get("limit", "0"))
        if token := query.get("continue"):
            if token not in self._pages:
                raise Gone("the provided continue parameter is too old", code=410, reason="Expired")
            items, version = self._pages.pop(token)
        else:
            version = self.version
            found = sorted(
                (key, obj)
                for key, obj in self._objects.items()
                if address.holds(key) and selected(obj, query)
            )
            items = [copy.deepcopy(obj) for _, obj in found]
        metadata = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            token = uuid.uuid4().hex
            self._pages[token] = (items[limit:], version)
            metadata["continue"] = token
            items = items[:limit]
        return {"kind": "List", "apiVersion": address.group, "metadata": metadata, "items": items}


def selected(obj: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether an object answers to the labelSelector and fieldSelector of a query (`=`, `==`, `!=`, exists)."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    return all(_holds(term, labels.get) for term in _terms(query.get("labelSelector", ""))) and all(
        _holds(term, lambda name: _field(obj, name) or "") for term in _terms(query.get("fieldSelector", ""))
    )


def _terms(selector: str) -> list[str]:
    if "(" in selector:
        raise Invalid(f"the fake knows no set-based selectors: {selector}", code=400, reason="BadRequest")
    return [term for term in selector.split(",") if term]


def _holds(term: str, value_of: Callable[[str], Any]) -> bool:
    if "!=" in term:
        name, _, wanted = term.partition("!=")
        return bool(value_of(name) != wanted)
    if "=" in term:
        name, _, wanted = term.replace("==", "=").partition("=")
        return bool(value_of(name) == wanted)
    return value_of(term) is not None


def _field(obj: Mapping[str, Any], dotted: str) -> Any:
    value: Any = obj
    for word in dotted.split("."):
        value = value.get(word) if isinstance(value, Mapping) else None
    return value
