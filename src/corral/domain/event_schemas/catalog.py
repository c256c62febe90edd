"""The schemas of all event types, and the check of an event's data against its own.

The reference of events, the OpenAPI document and `GET /api/v1/events/types` are made from `EVENT_SCHEMAS`. The ledger
checks names and types in each event that is stored: one that differs from its schema is reported and stored all the
same, for the change that it tells of is real. `corral.testing.cluster` checks whole data of all events of a test.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType, inspect

from corral.domain.event_schemas import accounts, cluster, groups, instances, modules, nodes
from corral.domain.event_schemas.schema import EventData, EventSchema
from corral.domain.events import EventType

EVENT_SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    **cluster.SCHEMAS,
    **nodes.SCHEMAS,
    **accounts.SCHEMAS,
    **groups.SCHEMAS,
    **instances.SCHEMAS,
    **modules.SCHEMAS,
}


class DataField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of an event's data, as it is documented."""

    name: str
    type: str
    meaning: str
    example: Any
    required: bool


def data_fault(type: EventType, data: Mapping[str, Any], *, whole: bool = False) -> str:
    """How the data of an event differs from its schema: a field that is not in it, or of another type; `whole`: also one
    that is missing. Empty: it does not."""
    schema = EVENT_SCHEMAS.get(type)
    if schema is None:
        return "its type has no schema"
    try:
        msgspec.convert(data, schema.data if whole else _partial(schema.data))
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    return ""


@functools.cache
def _partial(kind: builtins.type[EventData]) -> builtins.type[msgspec.Struct]:
    """The same struct without required fields."""
    fields = [
        (field.name, field.type | UnsetType, msgspec.field(name=field.encode_name, default=UNSET))
        for field in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(kind.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def data_fields(type: EventType) -> list[DataField]:
    """The fields of a type's data, in their order; those that are always there come first."""
    info = inspect.type_info(EVENT_SCHEMAS[type].data)
    assert isinstance(info, inspect.StructType)
    found = [_documented(field) for field in info.fields]
    return sorted(found, key=lambda field: not field.required)


def example_data(type: EventType) -> dict[str, Any]:
    """Data of an event of this type with every field that it can have."""
    return {field.name: field.example for field in data_fields(type)}


def _documented(field: inspect.Field) -> DataField:
    schema = _described(field.type)
    return DataField(
        name=field.encode_name,
        type=_type_name(field.type),
        meaning=str(schema.get("description", "")),
        example=next(iter(schema.get("examples", ())), None),
        required=field.required,
    )


def _described(info: inspect.Type) -> Mapping[str, Any]:
    """The description and examples that were declared with a type, or with the one part of it that has them."""
    if isinstance(info, inspect.Metadata):
        return info.extra_json_schema or {}
    if isinstance(info, inspect.UnionType):
        return next((found for each in info.types if (found := _described(each))), {})
    return {}


_NAMES: Final[tuple[tuple[type[inspect.Type], str], ...]] = (
    (inspect.BoolType, "boolean"),
    (inspect.IntType, "integer"),
    (inspect.FloatType, "number"),
    (inspect.NoneType, "null"),
    (inspect.DateTimeType, "time"),
)


def _type_name(info: inspect.Type) -> str:
    """The JSON type, as people read it: `list of string`, `integer or null`."""
    match info:
        case inspect.Metadata(type=inner):
            return _type_name(inner)
        case inspect.UnionType(types=types):
            parts = [each for each in types if not _is_unset(each)]
            return " or ".join(_type_name(each) for each in parts)
        case inspect.ListType(item_type=item):
            return f"list of {_type_name(item)}"
        case inspect.DictType():
            return "object"
        case inspect.StructType(cls=cls):
            return f"object ({cls.__name__})"
        case _:
            return next((name for kind, name in _NAMES if isinstance(info, kind)), "string")


def _is_unset(info: inspect.Type) -> bool:
    return isinstance(info, inspect.CustomType) and info.cls is UnsetType
