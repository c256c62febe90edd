"""YAML document as nodes with their positions.

Made from the parser's events and never from its objects: nothing is constructed whatever its tag is, and an alias stays
an alias, so that a few of them cannot expand to a billion values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml

from corral.daemon.config_files.text_edits import MAX_DEPTH, MAX_VALUES, Malformed, line_of

STR: Final = "tag:yaml.org,2002:str"
NULL: Final = "tag:yaml.org,2002:null"
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one of libyaml, where PyYAML was built with it, is ten times as fast; its marks count characters, too."""
_RESOLVER: Final[Any] = yaml.resolver.Resolver()
_KINDS: Final = {yaml.MappingStartEvent: "map", yaml.SequenceStartEvent: "list"}


class YamlNode(msgspec.Struct, kw_only=True, gc=False):
    """One value."""

    kind: str
    """`map`, `list`, `scalar` or `alias`."""
    start: int
    """Its first position, with its anchor and tag."""
    end: int
    """Its end; its comment, if any, follows in the same line."""
    column: int = 0
    tag: str = ""
    value: str = ""
    """The text of a scalar, the name of an alias."""
    style: str = ""
    """Style of a scalar: empty for a plain one, a quotation mark, | or >."""
    flow: bool = False
    """Written in brackets."""
    anchor: str = ""
    entries: list[tuple[YamlNode, YamlNode]] = []
    """Keys and values of a map; in a list each item is its own key."""
    index: dict[str, tuple[YamlNode, YamlNode]] | None = None
    """Made at its first use."""

    @property
    def empty(self) -> bool:
        """No text at all, which means null."""
        return self.kind == "scalar" and self.tag == NULL

    @property
    def block(self) -> bool:
        return self.kind == "scalar" and self.style in ("|", ">")

    def at(self, key: str) -> tuple[YamlNode, YamlNode] | None:
        """The entry of a key; of a key that occurs twice the last one counts."""
        if self.index is None:
            self.index = {entry[0].value: entry for entry in self.entries if entry[0].kind == "scalar"}
        return self.index.get(key)


class YamlDocument(msgspec.Struct, frozen=True, kw_only=True):
    root: YamlNode | None
    """None: there are only comments."""
    anchors: dict[str, YamlNode]

    @property
    def plain(self) -> bool:
        """Without anchors, and without tags of maps and lists: the nodes are its complete content."""
        return not self.anchors and not _tagged(self.root)


def read(text: str) -> YamlDocument:
    """The one document of this text."""
    return _YamlReader(text).document()


def _tagged(node: YamlNode | None) -> bool:
    if node is None or not node.entries:
        return node is not None and node.kind != "scalar" and bool(node.tag)
    return bool(node.tag) or any(_tagged(part) for pair in node.entries for part in pair)


def _events(text: str) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Malformed(str(error.problem or error.context), line=mark.line + 1 if mark else 0) from None
    except yaml.reader.ReaderError as error:
        line = line_of(text, error.position) if isinstance(error.position, int) else 0
        raise Malformed(error.reason, line=line) from None
    except yaml.YAMLError as error:
        raise Malformed(str(error)) from None


class _YamlReader:
    """Makes nodes of events, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._events: Iterator[Any] = _events(text)
        self._anchors: dict[str, YamlNode] = {}
        self._count = 0

    def document(self) -> YamlDocument:
        root: YamlNode | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _malformed("it holds several documents", event)
                root = self._node(next(self._events), 0)
        if root is not None and root.empty and root.start == root.end:
            root = None
        return YamlDocument(root=root, anchors=self._anchors)

    def _node(self, event: Any, depth: int) -> YamlNode:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _malformed(f"nothing has the anchor '{event.anchor}'", event)
            return YamlNode(kind="alias", start=start, end=end, value=event.anchor)
        self._count += 1
        if depth > MAX_DEPTH:
            raise _malformed(f"it is nested more than {MAX_DEPTH} deep", event)
        if self._count > MAX_VALUES:
            raise _malformed(f"it holds more than {MAX_VALUES} keys and values", event)
        if isinstance(event, yaml.ScalarEvent):
            node = YamlNode(kind="scalar", start=start, end=end, tag=_tag(event), value=event.value)
            node.style = event.style or ""
        else:
            node = self._collection(event, depth)
        if event.anchor:
            node.anchor = event.anchor
            self._anchors[event.anchor] = node  # only now: a node cannot contain itself
        return node

    def _collection(self, event: Any, depth: int) -> YamlNode:
        kind = _KINDS[type(event)]
        node = YamlNode(kind=kind, start=event.start_mark.index, end=event.end_mark.index, entries=[])
        node.tag, node.flow = event.tag or "", bool(event.flow_style)
        inner = next(self._events)
        while not isinstance(inner, yaml.CollectionEndEvent):
            key = self._node(inner, depth + 1)
            value = self._node(next(self._events), depth + 1) if kind == "map" else key
            node.entries.append((key, value))
            node.end = value.end
            inner = next(self._events)
        if node.flow or not node.entries:
            node.end = inner.end_mark.index  # type: ignore[union-attr]  # the parser always gives a position
        node.column = _column(self._text, node, marked=bool(event.anchor or event.tag))
        return node


def _tag(event: Any) -> str:
    if event.tag is None or event.tag == "!":
        found: str = _RESOLVER.resolve(yaml.ScalarNode, event.value, event.implicit)
        return found
    return str(event.tag)


def _malformed(why: str, event: Any) -> Malformed:
    return Malformed(why, line=event.start_mark.line + 1)


def _column(text: str, node: YamlNode, *, marked: bool) -> int:
    """The column of its entries; for a list that of its dashes. `marked`: an anchor or tag precedes."""
    first = node.start
    if marked and node.entries and not node.flow:
        first = node.entries[0][0].start
        if node.kind == "list":
            first = text.rfind("-", 0, first)
    return first - (text.rfind("\n", 0, first) + 1)
