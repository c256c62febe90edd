"""Readers that watch consoles: one wake-up for each watched instance, and the input lines that they are shown."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import datetime as dt
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from corral.controller.events.wakeup import Wakeup
from corral.controller.instances.instance_commands import SentLine
from corral.domain.ids import InstanceId
from corral.system.aio.pace import Pace
from corral.system.clock import Clock

SHORTEST_SECONDS: Final = 0.005
LONGEST_SECONDS: Final = 0.04
"""Between two wake-ups of a console's watchers, by the load. Those of one that was quiet are woken at once."""
_TIMER_SLACK: Final = 0.001
_PAUSE_PER_COST: Final = 4.0
"""Writing to watchers takes a quarter of a core, until the longest pause is not enough for that."""


class WatchedConsole:
    """The wake-up of one console, and when it was used last."""

    def __init__(self) -> None:
        self.wakeup = Wakeup()
        self.count = 0
        self.woken_at = 0.0
        self.waits = False


class Watchers:
    """The watchers of consoles. They are woken together, once for all data that arrived together, and at a pace that
    the time they take sets: a write to a watcher costs the same for one line as for many."""

    def __init__(self, *, clock: Clock, cpu_seconds: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._cpu_seconds = cpu_seconds
        self._pace = Pace(per_cost=_PAUSE_PER_COST, shortest=SHORTEST_SECONDS, longest=LONGEST_SECONDS)
        self._consoles: dict[InstanceId, WatchedConsole] = {}
        self._waiting: collections.deque[WatchedConsole] = collections.deque()
        self._timer: asyncio.TimerHandle | None = None
        self._measuring = False

    def any(self, id: InstanceId) -> bool:
        return id in self._consoles

    def wake(self, ids: Iterable[InstanceId]) -> None:
        """These consoles changed: wake their watchers now, or after the pause that the pace sets."""
        watched = [console for id in ids if (console := self._consoles.get(id)) is not None]
        if not watched:
            return
        now = self._clock.monotonic()
        before = now - self._pace.pause
        due = []
        for console in watched:
            if console.waits:
                continue  # its turn comes: past the queue, it would hold up those behind it
            if console.woken_at <= before:
                due.append(console)
            else:
                console.waits = True
                self._waiting.append(console)
        self._wake_now(due, now)
        self._wait()

    def _wait(self) -> None:
        if self._waiting and self._timer is None:
            left = self._waiting[0].woken_at + self._pace.pause - self._clock.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._wake_waiting)

    def _wake_waiting(self) -> None:
        """In the order in which they changed again."""
        self._timer = None
        now = self._clock.monotonic()
        before = now + _TIMER_SLACK - self._pace.pause
        due = []
        while self._waiting and self._waiting[0].woken_at <= before:
            due.append(self._waiting.popleft())
        self._wake_now(due, now)
        self._wait()

    def _wake_now(self, consoles: list[WatchedConsole], now: float) -> None:
        """Wake, and measure what is between two callbacks of the loop: the work of the woken tasks."""
        if not consoles:
            return
        measured, self._measuring = not self._measuring, True
        loop = asyncio.get_running_loop()
        began: list[float] = []
        if measured:
            loop.call_soon(lambda: began.extend((self._clock.monotonic(), self._cpu_seconds())))
        for console in consoles:
            console.woken_at = now
            console.waits = False
            console.wakeup.wake()
        if measured:
            loop.call_soon(self._woken, now, began)

    def _woken(self, due: float, began: list[float]) -> None:
        self._measuring = False
        self._pace.ran(due=due, began=began[0], cost=self._cpu_seconds() - began[1])

    @contextlib.contextmanager
    def one_more(self, id: InstanceId, *, on_change: Callable[[InstanceId], None]) -> Iterator[Wakeup]:
        """Count a watcher within this context; `on_change` is called with the first and after the last."""
        console = self._consoles.get(id)
        if console is None:
            console = self._consoles[id] = WatchedConsole()
            on_change(id)
        console.count += 1
        try:
            yield console.wakeup
        finally:
            console.count -= 1
            if not console.count:
                del self._consoles[id]
                on_change(id)


_KEPT: Final = 64
_KEPT_INSTANCES: Final = 1000


class InputLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was written to the instance's input, its sender, and the position of the run's console then; None:
    unknown. `id` is what its sender called it by, null if it has no id."""

    number: int
    time: dt.datetime
    line: str
    by: str
    by_name: str
    incarnation: int
    offset: int | None
    id: str | None


class InputLines:
    """The latest lines of each instance; numbers grow over all of them."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._by_instance: collections.OrderedDict[InstanceId, collections.deque[InputLine]] = (
            collections.OrderedDict()
        )
        self.last = 0

    def add(self, sent: SentLine, *, id: str | None) -> None:
        """Add a line; `id`: what its sender called it by."""
        self.last += 1
        instance = sent.target.instance
        kept = self._by_instance.setdefault(instance, collections.deque(maxlen=_KEPT))
        kept.append(
            InputLine(
                number=self.last,
                time=self._clock.now(),
                line=sent.line,
                by=sent.actor.name,
                by_name=sent.actor.label,
                incarnation=sent.target.incarnation,
                offset=sent.offset,
                id=id,
            )
        )
        self._by_instance.move_to_end(instance)
        while len(self._by_instance) > _KEPT_INSTANCES:
            self._by_instance.popitem(last=False)

    def after(self, id: InstanceId, number: int) -> list[InputLine]:
        return [line for line in self._by_instance.get(id, ()) if line.number > number]

    def forget(self, id: InstanceId) -> None:
        self._by_instance.pop(id, None)
