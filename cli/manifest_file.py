"""A file of Kubernetes objects, as `simulate` takes it: YAML or JSON, several documents, Jobs as the pods that they make.

What is wrong with a file is one sentence that names file, document, field and what would be right, and ends the command:
half a file simulated would be an answer to another question.
"""

import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from cli.failure import Exit, Failure
from kube.nodehealth import NodeHealth
from kube.scheduling import PodGroup, PriorityClass, Queue, Topology
from kube.storage import PersistentVolumeClaim
from kube.timestamps import rfc3339
from kube.types import Node, Pod

MOST_BYTES: Final = 8 << 20
MOST_VALUES: Final = 2_000_000
"""Aliases may make a small file large: so many values are looked at, and no more."""
MOST_PODS: Final = 20_000

PLAIN: Final[dict[str, tuple[str, Any, bool]]] = {
    "Pod": ("v1", Pod, True),
    "Node": ("v1", Node, False),
    "PersistentVolumeClaim": ("v1", PersistentVolumeClaim, True),
    "Queue": ("scheduling.run.ai/v2", Queue, False),
    "PodGroup": ("scheduling.run.ai/v2alpha2", PodGroup, True),
    "Topology": ("kai.scheduler/v1alpha1", Topology, False),
    "PriorityClass": ("scheduling.k8s.io/v1", PriorityClass, False),
    "NodeHealth": ("nodemend.dev/v1alpha1", NodeHealth, False),
}
"""apiVersion, how it is read, whether it is in a namespace."""
MAKERS: Final[dict[str, tuple[str, str]]] = {
    "Job": ("batch/v1", "parallelism"),
    "Deployment": ("apps/v1", "replicas"),
    "ReplicaSet": ("apps/v1", "replicas"),
    "StatefulSet": ("apps/v1", "replicas"),
}
"""What makes pods of a template, and how many: apiVersion and the field of the spec."""
PASSED_BY: Final = frozenset(
    {"Namespace", "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"}
)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""In C where it was built, which is ten times as fast."""
QUANTITIES: Final = frozenset({"limits", "requests", "capacity", "allocatable", "overhead"})


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a file adds. `typed`: objects by kind; `raw_pods`: each pod whole; `owners`: what makes pods, whole."""

    typed: Mapping[str, tuple[Any, ...]]
    raw_pods: Mapping[str, msgspec.Raw]
    owners: tuple[dict[str, Any], ...]
    passed_by: tuple[str, ...]


def read_manifest(path: Path, namespace: str, now: datetime) -> Manifest:
    """Read a file (`-`: standard input). `namespace`: of objects that name none. Raises Failure."""
    typed: dict[str, list[Any]] = {}
    raw_pods: dict[str, msgspec.Raw] = {}
    owners: list[dict[str, Any]] = []
    passed_by: list[str] = []
    for where, raw in _objects(path):
        kind = raw["kind"]
        if kind in PASSED_BY:
            passed_by.append(f"{kind} {raw['metadata']['name']}")
            continue
        meta = raw["metadata"]
        if kind in MAKERS or PLAIN[kind][2]:
            meta.setdefault("namespace", namespace)
        meta.setdefault("uid", f"simulated-{kind}-{meta.get('namespace', '')}-{meta['name']}")
        meta["creationTimestamp"] = meta.get("creationTimestamp") or rfc3339(now)
        pods = [(where, raw)] if kind == "Pod" else []
        if kind in MAKERS:
            owners.append(raw)
            pods = [(f"{where}, its pod template", pod) for pod in _pods_of(raw, where)]
        elif kind != "Pod":
            typed.setdefault(kind, []).append(_typed(raw, where))
        for at, pod in pods:
            pod["status"] = {
                "phase": "Running" if pod["spec"].get("nodeName") else "Pending",
                **(pod.get("status") or {}),
            }
            typed.setdefault("Pod", []).append(_typed(pod, at))
            raw_pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = msgspec.Raw(
                msgspec.json.encode(pod)
            )
        if len(raw_pods) > MOST_PODS:
            raise _bad(
                where, f"with it there are more than {MOST_PODS} pods, which is more than is simulated"
            )
    return Manifest(
        typed={kind: tuple(objects) for kind, objects in typed.items()},
        raw_pods=raw_pods,
        owners=tuple(owners),
        passed_by=tuple(passed_by),
    )


def _bad(where: str, why: str) -> Failure:
    return Failure(f"{where}: {why}", Exit.BAD_USE)


