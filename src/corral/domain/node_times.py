"""Times that nodes tell, held against the clock of the controller: theirs may say anything."""

from __future__ import annotations

import datetime as dt
from typing import Final

_OLDEST: Final = dt.timedelta(days=3650)
"""Nothing that runs or ended on a node is older."""


def told_time(milliseconds: int, now: dt.datetime) -> dt.datetime | None:
    """A time in milliseconds since 1970, not after now; None for none, and for one that cannot be."""
    if milliseconds <= 0:
        return None
    try:
        at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return now
    return min(at, now) if at > now - _OLDEST else None
