"""Scheduler: tasks that run later, or repeatedly. The host keeps the time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

from corral.sdk.protocol.messages import CANCEL_TASK, SCHEDULE, CancelTask, Nothing, Schedule
from corral.sdk.runner_port import HostLink, Invoke

TaskFunction: TypeAlias = Callable[[], object]
"""`def` or `async def`, without parameters."""


class ScheduledTask:
    """Lasts until it has run (`after`), is cancelled, or the module stops.

    ```python
    task = await ctx.scheduler.every(60, self.count)
    await task.cancel()
    ```
    """

    def __init__(self, scheduler: Scheduler, number: int, name: str) -> None:
        self._scheduler = scheduler
        self._number = number
        self.name = name

    async def cancel(self) -> None:
        """The task is not started after this; a run that is under way goes on. Cancelling twice is
        harmless."""
        await self._scheduler._cancel(self._number)


class Scheduler:
    """`ctx.scheduler`. A task never runs concurrently with itself: a run that takes longer than its period is
    followed by the next one, and missed runs are skipped.

    ```python
    async def on_start(self, ctx):
        await ctx.scheduler.after(5, self.greet)
        await ctx.scheduler.every(60, self.count, initial_delay=0)
        await ctx.scheduler.cron("*/5 * * * *", self.clean_up)
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self._functions: dict[int, tuple[str, TaskFunction, bool]] = {}

    async def after(
        self, seconds: float, function: TaskFunction, *, name: str = "", deadline: float = 30.0
    ) -> ScheduledTask:
        """Run once, so many seconds from now."""
        return await self._add(function, name, deadline, delay=_milliseconds("seconds", seconds, least=0))

    async def every(
        self,
        seconds: float,
        function: TaskFunction,
        *,
        initial_delay: float | None = None,
        name: str = "",
        deadline: float = 30.0,
    ) -> ScheduledTask:
        """Run at a fixed rate; first after `initial_delay`, else after one period."""
        period = _milliseconds("seconds", seconds, least=1)
        first = period if initial_delay is None else _milliseconds("initial_delay", initial_delay, least=0)
        return await self._add(function, name, deadline, every=period, first=first)

    async def cron(
        self, expression: str, function: TaskFunction, *, name: str = "", deadline: float = 30.0
    ) -> ScheduledTask:
        """Run at the minutes that five fields name (minute, hour, day, month, weekday), in UTC."""
        return await self._add(function, name, deadline, cron=expression)

    async def _add(
        self,
        function: TaskFunction,
        name: str,
        deadline: float,
        *,
        delay: int | None = None,
        every: int | None = None,
        first: int = 0,
        cron: str = "",
    ) -> ScheduledTask:
        number = next(self._numbers)
        label = name or getattr(function, "__qualname__", f"task {number}")
        body = Schedule(
            task=number,
            name=label,
            delay_ms=delay,
            every_ms=every,
            initial_delay_ms=first,
            cron=cron,
            deadline_ms=_milliseconds("deadline", deadline, least=1),
        )
        self._functions[number] = (label, function, delay is not None)  # before the call: it may be due
        try:
            await self._link.call(SCHEDULE, body, Nothing)
        except BaseException:
            self._functions.pop(number, None)
            raise
        return ScheduledTask(self, number, label)

    async def _cancel(self, number: int) -> None:
        if self._functions.pop(number, None) is not None:
            await self._link.call(CANCEL_TASK, CancelTask(task=number), Nothing)

    async def _run(self, number: int, invoke: Invoke) -> None:
        label, function, once = self._functions.get(number, ("", None, False))
        if function is None:  # cancelled while the call was on its way
            return
        if once:
            del self._functions[number]
        await invoke(f"task {label}", function)


def _milliseconds(what: str, seconds: float, *, least: int) -> int:
    value = round(seconds * 1000)
    if value < least:
        raise ValueError(f"{what} is {seconds!r}; at least {least / 1000:g} is needed")
    return value
