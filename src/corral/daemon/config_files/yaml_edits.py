"""Edits of YAML in place. A value's stretch of text is replaced, an entry's text is added, nothing else moves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from corral.daemon.config_files.splices import Splices, line_end, line_start, newline_of
from corral.daemon.config_files.yaml_nodes import Node
from corral.daemon.config_files.yaml_scalars import STEP, Scalar, block, entry, flow, is_one_line, scalar

_COLON: Final = re.compile(r"[ \t]*(\r?\n[ \t]*)?:")
"""Behind a key; below it when the key has a question mark."""
_HEADER: Final = re.compile(r"[|>]([1-9]?)([-+]?)([1-9]?)[ \t]*(#.*)?\r?$", re.MULTILINE)
"""Of a text in lines of its own."""


class Awkward(Exception):
    """Laid out in a way that is not edited in place, such as a comment between a key and its colon."""


def replace_value(splices: Splices, holder: Node | None, key: Node | None, old: Node, new: Any) -> None:
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


def insert_entries(splices: Splices, holder: Node, pairs: Sequence[tuple[str | Scalar | None, Any]]) -> None:
    """Add entries behind the last one; in lists keys are None."""
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
    """Whole lines behind the one that ends here, or before it when `at` is a line's beginning."""
    text = splices.text
    newline = newline_of(text)
    joined = newline.join(lines)
    if at == 0 or text[at - 1] == "\n":
        splices.insert(at, joined + newline)
    else:
        splices.insert(line_end(text, at), newline + joined)


def _end_last_line(splices: Splices, node: Node) -> None:
    """A text in lines of its own that ends with the file and not with a line break would get one from what
    follows: its header says that it has none."""
    while node.entries and not node.flow:
        node = node.entries[-1][1]
    text = splices.text
    if node.block and node.end == len(text) and not text.endswith("\n"):
        header = _HEADER.search(text, node.start)
        if header is None:
            raise Awkward
        splices.replace(header.start() + 1, header.end(3), f"{header[1]}{header[3]}-")


def trimmed_end(text: str, node: Node) -> int:
    """Its end without the line breaks that a text over several lines ends with."""
    end = node.end
    while end > node.start and text[end - 1] in " \t\r\n":
        end -= 1
    return end


def _inline(new: Any, old: Node) -> str:
    if old.kind == "scalar" and not isinstance(new, dict | list):
        return scalar(new, style=old.style if old.style in ("'", '"') and isinstance(new, str) else "").text
    return flow(new)


def _replace_inline(splices: Splices, old: Node, new: str) -> None:
    text = splices.text
    before = text[old.start - 1 : old.start]
    lead = " " if old.start == old.end and before and before not in " \t\r\n[{(" else ""
    splices.replace(old.start, max(old.start, trimmed_end(text, old)), lead + new)


def _replace_below(splices: Splices, holder: Node, colon: int, old: Node, anchor: str, new: Any) -> None:
    """It begins in a line below its key; comments between them stay."""
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


def _replace_by_block(splices: Splices, holder: Node, colon: int, old: Node, anchor: str, new: Any) -> None:
    """It begins in the line of its key, and the new one takes lines of its own."""
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


def _insert_flow(splices: Splices, holder: Node, pairs: Sequence[tuple[str | Scalar | None, Any]]) -> None:
    parts = [flow(value) if key is None else f"{scalar(key).text}: {flow(value)}" for key, value in pairs]
    joined = ", ".join(parts)
    if holder.entries:
        splices.insert(trimmed_end(splices.text, holder.entries[-1][1]), f", {joined}")
    else:
        splices.insert(holder.end - 1, joined)
