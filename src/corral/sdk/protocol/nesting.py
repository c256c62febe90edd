"""How deep a value is nested and of how many parts it is made, read from its msgpack before it is decoded.

Without recursion and with an end: a value that says of itself that it is deep or has many parts is not walked
further than the bound. What is no msgpack is left to the decoder, which says what is wrong with it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_DEPTH: Final = 32
"""Lists and maps within each other in any value that is not of a fixed form; the hosts' own bound for decoded
values is the same."""
_OPENERS: Final = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
_NO_OPENERS: Final = bytes(sorted(set(range(256)) - set(_OPENERS)))
_PLAIN: Final = frozenset([*range(0x80), *range(0xC0, 0xC4), *range(0xE0, 0x100)])
"""Values of a single byte."""
_EMPTY: Final = frozenset([0x80, 0x90])
_FIXED: Final = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
"""Bytes after the first one of numbers and of small extensions."""
_SIZED: Final = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
"""Bytes of the length of texts, bytes and extensions, and what stands between it and the content."""
_CONTAINERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Bytes of the length of lists and maps, and how many values an item of theirs is."""


class Nesting(NamedTuple):
    """What was found: `problem` says why a value may not be decoded, in words that complete "it", and is empty when
    it may; `parts` is how many values there are in it, as far as they were counted."""

    problem: str
    parts: int


def nesting(raw: bytes, *, depth: int, parts: int) -> Nesting:
    """Of the msgpack value that `raw` begins with. What has few lists and maps is not counted: it costs no more than
    its bytes."""
    if len(raw) <= parts and len(raw.translate(None, _NO_OPENERS)) <= depth:
        return Nesting("", 0)
    try:
        return _walked(raw, depth, parts)
    except IndexError:
        return Nesting("", 0)  # it was cut: no msgpack


def _walked(raw: bytes, depth: int, parts: int) -> Nesting:
    """Containers of containers go on a list of our own; values within one are passed without."""
    above: list[int] = []
    left, position = 1, 0
    for seen in range(parts):
        while not left:
            if not above:
                return Nesting("", seen)
            left = above.pop()
        left -= 1
        code = raw[position]
        position += 1
        if code in _PLAIN:
            continue
        if 0xA0 <= code < 0xC0:
            position += code & 0x1F
        elif code in _FIXED:
            position += _FIXED[code]
        elif code in _SIZED:
            width, more = _SIZED[code]
            position += width + more + int.from_bytes(raw[position : position + width], "big")
        else:
            if len(above) >= depth:
                return Nesting(f"is nested deeper than {depth} levels", seen)
            if code in _EMPTY:
                continue
            above.append(left)
            left, position = _items(raw, code, position)
    problem = "" if not left and not any(above) else f"has more than {parts:,} parts"
    return Nesting(problem, parts)


def _items(raw: bytes, code: int, position: int) -> tuple[int, int]:
    """How many values a list or map holds, and where they begin."""
    if code < 0xA0:
        return (code & 0x0F) * (2 if code < 0x90 else 1), position
    width, values = _CONTAINERS[code]
    return int.from_bytes(raw[position : position + width], "big") * values, position + width
