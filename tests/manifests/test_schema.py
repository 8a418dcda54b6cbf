"""The schemas in manifests/crds and the structs in kube/ describe the same objects, field by field, so they cannot drift."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as shape
import pytest
import yaml  # no stubs are pinned; only this test reads YAML

from checks.finding import Action, Effect, PartKind, Severity, Urgency
from controller.terms import parse_limit
from kube.nodehealth import HealthFinding, HealthPart, NodeHealth
from kube.policy import PolicySpec, RemediationPolicy
from kube.remediation import Remediation

CRDS = Path(__file__).parents[2] / "manifests" / "crds"

STRUCTS = [
    pytest.param("nodehealths.yaml", NodeHealth, id="NodeHealth"),
    pytest.param("remediations.yaml", Remediation, id="Remediation"),
    pytest.param("remediationpolicies.yaml", RemediationPolicy, id="RemediationPolicy"),
]


def crd(file: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CRDS / file).read_text())
    return loaded


def schema_of(file: str) -> dict[str, Any]:
    (version,) = crd(file)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def differences(schema: dict[str, Any], kind: shape.Type, where: str) -> list[str]:
    """List what the schema says otherwise than the struct."""
    match kind:
        case shape.UnionType(types=types):
            (inner,) = [t for t in types if not isinstance(t, shape.NoneType)]
            return differences(schema, inner, where)
        case shape.StructType():
            return struct_differences(schema, kind, where)
        case shape.VarTupleType(item_type=item):
            return wanted(schema, where, type="array") + differences(schema["items"], item, f"{where}[]")
        case shape.DictType(value_type=value):
            of_values = differences(schema["additionalProperties"], value, f"{where}{{}}")
            return wanted(schema, where, type="object") + of_values
        case shape.EnumType(cls=cls):
            return wanted(schema, where, type="string", enum=sorted(member.value for member in cls))
        case shape.DateTimeType():
            return wanted(schema, where, type="string", format="date-time")
        case shape.StrType():
            return wanted(schema, where, type="string")
        case shape.IntType():
            return wanted(schema, where, type="integer", format="int64")
        case shape.BoolType():
            return wanted(schema, where, type="boolean")
    return [f"{where}: no rule for {kind}"]


def struct_differences(schema: dict[str, Any], struct: shape.StructType, where: str) -> list[str]:
    fields = {field.encode_name: field for field in struct.fields}
    properties = own_properties(schema)
    required = {name for name, field in fields.items() if field.required}
    found = [f"{where}.{name}: only in the schema" for name in properties.keys() - fields.keys()]
    found += [f"{where}.{name}: only in the struct" for name in fields.keys() - properties.keys()]
    if set(schema.get("required", [])) != required:
        found.append(f"{where}: required is {schema.get('required')}, the struct wants {sorted(required)}")
    for name in sorted((fields.keys() & properties.keys()) - {"metadata"}):
        found += differences(properties[name], fields[name].type, f"{where}.{name}")
    return found


def own_properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out what every Kubernetes object has at its top and no struct of ours names."""
    properties: dict[str, Any] = schema.get("properties", {})
    if "apiVersion" not in properties:
        return properties
    return {name: value for name, value in properties.items() if name not in {"apiVersion", "kind"}}


def wanted(schema: dict[str, Any], where: str, **values: Any) -> list[str]:
    return [
        f"{where}.{key}: {schema.get(key)}, the struct wants {value}"
        for key, value in values.items()
        if (sorted(schema.get(key, [])) if isinstance(value, list) else schema.get(key)) != value
    ]


@pytest.mark.parametrize(("file", "struct"), STRUCTS)
def test_schema_and_struct_name_the_same_fields(file: str, struct: type) -> None:
    """Every field of the struct stands in the schema with its type, and the schema has no other."""
    assert differences(schema_of(file), shape.type_info(struct), struct.__name__) == []


def test_a_field_of_the_struct_that_the_schema_lacks_is_found() -> None:
    """The comparison itself sees a missing, a surplus and a mistyped field."""
    schema = {
        "type": "object",
        "required": ["kind"],
        "properties": {
            name: {"type": "string"} for name in ("kind", "pci", "uuid", "index", "serial", "colour")
        },
    }

    assert differences(schema, shape.type_info(HealthPart), "HealthPart") == [
        "HealthPart.colour: only in the schema",
        "HealthPart.name: only in the struct",
        "HealthPart.index.type: string, the struct wants integer",
        "HealthPart.index.format: None, the struct wants int64",
    ]


@pytest.mark.parametrize(("file", "struct"), STRUCTS)
def test_every_field_is_described_and_bounded(file: str, struct: type) -> None:
    """`kubectl explain` has a sentence for the things people set or read, and no list or string is endless."""
    assert list(unbounded(schema_of(file), struct.__name__)) == []


def unbounded(schema: dict[str, Any], where: str) -> list[str]:
    found = []
    if schema["type"] == "array" and "maxItems" not in schema:
        found.append(f"{where}: no maxItems")
    if schema["type"] == "string" and not schema.keys() & {"maxLength", "enum", "format"}:
        found.append(f"{where}: no maxLength")
    for name, inner in own_properties(schema).items():
        if name != "metadata":
            found += unbounded(inner, f"{where}.{name}")
            if where.count(".") == 1 and "description" not in inner:
                found.append(f"{where}.{name}: no description")
    if "items" in schema:
        found += unbounded(schema["items"], f"{where}[]")
    return found


