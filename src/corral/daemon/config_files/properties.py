"""Java's .properties: keys and texts, with its escapes, separators, continued lines and comments.

Bytes are looked at as ISO-8859-1, so that each is one character and what is not touched stays as it is,
whatever its encoding. What we write beyond ASCII is a \\u escape, which every reader understands.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from corral.daemon.config_files.text_edits import (
    Impossible,
    Malformed,
    Splices,
    line_of,
    newline_of,
    with_newlines,
)
from corral.daemon.config_files.values import as_text

_BLANKS: Final = " \t\f"
_LINE: Final = re.compile(r"[^\r\n]*(\r\n|\r|\n|\Z)")
_JOINT: Final = re.compile(r"\\(\r\n|\r|\n|\Z)[ \t\f]*")
_UNICODE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMES: Final = {character: f"\\{letter}" for letter, character in _LETTERS.items()} | {"\\": "\\\\"}


class _PropertyEntry(NamedTuple):
    key: str
    start: int
    value: int
    """Where the raw value begins."""
    end: int
    """Where it ends, before the line break."""
    separated: bool


def put(data: bytes, key: str, value: Any, *, create: bool) -> bytes:
    """The file with this value at this key; of a key that occurs twice the last one counts."""
    written = as_text(value)
    if written is None:
        raise Impossible("a properties file holds texts, and the value is a list or a map")
    text = data.decode("latin-1")
    splices = Splices(text)
    entry = _by_key(text).get(key)
    if entry is not None:
        splices.replace(entry.value, entry.end, ("" if entry.separated else "=") + _escaped(written))
    elif create:
        splices.insert(len(text), _appended(text, [f"{_escaped(key, key=True)}={_escaped(written)}"]))
    else:
        raise Impossible(f"it has no key '{key}'")
    return splices.result().encode("latin-1")


def get(data: bytes) -> dict[str, str]:
    """The keys and values as a program reads them from the file."""
    text = data.decode("latin-1")
    return {key: _plain(text, entry.value, entry.end)[0] for key, entry in _by_key(text).items()}


def merge(lower: bytes, upper: bytes) -> bytes:
    """Merge per key, the upper one's value wins; comments and order are the lower one's, new keys follow."""
    text = lower.decode("latin-1")
    other = upper.removeprefix(codecs.BOM_UTF8).decode("latin-1")  # the mark is not part of its first key
    present = _by_key(text)
    splices = Splices(text)
    added = []
    newline = _newline(text)
    for key, entry in _by_key(other).items():
        raw = with_newlines(other[entry.value : entry.end], newline)
        if (old := present.get(key)) is not None:
            splices.replace(old.value, old.end, ("" if old.separated else "=") + raw)
        else:
            added.append(with_newlines(other[entry.start : entry.end], newline))
    if added:
        splices.insert(len(text), _appended(text, added))
    return splices.result().encode("latin-1")


def _by_key(text: str) -> dict[str, _PropertyEntry]:
    return {entry.key: entry for entry in _entries(text)}


def _entries(text: str) -> Iterator[_PropertyEntry]:
    at = 0
    while at < len(text):
        start = _skip_blanks(text, at, len(text))
        if start == len(text) or text[start] in "#!\r\n":
            at = _line(text, start)[1]
            continue
        end, at = _logical_line(text, start)
        key, after = _plain(text, start, end, stop_at="=: \t\f")
        value, separated = _value_start(text, after, end)
        yield _PropertyEntry(key, start, value, end, separated)


def _line(text: str, at: int) -> tuple[int, int]:
    """Where the line at this position ends, and where the next begins."""
    match = _LINE.match(text, at)
    assert match is not None  # it matches the empty end, too
    return match.start(1), match.end()


def _logical_line(text: str, start: int) -> tuple[int, int]:
    """The same for a line with its continuation lines; the last line of the file has none."""
    at = start
    while True:
        end, following = _line(text, at)
        backslashes = end - len(text[at:end].rstrip("\\")) - at
        if backslashes % 2 == 0 or following == end:
            return end, following
        at = following


def _plain(text: str, start: int, end: int, *, stop_at: str = "") -> tuple[str, int]:
    """The meaning of these characters up to one of `stop_at`, and where that is."""
    parts: list[str] = []
    at = start
    while at < end and text[at] not in stop_at:
        if text[at] != "\\":
            raw = at
            while at < end and text[at] != "\\" and text[at] not in stop_at:
                at += 1
            parts.append(_in_utf8(text[raw:at]))
        elif (joint := _JOINT.match(text, at, end)) is not None:
            at = joint.end()
        elif text[at + 1] == "u":
            parts.append(_unicode(text, at, end))
            at += 6
        else:
            parts.append(_LETTERS.get(text[at + 1], text[at + 1]))
            at += 2
    whole = "".join(parts).encode("utf-16", "surrogatepass")  # two escapes may make one character
    return whole.decode("utf-16", "replace"), min(at, end)


def _unicode(text: str, at: int, end: int) -> str:
    match = _UNICODE.match(text, at, end)
    if match is None:
        raise Malformed("\\u needs four hexadecimal digits", line=line_of(text, at))
    return chr(int(match[1], 16))


def _value_start(text: str, after: int, end: int) -> tuple[int, bool]:
    """The position after the separator: blanks, then one of = and : at most, then blanks; and whether there is a
    separator."""
    at = _skip_blanks(text, after, end)
    if at < end and text[at] in "=:":
        at = _skip_blanks(text, at + 1, end)
    return at, at > after


def _skip_blanks(text: str, at: int, end: int) -> int:
    while at < end:
        if text[at] in _BLANKS:
            at += 1
        elif (joint := _JOINT.match(text, at, end)) is not None and joint.end(1) < len(text):
            at = joint.end()
        else:
            break
    return at


def _in_utf8(raw: str) -> str:
    """The text decoded as UTF-8 if its bytes are valid; else as ISO-8859-1."""
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _escaped(text: str, *, key: bool = False) -> str:
    """The escaped form; blanks at the beginning, and in keys all that would end or hide them, are escaped."""
    parts = []
    for place, character in enumerate(text):
        if character in _NAMES:
            parts.append(_NAMES[character])
        elif (character == " " and (key or not place)) or (key and character in "=:#!"):
            parts.append(f"\\{character}")
        elif " " <= character <= "~":
            parts.append(character)
        else:
            packed = character.encode("utf-16-be", "surrogatepass").hex()
            parts += (f"\\u{packed[at : at + 4]}" for at in range(0, len(packed), 4))
    return "".join(parts)


def _newline(text: str) -> str:
    return "\r" if "\n" not in text and "\r" in text else newline_of(text)


def _appended(text: str, lines: list[str]) -> str:
    """The text to append so that these lines are lines of their own."""
    newline = _newline(text)
    before = "" if not text or text[-1] in "\r\n" else newline
    last = text.rstrip("\r\n") if text else ""
    if (len(last) - len(last.rstrip("\\"))) % 2 and text != last + newline * 2:
        if len([*_entries(text)]) != len([*_entries(text + newline * 2)]):
            before += "="  # a mark alone at the end of a file is an empty key, and more lines would hide it
        before += newline  # an empty line ends a line with a continuation mark
    return before + "".join(f"{line}{newline}" for line in lines)
