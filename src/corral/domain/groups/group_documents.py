"""Group documents as people write them: strictly parsed, and changed by merge patches (RFC 7396)."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.domain.spec import Spec, next_step
from corral.errors import Code, Rejected, nearest, unknown_choice

_AT: Final = re.compile(r" - at `(?:key in )?`?\$(?P<path>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`$")
_CHOICE: Final = re.compile(r"Invalid enum value '(?P<word>.*)'$", re.DOTALL)
_STEP: Final = re.compile(r"[^.\[\]]+|\.\.\.")
_NOT_TEXT: Final = re.compile(r"Expected `str`, got `(?:int|float|bool)`")
_MAX_DEPTH: Final = 16


def parse_group(document: object) -> GroupSpec:
    """The group a document describes; an unknown key or a wrong value is refused with its path."""
    return check_group(typed_group(document))


def typed_group(document: object) -> GroupSpec:
    """The group a document describes, as far as its types go; see `group_checks` for the rest."""
    try:
        return msgspec.convert(document, GroupSpec)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


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


def merged(document: object, patch: object, *, depth: int = 0) -> object:
    """RFC 7396: objects are merged by key, null removes a key, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    if depth > _MAX_DEPTH:
        raise Rejected(Code.INVALID_FIELD, "the patch is nested too deeply")
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value, depth=depth + 1)
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


def _refusal(message: str) -> Rejected:
    """Words of the caller's are in msgspec's sentence, as long as a body may be: every pattern is tried at one place
    only."""
    at = _AT.search(message)
    path = (at["path"] if at else "").removeprefix(".")
    problem = message[: at.start()] if at else message
    if unknown := _UNKNOWN.match(problem):
        name = unknown["name"][:80]
        guess = nearest(name, _fields_at(path))
        hint = f"did you mean '{guess}'?" if guess else "leave it out: there is no such field"
        return Rejected(Code.UNKNOWN_FIELD, f"unknown field '{name}'", field=_joined(path, name), hint=hint)
    if missing := _MISSING.match(problem):
        field = _joined(path, missing["name"])
        return Rejected(Code.MISSING_FIELD, f"field '{field}' is missing", field=field, hint="add it")
    subject = f"field '{path}'" if path else "the document"
    choice = _CHOICE.match(problem)
    if choice and (choices := _choices_at(path)):
        return unknown_choice(
            f"value of {subject}:", choice["word"][:80], choices, code=Code.INVALID_FIELD, field=path or None
        )
    return Rejected(
        Code.INVALID_FIELD,
        f"{subject} is invalid: {problem.replace('`', '')[:300]}",
        field=path or None,
        hint="put it in quotes: it is text" if _NOT_TEXT.match(problem) else next_step(problem),
    )


def _type_at(path: str) -> inspect.Type:
    here: inspect.Type = _group_type()
    for step in _STEP.findall(path):
        here = _into(here, step)
    return here


def _choices_at(path: str) -> list[str]:
    """The words that are known at a path."""
    kinds = [part.cls for part in _parts(_type_at(path)) if isinstance(part, inspect.EnumType)]
    return [str(member.value) for kind in kinds for member in kind]


def _fields_at(path: str) -> tuple[str, ...]:
    """The fields known at a path such as `probes[0]` or `ports[...]`; none for an unknown path."""
    found = next((part for part in _parts(_type_at(path)) if isinstance(part, inspect.StructType)), None)
    return tuple(field.encode_name for field in found.fields) if found else ()


@functools.cache
def _group_type() -> inspect.Type:
    return inspect.type_info(GroupSpec)


def _into(kind: inspect.Type, step: str) -> inspect.Type:
    for part in _parts(kind):
        if isinstance(part, inspect.StructType):
            for field in part.fields:
                if field.encode_name == step:
                    return field.type
        elif isinstance(part, inspect.DictType):
            return part.value_type
        elif isinstance(part, inspect.VarTupleType):
            return part.item_type
    return inspect.AnyType()


def _parts(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".removeprefix(".")
