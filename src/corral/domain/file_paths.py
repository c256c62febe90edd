"""Paths of files within a tree, and globs over them. Both are untrusted and are checked once, here.

A path is relative and written with `/`. A glob is anchored at the root of the tree: `*`, `?` and `[…]` stay
within a part, `**` as a part stands for any number of parts. A match of a directory matches everything below
it; with a `/` at its end only that.

The limits of one answer about an instance's files are here, too: both sides of the link use them. So are the modes that
callers may give a file.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, Literal

from corral.domain.patterns import BytesPattern, compile_globs, literal
from corral.errors import Code, Rejected

PATH_MAX: Final = 4096
PART_MAX: Final = 255
WILDCARDS_MAX: Final = 32
FileMode = Literal["444", "555", "644", "755"]
"""As people write modes."""


def check_path(text: str, *, field: str | None = None) -> str:
    """The path itself; PATH_REFUSED names what is wrong with it."""
    if problem := _problem(text):
        raise _refused(text, problem, field)
    return text


def check_named(text: str, *, field: str | None = None) -> str:
    """The path of what lies in a working directory already: a workload may have named it in any way, with control characters
    and backslashes. PATH_REFUSED when it leads elsewhere or can be no name."""
    if problem := "it holds a NUL" if "\0" in text else _place_problem(text):
        raise _refused(text, problem, field)
    return text


def check_glob(text: str, *, field: str | None = None) -> str:
    """A glob by the rules of paths; it may end with a `/`. `**` is a whole part."""
    problem = _problem(text.removesuffix("/"))
    if not problem and any("**" in part and part != "**" for part in text.split("/")):
        problem = "'**' stands alone between two '/'"
    if not problem and sum(text.count(sign) for sign in "*?[") > WILDCARDS_MAX:
        problem = f"it has more than {WILDCARDS_MAX} wildcards"
    if problem:
        raise _refused(text, problem, field)
    return text


def beneath(path: str, directory: str) -> bool:
    """Whether the path is the directory itself or something in it."""
    return path == directory or path.startswith(directory + "/")


class Globs:
    """Several globs, matched together. None match nothing."""

    __slots__ = ("_compiled", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(patterns)
        self._compiled = _compiled(self.patterns) if self.patterns else ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def matches(self, path: str) -> bool:
        """Whether one of them matches this path. A name that is not UTF-8 is matched by wildcards only."""
        if not self._compiled:
            return False
        encoded = path.encode("utf-8", "replace")
        return any(each.fullmatch(encoded) is not None for each in self._compiled)


@functools.lru_cache(maxsize=256)
def globs(patterns: tuple[str, ...]) -> Globs:
    """Compiled once for each tuple."""
    return Globs(patterns)


def _problem(text: str) -> str:
    if not text.isprintable() and any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in text):
        return "it holds a control character"
    if "\\" in text:
        return "it holds a backslash; parts are separated by '/'"
    return _place_problem(text)


def _place_problem(text: str) -> str:
    if not text:
        return "it is empty"
    if text.startswith("/"):
        return "it is absolute"
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if len(encoded) > PATH_MAX:
        return f"it is longer than {PATH_MAX} bytes"
    return next((found for part in encoded.split(b"/") if (found := _part_problem(part))), "")


def _part_problem(part: bytes) -> str:
    if not part:
        return "it has an empty part"
    if part in (b".", b".."):
        return f"it has a part '{part.decode()}'"
    return f"a part is longer than {PART_MAX} bytes" if len(part) > PART_MAX else ""


def _refused(text: str, problem: str, field: str | None) -> Rejected:
    shown = text if len(text) <= 120 else text[:117] + "..."
    return Rejected(
        Code.PATH_REFUSED,
        f"path {shown!r} is refused: {problem}",
        hint="use a path relative to the working directory, such as 'config/server.yml'",
        field=field,
    )


@functools.lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> tuple[BytesPattern, ...]:
    return compile_globs([_translated(pattern) for pattern in patterns])


def _translated(pattern: str) -> str:
    only_beneath = pattern.endswith("/")
    parts = pattern.removesuffix("/").split("/")
    result = ""
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            result += ".+" if last else "(?:[^/]+/)*"
        else:
            result += _part(part) + ("" if last else "/")
    return f"(?:{result}{'/.+' if only_beneath else '(?:/.*)?'})"


def _part(part: str) -> str:
    result, at = "", 0
    while at < len(part):
        sign = part[at]
        close = _closing(part, at) if sign == "[" else -1
        if sign == "*":
            result += "[^/]*"
        elif sign == "?":
            result += "[^/]"
        elif close > 0 and (members := _class(part[at + 1 : close])):
            result += members
            at = close
        else:
            result += literal(sign)
        at += 1
    return result


def _closing(part: str, at: int) -> int:
    """The end of the set that begins here, or -1. A bracket that comes first in it is a member."""
    first = at + 2 if part[at + 1 : at + 2] in ("!", "^") else at + 1
    return part.find("]", first + 1)


def _class(members: str) -> str:
    """`[a-z]` or `[!a-z]` without the `/`; empty when it is no set, and the bracket an ordinary character."""
    negated = members[0] in "!^"
    ranges, at, rest = [], 0, members[1:] if negated else members
    while at < len(rest):
        span = at + 2 < len(rest) and rest[at + 1] == "-"
        low, high = rest[at], rest[at + 2] if span else rest[at]
        if low > high:
            return ""
        ranges.append((ord(low), ord(high)))
        at += 3 if span else 1
    if negated:
        return f"[^/{''.join(_span(low, high) for low, high in ranges)}]"
    slash = ord("/")
    split = [
        piece
        for low, high in ranges
        for piece in (((low, slash - 1), (slash + 1, high)) if low <= slash <= high else ((low, high),))
        if piece[0] <= piece[1]
    ]
    return f"[{''.join(_span(low, high) for low, high in split)}]" if split else ""


def _span(low: int, high: int) -> str:
    return f"\\x{{{low:x}}}-\\x{{{high:x}}}"


DEFAULT_ENTRIES: Final = 1_000
MOST_ENTRIES: Final = 10_000
DEEPEST: Final = 200
"""Directories within one another that are listed, written, unpacked, packed and saved."""
LEVELS: Final = DEEPEST + 1
"""Levels of entries in such a tree: those in the innermost directory included."""
DEFAULT_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 256 * 1024
"""Bytes of one answer, a listing or content: it is sent between heartbeats."""

MOST_DIGESTED: Final = 64 * 1024 * 1024
"""The largest file of which a query gets the digest."""
LISTED_DIGESTED: Final = 4 * 1024 * 1024
"""The same in a listing."""


def bounded(requested: int, *, default: int, most: int) -> int:
    """The requested value within bounds; 0, or a negative value, stands for the default."""
    return min(requested, most) if requested > 0 else default
