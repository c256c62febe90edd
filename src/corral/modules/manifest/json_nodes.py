"""JSON whose values know their line; Python's reader does not tell, and takes a key twice."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from typing import Any, Final

from corral.modules.manifest.text_nodes import DEPTH_MAX, ManifestNode, NotReadable, is_unicode

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?")
_DECODER: Final = json.JSONDecoder()
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def read_json(text: str) -> ManifestNode:
    """The one value of a text."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [found.start() for found in re.finditer("\n", text)]

    def read(self) -> ManifestNode:
        node = self._value(0)
        if self._peek():
            raise self._refused("something follows its end")
        return node

    def _value(self, depth: int) -> ManifestNode:
        sign, line = self._peek(), self._line()
        if depth > DEPTH_MAX:
            raise self._refused(f"it is nested more than {DEPTH_MAX} levels deep")
        if sign == "{":
            return ManifestNode(line, self._object(depth))
        if sign == "[":
            return ManifestNode(line, self._list(depth))
        if sign == '"':
            return ManifestNode(line, self._string())
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return ManifestNode(line, value)
        return ManifestNode(line, self._number())

    def _object(self, depth: int) -> dict[str, ManifestNode]:
        found: dict[str, ManifestNode] = {}
        self._at += 1
        while self._peek() != "}":
            if found:
                self._expect(",")
            if self._peek() != '"':
                raise self._refused("a key in double quotes is missing here")
            line, key = self._line(), self._string()
            if key in found:
                raise NotReadable(line, f"the key {key[:80]!r} stands there twice")
            self._expect(":")
            found[key] = self._value(depth + 1)
            found[key].line = line
        self._at += 1
        return found

    def _list(self, depth: int) -> list[ManifestNode]:
        found: list[ManifestNode] = []
        self._at += 1
        while self._peek() != "]":
            if found:
                self._expect(",")
            found.append(self._value(depth + 1))
        self._at += 1
        return found

    def _string(self) -> str:
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            raise self._refused(error.msg) from None
        if not is_unicode(value):
            raise self._refused("half of a pair of surrogates stands alone")
        return str(value)

    def _number(self) -> Any:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            raise self._refused("a value is missing here")
        self._at = found.end()
        value = float(found[0]) if found[1] or found[2] else int(found[0])
        if not math.isfinite(value):
            raise self._refused("a number is too large")
        return value

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._refused(f"'{sign}' is missing here")
        self._at += 1

    def _peek(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1

    def _refused(self, why: str) -> NotReadable:
        return NotReadable(self._line(), f"not valid JSON: {why}")
