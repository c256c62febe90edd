"""What other modules may ask: capability `stats.groups`."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """What instances of a group did, on one day or in all."""

    group: str
    day: str = ""
    """`2026-11-15`, UTC; empty: all days that are kept."""
    starts: int = 0
    stops: int = 0
    crashes: int = 0
    run_seconds: float = 0.0


class GroupStatistics(Protocol):
    """The contract of `stats.groups` 1.0."""

    async def totals(self) -> list[Totals]:
        """One of each group."""
        ...

    async def days(self, *, group: str, limit: int = 30) -> list[Totals]:
        """The newest days of one group, newest first."""
        ...
