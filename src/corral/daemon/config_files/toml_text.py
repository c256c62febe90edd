"""TOML edited by tomlkit, which keeps comments and layout; the result is checked with the standard library."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item

from corral.daemon.config_files.text_edits import (
    Impossible,
    Malformed,
    decoded,
    item_place,
    nested,
    newline_of,
)
from corral.daemon.config_files.values import settled

_MAX_CHARACTERS: Final = 1 << 19
"""So many take some seconds."""
_BARE_NEWLINE: Final = re.compile(r"(?<!\r)\n")
_LINE: Final = re.compile(r"at line (\d+)")


def put(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    """The file with this value at this path; `create`: missing tables on the path are created."""
    mark, text = decoded(data)
    expected = _parsed(text)
    _put(expected, steps, value, create=create)

    def edit(document: Any, inline: bool) -> None:
        _put(document, steps, value, create=create, inline=inline)

    return (mark + _edited(text, expected, edit)).encode()


def merge(lower: bytes, upper: bytes) -> bytes:
    """Merge table by table, the upper one's values win; arrays are values, arrays of tables included."""
    mark, text = decoded(lower)
    expected, other = _parsed(text), _parsed(decoded(upper)[1])
    _merge(expected, other)
    return (
        mark + _edited(text, expected, lambda document, inline: _merge(document, other, inline=inline))
    ).encode()


def _edited(text: str, expected: dict[str, Any], edit: Callable[[Any, bool], None]) -> str:
    """The text edited to have the intended content: with new tables of their own, or inline where such tables are not
    possible (after dotted keys); else a text without comments."""
    newline = newline_of(text)
    closed = text if text.endswith("\n") or not text else text + newline  # appended text gets its own line
    for inline in (False, True):
        document = _document(closed)
        with contextlib.suppress(TOMLKitError, ValueError, TypeError, KeyError, AttributeError):
            edit(document, inline)
            result = _ended(tomlkit.dumps(document), text)
            if _same(tomllib.loads(result), expected):
                return result
    with contextlib.suppress(ValueError):
        result = _ended(tomlkit.dumps(expected), text)
        if _same(tomllib.loads(result), expected):
            return result
    raise Impossible("TOML has no such value, or the file is laid out in a way that cannot be edited")


def _ended(result: str, before: str) -> str:
    """The result with the line endings of the original, the last one included."""
    if before.count("\n") == before.count("\r\n") > 0:
        result = _BARE_NEWLINE.sub("\r\n", result)
    return result if before.endswith("\n") or not before else result.removesuffix("\n").removesuffix("\r")


def _put(container: Any, steps: tuple[str, ...], value: Any, *, create: bool, inline: bool = False) -> None:
    for place, step in enumerate(steps):
        rest = steps[place + 1 :]
        key, present = _found(container, step, ".".join(steps[:place]) or "the file", may_append=create)
        if not present and not create:
            raise Impossible(f"it has no '{'.'.join(steps[: place + 1])}'")
        if present and rest:
            container = container[key]
            continue
        new = settled(value, text=present and isinstance(container[key], str))
        _check(new)
        _assign(container, key, nested(rest, new), inline=inline)
        return


def _found(container: Any, step: str, where: str, *, may_append: bool) -> tuple[Any, bool]:
    if isinstance(container, MutableMapping):
        return step, step in container
    if not isinstance(container, list):
        raise Impossible(f"{where} is neither a table nor an array")
    place = item_place(step, len(container), where=where, may_append=may_append)
    return place, place < len(container)


def _assign(container: Any, key: Any, value: Any, *, inline: bool) -> None:
    if inline or isinstance(container, InlineTable):
        value = _in_one_line(value)
    if isinstance(container, list) and key == len(container):
        container.append(value)
    else:
        container[key] = value


def _in_one_line(value: Any) -> Any:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        for key, item in value.items():
            table[key] = _in_one_line(item)
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        array.extend(map(_in_one_line, value))
        return array
    return value


def _merge(lower: Any, upper: dict[str, Any], *, inline: bool = False) -> None:
    for key, value in upper.items():
        if isinstance(value, dict) and isinstance(lower.get(key), MutableMapping):
            _merge(lower[key], value, inline=inline)
        elif key not in lower or not _same(_unwrapped(lower[key]), value):  # else its layout stays
            _assign(lower, key, value, inline=inline)


def _unwrapped(item: Any) -> Any:
    return item.unwrap() if isinstance(item, Item) else item


def _check(value: Any) -> None:
    if value is None:
        raise Impossible("TOML has no null")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(item)


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > _MAX_CHARACTERS:
        raise Malformed(f"it has more than {_MAX_CHARACTERS} characters, which take too long to read")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        raise Malformed(str(error).partition(" (at ")[0], line=int(found[1]) if found else 0) from None
    except RecursionError:
        raise Malformed("it is nested too deep") from None


def _document(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise Malformed(str(error), line=getattr(error, "line", 0)) from None


def _same(one: Any, other: Any) -> bool:
    """Equal with equal types; not-a-number is itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))
