"""What a caller may see: one table of classes for the API, events, streams, logs and the events sent to nodes.

`field_classes` lists every field that is shown, by the name of the type that has it, as open, sensitive or secret.
Callers with `instances.sensitive` see everything that their other permissions let them read; for all others
`redacted` (answers) and `redacted_event` (lists of events, event streams, events that go to nodes) put
`HIDDEN` in place of what is sensitive: its presence stays visible. A field without a class is hidden as well.

Secrets are in no type that is shown, but for the answers that hand one out: those keep it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from corral.domain.access import Access
from corral.domain.events import OMITTED, Draft, Event, EventType
from corral.domain.field_classes.cluster_schemas import CLUSTER_SCHEMAS
from corral.domain.field_classes.event_data import EVENT_DATA, EVENT_DOCUMENTS, EVENT_PERMISSIONS
from corral.domain.field_classes.field_class import FieldClass
from corral.domain.field_classes.group_schemas import GROUP_SCHEMAS
from corral.domain.field_classes.log_fields import LOG_FIELDS
from corral.domain.permissions import Permission
from corral.domain.spec import invalid
from corral.domain.urls import shown_text, shown_url

T = TypeVar("T")
Hide = Callable[[Any], Any]
"""The value without what is sensitive in it; the same one when there is nothing."""

HIDDEN: Final = "•••"
SCHEMAS: Final[Mapping[str, Mapping[str, FieldClass]]] = {**GROUP_SCHEMAS, **CLUSTER_SCHEMAS}
"""By the name of a type, its subtypes included."""
_SHOWN: Final = frozenset({FieldClass.OPEN, FieldClass.SHOWN_ONCE})


def sees_all(access: Access) -> bool:
    """Whether nothing is hidden from this caller in what it may read."""
    return access.allows_everywhere(Permission.INSTANCES_SENSITIVE) or access.allows_in_all(
        Permission.INSTANCES_SENSITIVE
    )


def shown_to(access: Access, value: T) -> T:
    """A value of the API as this caller may see it."""
    return value if sees_all(access) else redacted(value)


def unseen_types(access: Access) -> frozenset[EventType]:
    """The types of events that this caller never gets. They belong to no group or node: a permission that holds within a
    scope gives none of them."""
    return frozenset(
        type for type, needed in EVENT_PERMISSIONS.items() if not access.allows_everywhere(needed)
    )


def undeclared_fields(draft: Draft) -> list[str]:
    """The fields of an event's data that have no class."""
    declared = EVENT_DATA.get(draft.type, {})
    return [name for name in draft.data if name not in declared]


def redacted(value: T) -> T:
    """A value of the API with everything in it that is sensitive hidden, at any depth."""
    hidden: T = _walked(value)
    return hidden


