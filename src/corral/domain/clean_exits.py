"""A run that ended by itself, as its group says that it may: what that is called, and how soon its place is taken again."""

from __future__ import annotations

from typing import Final

ENDED: Final = "ended"
"""The outcome of a clean end: by itself, with code 0 or one that the group names."""
PLACE_SECONDS: Final = 5
"""After a clean end the next start comes this long after the last one at the earliest: it counts as no failure, and must
not be started all the time for that."""
_SPREAD: Final = 0.25
LONGEST_PLACE_SECONDS: Final = PLACE_SECONDS * (1 + _SPREAD)


def place_seconds(fraction: float) -> float:
    """The pause of one place, spread so that many do not come at once: `fraction` in [0, 1) decides."""
    return PLACE_SECONDS * (1 + _SPREAD * fraction)
