"""Parsed text of a manifest, YAML or JSON, as nodes that know their line.

Anchors, aliases and tags are refused, so that no node is larger than the text it came from; a key
may come once; depth is bounded while the text is still being read. Plain values are read as YAML 1.2 does:
`on` is a word, `1.10` as a text stays `1.10`. JSON has a reader of its own, because Python's does not report
lines and accepts a key twice.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from typing import Any, Final

import msgspec
import yaml

DEPTH_MAX: Final = 64
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestNode(msgspec.Struct):
    """One value. In a map its line is that of its key."""

    line: int
    value: Any
    """A dict or list of nodes, or a text, number, truth value or None."""
    text: str | None = None
    """How a value was written that may also be meant as a text."""


class NotReadable(Exception):
    """The text is not valid YAML or JSON; the message is the reason."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


def plain(node: ManifestNode) -> Any:
    """The value without its lines."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [plain(value) for value in node.value]
    return node.value


def is_unicode(text: str) -> bool:
    """Has the text no lone surrogate, which could be held in memory but never encoded?"""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_scalar(text: str) -> Any:
    """Value of an unquoted scalar of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def read_yaml(text: str) -> ManifestNode:
    """The one document of a text."""
    try:
        return _Composer().read(text)
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None


class _Open(msgspec.Struct):
    """A map or list whose end has not been read."""

    node: ManifestNode
    key: str | None = None
    key_line: int = 0


class _Composer:
    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._root: ManifestNode | None = None

    def read(self, text: str) -> ManifestNode:
        for event in yaml.parse(text, Loader=_LOADER):
            self._take(event)
        if self._root is None:
            raise NotReadable(1, "it is empty")
        return self._root

    def _take(self, event: Any) -> None:
        line = event.start_mark.line + 1
        match event:
            case yaml.AliasEvent():
                raise NotReadable(line, "aliases are not allowed; write the value out")
            case yaml.ScalarEvent():
                self._refuse_marks(event, line)
                if not is_unicode(event.value):
                    raise NotReadable(line, "it is not UTF-8")
                written = bool(event.implicit[0])  # unquoted
                value = plain_scalar(event.value) if written else event.value
                self._add(ManifestNode(line, value, event.value if written else None), event.value)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._refuse_marks(event, line)
                if len(self._open) >= DEPTH_MAX:
                    raise NotReadable(line, f"it is nested more than {DEPTH_MAX} levels deep")
                node = ManifestNode(line, {} if isinstance(event, yaml.MappingStartEvent) else [])
                self._add(node, None)
                self._open.append(_Open(node))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
            case yaml.DocumentStartEvent() if self._root is not None:
                raise NotReadable(line, "it holds a second document")

    def _refuse_marks(self, event: Any, line: int) -> None:
        if event.anchor is not None:
            raise NotReadable(line, f"the anchor '&{event.anchor[:40]}' is not allowed")
        if event.tag not in (None, "!"):
            raise NotReadable(line, f"the tag {event.tag[:60]!r} is not allowed")

    def _add(self, node: ManifestNode, name: str | None) -> None:
        if not self._open:
            self._root = node
            return
        inner = self._open[-1]
        if isinstance(inner.node.value, list):
            inner.node.value.append(node)
        elif inner.key is None:
            if name is None:
                raise NotReadable(node.line, "a key must be a word")
            if name in inner.node.value:
                raise NotReadable(node.line, f"the key {name[:80]!r} stands there twice")
            inner.key, inner.key_line = name, node.line
        else:
            node.line = inner.key_line
            inner.node.value[inner.key] = node
            inner.key = None


def _not_yaml(error: yaml.YAMLError) -> NotReadable:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())[:200]
    return NotReadable(mark.line + 1 if mark else 1, f"not valid YAML: {problem}")


_SPACE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?")
_DECODER: Final = json.JSONDecoder()
_JSON_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


def read_json(text: str) -> ManifestNode:
    """The one value of a text."""
    return _TextReader(text).read()


class _TextReader:
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
        for word, value in _JSON_WORDS.items():
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