@pytest.mark.parametrize(
    ("field", "values"),
    [
        pytest.param("severity", Severity, id="severity"),
        pytest.param("effect", Effect, id="effect"),
        pytest.param("urgency", Urgency, id="urgency"),
        pytest.param("action", Action, id="action"),
    ],
)
@pytest.mark.parametrize(
    ("file", "path"),
    [
        pytest.param("nodehealths.yaml", ("status", "findings"), id="in NodeHealth"),
        pytest.param("remediations.yaml", ("spec", "evidence"), id="latched in Remediation.spec"),
        pytest.param("remediations.yaml", ("status", "evidence"), id="standing in Remediation.status"),
    ],
)
def test_findings_take_exactly_the_words_of_the_checks(
    file: str, path: tuple[str, str], field: str, values: type[Severity]
) -> None:
    """What a check can say, the API server accepts, and nothing else."""
    top, leaf = path
    finding = schema_of(file)["properties"][top]["properties"][leaf]["items"]["properties"]

    assert [member.value for member in values] == finding[field]["enum"]
    assert [kind.value for kind in PartKind] == finding["part"]["properties"]["kind"]["enum"]


def test_a_finding_has_the_same_schema_wherever_it_stands() -> None:
    """Evidence is copied from NodeHealth into a Remediation: what fits into one fits into the other."""
    health = schema_of("nodehealths.yaml")["properties"]["status"]["properties"]["findings"]
    story = schema_of("remediations.yaml")["properties"]
    latched = story["spec"]["properties"]["evidence"]
    standing = story["status"]["properties"]["evidence"]

    assert health["items"]["properties"] == latched["items"]["properties"] == standing["items"]["properties"]
    assert health["maxItems"] == latched["maxItems"] == standing["maxItems"]
    assert set(health["items"]["properties"]) == {
        f.encode_name for f in msgspec.structs.fields(HealthFinding)
    }


def with_defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """Fill an empty object as the API server does."""
    filled: dict[str, Any] = {}
    for name, inner in schema["properties"].items():
        if inner["type"] == "object" and "properties" in inner:
            filled[name] = with_defaults(inner)
        elif "default" in inner:
            filled[name] = items_with_defaults(inner)
    return filled


def items_with_defaults(schema: dict[str, Any]) -> Any:
    default = schema["default"]
    if schema["type"] == "array" and schema["items"]["type"] == "object":
        return [{**with_defaults(schema["items"]), **item} for item in default]
    return default


def test_an_empty_policy_means_the_same_to_the_server_and_to_the_controller() -> None:
    """The defaults that the API server writes are those that the controller would take."""
    schema = schema_of("remediationpolicies.yaml")["properties"]["spec"]

    assert msgspec.json.decode(msgspec.json.encode(PolicySpec())) == with_defaults(schema)


LIMITS = [
    *[(text, True) for text in ("1%", "10%", "99%", "100%", "1", "3", "10", "101", "99999")],
    *[(text, False) for text in ("", "0", "0%", "101%", "1000%", "03", "07%", "100000", "-1", "+1", "10.5%")],
    *[(text, False) for text in ("1e3", "10 %", " 10%", "10%\n", "%", "ten", "٣", "10%%", "10%3")],
]


@pytest.mark.parametrize("field", ["budget.maxUnavailable", "budget.maxQuarantined", "breaker.threshold"])
@pytest.mark.parametrize(("text", "good"), LIMITS)
def test_server_and_controller_read_the_same_limits(field: str, text: str, good: bool) -> None:
    """A limit that the schema admits is one that the controller can read, and the other way round."""
    group, name = field.split(".")
    spec = schema_of("remediationpolicies.yaml")["properties"]["spec"]
    schema = spec["properties"][group]["properties"][name]
    pattern = schema["pattern"].replace("$", r"\Z")  # the server's `$` is the very end of the text

    assert (bool(re.search(pattern, text)) and len(text) <= schema["maxLength"]) == good
    with nullcontext() if good else pytest.raises(ValueError, match="is no limit"):
        parse_limit(text)


@pytest.mark.parametrize(("file", "struct"), STRUCTS)
def test_kubectl_get_shows_a_table(file: str, struct: type) -> None:
    """Each column's path leads to a field of the schema, so that none stays empty by a slip."""
    definition = crd(file)["spec"]
    (version,) = definition["versions"]

    assert struct.__name__ == definition["names"]["kind"]
    assert definition["scope"] == "Cluster"
    assert version["subresources"] == {"status": {}}
    for column in version["additionalPrinterColumns"]:
        if not column["jsonPath"].startswith(".metadata."):
            assert path_exists(schema_of(file), column["jsonPath"]), column


def path_exists(schema: dict[str, Any], path: str) -> bool:
    for step in path.removeprefix(".").split("."):
        name = step.removesuffix("[0]")
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
        if step.endswith("[0]"):
            schema = schema["items"]
    return True
