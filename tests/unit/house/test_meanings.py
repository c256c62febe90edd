"""Every field that an operator or a client can write or read is explained, once, and nothing else is."""

from __future__ import annotations

import collections
import pathlib
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from corral.cli.document_files import read_documents
from corral.controller.http import meanings
from corral.controller.http.openapi import describe
from corral.controller.http.routes import ROUTES
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.system.config_keys import keys_of
from corral.system.config_sources import FORMATS

ROOT = pathlib.Path(__file__).resolve().parents[3]
WHERE = "explain it in src/corral/controller/http/meanings.toml, then run `make docs`"
SHORTEST = 10


@pytest.fixture(scope="module")
def described() -> Any:
    return describe(ROUTES)


def properties(described: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, schema in described.components["schemas"].items():
        for field, property in schema.get("properties", {}).items():
            yield name, field, property


def parameters(described: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described.paths.items():
        for method, operation in methods.items():
            for parameter in operation["parameters"]:
                yield f"{method.upper()} {path}", operation["tags"][0], parameter


@pytest.mark.trap("T96")
def test_every_field_of_the_api_has_a_meaning(described: Any) -> None:
    empty = [
        f"{name}.{field}"
        for name, field, property in properties(described)
        if len(property.get("description", "")) < SHORTEST
    ]
    assert not empty, WHERE


@pytest.mark.trap("T96")
def test_every_parameter_of_the_api_has_a_meaning(described: Any) -> None:
    empty = [
        f"{route} {parameter['name']}"
        for route, _, parameter in parameters(described)
        if len(parameter.get("description", "")) < SHORTEST
    ]
    assert not empty, WHERE


@pytest.mark.trap("T96")
def test_every_key_of_the_configuration_has_a_meaning() -> None:
    keys = [key for schema in FORMATS for key in keys_of(schema).values()]
    assert [key.path for key in keys if len(key.description) < SHORTEST] == []


def test_no_meaning_is_left_of_a_field_that_is_gone(described: Any) -> None:
    used = collections.defaultdict(set)
    for name, field, _ in properties(described):
        for place in meanings.field_places(name):
            used[place].add(field)
    said = {
        f"[{section}] {field}"
        for section, fields in meanings.meanings().items()
        if section not in (meanings.SAME, meanings.PARAMETERS, meanings.CODES)
        for field in fields
        if field not in used[section]
    }
    assert said == set()


def test_no_meaning_is_left_of_a_parameter_that_is_gone(described: Any) -> None:
    used = collections.defaultdict(set)
    for _, tag, parameter in parameters(described):
        used[tag].add(parameter["name"])
        used[""].add(parameter["name"])
    table = meanings.meanings()[meanings.PARAMETERS]
    sections = {tag: fields for tag, fields in table.items() if isinstance(fields, dict)}
    sections[""] = {name: text for name, text in table.items() if isinstance(text, str)}
    assert {
        f"[{tag}] {name}" for tag, names in sections.items() for name in names if name not in used[tag]
    } == set()


def test_schemas_that_share_meanings_exist(described: Any) -> None:
    same = meanings.meanings()[meanings.SAME]
    assert set(same) | set(same.values()) <= set(described.components["schemas"])


def test_the_meanings_ship_with_the_program() -> None:
    assert f"controller/http/{meanings.FILE}" in (ROOT / "pyproject.toml").read_text()


@pytest.mark.trap("T96")
def test_the_example_of_a_group_is_valid_and_has_every_field() -> None:
    path = ROOT / "docs" / "reference" / "group.yaml"
    text, (written,) = path.read_text(), read_documents(str(path))
    group = msgspec.convert(written, GroupSpec)
    assert check_group(group).name == "survival"
    fields = {
        (kind.__name__, field.encode_name)
        for kind in specs_of(GroupSpec)
        for field in msgspec.structs.fields(kind)
    }
    assert fields - set(fields_used(GroupSpec, written)) == set()
    top = re.findall(r"^(\w+):(.*)$", text, flags=re.M)
    assert {name for name, _ in top} == {field.encode_name for field in msgspec.structs.fields(GroupSpec)}


def specs_of(kind: Any) -> set[type[msgspec.Struct]]:
    """The structs that a type is made of, itself included."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = [specs_of(field.type) for field in msgspec.structs.fields(kind)]
        return {kind}.union(*inner)
    return set().union(*(specs_of(each) for each in typing.get_args(kind)))


def fields_used(kind: Any, value: Any) -> Iterator[tuple[str, str]]:
    """Each field of each struct that this document has a value for."""
    inner = [each for each in typing.get_args(kind) if specs_of(each)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in value:
                yield kind.__name__, field.encode_name
                yield from fields_used(field.type, value[field.encode_name])
    elif inner:
        items = (
            value.values()
            if typing.get_origin(kind) is dict
            else value
            if isinstance(value, list)
            else [value]
        )
        for each in items:
            yield from fields_used(inner[0], each)
