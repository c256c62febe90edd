"""Examples of the API's fields and parameters, from `examples.toml` beside this file, and of whole bodies, which are put
together from those of their fields.

The OpenAPI document shows them, so they ship with the program. An example that is declared with the type, in code, has
precedence.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from corral.controller.http.meanings import PARAMETERS, field_places

FILE: Final = "examples.toml"
WHOLE: Final = "whole"
"""The section with bodies whose fields alone make no good example."""
TIME: Final = "2026-01-31T12:00:00Z"
_DEEPEST: Final = 8
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}

Schema = dict[str, Any]


@functools.cache
def examples() -> Mapping[str, Mapping[str, Any]]:
    """By schema, then by field: the values of which the first that fits is shown."""
    return tomllib.loads(importlib.resources.files(__package__).joinpath(FILE).read_text())


def add_examples(schemas: Mapping[str, Schema], *, whole: Iterable[str]) -> None:
    """Give each property an example that does not tell one by its type, and a whole one to the schemas that are named."""
    for name, schema in schemas.items():
        for field, property in schema.get("properties", {}).items():
            if tells_example(property):
                continue
            places = (examples().get(place, {}).get(field, ()) for place in field_places(name))
            found = next((value for values in places for value in values if fits(property, value)), None)
            if found is not None:
                property["examples"] = [found]
    for name in whole:
        if "properties" in schemas.get(name, {}):
            made = examples()[WHOLE].get(name) or assembled(schemas[name], schemas)
            schemas[name]["examples"] = [made]


def with_example(parameter: dict[str, Any], tag: str) -> dict[str, Any]:
    """The parameter with an example, where its type does not tell one."""
    schema = parameter["schema"]
    if tells_example(schema):
        return parameter
    table = examples()[PARAMETERS]
    places = (table.get(tag, {}).get(parameter["name"], ()), table.get(parameter["name"], ()))
    found = next((value for values in places for value in values if fits(schema, value)), None)
    return parameter if found is None else {**parameter, "example": found}


def tells_example(schema: Schema) -> bool:
    """Whether a reader sees from the schema alone what a value looks like."""
    if any(word in schema for word in ("$ref", "enum", "const", "examples")):
        return True
    if _has_default(schema):
        return True
    if "anyOf" in schema:
        return all(each == {"type": "null"} or tells_example(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return bool(schema.get("items")) and tells_example(schema["items"])
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return "properties" in schema or (isinstance(inner, dict) and bool(inner) and tells_example(inner))
    return schema.get("type") in ("boolean", "null") or schema.get("format") == "date-time"


def fits(schema: Schema, value: Any) -> bool:
    """Whether a value is of the type that a schema describes, and within its bounds."""
    if "anyOf" in schema:
        return any(fits(each, value) for each in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = _KINDS.get(schema.get("type", ""))
    if kinds is None:
        return "$ref" not in schema
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return False
    if isinstance(value, str):
        return bool(re.search(schema.get("pattern", ""), value))
    if isinstance(value, list):
        return all(fits(schema.get("items") or {}, each) for each in value)
    if isinstance(value, dict):
        inner = schema.get("additionalProperties")
        return not isinstance(inner, dict) or all(fits(inner, each) for each in value.values())
    low, high = schema.get("minimum", value), schema.get("maximum", value)
    return bool(low <= value <= high)


def assembled(schema: Schema, schemas: Mapping[str, Schema], *, depth: int = 0) -> Any:
    """An example of a schema: of an object the fields that are always there, each as its own example says."""
    known = next(_told(schema), _NOTHING)
    if known is not _NOTHING:
        return known
    if "$ref" in schema:
        return assembled(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth=depth + 1)
    if "anyOf" in schema:
        if depth > _DEEPEST and {"type": "null"} in schema["anyOf"]:
            return None
        chosen = next(each for each in schema["anyOf"] if each != {"type": "null"})
        return assembled(chosen, schemas, depth=depth + 1)
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            return [assembled(items, schemas, depth=depth + 1)] if items and depth < _DEEPEST else []
        case "object":
            required = schema.get("required", ())
            properties = schema.get("properties", {})
            return {name: assembled(properties[name], schemas, depth=depth + 1) for name in required}
        case "boolean":
            return True
        case "null":
            return None
    return TIME if schema.get("format") == "date-time" else ""


_NOTHING: Final = object()


def _told(schema: Schema) -> Iterator[Any]:
    """Values that stand in the schema itself."""
    yield from schema.get("examples", ())
    if "const" in schema:
        yield schema["const"]
    yield from schema.get("enum", ())
    if _has_default(schema):
        yield schema["default"]


def _has_default(schema: Schema) -> bool:
    """Whether it has a default that shows what a value looks like."""
    return schema.get("default") not in (None, "", (), [], {})
