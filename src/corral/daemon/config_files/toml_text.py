"""TOML, by tomlkit, which keeps comments and layout; the outcome is checked with the standard library."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item

from corral.daemon.config_files.faults import Impossible, Malformed, decoded
from corral.daemon.config_files.steps import item_place, nested
from corral.daemon.config_files.values import settled

_MAX_CHARACTERS: Final = 1 << 19
"""Which take some seconds."""
_BARE_NEWLINE: Final = re.compile(r"(?<!\r)\n")
_LINE: Final = re.compile(r"at line (\d+)")


def put(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    """The file with this value at this place; `create`: tables on the way are made."""
    mark, text = decoded(data)
    wanted = _parsed(text)
    _put(wanted, steps, value, create=create)
    document = _document(text)
    try:
        _put(document, steps, value, create=create)
        result = _dumped(document, text)
    except (TOMLKitError, ValueError, TypeError, KeyError, AttributeError):
        result = ""
    return (mark + _checked(result, wanted)).encode()


def merge(lower: bytes, upper: bytes) -> bytes:
    """Table by table, the upper one's values win; arrays are values, arrays of tables included."""
    mark, text = decoded(lower)
    wanted, other = _parsed(text), _parsed(decoded(upper)[1])
    _merge(wanted, other)
    document = _document(text)
    try:
        _merge(document, other)
        result = _dumped(document, text)
    except (TOMLKitError, ValueError, TypeError, KeyError, AttributeError):
        result = ""
    return (mark + _checked(result, wanted)).encode()


def _put(container: Any, steps: tuple[str, ...], value: Any, *, create: bool) -> None:
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
        _assign(container, key, nested(rest, new))
        return


def _found(container: Any, step: str, where: str, *, may_append: bool) -> tuple[Any, bool]:
    if isinstance(container, MutableMapping):
        return step, step in container
    if not isinstance(container, list):
        raise Impossible(f"{where} is neither a table nor an array")
    place = item_place(step, len(container), where=where, may_append=may_append)
    return place, place < len(container)


def _assign(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, list) and key == len(container):
        container.append(value)
    elif isinstance(container, InlineTable) and isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        container[key] = table
    else:
        container[key] = value


def _merge(lower: Any, upper: dict[str, Any]) -> None:
    for key, value in upper.items():
        if isinstance(value, dict) and isinstance(lower.get(key), MutableMapping):
            _merge(lower[key], value)
        elif key not in lower or not _same(_unwrapped(lower[key]), value):  # else its layout stays
            _assign(lower, key, value)


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


def _dumped(document: tomlkit.TOMLDocument, before: str) -> str:
    """The document, its new lines ended as all the others are."""
    dumped = tomlkit.dumps(document)
    if before.count("\n") == before.count("\r\n") > 0:
        return _BARE_NEWLINE.sub("\r\n", dumped)
    return dumped


def _checked(result: str, wanted: dict[str, Any]) -> str:
    """The edited text if it says what it shall, else one without comments that does."""
    for text in _candidates(result, wanted):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if _same(tomllib.loads(text), wanted):
                return text
    raise Impossible("TOML has no such value, or the file is laid out in a way that cannot be edited")


def _candidates(result: str, wanted: dict[str, Any]) -> Iterator[str]:
    yield result
    yield tomlkit.dumps(wanted)  # takes its time, so not before it is needed


def _same(one: Any, other: Any) -> bool:
    """Equal with equal types; not-a-number is itself."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))
