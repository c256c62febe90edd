"""Which module has more processes and threads than it may, without looking at them all the time.

Every new process and every new thread takes the next number of the machine. So a module that had `n` at
the last count has at most `n` plus the numbers given out since; it is counted again only when that
could be too many, and now and then for safety.
"""

from __future__ import annotations

import time
from typing import Final

from corral.sdk.runner.proc_table import last_pid, tree

_LOOK_SECONDS: Final = 0.2
_RECOUNT_SECONDS: Final = 10.0
_WITH_ENDED: Final = 4
"""Times the limit: so many there may be with those that have ended and were not waited for. An orphan that
nobody can wait for is no use of the machine worth an end; thousands are."""


class _Watched:
    __slots__ = ("at_most", "counted_at", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.at_most = 1
        self.counted_at = time.monotonic()


class ProcessWatch:
    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._last = 0
        self._looked_at = 0.0

    def add(self, pid: int, limit: int) -> None:
        self._watched[pid] = _Watched(limit)

    def remove(self, pid: int) -> None:
        self._watched.pop(pid, None)

    def over_limit(self) -> list[int]:
        """Looks at most every 200 ms."""
        now = time.monotonic()
        if not self._watched or now - self._looked_at < _LOOK_SECONDS:
            return []
        self._looked_at = now
        newest = last_pid()
        given = newest - self._last if newest >= self._last else None  # None: numbers began again
        self._last = newest
        return [pid for pid, one in self._watched.items() if given != 0 and self._is_over(pid, one, given)]

    def _is_over(self, pid: int, one: _Watched, given: int | None) -> bool:
        now = time.monotonic()
        if given is not None:
            one.at_most += given
            if one.at_most <= one.limit and now - one.counted_at < _RECOUNT_SECONDS:
                return False
        most = one.limit * _WITH_ENDED
        found = tree(pid, most=most + 1)
        one.at_most = sum(process.threads for process in found if process.alive)
        one.counted_at = now
        return one.at_most > one.limit or len(found) > most
