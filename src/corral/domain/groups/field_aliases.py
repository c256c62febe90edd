"""Spellings of fields that group files of other systems use: `maxPlayers` is `max_players`, at any depth.

Only names of fields are translated; keys that an operator chose, of variables, labels or ports, stay as they are. Files are
read this way, requests to the API are not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import inspect

from corral.domain.groups.group import GroupSpec
from corral.domain.spec import invalid

_HUMP: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
OTHER_NAMES: Final[Mapping[str, str]] = {
    "ramMB": "memory_mb",
    "minimumServiceCount": "min",
    "environmentVariables": "env",
}
"""Of a group itself, as Universe calls them, beside those that differ in their spelling alone."""
UNIVERSE_FIELDS: Final = frozenset(
    {"additionalPorts", "availablePorts", "fileModifications", "hostAddress", "instanceGroups"}
)
"""Fields of Universe that no field of a group replaces by itself: a file that has one is a file of Universe."""


def with_field_names(document: Any) -> Any:
    """The document of a group with the names of fields as Corral spells them. A field that is written in two spellings is
    refused with its path; what is unknown stays, and is refused later."""
    return _translated(document, _group_type(), "")


@functools.cache
def _group_type() -> inspect.Type:
    return inspect.type_info(GroupSpec)


def _translated(value: Any, info: inspect.Type, path: str) -> Any:
    if isinstance(info, inspect.UnionType):
        return next((_translated(value, each, path) for each in info.types if _fits(each, value)), value)
    if isinstance(info, inspect.Metadata):
        return _translated(value, info.type, path)
    if isinstance(info, inspect.StructType) and isinstance(value, Mapping):
        return _fields(value, info, path)
    if isinstance(info, inspect.DictType) and isinstance(value, Mapping):
        return {key: _translated(each, info.value_type, f"{path}/{key}") for key, each in value.items()}
    if isinstance(info, inspect.VarTupleType) and isinstance(value, list):
        return [_translated(each, info.item_type, f"{path}/{at}") for at, each in enumerate(value)]
    return value


def _fits(info: inspect.Type, value: Any) -> bool:
    if isinstance(value, Mapping):
        return isinstance(info, inspect.StructType | inspect.DictType)
    return isinstance(value, list) and isinstance(info, inspect.VarTupleType)


def _fields(value: Mapping[str, Any], info: inspect.StructType, path: str) -> dict[str, Any]:
    types = {field.encode_name: field.type for field in info.fields}
    found: dict[str, Any] = {}
    for key, each in value.items():
        name = key if key in types else _name(key, types, whole=info.cls is GroupSpec)
        at = f"{path}/{name}".lstrip("/")
        if name in found:
            raise invalid(at, f"it is written twice, once as '{key}'", "leave one of them out")
        found[name] = _translated(each, types[name], at) if name in types else each
    return found


def _name(key: str, types: Mapping[str, inspect.Type], *, whole: bool) -> str:
    snake = _HUMP.sub(r"_\1", key).lower().replace("-", "_")
    if snake in types:
        return snake
    return OTHER_NAMES.get(key, key) if whole else key
