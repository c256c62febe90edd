"""What is wrong with the size and the types of a group document: every fault, each with its path, `ports/primary/port`, and
with what to write instead."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect

from corral.domain.groups.field_aliases import UNIVERSE_FIELDS
from corral.domain.groups.group import GroupSpec
from corral.domain.spec import invalid, next_step
from corral.errors import Code, Rejected, nearest, unknown_choice

_AT: Final = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`$")
_CHOICE: Final = re.compile(r"Invalid enum value '(?P<word>.*)'$", re.DOTALL)
_STEP: Final = re.compile(r"[^.\[\]]+|\.\.\.")
_NOT_TEXT: Final = re.compile(r"Expected `str`, got `(?:int|float|bool)`")
_SHOWN: Final = 80
_KEY_SHOWN: Final = 64
MOST_ENTRIES: Final = 1000
"""Of one list or object of a document."""
MOST_VALUES: Final = 10_000
"""Entries of all lists and objects of a document together."""
_EXAMPLES: Final[Mapping[str, str]] = {
    "command": '["python3", "server.py"]',
    "args": '["--port", "25565"]',
    "ports": "{primary: {port: 25565}}",
    "depends_on": "[{group: db}]",
    "spread": "[{by: zone}]",
    "affinity": "[{label: disk=ssd}]",
    "probes": "[{kind: tcp}]",
    "stop": "[{signal: SIGTERM}]",
    "env": "{KEY: value}",
    "labels": "{KEY: value}",
    "variables": "{KEY: value}",
}
"""How fields are written whose shape is often mistaken."""

Path = tuple[str, ...]


class _Error(NamedTuple):
    """A sentence of the decoder in its parts."""

    problem: str
    path: Path
    """`...` is a value of a mapping: the decoder does not say which."""

    @property
    def unknown(self) -> str | None:
        found = _UNKNOWN.match(self.problem)
        return found["name"] if found else None

    @property
    def missing(self) -> str | None:
        found = _MISSING.match(self.problem)
        return found["name"] if found else None


def check_size(document: object) -> None:
    """INVALID_FIELD for a document with more than `MOST_ENTRIES` entries in one place, or `MOST_VALUES` in all. Looks at no
    more of them: call it before anything else looks at the document."""
    left, containers = MOST_VALUES, [("", document)]
    for field, value in containers:
        if isinstance(value, Mapping):
            entries: Iterable[tuple[object, object]] = value.items()
        elif isinstance(value, list | tuple):
            entries = enumerate(value)
        else:
            continue
        if len(value) > MOST_ENTRIES:
            raise invalid(field or "document", f"it has {len(value)} entries", f"use at most {MOST_ENTRIES}")
        left -= len(value)
        if left < 0:
            raise invalid(
                "document",
                f"its lists and objects have more than {MOST_VALUES} entries in all",
                "move long lists and many values into files of a template",
            )
        path = f"{field}/" if field else ""
        containers += (
            (f"{path}{str(key)[:_KEY_SHOWN]}", each)
            for key, each in entries
            if isinstance(each, Mapping | list | tuple)
        )


def type_faults(document: object) -> Iterator[Rejected]:
    """Everything that the types of a group refuse in a document; nothing: it is a group."""
    return _faults(document, lambda value: value, ())


def _faults(value: Any, whole: Callable[[Any], Any], path: Path) -> Iterator[Rejected]:
    """The faults of a value at a path. `whole` makes a document that has another value there, and nothing beside it that
    need not be."""
    error = _error(whole(value))
    if error is None or not _is_of(error, path):
        return
    if error.unknown is None or len(error.path) >= len(path):
        inner = itertools.chain.from_iterable(
            _faults(each, functools.partial(_embedded, whole, key), (*path, step))
            for key, step, each in _parts_of(value)
        )
        first = next(inner, None)
        if first is not None:
            yield first
            yield from inner
            return
    yield _refusal(error._replace(path=(*path, *error.path[len(path) :])[: len(error.path)]))


def _embedded(whole: Callable[[Any], Any], key: str | None, value: Any) -> Any:
    return whole([value] if key is None else {key: value})


def _parts_of(value: Any) -> Iterator[tuple[str | None, str, Any]]:
    """The entries of an object, and those of a list, which have no key."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(key, str):
                yield key, key[:_KEY_SHOWN], each
    elif isinstance(value, list | tuple):
        for position, each in enumerate(value):
            yield None, str(position), each


