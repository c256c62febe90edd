"""JSON edited in place: every other value keeps its bytes, its order and the precision of its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import Any, Final

import msgspec

from corral.daemon.config_files.text_edits import (
    MAX_DEPTH,
    MAX_VALUES,
    Impossible,
    Malformed,
    Splices,
    decoded,
    item_place,
    line_of,
    line_start,
    nested,
    newline_of,
    with_newlines,
)
from corral.daemon.config_files.values import settled

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_ATOM: Final = re.compile(r"true|false|null|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_INDENTED: Final = re.compile(r"\n([ \t]+)\S")
_STEP: Final = "  "


class _Node(msgspec.Struct, kw_only=True, gc=False):
    """A value and its position."""

    kind: str
    """`map`, `list`, `text` or `atom`."""
    start: int
    end: int = 0
    entries: list[tuple[str, int, _Node]] = []
    """Of a map: key, where it begins, value; of a list: the same with empty keys."""
    index: dict[str, _Node] | None = None
    """Made at its first use."""

    def at(self, key: str) -> _Node | None:
        """The value of a key; of a key that occurs twice the last one counts."""
        if self.index is None:
            self.index = {name: node for name, _, node in self.entries}
        return self.index.get(key)


class _Raw(msgspec.Struct, frozen=True):
    """JSON that is copied unchanged."""

    text: str


def put(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    """The file with this value at this path; `create`: missing maps on the path are created."""
    mark, text = decoded(data)
    if not text.strip():
        text = "{}\n"
    splices = Splices(text)
    node = _read(text)
    for place, step in enumerate(steps):
        where = ".".join(steps[:place]) or "the file"
        if node.kind == "list":
            at = item_place(step, len(node.entries), where=where, may_append=create)
            child = node.entries[at][2] if at < len(node.entries) else None
        elif node.kind == "map":
            child = node.at(step)
        else:
            raise Impossible(f"{where} is neither a map nor a list")
        if child is None:
            if not create:
                raise Impossible(f"it has no '{'.'.join(steps[: place + 1])}'")
            key = None if node.kind == "list" else step
            _insert(splices, node, [(key, nested(steps[place + 1 :], settled(value)))])
            break
        node = child
    else:
        splices.replace(node.start, node.end, _written(settled(value, text=node.kind == "text"), text, node))
    return (mark + splices.result()).encode()


def merge(lower: bytes, upper: bytes) -> bytes:
    """Merge map by map, the upper one's values win; lists are values."""
    mark, text = decoded(lower)
    _, other = decoded(upper)
    if not other.strip():
        return lower
    top = _read(other)
    if not text.strip():
        return upper
    bottom = _read(text)
    if (bottom.kind, top.kind) != ("map", "map"):
        return upper
    splices = Splices(text)
    _merge(splices, bottom, top, other)
    return (mark + splices.result()).encode()


def _merge(splices: Splices, lower: _Node, upper: _Node, other: str) -> None:
    added: dict[str, _Raw] = {}
    newline = newline_of(splices.text)
    for key in dict.fromkeys(name for name, _, _ in upper.entries):
        new, old = upper.at(key), lower.at(key)
        assert new is not None
        if old is None:
            added[key] = _Raw(with_newlines(other[new.start : new.end], newline))
        elif (old.kind, new.kind) == ("map", "map"):
            _merge(splices, old, new, other)
        else:
            splices.replace(old.start, old.end, with_newlines(other[new.start : new.end], newline))
    if added:
        _insert(splices, lower, list(added.items()))


def _insert(splices: Splices, node: _Node, pairs: Sequence[tuple[str | None, Any]]) -> None:
    """Add entries after the last one, in the layout of that one."""
    text = splices.text
    if node.entries:
        _, begin, last = node.entries[-1]
        colon = ": " if node.kind == "list" else text[_string_end(text, begin) : last.start]
        gap = _blank_before(text, begin) or (" " if len(node.entries) == 1 and colon[-1:] == " " else "")
        lead = newline_of(text) + _indent(text, begin) if "\n" in gap else ""
        parts = [gap + _labelled(key, colon, _dumped(value, lead, _step(text))) for key, value in pairs]
        splices.insert(last.end, "," + ",".join(parts))
        return
    newline = newline_of(text)
    indent = _indent(text, node.start)
    step = _step(text)
    inner = newline + indent + step
    parts = [inner + _labelled(key, ": ", _dumped(value, inner, step)) for key, value in pairs]
    brackets = "{}" if node.kind == "map" else "[]"
    splices.replace(node.start, node.end, f"{brackets[0]}{','.join(parts)}{newline}{indent}{brackets[1]}")


