"""How far an archive from outside may unpack: what is small may be anything, what is large no bomb."""

from __future__ import annotations

from typing import Final

RATIO_MAX: Final = 100
"""Times its size that an archive may unpack to."""
RATIO_FREE: Final = 16 * 1024 * 1024
"""What it may unpack to whatever its size."""


def unpacked_most(packed: int) -> int:
    """Bytes that an archive of this size may unpack to."""
    return max(RATIO_FREE, RATIO_MAX * packed)
