"""Group documents as people write them: strictly parsed, and changed by merge patches (RFC 7396)."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.domain.groups.document_faults import check_size, type_faults
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.domain.spec import Spec
from corral.errors import Code, Rejected

_MAX_DEPTH: Final = 16
NULL_VALUES: Final = frozenset({("disconnect", "replace_after_seconds")})
"""Paths at which null is a value, and does not go back to the default."""


def parse_group(document: object) -> GroupSpec:
    """The group a document describes; an unknown key or a wrong value is refused with its path."""
    return check_group(typed_group(document))


def typed_group(document: object) -> GroupSpec:
    """The group a document describes, as far as its size and types go; see `group_checks` for the rest."""
    check_size(document)
    try:
        return msgspec.convert(document, GroupSpec)
    except msgspec.ValidationError:
        raise next(type_faults(document)) from None


def group_document(spec: GroupSpec) -> dict[str, Any]:
    """A group as a document of plain values, every field in it."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    return document


def brief_document(spec: GroupSpec) -> dict[str, Any]:
    """A group as a document of plain values, with only the fields that differ from the defaults."""
    document: dict[str, Any] = _brief(spec)
    return document


def _brief(value: Any) -> Any:
    if isinstance(value, Spec):
        return {
            encoded: _brief(given)
            for name, encoded, default in _defaults(type(value))
            if (given := getattr(value, name)) != default
        }
    if isinstance(value, list | tuple):
        return [_brief(each) for each in value]
    if isinstance(value, dict):
        return {key: _brief(each) for key, each in value.items()}
    return value.value if isinstance(value, enum.Enum) else value


@functools.cache
def _defaults(kind: type[Spec]) -> tuple[tuple[str, str, Any], ...]:
    """Each field, its name in documents, and its default; of a required one something that equals nothing."""
    return tuple((field.name, field.encode_name, _default(field)) for field in msgspec.structs.fields(kind))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return object()
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def merged(document: object, patch: object, *, path: tuple[str, ...] = ()) -> object:
    """RFC 7396: objects are merged by key, null removes a key, anything else replaces. `NULL_VALUES` are the exception.
    `path`: where in a group's document the two are."""
    if not isinstance(patch, Mapping):
        return patch
    if len(path) > _MAX_DEPTH:
        raise Rejected(Code.INVALID_FIELD, "the patch is nested too deeply")
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None and (*path, key) not in NULL_VALUES:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value, path=(*path, key))
    return result


def refuse_renaming(name: str, document: Mapping[str, object]) -> None:
    if document.get("name", name) != name:
        raise Rejected(
            Code.INVALID_FIELD,
            f"group '{name}' cannot be renamed",
            hint="create another group and delete this one",
            field="name",
        )


def changed_fields(old: GroupSpec, new: GroupSpec) -> list[str]:
    return [name for name in old.__struct_fields__ if getattr(old, name) != getattr(new, name)]
