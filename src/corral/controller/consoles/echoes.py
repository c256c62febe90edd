"""Lines that somebody sent into an instance, for those who watch its console.

They are not part of the console: its bytes are what the instance wrote. The audit keeps them.
"""

from __future__ import annotations

import collections
import datetime as dt
from typing import Final

import msgspec

from corral.domain.ids import InstanceId
from corral.system.clock import Clock

_KEPT: Final = 64
_KEPT_INSTANCES: Final = 1000


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the instance's input has taken, and who sent it."""

    number: int
    time: dt.datetime
    line: str
    by: str


class Echoes:
    """The latest lines of each instance; numbers grow over all of them."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._by_instance: collections.OrderedDict[InstanceId, collections.deque[Echo]] = (
            collections.OrderedDict()
        )
        self.last = 0

    def add(self, id: InstanceId, *, line: str, by: str) -> None:
        self.last += 1
        kept = self._by_instance.setdefault(id, collections.deque(maxlen=_KEPT))
        kept.append(Echo(number=self.last, time=self._clock.now(), line=line, by=by))
        self._by_instance.move_to_end(id)
        while len(self._by_instance) > _KEPT_INSTANCES:
            self._by_instance.popitem(last=False)

    def after(self, id: InstanceId, number: int) -> list[Echo]:
        return [echo for echo in self._by_instance.get(id, ()) if echo.number > number]

    def forget(self, id: InstanceId) -> None:
        self._by_instance.pop(id, None)
