"""The schemas in manifests/crds-kai hold whatever the structs in kube/scheduling.py read and write, and more."""

from pathlib import Path
from typing import Any

import msgspec.inspect as shape
import pytest
import yaml  # no stubs are pinned; only tests read YAML

from kube.scheduling import PodGroup, Queue, Topology
from sandbox.install import MANIFESTS

FOLDER = MANIFESTS / "crds-kai"
STRUCTS = [
    pytest.param("queues.yaml", Queue, id="Queue"),
    pytest.param("podgroups.yaml", PodGroup, id="PodGroup"),
    pytest.param("topologies.yaml", Topology, id="Topology"),
]


def definition(file: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / file).read_text())["spec"]
    return loaded


def schema_of(file: str) -> dict[str, Any]:
    (version,) = definition(file)["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def differences(schema: dict[str, Any], kind: shape.Type, where: str) -> list[str]:
    """List what the struct holds and the schema would drop, refuse, or let be left out."""
    match kind:
        case shape.UnionType(types=types):
            inner = [t for t in types if not isinstance(t, shape.NoneType)]
            if len(inner) == 1:
                return differences(schema, inner[0], where)
            return [] if schema.get("x-kubernetes-int-or-string") else [f"{where}: no quantity"]
        case shape.StructType():
            return struct_differences(schema, kind, where)
        case shape.VarTupleType(item_type=item):
            found = typed(schema, where, "array")
            return found or differences(schema["items"], item, f"{where}[]")
        case shape.DictType(value_type=shape.CustomType()):  # kept as it came
            return typed(schema, where, "object")
        case shape.DictType(value_type=value):
            found = typed(schema, where, "object")
            return found or differences(schema["additionalProperties"], value, f"{where}{{}}")
        case shape.StrType():
            return typed(schema, where, "string")
        case shape.IntType():
            return typed(schema, where, "integer")
        case shape.DecimalType():
            return typed(schema, where, "number")
        case shape.BoolType():
            return typed(schema, where, "boolean")
    return [f"{where}: no rule for {kind}"]


def struct_differences(schema: dict[str, Any], struct: shape.StructType, where: str) -> list[str]:
    properties = schema.get("properties", {})
    found = typed(schema, where, "object")
    for field in struct.fields:
        name = field.encode_name
        if name == "metadata":
            continue
        if name not in properties:
            found.append(f"{where}.{name}: only in the struct")
            continue
        if field.required and name not in schema.get("required", []):
            found.append(f"{where}.{name}: the struct needs it, the schema does not")
        found += differences(properties[name], field.type, f"{where}.{name}")
    return found


def typed(schema: dict[str, Any], where: str, expected: str) -> list[str]:
    return [] if schema.get("type") == expected else [f"{where}: {schema.get('type')}, not {expected}"]


@pytest.mark.parametrize(("file", "struct"), STRUCTS)
def test_the_schema_holds_whatever_the_struct_does(file: str, struct: type) -> None:
    """What we write is kept, and what the server lets in we can read."""
    assert differences(schema_of(file), shape.type_info(struct), struct.__name__) == []


def test_what_the_schema_lacks_is_found() -> None:
    """The comparison itself sees a missing field, a mistyped one and one that may be left out."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"levels": {}}}}}
    level = {"type": "object", "properties": {"nodeLabel": {"type": "integer"}}}
    levels = {"levels": {"type": "array", "items": level}}
    nearly = {"type": "object", "properties": {"spec": {"type": "object", "properties": levels}}}

    assert differences(schema, shape.type_info(Topology), "T") == ["T.spec.levels: None, not array"]
    assert differences(nearly, shape.type_info(Topology), "T") == [
        "T.spec.levels[].nodeLabel: the struct needs it, the schema does not",
        "T.spec.levels[].nodeLabel: integer, not string",
        "T.spec.levels[].alias: only in the struct",
    ]


@pytest.mark.parametrize(("file", "struct"), STRUCTS)
def test_every_field_is_described(file: str, struct: type) -> None:
    """`kubectl explain` has a sentence for the things people set or read."""
    assert definition(file)["names"]["kind"] == struct.__name__
    assert [
        f"{part}.{name}"
        for part in ("spec", "status")
        for name, inner in schema_of(file)["properties"].get(part, {}).get("properties", {}).items()
        if "description" not in inner
    ] == []


def test_nothing_has_a_default() -> None:
    """KAI's kinds have none: what is left out means the same to both schedulers only where it stays left out."""
    assert [str(path) for path in sorted(Path(FOLDER).glob("*.yaml")) if "default:" in path.read_text()] == []
