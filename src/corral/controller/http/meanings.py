"""Descriptions of the API's fields, parameters and error codes, from `meanings.toml` beside this file.

The OpenAPI document shows them, so they ship with the program. A description that is declared with the type, in code,
has precedence.
"""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from typing import Any, Final

FILE: Final = "meanings.toml"
ANYWHERE: Final = "*"
PARAMETERS: Final = "parameters"
SAME: Final = "same"
CODES: Final = "codes"


@functools.cache
def meanings() -> Mapping[str, Mapping[str, Any]]:
    """By schema, then by field."""
    return tomllib.loads(importlib.resources.files(__package__).joinpath(FILE).read_text())


def code_meanings() -> Mapping[str, str]:
    """What each error code means, by its name."""
    return meanings()[CODES]


def field_places(schema: str) -> list[str]:
    """The sections in which a field of this schema is looked up, the first that has it counts."""
    like = meanings()[SAME].get(schema)
    return [schema, *([like] if like else []), ANYWHERE]


def parameter_places(tag: str) -> list[Mapping[str, Any]]:
    """The tables in which a parameter of a route with this tag is looked up."""
    table = meanings()[PARAMETERS]
    return [table.get(tag, {}), table]


def explain_fields(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Give each property a description, where one is known."""
    for name, schema in schemas.items():
        for field, property in schema.get("properties", {}).items():
            found = own_description(property) or next(
                (text for place in field_places(name) if (text := meanings().get(place, {}).get(field))), ""
            )
            if found:
                property["description"] = found


def explain_parameter(parameter: dict[str, Any], tag: str) -> dict[str, Any]:
    """The parameter with a description, where one is known."""
    known = parameter.get("description") or own_description(parameter["schema"])
    found = known or next((t for place in parameter_places(tag) if (t := place.get(parameter["name"]))), "")
    return {**parameter, "description": found} if found else parameter


def own_description(schema: Mapping[str, Any]) -> str:
    """The description of the type, also of one that may be null."""
    candidates = [schema, *schema.get("anyOf", ())]
    return next((str(each["description"]) for each in candidates if "description" in each), "")