def _labelled(key: str | None, colon: str, value: str) -> str:
    return value if key is None else f"{json.dumps(key, ensure_ascii=False)}{colon}{value}"


def _blank_before(text: str, at: int) -> str:
    start = at
    while start and text[start - 1] in " \t\r\n":
        start -= 1
    return text[start:at]


def _string_end(text: str, start: int) -> int:
    end: int = scanstring(text, start + 1)[1]
    return end


def _indent(text: str, at: int) -> str:
    start = line_start(text, at)
    return text[start : len(text[start:at]) - len(text[start:at].lstrip(" \t")) + start]


def _written(value: Any, text: str, beside: _Node) -> str:
    """A value for a position in this text: over several lines where the text around is."""
    lead = newline_of(text) + _indent(text, beside.start) if "\n" in text.strip() else ""
    return _dumped(value, lead, _step(text))


def _step(text: str) -> str:
    """The indentation step of this text: that of its first indented line."""
    found = _INDENTED.search(text)
    return found[1] if found else _STEP


def _dumped(value: Any, lead: str, step: str) -> str:
    """The value in one line, or in as many as it takes, each but the first after `lead`."""
    if isinstance(value, _Raw):
        return value.text
    try:
        dumped = json.dumps(value, indent=step if lead else None, ensure_ascii=False, allow_nan=False)
        dumped.encode()
    except ValueError:
        raise Impossible("JSON has no such value") from None
    return dumped.replace("\n", lead) if lead else dumped


def _read(text: str) -> _Node:
    scanner = _Scanner(text)
    node = scanner.value(_skip(text, 0), 0)
    if _skip(text, node.end) != len(text):
        raise scanner.fault("nothing may follow the value", _skip(text, node.end))
    return node


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


class _Scanner:
    """Strict parser of RFC 8259."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._count = 0

    def fault(self, why: str, at: int) -> Malformed:
        return Malformed(why, line=line_of(self._text, at))

    def value(self, at: int, depth: int) -> _Node:
        self._count += 1
        if depth > MAX_DEPTH:
            raise self.fault(f"it is nested more than {MAX_DEPTH} deep", at)
        if self._count > MAX_VALUES:
            raise self.fault(f"it holds more than {MAX_VALUES} values", at)
        first = self._text[at : at + 1]
        if first in ("{", "["):
            return self._collection(at, depth, "}" if first == "{" else "]")
        if first == '"':
            return _Node(kind="text", start=at, end=self._string(at)[1])
        match = _ATOM.match(self._text, at)
        if match is None:
            raise self.fault("a value is expected", at)
        return _Node(kind="atom", start=at, end=match.end())

    def _string(self, at: int) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            raise self.fault("a key in quotation marks is expected", at)
        try:
            found: tuple[str, int] = scanstring(self._text, at + 1)
        except json.JSONDecodeError as error:
            raise self.fault(error.msg.lower(), error.pos) from None
        return found

    def _collection(self, start: int, depth: int, closing: str) -> _Node:
        node = _Node(kind="map" if closing == "}" else "list", start=start, entries=[])
        at = _skip(self._text, start + 1)
        if self._text.startswith(closing, at):
            node.end = at + 1
            return node
        while True:
            key, begin = "", at
            if node.kind == "map":
                key, at = self._string(at)
                at = self._expect(":", at)
            child = self.value(at, depth + 1)
            node.entries.append((key, begin, child))
            at = _skip(self._text, child.end)
            if self._text.startswith(closing, at):
                node.end = at + 1
                return node
            at = self._expect(",", at)

    def _expect(self, what: str, at: int) -> int:
        at = _skip(self._text, at)
        if not self._text.startswith(what, at):
            raise self.fault(f"'{what}' is expected", at)
        return _skip(self._text, at + 1)
