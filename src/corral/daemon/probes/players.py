"""How many players there are."""

from __future__ import annotations

from typing import Final

import msgspec

_MOST: Final = 2**31 - 1


class PlayerCount(msgspec.Struct, frozen=True, kw_only=True):
    online: int
    maximum: int


def counted(online: int, maximum: int) -> PlayerCount:
    """What a server claims, within what a number of players can be."""
    return PlayerCount(online=min(max(online, 0), _MOST), maximum=min(max(maximum, 0), _MOST))
