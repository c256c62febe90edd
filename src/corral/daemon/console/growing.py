"""Consoles that are polled, and whose turn it is."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from corral.daemon.console.feed import ConsoleSource

AT_ONCE: Final = -math.inf
"""When a console was polled that must not wait: it has just begun to grow, or has more than it was allowed to send."""


class GrowingConsoles:
    """The consoles that are polled, the watched ones apart, for they are polled more often; in both, the one that waits
    longest first."""

    def __init__(self) -> None:
        self._watched: OrderedDict[ConsoleSource, float] = OrderedDict()
        self._others: OrderedDict[ConsoleSource, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._watched) + len(self._others)

    def __contains__(self, feed: ConsoleSource) -> bool:
        return feed in self._watched or feed in self._others

    def add(self, feed: ConsoleSource, polled_at: float = AT_ONCE) -> None:
        """Behind all others, or before them if it must not wait."""
        self.discard(feed)
        kind = self._kind(watched=feed.watched)
        kind[feed] = polled_at
        if polled_at == AT_ONCE:
            kind.move_to_end(feed, last=False)

    def note(self, feed: ConsoleSource) -> None:
        """After `watched` of a console may have changed: one that is watched from now on does not wait."""
        polled_at = self._kind(watched=not feed.watched).pop(feed, None)
        if polled_at is not None:
            self.add(feed, AT_ONCE if feed.watched else polled_at)

    def discard(self, feed: ConsoleSource) -> None:
        self._watched.pop(feed, None)
        self._others.pop(feed, None)

    def clear(self) -> None:
        self._watched.clear()
        self._others.clear()

    def turns(self, *, watched: bool, before: float, part: float) -> deque[ConsoleSource]:
        """The consoles of this kind that were polled before then, at most this part of all of the kind, and those
        that must not wait besides."""
        kind = self._kind(watched=watched)
        room = math.ceil(len(kind) * part)
        found: deque[ConsoleSource] = deque()
        for feed, polled_at in kind.items():
            if polled_at > before:
                break
            if polled_at > AT_ONCE:
                if not room:
                    break
                room -= 1
            found.append(feed)
        return found

    def next_at(self, pause: Callable[[bool], float]) -> float:
        """When the next of them is to be polled, by the pause of watched consoles (True) and of others (False)."""
        kinds = ((True, self._watched), (False, self._others))
        return min(
            (next(iter(kind.values())) + pause(watched) for watched, kind in kinds if kind), default=math.inf
        )

    def _kind(self, *, watched: bool) -> OrderedDict[ConsoleSource, float]:
        return self._watched if watched else self._others
