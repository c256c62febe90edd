"""Patterns of searches in consoles."""

from __future__ import annotations

from typing import Final

from corral.domain.patterns import compile_pattern

PATTERN_MAX: Final = 1000


def check_pattern(pattern: str) -> str:
    """The pattern itself; INVALID_PATTERN with RE2's complaint when it is none."""
    compile_pattern(pattern, field="pattern")
    return pattern
