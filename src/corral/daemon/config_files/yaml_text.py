"""YAML patches and merges that keep comments, order and layout of everything they do not name.

An edit is made in the text, by replacing the text of a value or adding that of an entry; the text is read again, and
the result compared with the intended content. Only a file with a layout that is not edited in place is written anew,
without its comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from corral.daemon.config_files.text_edits import (
    Impossible,
    Malformed,
    Splices,
    decoded,
    item_place,
    line_end,
    line_start,
    nested,
    newline_of,
    with_newlines,
)
from corral.daemon.config_files.values import settled
from corral.daemon.config_files.yaml_nodes import STR, YamlDocument, YamlNode, read
from corral.daemon.config_files.yaml_values import (
    STEP,
    Scalar,
    Shape,
    YamlCopier,
    as_text,
    block,
    entry,
    flow,
    is_one_line,
    merged_shape,
    put_shape,
    scalar,
    shape,
    shape_of,
)

_COLON: Final = re.compile(r"[ \t]*(\r?\n[ \t]*)?:")
"""After a key; below it when the key has a question mark."""
_HEADER: Final = re.compile(r"[|>]([1-9]?)([-+]?)([1-9]?)[ \t]*(#.*)?\r?$", re.MULTILINE)
"""Header of a block scalar."""


class Awkward(Exception):
    """A layout that is not edited in place, such as a comment between a key and its colon."""


def replace_value(
    splices: Splices, holder: YamlNode | None, key: YamlNode | None, old: YamlNode, new: Any
) -> None:
    """Give an entry of `holder` (None: the document) another value. `key` is None in lists."""
    anchor = f"&{old.anchor} " if old.anchor else ""
    if holder is None or holder.flow or key is None:
        _replace_inline(splices, old, anchor + _inline(new, old))
        return
    text = splices.text
    match = _COLON.match(text, key.end)
    if match is None:
        raise Awkward
    colon = match.end()
    if "\n" in text[colon : old.start]:
        _replace_below(splices, holder, colon, old, anchor, new)
    elif is_one_line(new):
        _replace_inline(splices, old, anchor + _inline(new, old))
    else:
        _replace_by_block(splices, holder, colon, old, anchor, new)


def insert_entries(
    splices: Splices, holder: YamlNode, pairs: Sequence[tuple[str | Scalar | None, Any]]
) -> None:
    """Add entries after the last one; in lists keys are None."""
    if holder.flow:
        _insert_flow(splices, holder, pairs)
        return
    lines: list[str] = []
    for key, value in pairs:
        lines += (
            block([value], holder.column) if key is None else entry(scalar(key).text, value, holder.column)
        )
    _end_last_line(splices, holder)
    add_lines(splices, holder.end, lines)


def add_lines(splices: Splices, at: int, lines: Sequence[str]) -> None:
    """Whole lines after the one that ends here, or before it when `at` is a line's beginning."""
    text = splices.text
    newline = newline_of(text)
    joined = newline.join(lines)
    if at == 0 or text[at - 1] == "\n":
        splices.insert(at, joined + newline)
    else:
        splices.insert(line_end(text, at), newline + joined)


def _end_last_line(splices: Splices, node: YamlNode) -> None:
    """A block scalar that ends with the file and without a line break would get one from the text appended after it:
    its header is changed to strip it."""
    while node.entries and not node.flow:
        node = node.entries[-1][1]
    text = splices.text
    if node.block and node.end == len(text) and not text.endswith("\n"):
        header = _HEADER.search(text, node.start)
        if header is None:
            raise Awkward
        splices.replace(header.start() + 1, header.end(3), f"{header[1]}{header[3]}-")


def trimmed_end(text: str, node: YamlNode) -> int:
    """Its end without the final line breaks of a text over several lines."""
    end = node.end
    while end > node.start and text[end - 1] in " \t\r\n":
        end -= 1
    return end


def _inline(new: Any, old: YamlNode) -> str:
    if old.kind == "scalar" and not isinstance(new, dict | list):
        return scalar(new, style=old.style if old.style in ("'", '"') and isinstance(new, str) else "").text
    return flow(new)


def _replace_inline(splices: Splices, old: YamlNode, new: str) -> None:
    text = splices.text
    before = text[old.start - 1 : old.start]
    lead = " " if old.start == old.end and before and before not in " \t\r\n[{(" else ""
    splices.replace(old.start, max(old.start, trimmed_end(text, old)), lead + new)


def _replace_below(
    splices: Splices, holder: YamlNode, colon: int, old: YamlNode, anchor: str, new: Any
) -> None:
    """Replace a value that begins in a line below its key; comments between them stay."""
    text = splices.text
    end = trimmed_end(text, old)
    if is_one_line(new):
        splices.insert(colon, f" {anchor}{flow(new)}")
        above = line_start(text, old.start) - 1
        above -= above > colon and text[above - 1] == "\r"
        splices.replace(above, end, "")
        return
    if anchor:
        splices.insert(colon, f" {anchor.rstrip()}")
    lines = block(new, holder.column + STEP)
    splices.replace(line_start(text, old.start), end, newline_of(text).join(lines))


