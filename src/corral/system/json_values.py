"""JSON text as values, without what readers of JSON take differently: keys that stand twice, numbers without end, halves of
characters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from corral.system.document_limits import (
    DEEPEST,
    MOST_VALUES,
    MalformedDocument,
    ValueTally,
    check_number,
    json_number,
    quoted,
    text_size,
    too_deep,
    twice,
)

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[-+.\w]+|[][{}:]', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL
)


class _Unfit(Exception):
    """A token that is JSON, and no value of a document."""

    def __init__(self, token: str, error: MalformedDocument) -> None:
        super().__init__(token)
        self.token = token
        self.error = error


class _Twice(Exception):
    """A key stands twice in one object."""


def json_value(text: str, tally: ValueTally) -> Any:
    """JSONDecodeError: it is no JSON. MalformedDocument, with the line: it is, and no document of a group."""
    tally.add(_most_values(text), text_size(text))
    try:
        found = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_decimal,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise too_deep() from None
    except _Unfit as unfit:
        raise MalformedDocument(str(unfit.error), _line_of(text, unfit.token)) from None
    except _Twice:
        raise _second_key(text) from None
    _check_depth(found, text)
    if _SURROGATE.search(text):
        _refuse_halves(text)
    return found


def _most_values(text: str) -> int:
    """As many values as the text can have, or more."""
    most = _separators(text)
    return most if most <= MOST_VALUES else _separators(_STRING.sub("", text))


def _separators(text: str) -> int:
    return 1 + sum(text.count(sign) for sign in ",:[{")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _integer(token: str) -> int | float:
    return _number(token, int)


def _decimal(token: str) -> int | float:
    return _number(token, float)


def _number(token: str, kind: Callable[[str], int | float]) -> int | float:
    try:
        check_number(token)
        return json_number(kind(token), token)
    except MalformedDocument as error:
        raise _Unfit(token, error) from None


def _refuse_constant(token: str) -> None:
    _number(token, float)


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Texts, numbers, words and some signs, each with its position."""
    return ((match[0], match.start()) for match in _TOKEN.finditer(text))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _line_of(text: str, token: str) -> int:
    return next((_line(text, position) for each, position in _tokens(text) if each == token), 0)


def _second_key(text: str) -> MalformedDocument:
    """The refusal of the first key that its object has already."""
    objects: list[set[str]] = []
    last, place = "", 0
    for sign, position in _tokens(text):
        if sign == "{":
            objects.append(set())
        elif sign == "}":
            objects.pop()
        elif sign == ":":
            if last in objects[-1]:
                break
            objects[-1].add(last)
        elif sign.startswith('"'):
            last, place = json.loads(sign), position
    return twice(last, _line(text, place))


def _check_depth(found: Any, text: str) -> None:
    level = [found]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    if any(isinstance(each, dict | list) for each in level):
        raise too_deep(_line_of_depth(text))


def _line_of_depth(text: str) -> int:
    depth = 0
    for sign, position in _tokens(text):
        depth += (sign in ("[", "{")) - (sign in ("]", "}"))
        if depth > DEEPEST + 1:
            return _line(text, position)
    return 0


def _refuse_halves(text: str) -> None:
    """Refuse one half of a character that is written as two escapes: it cannot be stored as text."""
    for match in _ESCAPE.finditer(text):
        if match[1]:
            escape = text[match.start() : match.start() + 6]
            raise MalformedDocument(
                f"'{quoted(escape)}' is half a character; write the character itself",
                _line(text, match.start()),
            )