def _text(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise _bad(str(path), f"cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise _bad(str(path), f"is larger than {MOST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _bad(str(path), f"is no UTF-8 text: {error}") from error


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give each object with the words that name its place; lists are taken apart."""
    text, number, found = _text(path), 0, False
    documents = yaml.load_all(text, Loader=_LOADER)  # JSON is YAML too
    while True:
        number += 1
        where = f"{path} document {number}"
        try:
            document = next(documents)
        except StopIteration:
            break
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise _bad(where, f"is no YAML: {' '.join(str(error).split())}") from error
        if document is None:
            continue
        document = _plain(document, where)
        listed = isinstance(document, dict) and str(document.get("kind", "")).endswith("List")
        items = document.get("items") if listed else [document]
        if not isinstance(items, list):
            raise _bad(where, "field items must be a list of objects")
        for index, item in enumerate(items):
            at = f"{where} item {index}" if listed else where
            yield _checked(item, at)
            found = True
    if not found:
        raise _bad(str(path), "holds no object; Pods, Jobs, Queues, PodGroups, Nodes would be right")


def _plain(document: Any, where: str) -> Any:
    """Give the document as JSON has it: timestamps as text, every key a string."""
    left, stack = MOST_VALUES, [document]
    while stack:
        value = stack.pop()
        left -= 1
        if left < 0:
            raise _bad(where, f"holds more than {MOST_VALUES} values, or holds itself")
        if isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, list):
            stack += value
    try:
        return msgspec.json.decode(msgspec.json.encode(document))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _bad(where, f"is no Kubernetes object: {error}") from error


def _checked(raw: Any, where: str) -> tuple[str, dict[str, Any]]:
    """Hold an object against what every object must have. Raises Failure."""
    if not isinstance(raw, dict):
        raise _bad(where, f"is {type(raw).__name__}, must be an object with apiVersion, kind and metadata")
    kind, version = raw.get("kind"), raw.get("apiVersion")
    known = {name: row[0] for name, row in (*PLAIN.items(), *MAKERS.items())}
    if not isinstance(kind, str) or (kind not in known and kind not in PASSED_BY):
        raise _bad(
            where,
            f"field kind is {kind!r}, which is not simulated: must be one of {', '.join(sorted(known))}",
        )
    if kind in known and version != known[kind]:
        raise _bad(where, f"field apiVersion of a {kind} is {version!r}: must be {known[kind]}")
    meta = raw.get("metadata")
    if not isinstance(meta, dict):
        raise _bad(where, f"field metadata of a {kind} is {meta!r}: must be an object with a name")
    if not meta.get("name") and isinstance(meta.get("generateName"), str):
        meta["name"] = f"{meta['generateName']}0"
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise _bad(where, f"field metadata.name of a {kind} is {meta.get('name')!r}: must be a name")
    if not isinstance(raw.setdefault("spec", {}), dict):
        raise _bad(where, f"field spec of {kind} {meta['name']} is {raw['spec']!r}: must be an object")
    return where, _without_nulls(raw)


def _without_nulls(value: Any, key: str = "") -> Any:
    """Take null for absent, and a bare number for a quantity, both as the API server does."""
    if isinstance(value, dict):
        whole = {name: _without_nulls(inner, name) for name, inner in value.items() if inner is not None}
        if key in QUANTITIES:
            return {
                name: str(inner) if isinstance(inner, int | float) and not isinstance(inner, bool) else inner
                for name, inner in whole.items()
            }
        return whole
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _typed(raw: dict[str, Any], where: str) -> Any:
    kind = raw["kind"]
    name = raw["metadata"]["name"]
    try:
        return msgspec.convert(raw, PLAIN[kind][1])
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$.")
        field = f"field {path.rstrip('`')} of" if path else "a field of"
        raise _bad(where, f"{field} {kind} {name}: {words[0].lower()}{words[1:]}") from error


def _pods_of(raw: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Make the pods that a Job, or another maker, would make at first."""
    kind, meta, spec = raw["kind"], raw["metadata"], raw["spec"]
    field = MAKERS[kind][1]
    count = spec.get(field, 1)
    if kind == "Job" and isinstance(spec.get("completions"), int) and isinstance(count, int):
        count = min(count, spec["completions"])
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_PODS:
        raise _bad(
            where,
            f"field spec.{field} of {kind} {meta['name']} is {count!r}: must be a whole number up to {MOST_PODS}",
        )
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise _bad(where, f"field spec.template.spec of {kind} {meta['name']} must be the spec of a pod")
    marks = template.get("metadata") or {}
    owner = {
        "apiVersion": raw["apiVersion"],
        "kind": kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    for index in range(0 if spec.get("suspend") is True else count):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{key: marks[key] for key in ("labels", "annotations") if key in marks},
                "name": f"{meta['name']}-{index}",
                "namespace": meta["namespace"],
                "uid": f"{meta['uid']}-{index}",
                "creationTimestamp": meta["creationTimestamp"],
                "ownerReferences": [owner],
            },
            "spec": dict(template["spec"]),
        }
