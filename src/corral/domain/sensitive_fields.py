"""Sensitive fields, which not every caller may see: one table for the API, events, streams and the events
sent to nodes.

A field is listed once, by the name of the type that has it, and is hidden wherever that type is shown.
Callers with `instances.sensitive` see everything that their other permissions let them read; for all others
`redacted` (answers) and `redacted_event` (lists of events, event streams, events that go to nodes) put
`HIDDEN` in place of the value: its presence stays visible.

Secrets are not covered: tokens, keys and values of secret variables are in no type that is shown at all.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from corral.domain.access import Access
from corral.domain.events import Event, EventType
from corral.domain.permissions import Permission
from corral.domain.spec import invalid
from corral.domain.urls import shown_text, shown_url

T = TypeVar("T")

HIDDEN: Final = "•••"


class Sensitive(enum.Enum):
    """Which part of a field is hidden."""

    VALUE = enum.auto()
    """Every text in it; names (of variables) and numbers of items stay."""
    URL = enum.auto()
    """User, password, query and fragment of an address; where it leads stays."""
    TEXT = enum.auto()
    """The same of every address in free text."""


FIELDS: Final[Mapping[str, Mapping[str, Sensitive]]] = {
    "GroupSpec": {
        "command": Sensitive.VALUE,
        "args": Sensitive.VALUE,
        "env": Sensitive.VALUE,
        "variables": Sensitive.VALUE,
        "properties": Sensitive.VALUE,
    },
    "Plan": {
        "command": Sensitive.VALUE,
        "args": Sensitive.VALUE,
        "env": Sensitive.VALUE,
        "variables": Sensitive.VALUE,
    },
    "TemplateSettings": {"variables": Sensitive.VALUE},
    "FieldChange": {"before": Sensitive.VALUE, "after": Sensitive.VALUE},
    "FieldChangeShape": {"before": Sensitive.VALUE, "after": Sensitive.VALUE},
    "SettingChange": {"old": Sensitive.VALUE, "new": Sensitive.VALUE},
    "InstanceShape": {"variables": Sensitive.VALUE},
    "JvmSpec": {"args": Sensitive.VALUE},
    "MaintenanceSpec": {"bypass": Sensitive.VALUE},
    "PlanJvm": {"args": Sensitive.VALUE},
    "PatchSpec": {"value": Sensitive.VALUE},
    "StopRungSpec": {"command": Sensitive.VALUE},
    "ProbeSpec": {"command": Sensitive.VALUE, "path": Sensitive.URL},
    "VariableSpec": {"default": Sensitive.VALUE, "choices": Sensitive.VALUE},
    "ArtifactSpec": {"url": Sensitive.URL},
    "PlanArtifact": {"url": Sensitive.URL},
    "CatalogShape": {"url": Sensitive.URL},
    "ModuleChange": {
        "jvm_args_added": Sensitive.VALUE,
        "jvm_args_removed": Sensitive.VALUE,
        "args_added": Sensitive.VALUE,
        "args_removed": Sensitive.VALUE,
    },
    "Overridden": {"name": Sensitive.VALUE},
    "AuditShape": {"before": Sensitive.VALUE, "after": Sensitive.VALUE},
    "CacheTrouble": {"subject": Sensitive.TEXT},
    "CrashShape": {"signature": Sensitive.TEXT},
    "DeploymentFailure": {"lines": Sensitive.VALUE},
    "DeploymentShape": {"outcome": Sensitive.TEXT, "undone": Sensitive.TEXT, "waiting": Sensitive.TEXT},
    "DecisionShape": {
        "cause": Sensitive.TEXT,
        "causes": Sensitive.TEXT,
        "root": Sensitive.TEXT,
        "inputs": Sensitive.TEXT,
    },
    "Alternative": {"numbers": Sensitive.TEXT},
    "WouldChangeShape": {"condition": Sensitive.TEXT, "effect": Sensitive.TEXT},
}
"""By the name of a type, its subtypes included."""

TEXT_FIELDS: Final[Mapping[str, Sensitive]] = dict.fromkeys(
    (
        "admission_reason",
        "detail",
        "dropped",
        "error",
        "message",
        "paused_reason",
        "reason",
        "summary",
        "why",
    ),
    Sensitive.TEXT,
)
"""Names that hold sentences in any type: programs, modules and nodes contribute to them."""

EVENT_FIELDS: Final[Mapping[EventType, Mapping[str, Sensitive]]] = {
    EventType.INSTANCE_COMMAND: {"line": Sensitive.VALUE},
    EventType.CATALOG_UPDATED: {"url": Sensitive.URL},
    EventType.MODULE_UPGRADE_ROLLED_BACK: {"story": Sensitive.VALUE},
    EventType.NODE_ERROR_REPORTED: {"message": Sensitive.VALUE, "context": Sensitive.TEXT},
}
"""In an event's `data`, beside those of `TEXT_FIELDS`: exceptions of modules and errors of nodes are otherwise only
in logs."""

_EVENT_TEXT_FIELDS: Final = {**TEXT_FIELDS, "exit": Sensitive.TEXT}

EVENT_PERMISSIONS: Final[Mapping[EventType, Permission]] = {
    EventType.TOKEN_CREATED: Permission.TOKENS_READ,
    EventType.TOKEN_REVOKED: Permission.TOKENS_READ,
    EventType.USER_CREATED: Permission.USERS_READ,
    EventType.USER_UPDATED: Permission.USERS_READ,
    EventType.USER_LOCKED: Permission.USERS_READ,
    EventType.USER_UNLOCKED: Permission.USERS_READ,
    EventType.USER_DELETED: Permission.USERS_READ,
    EventType.ROLE_CREATED: Permission.ROLES_READ,
    EventType.ROLE_UPDATED: Permission.ROLES_READ,
    EventType.ROLE_DELETED: Permission.ROLES_READ,
    EventType.JOIN_TOKEN_CREATED: Permission.NODES_ENROL,
    EventType.JOIN_TOKEN_USED: Permission.NODES_ENROL,
    EventType.JOIN_TOKEN_REVOKED: Permission.NODES_ENROL,
}
"""Types that need a permission of their own; a caller without it never gets them."""

NEVER_ON_NODES: Final = frozenset(EVENT_PERMISSIONS) | {EventType.INSTANCE_COMMAND}
"""Types that no node gets, whatever its modules subscribe to: credentials, and what people type."""


def sees_all(access: Access) -> bool:
    """Whether nothing is hidden from this caller in what it may read."""
    return access.allows_everywhere(Permission.INSTANCES_SENSITIVE) or access.allows_in_all(
        Permission.INSTANCES_SENSITIVE
    )


def unseen_types(access: Access) -> frozenset[EventType]:
    """The types of events that this caller never gets."""
    return frozenset(type for type, needed in EVENT_PERMISSIONS.items() if not access.allows(needed))


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
            rules, types = _rules(cls), {field.encode_name: field.type for field in fields}
            return {
                key: _hide(item, rules[key])
                if key in rules
                else _walked_document(item, types[key])
                if key in types
                else HIDDEN
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


def _fits(info: inspect.Type, value: Any) -> bool:
    """Is the value written as this type is?"""
    if isinstance(info, inspect.StructType | inspect.DictType):
        return isinstance(value, dict)
    return isinstance(info, inspect.VarTupleType | inspect.ListType) and isinstance(value, list)


def redacted_event(event: Event) -> Event:
    """An event for callers who may not see all; the same one when nothing of it is hidden. Data that a module
    publishes is not redacted."""
    if event.type is EventType.MODULE_EVENT:
        return event
    rules = {**_EVENT_TEXT_FIELDS, **EVENT_FIELDS.get(event.type, {})}
    changed = {
        name: hidden
        for name, value in event.data.items()
        if name in rules and (hidden := _hide(value, rules[name])) is not value
    }
    return msgspec.structs.replace(event, data={**event.data, **changed}) if changed else event


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
    changed: dict[str, Any] = {}
    for name, how in _steps(type(value)):
        old = getattr(value, name)
        new = _walked(old) if how is None else _hide(old, how)
        if new is not old:
            changed[name] = new
    return msgspec.structs.replace(value, **changed) if changed else value


@functools.cache
def _steps(kind: type[msgspec.Struct]) -> tuple[tuple[str, Sensitive | None], ...]:
    """The fields of a type to process: those to hide, and with None those to descend into. Most types have
    neither, and a list of instances is long."""
    rules = _rules(kind)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    steps: list[tuple[str, Sensitive | None]] = []
    for field in info.fields:
        if field.name in rules:
            steps.append((field.name, rules[field.name]))
        elif _may_hold(field.type, frozenset({kind})):
            steps.append((field.name, None))
    return tuple(steps)


def _may_hold(info: inspect.Type, above: frozenset[type]) -> bool:
    """Whether a value of this type may hold something sensitive; `above` are the types that contain it."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            inner = above | {cls}
            return cls not in above and (
                bool(_rules(cls)) or any(_may_hold(field.type, inner) for field in fields)
            )
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


@functools.cache
def _rules(kind: type) -> Mapping[str, Sensitive]:
    rules = {
        name: TEXT_FIELDS[name] for name in getattr(kind, "__struct_fields__", ()) if name in TEXT_FIELDS
    }
    for base in reversed(kind.__mro__):
        rules |= FIELDS.get(base.__name__, {})
    return rules


def _hide(value: Any, how: Sensitive) -> Any:
    if not value and not isinstance(value, int | float):
        return value  # empty: nothing to hide
    if how is Sensitive.URL:
        return shown_url(value)
    if how is Sensitive.TEXT:
        return _without_addresses(value)
    if isinstance(value, dict):
        return {key: _hide(item, how) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_hide(item, how) for item in value)
    return HIDDEN


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
