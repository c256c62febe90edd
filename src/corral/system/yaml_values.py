"""YAML streams as values that JSON has, with the lines of documents and of their fields.

A text is read event by event, so that what is refused is refused before it takes memory, and with its line.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from corral.system.document_limits import (
    DEEPEST,
    MOST_DOCUMENTS,
    MalformedDocument,
    ValueTally,
    check_number,
    json_number,
    quoted,
    text_size,
    too_deep,
    twice,
)

_YAML: Final = "tag:yaml.org,2002:"
_TEXT, _NULL, _BOOL, _INT, _FLOAT = (f"{_YAML}{kind}" for kind in ("str", "null", "bool", "int", "float"))
_MERGE: Final = f"{_YAML}merge"
_COLLECTIONS: Final = {"seq": f"{_YAML}seq", "map": f"{_YAML}map"}
_AS_TEXT: Final = (f"{_YAML}timestamp", f"{_YAML}value")
"""What is not told apart from text: times, and the sign `=`."""
_CONSTRUCTORS: Final = {
    _BOOL: "construct_yaml_bool",
    _INT: "construct_yaml_int",
    _FLOAT: "construct_yaml_float",
}
_SHORT: Final = 18
_DIRECTIVE: Final = re.compile("(?:^|[\n\r\x85\u2028\u2029\ufeff])%TAG")
_MOST_DIRECTIVES: Final = 100


class LocatedDocument(NamedTuple):
    body: Any
    line: int
    """Where it begins."""
    lines: Mapping[str, int]
    """The lines of its top-level fields."""


class _Anchored(NamedTuple):
    value: Any
    values: int
    size: int


def yaml_documents(text: str, tally: ValueTally) -> list[LocatedDocument]:
    """The documents of a stream without empty ones. MalformedDocument, with the line, whatever else the text is."""
    import yaml  # half of our start-up budget, and JSON needs none of it

    if sum(1 for _ in _DIRECTIVE.finditer(text)) > _MOST_DIRECTIVES:  # each is compared with all others
        raise MalformedDocument(f"it has more than {_MOST_DIRECTIVES} %TAG directives; leave them out")
    loader: Any = None
    try:
        loader = _loader_class()(text)
        return list(_Stream(yaml, loader, tally).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context or "it cannot be read").split())
        line = min(mark.line + 1, len(text.splitlines()) or 1) if mark else 0
        raise MalformedDocument(f"it is not YAML: {problem}", line) from None
    except yaml.YAMLError as error:
        raise MalformedDocument(
            f"it is not YAML: {' '.join(str(error).split())}", _line_of(error, text)
        ) from None
    finally:
        if loader is not None:
            loader.dispose()


def _line_of(error: Any, text: str) -> int:
    """The line of a character that cannot be read."""
    position = getattr(error, "position", None)
    return text.count("\n", 0, position) + 1 if isinstance(position, int) else 0


@functools.cache
def _loader_class() -> Any:
    """The loader of libyaml where PyYAML was built with it: it takes a thirtieth of the time."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """How values of each tag are written."""
    return {tag: pattern for rules in _rules().values() for tag, pattern in rules}


@functools.cache
def _rules() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """By their first sign, what plain values may be other than text."""
    rules = _loader_class().yaml_implicit_resolvers
    return {sign: [each for each in found if each[0] not in _AS_TEXT] for sign, found in rules.items()}


def _tag_of(text: str) -> str:
    """The tag of a plain value that has none."""
    for tag, pattern in _rules().get(text[:1], ()):
        if pattern.match(text):
            return tag
    return _TEXT


class _Stream:
    """The events of a text."""

    def __init__(self, yaml: Any, loader: Any, tally: ValueTally) -> None:
        self._yaml = yaml
        self._loader = loader
        self._next = loader.get_event
        self._tally = tally
        self._anchors: dict[str, _Anchored] = {}

    def documents(self) -> Iterator[LocatedDocument]:
        self._next()
        count = 0
        while isinstance(self._next(), self._yaml.DocumentStartEvent):
            self._anchors = {}
            event = self._next()
            lines: dict[str, int] = {}
            body = self._value(event, 0, lines)
            self._next()
            if body is None:
                continue
            count += 1
            if count > MOST_DOCUMENTS:
                raise MalformedDocument(
                    f"it has more than {MOST_DOCUMENTS} documents; split it", _line(event)
                )
            yield LocatedDocument(body, _line(event), lines)

    def _value(self, event: Any, depth: int, lines: dict[str, int] | None = None) -> Any:
        if isinstance(event, self._yaml.AliasEvent):
            return self._referred(event)
        line = _line(event)
        tally = self._tally
        before = tally.values, tally.size
        if isinstance(event, self._yaml.ScalarEvent):
            tally.add(1, text_size(event.value), line)
            value = self._converted(self._tag(event), event)
        else:
            tally.add(1, 0, line)
            if depth > DEEPEST:
                raise too_deep(line)
            value = self._collection(event, depth, lines)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, tally.values - before[0], tally.size - before[1])
        return value

    def _collection(self, event: Any, depth: int, lines: dict[str, int] | None) -> Any:
        if isinstance(event, self._yaml.SequenceStartEvent):
            _check_tag(event, "seq")
            return self._sequence(depth)
        _check_tag(event, "map")
        return self._mapping(depth, {} if lines is None else lines)

    def _referred(self, event: Any) -> Any:
        found = self._anchors.get(event.anchor)
        if found is None:
            name = quoted(event.anchor)
            raise MalformedDocument(
                f"'*{name}' refers to nothing before it; write '&{name}' there", _line(event)
            )
        self._tally.add(found.values, found.size, _line(event))
        return found.value

    def _sequence(self, depth: int) -> list[Any]:
        found = []
        while not isinstance(event := self._next(), self._yaml.SequenceEndEvent):
            found.append(self._value(event, depth + 1))
        return found

    def _mapping(self, depth: int, lines: dict[str, int]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        while not isinstance(event := self._next(), self._yaml.MappingEndEvent):
            line = _line(event)
            key = self._key(event)
            if key in found or (key is None and merged is not None):
                raise twice(key or "<<", line)
            value = self._value(self._next(), depth + 1)
            if key is None:
                merged = _merged(value, line)
            else:
                found[key] = value
                lines[key] = line
        return {**merged, **found} if merged else found

    def _key(self, event: Any) -> str | None:
        """None: what follows is merged. `on` and other words for truth values are names where they are keys."""
        line = _line(event)
        key: Any = None
        if isinstance(event, self._yaml.AliasEvent):
            key = self._referred(event)
        elif isinstance(event, self._yaml.ScalarEvent):
            size = text_size(event.value)
            self._tally.add(1, size, line)
            tag = self._tag(event)
            if tag == _MERGE:
                return None
            key = event.value if tag in (_TEXT, _BOOL) else None
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(key, 1, size)
        if not isinstance(key, str):
            raise MalformedDocument("a key is no text: put it in quotes", line)
        return key

    def _tag(self, event: Any) -> str:
        tag: str | None = event.tag
        if tag is not None and tag != "!":
            return tag
        return _tag_of(event.value) if event.implicit[0] else _TEXT

    def _converted(self, tag: str, event: Any) -> Any:
        text: str = event.value
        if tag == _TEXT:
            return text
        if tag not in (_NULL, _BOOL, _INT, _FLOAT):
            raise _unknown_tag(tag, event)
        line = _line(event)
        check_number(text, line)
        if event.tag is not None and _patterns()[tag].match(text) is None:
            raise _not_of_tag(tag, text, line)
        if tag == _NULL:
            return None
        if tag == _INT and len(text) < _SHORT and text.isdecimal() and text[0] != "0":
            return int(text)
        try:
            made = getattr(self._loader, _CONSTRUCTORS[tag])(self._yaml.ScalarNode(tag, text))
        except ValueError:
            raise _not_of_tag(tag, text, line) from None
        except OverflowError:
            made = math.inf
        return made if tag == _BOOL else json_number(made, text, line)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _COLLECTIONS[kind]):
        raise _unknown_tag(event.tag, event)


def _unknown_tag(tag: str, event: Any) -> MalformedDocument:
    short = tag.replace(_YAML, "!!", 1)
    return MalformedDocument(
        f"the tag '{quoted(short)}' does not stand for a value that JSON has; leave it out", _line(event)
    )


def _not_of_tag(tag: str, text: str, line: int) -> MalformedDocument:
    short = tag.replace(_YAML, "!!", 1)
    return MalformedDocument(
        f"'{quoted(text)}' is no value of '{short}'; correct it, or leave the tag out", line
    )


def _merged(value: Any, line: int) -> dict[str, Any]:
    """What `<<` adds: of several the first goes before the others."""
    found: dict[str, Any] = {}
    for each in reversed(value if isinstance(value, list) else [value]):
        if not isinstance(each, dict):
            raise MalformedDocument("'<<' is followed by an object, or a list of objects", line)
        found |= each
    return found