def redacted_document(document: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A document of plain values that describes a `kind`, with everything in it that is sensitive hidden."""
    hidden: dict[str, Any] = _walked_document(document, inspect.type_info(kind))
    return hidden


def _walked_document(value: Any, info: inspect.Type) -> Any:
    match info:
        case inspect.StructType(cls=cls, fields=fields) if isinstance(value, dict):
            classes, known = field_classes(cls), {field.encode_name: field for field in fields}
            return {
                key: _shown_item(item, known[key], classes) if key in known else HIDDEN
                for key, item in value.items()
            }
        case inspect.DictType(value_type=item) if isinstance(value, dict):
            return {key: _walked_document(each, item) for key, each in value.items()}
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [_walked_document(each, item) for each in value] if isinstance(value, list) else value
        case inspect.UnionType(types=types) if value is not None:
            fitting = next((each for each in types if _fits(each, value)), None)
            return value if fitting is None else _walked_document(value, fitting)
        case _:
            return value


def _shown_item(item: Any, field: inspect.Field, classes: Mapping[str, FieldClass]) -> Any:
    kind = classes.get(field.name, FieldClass.SENSITIVE)
    return _walked_document(item, field.type) if kind in _SHOWN else _hide(item, kind)


def _fits(info: inspect.Type, value: Any) -> bool:
    """Is the value written as this type is?"""
    if isinstance(info, inspect.StructType | inspect.DictType):
        return isinstance(value, dict)
    return isinstance(info, inspect.VarTupleType | inspect.ListType) and isinstance(value, list)


def redacted_event(event: Event) -> Event:
    """An event for callers who may not see all; the same one when nothing of it is hidden."""
    classes = EVENT_DATA.get(event.type, {})
    changed: dict[str, Any] = {}
    for name, value in event.data.items():
        kind = classes.get(name)
        if kind is FieldClass.OPEN or name == OMITTED:
            continue
        if kind is FieldClass.DOCUMENT:
            hidden = _redacted_fields(value, SCHEMAS[EVENT_DOCUMENTS[name]])
        else:
            hidden = _hide(value, kind or FieldClass.SENSITIVE)
        if hidden is not value:
            changed[name] = hidden
    return msgspec.structs.replace(event, data={**event.data, **changed}) if changed else event


def _redacted_fields(document: Any, classes: Mapping[str, FieldClass]) -> Any:
    """A flat document with its fields by these classes; the same one when nothing of it is hidden."""
    if not isinstance(document, dict):
        return _hide(document, FieldClass.SENSITIVE)
    shown = {
        name: value if (kind := classes.get(name, FieldClass.SENSITIVE)) in _SHOWN else _hide(value, kind)
        for name, value in document.items()
    }
    return document if all(map(operator.is_, shown.values(), document.values())) else shown


def refuse_hidden(value: object, *, field: str) -> None:
    """INVALID_FIELD for a document in which values were hidden from its reader: written back, the
    values would be lost. Call it when the document is known not to be deep."""
    if _holds_hidden(value):
        raise invalid(
            field,
            f"a value is '{HIDDEN}', which stands for one that its reader may not see",
            "read it with a role that sees it, or give the value",
        )


def _holds_hidden(value: object) -> bool:
    if isinstance(value, msgspec.Struct):
        return any(_holds_hidden(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, dict):
        return any(_holds_hidden(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_hidden(item) for item in value)
    return value == HIDDEN


def _walked(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _walked_struct(value)
    if isinstance(value, list | tuple):
        items = [_walked(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if isinstance(value, dict):
        walked = {key: _walked(item) for key, item in value.items()}
        return value if all(map(operator.is_, walked.values(), value.values())) else walked
    return value


def _walked_struct(value: msgspec.Struct) -> msgspec.Struct:
    changed: dict[str, Any] | None = None
    for name, hide in _steps(type(value)):
        old = getattr(value, name)
        if old is None or old == "":
            continue  # most fields of most values: there is nothing to hide
        new = hide(old)
        if new is not old:
            if changed is None:
                changed = {}
            changed[name] = new
    return value if changed is None else msgspec.structs.replace(value, **changed)


@functools.cache
def _steps(kind: type[msgspec.Struct]) -> tuple[tuple[str, Hide], ...]:
    """The fields of a type to process: those to hide, and those to descend into. Most types have neither, and a list
    of instances is long."""
    classes = field_classes(kind)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    steps: list[tuple[str, Hide]] = []
    for field in info.fields:
        how = classes.get(field.name, FieldClass.SENSITIVE)
        if how not in _SHOWN:
            steps.append((field.name, _HIDE[how]))
        elif _may_hold(field.type, frozenset({kind})):
            steps.append((field.name, _walked))
    return tuple(steps)


def _may_hold(info: inspect.Type, above: frozenset[type]) -> bool:
    """Whether a value of this type may hold something sensitive; `above` are the types that contain it."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            inner = above | {cls}
            return cls not in above and (_hides(cls) or any(_may_hold(field.type, inner) for field in fields))
        case inspect.UnionType(types=types):
            return any(_may_hold(each, above) for each in types)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return _may_hold(item, above)
        case inspect.TupleType(item_types=items):
            return any(_may_hold(each, above) for each in items)
        case inspect.DictType(value_type=item) | inspect.Metadata(type=item):
            return _may_hold(item, above)
        case _:
            return isinstance(info, inspect.AnyType | inspect.CustomType)


def _hides(kind: type) -> bool:
    """Whether a field of the type itself is hidden, in part or as a whole."""
    classes = field_classes(kind)
    names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]  # of every Struct
    return any(classes.get(name) not in _SHOWN for name in names)


@functools.cache
def field_classes(kind: type) -> Mapping[str, FieldClass]:
    """The classes of a type's fields, by its own row and those of its bases; a field without one is missing."""
    plain: type = getattr(kind, "__origin__", kind)  # of a generic type: `Page`, not `Page[TokenShape]`
    classes: dict[str, FieldClass] = {}
    for base in reversed(plain.__mro__):
        classes |= SCHEMAS.get(base.__name__, {})
    return classes


def _hide(value: Any, how: FieldClass) -> Any:
    return _HIDE[how](value)


def _hidden(value: Any) -> Any:
    if not value and not isinstance(value, int | float):
        return value  # empty: nothing to hide
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_hidden(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return HIDDEN


def _without_credentials(value: Any) -> Any:
    return shown_url(value) if isinstance(value, str) and value else _hidden(value)


def _without_addresses(value: Any) -> Any:
    """The value with the secret parts of addresses in its texts removed; the same value when there are none."""
    if isinstance(value, str):
        return shown_text(value)
    if isinstance(value, dict):
        shown = {key: _without_addresses(item) for key, item in value.items()}
        return value if all(map(operator.is_, shown.values(), value.values())) else shown
    if isinstance(value, list | tuple):
        items = [_without_addresses(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    return _walked(value)


def _shown_log_fields(value: Any) -> Any:
    return _redacted_fields(value, LOG_FIELDS)


_HIDE: Final[Mapping[FieldClass, Hide]] = {
    FieldClass.SENSITIVE: _hidden,
    FieldClass.SECRET: _hidden,
    FieldClass.URL: _without_credentials,
    FieldClass.TEXT: _without_addresses,
    FieldClass.LOG_FIELDS: _shown_log_fields,
}
