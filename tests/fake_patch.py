"""How the API server merges patches, for FakeApi: JSON patch, merge patch, and strategic merge of the lists we touch.

Strategic merge follows the struct tags of k8s.io/api: conditions and addresses merge by `type`, owner references by
`uid`, a Node's taints are one atomic list.
"""

import copy
from typing import Any

from kube.api import Invalid

MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "containers": "name",
    "volumes": "name",
}


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target: Any, patch: Any) -> Any:
    """Merge maps, merge keyed lists item by item (`$patch: delete|replace` honoured), replace everything else."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        elif name in MERGE_KEYS and isinstance(value, list):
            result[name] = _merge_list(result.get(name) or [], value, MERGE_KEYS[name])
        else:
            result[name] = strategic(result.get(name), value)
    return result


def _merge_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if item.get("$patch") != "replace"]
    result = [copy.deepcopy(item) for item in target]
    for item in patch:
        if merge_key not in item:
            raise Invalid(
                f"an item of the patch has no merge key {merge_key}: {item}", code=422, reason="Invalid"
            )
        place = next((i for i, held in enumerate(result) if held.get(merge_key) == item[merge_key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic({}, item))
        else:
            result[place] = strategic(result[place], item)
    return result


def json_patch(target: Any, operations: list[Any]) -> Any:
    """RFC 6902 without move and copy; a failed `test` or a path that is not there is 422, as the server answers."""
    document = copy.deepcopy(target)
    for operation in operations:
        tokens = [t.replace("~1", "/").replace("~0", "~") for t in operation["path"].split("/")[1:]]
        parent = document
        for token in tokens[:-1]:
            parent = _step(parent, token, operation)
        _operate(parent, tokens[-1], operation)
    return document


def _step(parent: Any, token: str, operation: dict[str, Any]) -> Any:
    try:
        return parent[int(token)] if isinstance(parent, list) else parent[token]
    except (KeyError, IndexError, ValueError, TypeError):
        raise Invalid(f"the path of {operation} does not exist", code=422, reason="Invalid") from None


def _operate(parent: Any, token: str, operation: dict[str, Any]) -> None:
    match operation["op"]:
        case "test":
            held = parent.get(token) if isinstance(parent, dict) else _step(parent, token, operation)
            if held != operation["value"]:
                raise Invalid(
                    f"testing value {operation['path']} failed: it is {held!r}", code=422, reason="Invalid"
                )
        case "add" if isinstance(parent, list):
            parent.insert(len(parent) if token == "-" else int(token), copy.deepcopy(operation["value"]))
        case "add":
            parent[token] = copy.deepcopy(operation["value"])
        case "replace":
            _step(parent, token, operation)
            parent[int(token) if isinstance(parent, list) else token] = copy.deepcopy(operation["value"])
        case "remove":
            _step(parent, token, operation)
            del parent[int(token) if isinstance(parent, list) else token]
        case other:
            raise Invalid(f"operation {other} is not known to the fake", code=422, reason="Invalid")
