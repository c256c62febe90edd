"""Patterns from outside: RE2 only, so that matching time is linear in the text.

The one place where they are compiled. A pattern is bounded in length and in the memory it may use, so that
compiling one does not block a loop.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, AnyStr, Final, Protocol, TypeVar, cast

import re2  # type: ignore[import-untyped]  # the package has no stubs

from corral.errors import Code, Rejected

PATTERN_MAX: Final = 1000
_MEMORY: Final = 512 * 1024
"""Enough for hundreds of states. More costs time already when a pattern is compiled: `\\pL{400}` 300 ms."""
_CLASSES_MAX: Final = 20
"""Of `\\p{…}`: each takes a table to be read, whether it is used or not."""
_REFERENCE: Final = re.compile(r"\\(?:([0-9])|g<([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2})>|\\)")

_Found = TypeVar("_Found", str, bytes, covariant=True)


class Match(Protocol[_Found]):
    def start(self, group: int = 0, /) -> int: ...

    def end(self, group: int = 0, /) -> int: ...

    def __getitem__(self, group: int | str, /) -> _Found | None: ...


class CompiledPattern(Protocol[AnyStr]):
    """The part of a compiled pattern that is used."""

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...

    def search(self, text: AnyStr, pos: int | None = None, /) -> Match[AnyStr] | None: ...

    def fullmatch(self, text: AnyStr, /) -> Match[AnyStr] | None: ...

    def finditer(self, text: AnyStr, /) -> Iterator[Match[AnyStr]]: ...


Pattern = CompiledPattern[str]
BytesPattern = CompiledPattern[bytes]


def compile_pattern(text: str, *, field: str = "pattern", multiline: bool = False) -> Pattern:
    """For texts; with `multiline` `^` and `$` are the ends of a line. INVALID_PATTERN with RE2's message."""
    return cast(Pattern, _compiled(text, field, multiline, False))


def compile_bytes(text: str, *, field: str = "pattern", multiline: bool = False) -> BytesPattern:
    """The same for bytes, which need not be UTF-8."""
    return cast(BytesPattern, _compiled(text, field, multiline, True))


def check_template(pattern: Pattern, template: str, *, field: str) -> None:
    r"""Refuse a template (`\1`, `\g<name>`, `\\`) that names a group which the pattern has not."""
    for found in _REFERENCE.finditer(template):
        name = found[1] or found[2]
        if name is None:
            continue
        known = int(name) <= pattern.groups if name.isdigit() else name in pattern.groupindex
        if not known:
            raise Rejected(
                Code.INVALID_FIELD,
                f"{field}: the pattern has no group '{name}'",
                hint=f"it has {pattern.groups} groups; write \\\\ for a backslash",
                field=field,
            )


def _compiled(text: str, field: str, multiline: bool, data: bool) -> object:
    if not text or len(text) > PATTERN_MAX:
        raise _invalid(field, f"it has {len(text)} characters, between 1 and {PATTERN_MAX} are allowed")
    if text.count("\\p") + text.count("\\P") > _CLASSES_MAX:
        raise _invalid(field, f"it has more than {_CLASSES_MAX} classes of Unicode")
    try:
        return _compile(text, multiline, data)
    except (re2.error, UnicodeError) as error:
        detail = error.args[0] if error.args else error
        shown = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise _invalid(field, shown[:300]) from None


@functools.lru_cache(maxsize=512)
def _compile(text: str, multiline: bool, data: bool) -> object:
    options: Any = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    compiled = re2.compile(text.encode() if data else text, options)
    if not multiline:
        return compiled
    # Compiled alone first, so that it cannot close the group it is put in.
    whole = f"(?m:{text})"
    return re2.compile(whole.encode() if data else whole, options)


def _invalid(field: str, why: str) -> Rejected:
    return Rejected(
        Code.INVALID_PATTERN,
        f"the pattern is not a regular expression: {why}",
        hint="RE2's syntax has neither look-around nor back-references",
        field=field,
    )
