"""Decoder of bodies and query strings into typed values. Every failure becomes a refusal that names the place and what
would have been right there."""

from __future__ import annotations

import asyncio
import functools
import re
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from corral.domain.json_limits import (
    MAX_DEPTH,
    MOST_VALUES,
    json_deeper_than,
    more_values_than,
    repeated_key,
)
from corral.domain.spec import next_step
from corral.errors import Code, Rejected, nearest, unknown_choice

T = TypeVar("T")

BODY_DEPTH: Final = 2 * MAX_DEPTH
"""Objects and lists inside each other in a body: free values have half of it, and are checked where they go."""

ON_LOOP: Final = 16 * 1024
"""Bytes of a body that are decoded where they are; more goes to a thread, so that other requests have their turn."""

_MAX_PARAMETERS: Final = 100
_NO_FIELDS: Final = b"{}"
_AT: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$")
_ANY: Final = "[...]"
"""How msgspec calls a value of a mapping: it does not say which."""
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`$")
_NOT_TEXT: Final = re.compile(r"Expected `str`, got `(?:int|float|bool)`")
_CHOICE: Final = re.compile(r"Invalid enum value '(?P<word>.*)'$", re.DOTALL)
_PATTERN: Final = " matching regex "
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class BodyDecoder:
    """Decodes one type of JSON body, strictly. `most_values`: entries of its lists and objects in all."""

    def __init__(self, type: type[Any], *, most_values: int = MOST_VALUES) -> None:
        self._type = type
        self._most_values = most_values
        self._decoder = msgspec.json.Decoder(type)

    async def received(self, raw: bytes) -> Any:
        """`decode_request`, aside from the loop for a large body."""
        if len(raw) <= ON_LOOP:
            return self.decode_request(raw)
        return await asyncio.to_thread(self.decode_request, raw)

    def decode_request(self, raw: bytes) -> Any:
        """A request without a body is one without any field. Where the names are the caller's own that is
        refused: a mapping replaces what is there, and a body that got lost must not clear all of it."""
        if not raw and not isinstance(inspect.type_info(self._type), inspect.StructType):
            raise Rejected(Code.BAD_REQUEST, "the body is missing", hint="send {} to clear all of it")
        return self.decode(raw or _NO_FIELDS)

    def decode(self, raw: bytes) -> Any:
        if more_values_than(raw, self._most_values):
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"the lists and objects of the body have more than {self._most_values} entries in all",
                hint="send fewer of them",
            )
        try:
            decoded = self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise self._refusal_of_document(raw) or _invalid(str(error), self._type, where="body") from None
        except UnicodeDecodeError as error:
            raise Rejected(
                Code.INVALID_JSON, f"the body is not UTF-8: {error.reason}", hint="send JSON in UTF-8"
            ) from None
        except msgspec.DecodeError as error:
            raise Rejected(Code.INVALID_JSON, f"the body is not JSON: {_position(str(error), raw)}") from None
        except RecursionError:
            raise _too_deep() from None
        if json_deeper_than(raw, BODY_DEPTH):
            raise _too_deep()
        if (name := repeated_key(raw)) is not None:
            raise Rejected(
                Code.INVALID_JSON,
                f"the key '{name[:80]}' stands twice in one object of the body",
                hint="leave one of them out",
            )
        return decoded

    def _refusal_of_document(self, raw: bytes) -> Rejected | None:
        """What the type itself says of a refused body, by its `document_faults`: documents are also read from files, and
        have the same sentences there."""
        find: Callable[[Any], list[Rejected]] | None = getattr(self._type, "document_faults", None)
        if find is None or json_deeper_than(raw, BODY_DEPTH):
            return None
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):  # it was refused before its end was looked at
            return None
        found = find(document) if isinstance(document, dict) else []
        return found[0] if found else None


def _too_deep() -> Rejected:
    return Rejected(Code.INVALID_JSON, f"the body is nested deeper than {BODY_DEPTH} levels")


class QueryDecoder:
    """Decodes one type of query string. An empty value means "not given", unless the type has it otherwise."""

    def __init__(self, type: type[Any]) -> None:
        self._type = type
        self._never_empty: frozenset[str] = getattr(type, "never_empty", frozenset())
        self._lists = _lists_of(type)  # type: ignore[arg-type]  # classes are hashable, mypy doubts it

    def decode(self, raw: bytes) -> Any:
        values: dict[str, Any] = {}
        for name, value in query_pairs(raw):
            if not value and name not in self._never_empty:
                continue
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise Rejected(
                    Code.INVALID_FIELD, f"parameter '{name[:80]}' is given more than once", field=name[:80]
                )
            else:
                values[name] = value
        try:
            return msgspec.convert(values, self._type, strict=False)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), self._type, where="query") from None


@functools.cache
def _lists_of(type: type[Any]) -> frozenset[str]:
    """Parameters that may be given more than once. Kept: many routes take the same query, and to look
    into a type is slow."""
    info = inspect.type_info(type)
    assert isinstance(info, inspect.StructType), "a query is a struct"
    return frozenset(
        field.encode_name
        for field in info.fields
        if isinstance(field.type, inspect.VarTupleType | inspect.ListType)
    )


def query_pairs(raw: bytes) -> list[tuple[str, str]]:
    """Names and values as they were sent; BAD_REQUEST when there are too many, or they are not UTF-8."""
    try:
        return urllib.parse.parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS, errors="strict"
        )
    except UnicodeDecodeError:
        raise Rejected(Code.BAD_REQUEST, "the query string is not UTF-8") from None
    except ValueError:
        raise Rejected(
            Code.BAD_REQUEST, f"the query string has more than {_MAX_PARAMETERS} parameters"
        ) from None


def _position(message: str, raw: bytes) -> str:
    """The decoder's complaint, with the place where reading had to stop."""
    message = message.removeprefix("JSON is malformed: ")
    return message if "(byte " in message else f"it ends too early (byte {len(raw)})"


def _invalid(message: str, type: Any, *, where: str) -> Rejected:
    """An error of msgspec is one sentence; people and forms need it in pieces. Words of the caller's are in
    it, as long as a body may be: every pattern is tried at one place only."""
    at = _AT.search(message)
    path = at["path"] if at else ""
    problem = message[: at.start()] if at else message
    noun = "parameter" if where == "query" else "field"
    if unknown := _UNKNOWN.match(problem):
        name = unknown["name"]
        known = _fields_at(inspect.type_info(type), path)
        guess = nearest(name, known)
        hint = f"did you mean '{guess}'? known: " if guess else "known: "
        return Rejected(
            Code.UNKNOWN_FIELD,
            f"unknown {noun} '{name[:80]}'",
            field=_joined(path, name[:80]),
            hint=hint + ", ".join(known) if known else f"it takes no {noun}s",
        )
    if missing := _MISSING.match(problem):
        field = _joined(path, missing["name"])
        return Rejected(Code.MISSING_FIELD, f"{noun} '{field}' is missing", field=field, hint="add it")
    field = path.removeprefix(".")
    subject = _subject(field, noun=noun, where=where, key=bool(at and at["key"]))
    choice = _CHOICE.match(problem)
    if choice and (choices := _choices_at(inspect.type_info(type), path)):
        return unknown_choice(
            f"value of {subject}:", choice["word"][:80], choices, code=Code.INVALID_FIELD, field=field or None
        )
    if _PATTERN in problem and (rule := _rule_at(inspect.type_info(type), path)):
        return Rejected(
            Code.INVALID_FIELD,
            f"{subject} is invalid: {rule['rule']}",
            field=field.removeprefix(_ANY) or None,
            hint=rule["hint"],
        )
    return Rejected(
        Code.INVALID_FIELD,
        f"{subject} is invalid: {problem.replace('`', '')[:300]}",
        field=field.removeprefix(_ANY) or None,
        hint="put it in quotes: it is text" if _NOT_TEXT.match(problem) else next_step(problem),
    )


