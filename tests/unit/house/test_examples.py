"""Every field and parameter of the API has an example where its type does not tell one, each is valid, and there are no others."""

from __future__ import annotations

import collections
import json
import pathlib
from typing import Any

import jsonschema_rs
import pytest

from corral.controller.http import examples
from corral.controller.http.meanings import PARAMETERS, field_places
from corral.controller.http.openapi import describe
from corral.controller.http.routes import ROUTES

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCUMENT = "urn:corral:openapi"
WHERE = "give an example in src/corral/controller/http/examples.toml"


@pytest.fixture(scope="module")
def described() -> Any:
    return describe(ROUTES)


def parameters(described: Any) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (f"{method.upper()} {path}", operation["tags"][0], parameter)
        for path, methods in described.paths.items()
        for method, operation in methods.items()
        for parameter in operation["parameters"]
    ]


def valid(schema: Any, value: Any, registry: jsonschema_rs.Registry) -> bool:
    """References lead into the document."""
    text = json.dumps(schema, default=list).replace('"#/', f'"{DOCUMENT}#/')
    return jsonschema_rs.validator_for(json.loads(text), registry=registry).is_valid(value)


@pytest.fixture(scope="module")
def registry(described: Any) -> jsonschema_rs.Registry:
    components = json.loads(json.dumps(described.components, default=list))
    return jsonschema_rs.Registry([(DOCUMENT, {"components": components})])


def test_every_field_has_an_example_or_a_type_that_tells_one(described: Any) -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in described.components["schemas"].items()
        for field, property in schema.get("properties", {}).items()
        if not examples.tells_example(property)
    ]
    assert not missing, WHERE


def test_every_parameter_has_an_example_or_a_type_that_tells_one(described: Any) -> None:
    missing = [
        f"{route} {parameter['name']}"
        for route, _, parameter in parameters(described)
        if "example" not in parameter and not examples.tells_example(parameter["schema"])
    ]
    assert not missing, WHERE


def test_every_example_of_a_field_is_valid(described: Any, registry: jsonschema_rs.Registry) -> None:
    wrong = [
        f"{name}.{field}: {value!r}"
        for name, schema in described.components["schemas"].items()
        for field, property in schema.get("properties", {}).items()
        for value in property.get("examples", ())
        if not valid(property, value, registry)
    ]
    assert wrong == []


def test_every_whole_example_is_valid(described: Any, registry: jsonschema_rs.Registry) -> None:
    shown = {name: schema for name, schema in described.components["schemas"].items() if "examples" in schema}
    wrong = {
        name: schema["examples"][0]
        for name, schema in shown.items()
        if not valid({"$ref": f"#/components/schemas/{name}"}, schema["examples"][0], registry)
    }
    assert wrong == {}
    assert len(shown) > 100


def test_every_example_of_a_parameter_is_valid(described: Any, registry: jsonschema_rs.Registry) -> None:
    wrong = [
        f"{route} {parameter['name']}: {parameter['example']!r}"
        for route, _, parameter in parameters(described)
        if "example" in parameter and not valid(parameter["schema"], parameter["example"], registry)
    ]
    assert wrong == []


def test_no_example_is_left_of_a_field_that_is_gone(described: Any) -> None:
    used = collections.defaultdict(set)
    for name, schema in described.components["schemas"].items():
        for field, property in schema.get("properties", {}).items():
            for place in field_places(name) if "examples" in property else ():
                used[place].add(field)
    table = examples.examples()
    left = {
        f"[{section}] {field}"
        for section, fields in table.items()
        if section not in (PARAMETERS, examples.WHOLE)
        for field in fields
        if field not in used[section]
    }
    assert left == set()
    assert set(table[examples.WHOLE]) <= set(described.components["schemas"])


def test_no_example_is_left_of_a_parameter_that_is_gone(described: Any) -> None:
    used = collections.defaultdict(set)
    for _, tag, parameter in parameters(described):
        if "example" in parameter:
            used[tag].add(parameter["name"])
            used[""].add(parameter["name"])
    table = examples.examples()[PARAMETERS]
    sections = {tag: fields for tag, fields in table.items() if isinstance(fields, dict)}
    sections[""] = {name: values for name, values in table.items() if isinstance(values, list)}
    assert {f"[{tag}] {name}" for tag in sections for name in sections[tag] if name not in used[tag]} == set()


def test_the_examples_ship_with_the_program() -> None:
    assert f"controller/http/{examples.FILE}" in (ROOT / "pyproject.toml").read_text()