def _replace_by_block(
    splices: Splices, holder: YamlNode, colon: int, old: YamlNode, anchor: str, new: Any
) -> None:
    """Replace a value that begins in the line of its key by one that takes lines of its own."""
    text = splices.text
    newline = newline_of(text)
    lines = newline + newline.join(block(new, holder.column + STEP))
    lead = f" {anchor.rstrip()}" if anchor else ""
    end = trimmed_end(text, old)
    if "\n" in text[old.start : end]:
        splices.replace(colon, end, lead + lines)
    else:
        splices.replace(colon, max(colon, end), lead)
        splices.insert(line_end(text, max(colon, end)), lines)


def _insert_flow(
    splices: Splices, holder: YamlNode, pairs: Sequence[tuple[str | Scalar | None, Any]]
) -> None:
    parts = [flow(value) if key is None else f"{scalar(key).text}: {flow(value)}" for key, value in pairs]
    joined = ", ".join(parts)
    if holder.entries:
        splices.insert(trimmed_end(splices.text, holder.entries[-1][1]), f", {joined}")
    else:
        splices.insert(holder.end - 1, joined)


def put(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    """The file with this value at this path; `create`: missing maps on the path are created."""
    mark, text = decoded(data)
    document = read(text)
    splices = Splices(text)
    leaf = _leaf(document.root, steps, create=create)
    new = settled(value, text=leaf is not None and leaf.kind == "scalar" and leaf.tag == STR)
    expected = put_shape(shape(document.root), steps, shape_of(new))

    def edit() -> None:
        if document.root is None:
            add_lines(splices, len(text), entry(scalar(steps[0]).text, nested(steps[1:], new), 0))
        else:
            _put(splices, document.root, steps, new)

    return (mark + _outcome(splices, edit, expected, document)).encode()


def merge(lower: bytes, upper: bytes) -> bytes:
    """Merge map by map, the upper one's values win; lists are values. Comments are the lower one's."""
    mark, text = decoded(lower)
    document, other = read(text), read(decoded(upper)[1])
    if other.root is None:
        return lower
    if document.root is None or (document.root.kind, other.root.kind) != ("map", "map"):
        return upper
    splices = Splices(text)
    root, top = document.root, other.root
    expected = merged_shape(root, top, YamlCopier(document.anchors), YamlCopier(other.anchors))

    def edit() -> None:
        _merge(splices, root, top, YamlCopier(document.anchors), YamlCopier(other.anchors))

    return (mark + _outcome(splices, edit, expected, document)).encode()


def _outcome(splices: Splices, edit: Callable[[], None], expected: Shape, document: YamlDocument) -> str:
    try:
        edit()
        result = splices.result()
        if shape(read(result).root) == expected:
            return result
    except (Awkward, Malformed):
        pass
    if document.plain:
        result = with_newlines(as_text(expected), newline_of(splices.text))
        if shape(read(result).root) == expected:
            return result
    raise Impossible("the file is laid out in a way that cannot be edited")


def _leaf(node: YamlNode | None, steps: tuple[str, ...], *, create: bool) -> YamlNode | None:
    """The node at this path; None: it is missing and may be created."""
    for place, step in enumerate(steps):
        where = ".".join(steps[:place]) or "the file"
        if node is None or node.empty:
            _missing(steps[: place + 1], create)
            return None
        if node.kind == "alias":
            raise Impossible(f"{where} is an alias of '&{node.value}'; change what has that anchor")
        if node.kind == "scalar":
            raise Impossible(f"{where} is neither a map nor a list")
        if node.kind == "list":
            at = item_place(step, len(node.entries), where=where, may_append=create)
            if at == len(node.entries):
                return None
            node = node.entries[at][1]
            continue
        found = node.at(step)
        if found is None:
            _missing(steps[: place + 1], create)
            return None
        node = found[1]
    return node


def _missing(steps: tuple[str, ...], create: bool) -> None:
    if not create:
        raise Impossible(f"it has no '{'.'.join(steps)}'")


def _put(splices: Splices, root: YamlNode, steps: tuple[str, ...], value: Any) -> None:
    """Set the value; the path was checked before: missing maps may be created."""
    if root.empty:
        splices.replace(
            root.start, root.end, "\n".join(entry(scalar(steps[0]).text, nested(steps[1:], value), 0))
        )
        return
    holder, key, node = None, None, root
    for place, step in enumerate(steps):
        if node.empty:
            replace_value(splices, holder, key, node, nested(steps[place:], value))
            return
        rest = nested(steps[place + 1 :], value)
        if node.kind == "list":
            if int(step) == len(node.entries):
                insert_entries(splices, node, [(None, rest)])
                return
            holder, key, node = node, None, node.entries[int(step)][1]
            continue
        found = node.at(step)
        if found is None:
            insert_entries(splices, node, [(step, rest)])
            return
        holder, (key, node) = node, found
    replace_value(splices, holder, key, node, value)


def _merge(splices: Splices, lower: YamlNode, upper: YamlNode, below: YamlCopier, above: YamlCopier) -> None:
    added: list[tuple[Scalar | None, Any]] = []
    for key, new in {key.value: (key, new) for key, new in upper.entries}.values():
        found = lower.at(key.value)
        if found is None:
            added.append((above.copy_key(key), above.copy(new)))
            continue
        old = found[1]
        new = above.resolved(new)
        if new.kind == "map" and below.resolved(old).kind == "map":
            if old.kind == "map":
                _merge(splices, old, new, below, above)
            else:
                replace_value(splices, lower, found[0], old, above.over(below.resolved(old), new, below))
        elif shape_of(value := above.copy(new)) != shape(old):  # else its layout stays
            replace_value(splices, lower, found[0], old, value)
    if added:
        insert_entries(splices, lower, added)