def _is_of(error: _Error, path: Path) -> bool:
    """Whether it is about the value at a path, and not about what is beside it or missing there."""
    if error.unknown is not None:
        return len(error.path) + 1 >= len(path)
    return len(error.path) >= len(path)


def _error(document: Any) -> _Error | None:
    try:
        msgspec.convert(document, GroupSpec)
    except msgspec.ValidationError as error:
        return _parted(str(error))
    return None


def _parted(message: str) -> _Error:
    """Words of the caller's are in msgspec's sentence, as long as a body may be: every pattern is tried at one place
    only."""
    at = _AT.search(message)
    problem = message[: at.start()] if at else message
    return _Error(problem, tuple(_STEP.findall(at["path"])) if at else ())


_PATTERN: Final = "matching regex"
_OF_UNIVERSE: Final = "files of Universe are converted by 'corral import universe DIR'"


def _refusal(error: _Error) -> Rejected:
    path, field = error.path, "/".join(error.path)
    if error.unknown is not None:
        name = error.unknown[:_SHOWN]
        guess = nearest(name, _fields_at(path))
        hint = f"did you mean '{guess}'?" if guess else "leave it out: there is no such field"
        hint = _OF_UNIVERSE if name in UNIVERSE_FIELDS and not path else hint
        return Rejected(
            Code.UNKNOWN_FIELD, f"unknown field '{name}'", field="/".join((*path, name)), hint=hint
        )
    if error.missing is not None:
        field = "/".join((*path, error.missing))
        return Rejected(Code.MISSING_FIELD, f"field '{field}' is missing", field=field, hint="add it")
    subject = f"field '{field}'" if field else "the document"
    choice = _CHOICE.match(error.problem)
    if choice and (choices := _choices_at(path)):
        word = choice["word"][:_SHOWN]
        return unknown_choice(
            f"value of {subject}:", word, choices, code=Code.INVALID_FIELD, field=field or None
        )
    step = _hint(error)
    problem = error.problem.replace("`", "")[:300]
    if step and _PATTERN in problem:
        problem = "it is written otherwise than it can be read"  # the hint says how to write it
    return Rejected(Code.INVALID_FIELD, f"{subject} is invalid: {problem}", field=field or None, hint=step)


def _hint(error: _Error) -> str | None:
    """What to write instead, with an example where the shape of a field is often mistaken."""
    if _NOT_TEXT.match(error.problem):
        return "put it in quotes: it is text"
    step = next_step(error.problem)
    top = error.path[0] if error.path else ""
    if step == "write an integer" and error.path[-1:] and error.path[-1].endswith("_mb"):
        return "write an integer of MiB, as 1024 for 1 GiB"
    if step in ("write a list", "write an object") and len(error.path) <= 2 and top in _EXAMPLES:
        return f"{step}, for example {top}: {_EXAMPLES[top]}"
    return step


def _type_at(path: Path) -> inspect.Type:
    here: inspect.Type = _group_type()
    for step in path:
        here = _into(here, step)
    return here


def _choices_at(path: Path) -> list[str]:
    """The words that are known at a path."""
    kinds = [part.cls for part in _parts(_type_at(path)) if isinstance(part, inspect.EnumType)]
    return [str(member.value) for kind in kinds for member in kind]


def _fields_at(path: Path) -> tuple[str, ...]:
    """The fields known at a path; none for an unknown path."""
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
