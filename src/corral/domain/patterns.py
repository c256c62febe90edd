"""Patterns from outside: RE2 only, so that matching time is linear in the text.

The one place where they are compiled, with the same limits for a controller that checks a pattern and a node that uses
it. A pattern is bounded in length and in the memory it may use, so that compiling one does not block a loop.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, AnyStr, Final, Protocol, TypeVar, cast

import re2  # type: ignore[import-untyped]  # the package has no stubs

from corral.errors import Code, Rejected

PATTERN_MAX: Final = 1000
_MEMORY: Final = 512 * 1024
"""Enough for hundreds of states. More costs time already when a pattern is compiled: `\\pL{400}` 300 ms."""
_SEARCH_MEMORY: Final = 8 * 1024 * 1024
"""Of one that searches many lines: without room for its states a search can take a thousand times as long."""
_GLOBS_MEMORY: Final = 32 * 1024 * 1024
"""Of many globs in one expression, which we have translated and whose wildcards are bounded."""
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


class _Form(enum.Enum):
    """What `^`, `$` and a line break are to a pattern."""

    WHOLE = enum.auto()
    LINES = enum.auto()
    WITHIN_LINES = enum.auto()


Pattern = CompiledPattern[str]
BytesPattern = CompiledPattern[bytes]


def compile_pattern(text: str, *, field: str = "pattern", multiline: bool = False) -> Pattern:
    """For texts; with `multiline` `^` and `$` are the ends of a line. INVALID_PATTERN with RE2's message."""
    return cast(Pattern, _compiled(text, field, _Form.LINES if multiline else _Form.WHOLE, False))


def compile_bytes(text: str, *, field: str = "pattern", multiline: bool = False) -> BytesPattern:
    """The same for bytes, which need not be UTF-8."""
    return cast(BytesPattern, _compiled(text, field, _Form.LINES if multiline else _Form.WHOLE, True))


def compile_line_search(text: str, *, field: str = "pattern") -> BytesPattern:
    """For bytes of many lines, of which each is searched alone: `^` and `$` are the ends of a line, and no match spans two."""
    return cast(BytesPattern, _compiled(text, field, _Form.WITHIN_LINES, True))


def compile_globs(expressions: Sequence[str]) -> tuple[BytesPattern, ...]:
    """Expressions into which globs were translated: as one pattern, or one by one when they are too many for that."""
    options = _options(_GLOBS_MEMORY)
    options.never_capture = True
    options.dot_nl = True
    try:
        return (cast(BytesPattern, re2.compile("|".join(expressions).encode(), options)),)
    except re2.error:
        return tuple(cast(BytesPattern, re2.compile(each.encode(), options)) for each in expressions)


def literal(text: str) -> str:
    """The expression that matches this text and nothing else."""
    return str(re2.escape(text))


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


def _compiled(text: str, field: str, form: _Form, data: bool) -> object:
    if not text or len(text) > PATTERN_MAX:
        raise _invalid(field, f"it has {len(text)} characters, between 1 and {PATTERN_MAX} are allowed")
    if text.count("\\p") + text.count("\\P") > _CLASSES_MAX:
        raise _invalid(field, f"it has more than {_CLASSES_MAX} classes of Unicode")
    try:
        return _compile(text, form, data)
    except (re2.error, UnicodeError) as error:
        detail = error.args[0] if error.args else error
        shown = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise _invalid(field, shown[:300]) from None


@functools.lru_cache(maxsize=512)
def _compile(text: str, form: _Form, data: bool) -> object:
    options = _options(_MEMORY)
    if form is _Form.WITHIN_LINES:
        options.never_nl = True
        options.never_capture = True
    compiled = re2.compile(text.encode() if data else text, options)
    if form is _Form.WHOLE:
        return compiled
    # Compiled alone first, so that it cannot close the group it is put in.
    if form is _Form.WITHIN_LINES:
        options.max_mem = _SEARCH_MEMORY  # only now: it may not be larger than others
    whole = f"(?m:{text})"
    return re2.compile(whole.encode() if data else whole, options)


def _options(memory: int) -> Any:
    options: Any = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    return options


def _invalid(field: str, why: str) -> Rejected:
    return Rejected(
        Code.INVALID_PATTERN,
        f"the pattern is not a regular expression: {why}",
        hint="RE2's syntax has neither look-around nor back-references",
        field=field,
    )
