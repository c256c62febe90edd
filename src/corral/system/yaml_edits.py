"""Changes of a YAML file that leave its comments, its order and its spelling as they are: only fields that differ are
written anew.

The result has to be read and compared by the caller. What is meant by references and merge keys cannot be told from the
text of a field; a file with them, or with a list of documents, may have to be written whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml

from corral.domain.groups.field_aliases import with_field_names

_NULL: Final = "tag:yaml.org,2002:null"
_WIDE: Final = 1 << 20
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARK: Final = "\ufeff"
"""At the beginning of a text. Loaders do not agree whether it is the first character."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Field(NamedTuple):
    key: Any
    value: Any
    start: int
    """Of its first line."""
    end: int
    """Of its last line."""


def with_documents(
    text: str, changes: Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> str | None:
    """The text with documents changed: by their number in it, what they were and what they become. None: it has to be
    written whole."""
    documents = _documents(text)
    if documents is None:
        return None
    edits: list[_Edit] = []
    for at, (before, after) in sorted(changes.items()):
        found = _mapping_edits(text, documents[at], before, after) if at < len(documents) else None
        if found is None:
            return None
        edits += found
    parts: list[str] = []
    done = 0
    for edit in edits:
        parts += (text[done : edit.start], edit.text)
        done = edit.end
    return "".join([*parts, text[done:]])


def without_document(text: str, at: int) -> str | None:
    """The text without its document number `at`; None: it has to be written whole."""
    documents = _documents(text)
    if documents is None or at >= len(documents):
        return None
    events = yaml.parse(text, Loader=_LOADER)
    marks = [each.start_mark for each in events if isinstance(each, yaml.DocumentStartEvent)]
    starts = [mark.index for mark in marks if mark is not None]
    first = max((each for each in starts if each <= documents[at].start_mark.index), default=0)
    following = min((each for each in starts if each > first), default=len(text))
    return text[: first if first != starts[0] else 0] + text[following:]


def with_another(text: str, document: Mapping[str, Any]) -> str:
    """The text with one more document."""
    return f"{text}{_line_break(text)}---\n{yaml.safe_dump(document, sort_keys=False, allow_unicode=True)}"


def _documents(text: str) -> list[Any] | None:
    """The documents that are not empty; None: one of them is no mapping."""
    if text.startswith(_MARK):
        return None
    try:
        found = [each for each in yaml.compose_all(text, Loader=_LOADER) if each.tag != _NULL]
    except yaml.YAMLError:
        return None
    return found if all(isinstance(each, yaml.MappingNode) for each in found) else None


def _mapping_edits(
    text: str, node: Any, before: Mapping[str, Any], after: Mapping[str, Any], *, inner: bool = False
) -> list[_Edit] | None:
    """What changes a block mapping, in the order of the text; None: it has to be written whole."""
    fields = _fields(text, node, before, inner=inner)
    if fields is None or not after or not before:
        return None
    edits: list[_Edit] = []
    for name, field in fields.items():
        if name not in before or (name in after and after[name] == before[name]):
            continue
        if name not in after:
            edits.append(_Edit(field.start, field.end, ""))
        else:
            edits += _field_edits(text, field, before[name], after[name])
    if any(name not in fields for name in before if name not in after or after[name] != before[name]):
        return None
    more = {name: value for name, value in after.items() if name not in before}
    if more:
        end = max(field.end for field in fields.values())
        block = _block(text, more, node.start_mark.column)
        edits.append(_Edit(end, end, _line_break(text[:end]) + block))
    return edits


def _fields(text: str, node: Any, before: Mapping[str, Any], *, inner: bool) -> dict[str, _Field] | None:
    """The fields of a block mapping, by their names in the document; None: they do not stand on lines of their own."""
    if node.flow_style or not node.value:
        return None
    found: dict[str, _Field] = {}
    least = node.start_mark.index
    for key, value in node.value:
        start = text.rfind("\n", 0, key.start_mark.index) + 1
        if text[start : key.start_mark.index].strip() or key.start_mark.index < least:
            return None
        if value.start_mark.index < key.end_mark.index:
            return None  # a reference to what stands elsewhere
        end = text.find("\n", max(key.end_mark.index, _content_end(text, value)))
        end = len(text) if end < 0 else end + 1
        found[_name(key.value, before, inner=inner)] = _Field(key, value, start, end)
        least = end
    return found


def _name(spelled: str, before: Mapping[str, Any], *, inner: bool) -> str:
    if inner or spelled in before:
        return spelled
    return str(next(iter(with_field_names({spelled: None}))))


def _content_end(text: str, node: Any) -> int:
    """Where the last character of a value stands; the end of a block is that of what follows it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _content_end(text, last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _field_edits(text: str, field: _Field, before: Any, after: Any) -> Sequence[_Edit]:
    key, value = field.key, field.value
    if isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(value, yaml.MappingNode):
        edits = _mapping_edits(text, value, before, after, inner=True)
        if edits is not None:
            return edits
    inline = _inline(after)
    start, end = value.start_mark.index, value.end_mark.index
    if inline and _is_inline(value) and "\n" not in text[key.start_mark.index : end]:
        return [_Edit(start, end, inline if start > key.end_mark.index + 1 else f" {inline}")]
    return [_Edit(field.start, field.end, _block(text, {key.value: after}, key.start_mark.column))]


def _is_inline(node: Any) -> bool:
    if isinstance(node, yaml.CollectionNode):
        return bool(node.flow_style)
    return node.style not in ("|", ">")


def _inline(value: Any) -> str:
    """The value for a line that has a key already; empty: it needs several."""
    text = yaml.safe_dump([value], default_flow_style=True, width=_WIDE, sort_keys=False, allow_unicode=True)
    text = text.strip()[1:-1]
    return "" if "\n" in text else text


def _block(text: str, fields: Mapping[str, Any], column: int) -> str:
    block = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True)
    lines = [f"{' ' * column}{line}\n" if line else "\n" for line in block.split("\n")[:-1]]
    return "".join(lines).replace("\n", "\r\n" if "\r\n" in text else "\n")


def _line_break(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"
