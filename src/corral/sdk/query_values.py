"""A query string as a struct, with the API's own manners: nothing unknown, nothing twice."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from corral.sdk.http_messages import HttpError, place_of

T = TypeVar("T", bound=msgspec.Struct)


def read_query(pairs: tuple[tuple[str, str], ...], kind: type[T]) -> T:
    """Raises HttpError 400 with the field. A field that is a list takes every value of its name."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        field = fields.get(name)
        if field is None:
            known = ", ".join(sorted(fields)) or "none"
            raise HttpError(
                400, f"unknown parameter '{name}'", code="UNKNOWN_FIELD", hint=f"known: {known}", field=name
            )
        if _takes_many(field.type):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise HttpError(400, f"{name} is given twice", code="INVALID_FIELD", field=name)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message, place = place_of(error)
        raise HttpError(400, message, code="INVALID_FIELD", field=place) from error


def _takes_many(kind: Any) -> bool:
    many = (
        msgspec.inspect.ListType,
        msgspec.inspect.SetType,
        msgspec.inspect.FrozenSetType,
        msgspec.inspect.VarTupleType,
    )
    return isinstance(msgspec.inspect.type_info(kind), many)
