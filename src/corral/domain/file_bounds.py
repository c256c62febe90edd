"""How much of an instance's files is told at a time. Both sides of the link keep to it."""

from __future__ import annotations

from typing import Final

DEFAULT_ENTRIES: Final = 1_000
MOST_ENTRIES: Final = 10_000
DEEPEST: Final = 32
"""Directories within each other that a walk goes into."""
DEFAULT_BYTES: Final = 64 * 1024
MOST_BYTES: Final = 256 * 1024
"""Of one answer, be it a listing or content: it travels between heartbeats."""


def bounded(wanted: int, *, default: int, most: int) -> int:
    """What is asked for as far as it is given; nothing, or nonsense, stands for the default."""
    return min(wanted, most) if wanted > 0 else default