def _subject(field: str, *, noun: str, where: str, key: bool) -> str:
    """The problem in words: a field, the whole, or a name or value in a mapping."""
    within = field.removesuffix(_ANY)
    named = f"{noun} '{within}'" if within else f"the {where}"
    if key:
        return f"a name in {named}"
    return f"a value in {named}" if field.endswith(_ANY) else named


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".removeprefix(".")


def _fields_at(info: inspect.Type, path: str) -> list[str]:
    """The names of the fields a struct at this place of a type has."""
    structs = [info for info in _types_at(info, path) if isinstance(info, inspect.StructType)]
    return sorted({field.encode_name for struct in structs for field in struct.fields})


def _choices_at(info: inspect.Type, path: str) -> list[str]:
    """The words that are accepted at this place of a type."""
    found: set[str] = set()
    for each in _types_at(info, path):
        if isinstance(each, inspect.EnumType):
            found |= {str(member.value) for member in each.cls}
        elif isinstance(each, inspect.LiteralType):
            found |= {str(value) for value in each.values}
    return sorted(found)


def _rule_at(info: inspect.Type, path: str) -> dict[str, str] | None:
    """What the pattern at this place of a type means, in words: see `pattern_rule` of `call`."""
    extras = (each.extra for each in _types_at(info, path) if isinstance(each, inspect.Metadata))
    return next((extra for extra in extras if extra and "rule" in extra), None)


def _types_at(info: inspect.Type, path: str) -> list[inspect.Type]:
    """The values that are allowed at this place."""
    types = list(_plain([info]))
    for name, _ in _STEP.findall(path):
        if name:
            structs = [each for each in types if isinstance(each, inspect.StructType)]
            fields = [field for struct in structs for field in struct.fields if field.encode_name == name]
            types = list(_plain(field.type for field in fields))
    return types


def _plain(infos: Iterable[inspect.Type]) -> Iterable[inspect.Type]:
    """The types these types may hold, looking through unions and containers."""
    for info in infos:
        match info:
            case inspect.UnionType(types=types):
                yield from _plain(types)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                yield from _plain([item])
            case inspect.DictType(value_type=value):
                yield from _plain([value])
            case inspect.Metadata(type=inner):
                yield info
                yield from _plain([inner])
            case _:
                yield info
