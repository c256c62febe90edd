"""Patterns from outside: RE2 only, so that no pattern can take longer than the text it searches."""

from __future__ import annotations

from typing import Final

import re2  # type: ignore[import-untyped]  # it comes without stubs

from corral.errors import Code, Rejected

PATTERN_MAX: Final = 1000
_MEMORY: Final = 8 * 1024 * 1024


def check_pattern(pattern: str) -> str:
    """The pattern itself; INVALID_PATTERN with RE2's complaint when it is none."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        told = error.args[0] if error.args else error
        text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
        raise Rejected(
            Code.INVALID_PATTERN,
            f"the pattern is not a regular expression: {text[:300]}",
            hint="RE2's syntax has neither look-around nor back-references",
            field="pattern",
        ) from None
    return pattern
