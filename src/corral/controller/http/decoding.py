"""Bodies and query strings into typed values, and every way that can fail into a refusal that says
where and what would have been right."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from corral.errors import Code, Rejected, nearest

T = TypeVar("T")

_MAX_PARAMETERS: Final = 100
_AT: Final = re.compile(r" - at `(?:key in )?`?\$(?P<path>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class BodyDecoder:
    """Decodes one type of JSON body, strictly."""

    def __init__(self, type: type[Any]) -> None:
        self._type = type
        self._decoder = msgspec.json.Decoder(type)

    def decode(self, raw: bytes) -> Any:
        try:
            return self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), self._type, where="body") from None
        except UnicodeDecodeError as error:
            raise Rejected(
                Code.INVALID_JSON, f"the body is not UTF-8: {error.reason}", hint="send JSON in UTF-8"
            ) from None
        except msgspec.DecodeError as error:
            raise Rejected(Code.INVALID_JSON, f"the body is not JSON: {_position(str(error), raw)}") from None
        except RecursionError:
            raise Rejected(Code.INVALID_JSON, "the body is nested too deeply") from None


class QueryDecoder:
    """Decodes one type of query string. An empty value means "not given"."""

    def __init__(self, type: type[Any]) -> None:
        self._type = type
        info = inspect.type_info(type)
        assert isinstance(info, inspect.StructType), "a query is a struct"
        self._lists = {
            field.encode_name
            for field in info.fields
            if isinstance(field.type, inspect.VarTupleType | inspect.ListType)
        }

    def decode(self, raw: bytes) -> Any:
        values: dict[str, Any] = {}
        for name, value in _pairs(raw):
            if not value:
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


def _pairs(raw: bytes) -> list[tuple[str, str]]:
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
    """msgspec says what is wrong in one sentence; people and forms need it in pieces."""
    at = _AT.search(message)
    path = at["path"] if at else ""
    said = message[: at.start()] if at else message
    noun = "parameter" if where == "query" else "field"
    if unknown := _UNKNOWN.search(said):
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
    if missing := _MISSING.search(said):
        field = _joined(path, missing["name"])
        return Rejected(Code.MISSING_FIELD, f"{noun} '{field}' is missing", field=field)
    field = path.removeprefix(".")
    subject = f"{noun} '{field}'" if field else f"the {where}"
    return Rejected(
        Code.INVALID_FIELD, f"{subject} is invalid: {said.replace('`', '')[:300]}", field=field or None
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}".removeprefix(".")


def _fields_at(info: inspect.Type, path: str) -> list[str]:
    """The names of the fields a struct at this place of a type has."""
    structs = list(_structs([info]))
    for name, _ in _STEP.findall(path):
        found: list[inspect.Type] = []
        for struct in structs:
            found += [field.type for field in struct.fields if not name or field.encode_name == name]
        structs = list(_structs(found)) if name else structs
    return sorted({field.encode_name for struct in structs for field in struct.fields})


def _structs(infos: Iterable[inspect.Type]) -> Iterable[inspect.StructType]:
    """The struct types these types may hold, looking through unions and containers."""
    for info in infos:
        match info:
            case inspect.StructType():
                yield info
            case inspect.UnionType(types=types):
                yield from _structs(types)
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                yield from _structs([item])
            case inspect.DictType(value_type=value):
                yield from _structs([value])
            case inspect.Metadata(type=inner):
                yield from _structs([inner])
            case _:
                pass
