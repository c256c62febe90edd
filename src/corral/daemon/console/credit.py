"""How much console may be under way to the controller: a floor, and more by bandwidth × delay."""

from __future__ import annotations

from typing import Final

import msgspec

FLOOR_BYTES: Final = 256 * 1024
CEILING_BYTES: Final = 4 * 1024 * 1024
_MEMORY_SECONDS: Final = 5.0
_HEADROOM: Final = 2.0
"""What is under way is twice what the line holds: so the line never waits for us, a faster line is
found out, and a slow one is not filled further."""
_SHORTEST: Final = 1e-4


class Departure(msgspec.Struct, frozen=True):
    """What was known when some bytes left."""

    size: int
    at: float
    delivered: int


class Credit:
    """Counts what is under way and learns from each acknowledgement. Pure: the time comes in."""

    def __init__(self) -> None:
        self.limit = FLOOR_BYTES
        self.under_way = 0
        self._delivered = 0
        self._rates = [0.0, 0.0]  # the best of this span of time, and of the one before
        self._delay = float("inf")
        """The shortest ever: later ones are those of a line that we keep full, and would have us fill it
        further. A line that became longer gets less than it could take, but never less than the floor."""
        self._span_began = 0.0

    @property
    def left(self) -> int:
        return max(0, self.limit - self.under_way)

    def departed(self, size: int, now: float) -> Departure:
        self.under_way += size
        return Departure(size, now, self._delivered)

    def arrived(self, departures: list[Departure], now: float) -> None:
        """These were acknowledged together. The one that left last tells most about the line."""
        for departure in departures:
            self.under_way -= departure.size
            self._delivered += departure.size
        self._turn(now)
        departure = max(departures, key=_left_at)
        delay = max(_SHORTEST, now - departure.at)
        self._rates[0] = max(self._rates[0], (self._delivered - departure.delivered) / delay)
        self._delay = min(self._delay, delay)
        line_holds = max(self._rates) * self._delay
        self.limit = int(min(CEILING_BYTES, max(FLOOR_BYTES, _HEADROOM * line_holds)))

    def lost(self, departures: list[Departure]) -> None:
        """They will not be acknowledged any more: their console is gone."""
        self.under_way -= sum(departure.size for departure in departures)

    def _turn(self, now: float) -> None:
        """Forget the rates of long ago: lines change."""
        if now - self._span_began >= _MEMORY_SECONDS:
            self._span_began = now
            self._rates = [0.0, self._rates[0]]


def _left_at(departure: Departure) -> float:
    return departure.at
