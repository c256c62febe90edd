"""YAML: patches and merges that keep comments, order and layout of everything they do not name.

An edit is made in the text, the text is read again, and the outcome compared with what it shall say. Only a
file that is laid out in a way we do not edit in place is written anew, without its comments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corral.daemon.config_files.faults import Impossible, Malformed, decoded
from corral.daemon.config_files.splices import Splices, newline_of, with_newlines
from corral.daemon.config_files.steps import item_place, nested
from corral.daemon.config_files.values import settled
from corral.daemon.config_files.yaml_content import (
    Copier,
    Shape,
    as_text,
    merged_shape,
    put_shape,
    shape,
    shape_of,
)
from corral.daemon.config_files.yaml_edits import Awkward, add_lines, insert_entries, replace_value
from corral.daemon.config_files.yaml_nodes import STR, Document, Node, read
from corral.daemon.config_files.yaml_scalars import Scalar, entry, scalar


def put(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    """The file with this value at this place; `create`: maps on the way are made."""
    mark, text = decoded(data)
    document = read(text)
    splices = Splices(text)
    leaf = _leaf(document.root, steps, create=create)
    new = settled(value, text=leaf is not None and leaf.kind == "scalar" and leaf.tag == STR)
    wanted = put_shape(shape(document.root), steps, shape_of(new))

    def edit() -> None:
        if document.root is None:
            add_lines(splices, len(text), entry(scalar(steps[0]).text, nested(steps[1:], new), 0))
        else:
            _put(splices, document.root, steps, new)

    return (mark + _outcome(splices, edit, wanted, document)).encode()


def merge(lower: bytes, upper: bytes) -> bytes:
    """Map by map, the upper one's values win; lists are values. Comments are the lower one's."""
    mark, text = decoded(lower)
    document, other = read(text), read(decoded(upper)[1])
    if other.root is None:
        return lower
    if document.root is None or (document.root.kind, other.root.kind) != ("map", "map"):
        return upper
    splices = Splices(text)
    root, top = document.root, other.root
    wanted = merged_shape(root, top, Copier(document.anchors), Copier(other.anchors))

    def edit() -> None:
        _merge(splices, root, top, Copier(document.anchors), Copier(other.anchors))

    return (mark + _outcome(splices, edit, wanted, document)).encode()


def _outcome(splices: Splices, edit: Callable[[], None], wanted: Shape, document: Document) -> str:
    try:
        edit()
        result = splices.result()
        if shape(read(result).root) == wanted:
            return result
    except (Awkward, Malformed):
        pass
    if document.plain:
        result = with_newlines(as_text(wanted), newline_of(splices.text))
        if shape(read(result).root) == wanted:
            return result
    raise Impossible("the file is laid out in a way that cannot be edited")


def _leaf(node: Node | None, steps: tuple[str, ...], *, create: bool) -> Node | None:
    """The node at this place; None: it is missing and may be made."""
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


def _put(splices: Splices, root: Node, steps: tuple[str, ...], value: Any) -> None:
    """The place was looked at before: what is missing may be made."""
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


def _merge(splices: Splices, lower: Node, upper: Node, below: Copier, above: Copier) -> None:
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
