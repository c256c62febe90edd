"""Limits of an archive from outside."""

from __future__ import annotations

from typing import Final

import msgspec

RATIO_MAX: Final = 100
"""How many times its size an archive may unpack to."""
RATIO_FREE: Final = 16 * 1024 * 1024
"""What it may unpack to whatever its size: only for larger ones the ratio matters."""


class ArchiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an archive. Entries other than files and directories are refused in every one."""

    max_bytes: int
    """Of all contents together, unpacked."""
    max_entries: int
    entries_shown: str = ""
    """The limit's name in a refusal; empty: its number."""
    max_stream_bytes: int = 0
    """Of a tar with its headers, unpacked."""
    max_directory_bytes: int = 64 * 1024 * 1024
    """Of a zip's directory, which is read into memory."""
    max_name_bytes: int | None = None
    max_depth: int | None = None
    any_ratio: bool = False
    """The archive may unpack to any number of times its size."""
    sealed: bool = False
    """Nothing may precede a zip's first entry or follow its end, and its directories are empty."""

    def unpacked_most(self, packed: int) -> int | None:
        """Bytes that an archive of this size may unpack to; None: any."""
        return None if self.any_ratio else max(RATIO_FREE, RATIO_MAX * packed)
