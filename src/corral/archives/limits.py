"""How much an archive from outside may hold."""

from __future__ import annotations

from typing import Final

import msgspec

RATIO_MAX: Final = 100
"""Times its size that an archive may unpack to."""
RATIO_FREE: Final = 16 * 1024 * 1024
"""What it may unpack to whatever its size: what is small may be anything, what is large no bomb."""


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive may be. What is neither a file nor a directory is refused in every one."""

    max_bytes: int
    """Of all contents together, unpacked."""
    max_entries: int
    entries_shown: str = ""
    """How a refusal names that limit; empty: by its number."""
    max_stream_bytes: int = 0
    """Of a tar with its headers, unpacked."""
    max_directory_bytes: int = 64 * 1024 * 1024
    """Of a zip's directory, which is read into memory."""
    max_name_bytes: int | None = None
    max_depth: int | None = None
    any_ratio: bool = False
    """It may unpack to any number of times its size."""
    sealed: bool = False
    """Nothing stands before a zip's first entry or behind its end, and its directories are empty."""

    def unpacked_most(self, packed: int) -> int | None:
        """Bytes that an archive of this size may unpack to; None: any."""
        return None if self.any_ratio else max(RATIO_FREE, RATIO_MAX * packed)
