"""Readers that watch consoles: one wake-up for each watched instance, and the input lines that they are shown."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from corral.controller.events.wakeup import Wakeup
from corral.domain.ids import InstanceId
from corral.system.clock import Clock


class Watchers:
    """The watchers of consoles. They are woken together, once for all data that arrived together."""

    def __init__(self) -> None:
        self._wakeups: dict[InstanceId, Wakeup] = {}
        self._count: collections.Counter[InstanceId] = collections.Counter()

    def any(self, id: InstanceId) -> bool:
        return id in self._wakeups

    def wake(self, id: InstanceId) -> None:
        wakeup = self._wakeups.get(id)
        if wakeup is not None:
            wakeup.wake()

    @contextlib.contextmanager
    def one_more(self, id: InstanceId, *, on_change: Callable[[InstanceId], None]) -> Iterator[Wakeup]:
        """Count a watcher within this context; `on_change` is called with the first and after the last."""
        wakeup = self._wakeups.get(id)
        if wakeup is None:
            wakeup = self._wakeups[id] = Wakeup()
            on_change(id)
        self._count[id] += 1
        try:
            yield wakeup
        finally:
            self._count[id] -= 1
            if not self._count[id]:
                del self._count[id], self._wakeups[id]
                on_change(id)


_KEPT: Final = 64
_KEPT_INSTANCES: Final = 1000


class InputLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was written to the instance's input, and its sender."""

    number: int
    time: dt.datetime
    line: str
    by: str


class InputLines:
    """The latest lines of each instance; numbers grow over all of them."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._by_instance: collections.OrderedDict[InstanceId, collections.deque[InputLine]] = (
            collections.OrderedDict()
        )
        self.last = 0

    def add(self, id: InstanceId, *, line: str, by: str) -> None:
        self.last += 1
        kept = self._by_instance.setdefault(id, collections.deque(maxlen=_KEPT))
        kept.append(InputLine(number=self.last, time=self._clock.now(), line=line, by=by))
        self._by_instance.move_to_end(id)
        while len(self._by_instance) > _KEPT_INSTANCES:
            self._by_instance.popitem(last=False)

    def after(self, id: InstanceId, number: int) -> list[InputLine]:
        return [line for line in self._by_instance.get(id, ()) if line.number > number]

    def forget(self, id: InstanceId) -> None:
        self._by_instance.pop(id, None)
