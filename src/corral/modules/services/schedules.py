"""Schedules of modules: tasks run once, at a fixed rate, or by the calendar. The host keeps the time.

A task never runs concurrently with itself. A run that is due while the previous one is still under way is
skipped: nothing piles up behind a slow module. All tasks end with the scope.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from corral.domain.cron import Cron, parse_cron
from corral.errors import Code, CorralError, Rejected
from corral.modules.scope import Owned, Scope
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol.messages import (
    CANCEL_TASK,
    RUN_TASK,
    SCHEDULE,
    CancelTask,
    Nothing,
    Schedule,
    TaskRun,
)
from corral.system.aio.tasks import Tasks, cancel_and_wait
from corral.system.clock import Clock

KIND: Final = "task"
MAX_TASKS: Final = 256
"""Most tasks of one module at a time."""
SHORTEST_MS: Final = 10
LONGEST_MS: Final = 366 * 86_400_000
LONGEST_RUN_MS: Final = 600_000
_NAME_MAX: Final = 100
_LOOK_SECONDS: Final = 30.0
"""Longest sleep at a time: a change of the wall clock is noticed within this."""
_log = structlog.get_logger("corral.modules.services")

Run = Callable[[], Awaitable[None]]


class ModuleSchedules:
    """The tasks of all modules of a host, each owned by the scope that scheduled it."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._running = Tasks()
        self._tasks: dict[tuple[int, int], tuple[asyncio.Task[None], Owned]] = {}

    def operations(self) -> list[Operation]:
        return [
            Operation(method=SCHEDULE, body=Schedule, handler=self._add),
            Operation(method=CANCEL_TASK, body=CancelTask, handler=self._cancel),
        ]

    async def _add(self, scope: Scope, request: Schedule) -> Nothing:
        """Schedule a task. INVALID_FIELD for an invalid time, RATE_LIMITED for one task too many."""
        wait = self._waiting(request)
        key = (id(scope), request.task)
        if key in self._tasks:
            raise Rejected(Code.ALREADY_EXISTS, f"task {request.task} of this module is scheduled already")
        if sum(1 for owner, _ in self._tasks if owner == id(scope)) >= MAX_TASKS:
            raise Rejected(
                Code.RATE_LIMITED,
                f"module '{scope.module_id}' has {MAX_TASKS} tasks already",
                hint="cancel some, or let one task do the work of many",
            )
        name = request.name[:_NAME_MAX] or str(request.task)
        running = self._running.spawn(
            self._keep(scope, request, name, wait), name=f"modules/task/{scope.module_id}/{name}"
        )
        owned = scope.own(KIND, name, lambda: self._end(key))
        self._tasks[key] = running, owned
        return Nothing()

    async def _cancel(self, scope: Scope, request: CancelTask) -> Nothing:
        """Cancel a task; no effect when it does not exist: it may have just ended."""
        key = (id(scope), request.task)
        found = self._tasks.get(key)
        if found is not None:
            found[1].release()
            await self._end(key)
        return Nothing()

    async def _end(self, key: tuple[int, int]) -> None:
        found = self._tasks.pop(key, None)
        if found is not None and found[0] is not asyncio.current_task():
            await cancel_and_wait(found[0])

    async def _keep(self, scope: Scope, request: Schedule, name: str, wait: Timetable) -> None:
        while await wait.next_turn():
            with contextlib.suppress(_Over):
                await self._run(scope, request, name)
        found = self._tasks.pop((id(scope), request.task), None)
        if found is not None:
            found[1].release()

    async def _run(self, scope: Scope, request: Schedule, name: str) -> None:
        """Run the task when it is due. A failure is the module's: it is logged, and the task goes on."""
        await scope.until_serving()
        try:
            await scope.call(
                f"task:{name}",
                RUN_TASK,
                TaskRun(task=request.task),
                answer=Nothing,
                deadline=request.deadline_ms / 1000,
            )
        except CorralError as error:
            if (unsaid := scope.quota.admit("task_failed")) is not None:
                reason = str(error)[:500]
                _log.warning(
                    "module_task.failed", module=scope.module_id, task=name, reason=reason, unsaid=unsaid
                )
            raise _Over from error

    def _waiting(self, request: Schedule) -> Timetable:
        given = [request.delay_ms is not None, request.every_ms is not None, bool(request.cron)]
        if sum(given) != 1:
            raise _refused("schedule", "exactly one of a delay, a rate and a cron expression must be given")
        _within("deadline_ms", request.deadline_ms, 1, LONGEST_RUN_MS)
        if request.delay_ms is not None:
            _within("delay_ms", request.delay_ms, 0, LONGEST_MS)
            return OneTime(self._clock, request.delay_ms / 1000)
        if request.every_ms is not None:
            _within("every_ms", request.every_ms, SHORTEST_MS, LONGEST_MS)
            _within("initial_delay_ms", request.initial_delay_ms, 0, LONGEST_MS)
            return FixedRate(self._clock, request.every_ms / 1000, first=request.initial_delay_ms / 1000)
        return Calendar(self._clock, parse_cron(request.cron))


class _Over(Exception):
    """This run ended with a failure."""


class OneTime:
    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._due: float | None = clock.monotonic() + seconds

    async def next_turn(self) -> bool:
        if self._due is None:
            return False
        await sleep_until(self._due, self._clock)
        self._due = None
        return True


class FixedRate:
    """Turns at `first`, `first + period`, …: a missed turn is skipped and moves none of the others."""

    def __init__(self, clock: Clock, period: float, *, first: float) -> None:
        self._clock = clock
        self._period = period
        self._due = clock.monotonic() + first

    async def next_turn(self) -> bool:
        await sleep_until(self._due, self._clock)
        self._due = following(self._due, self._period, now=self._clock.monotonic())
        return True


class Calendar:
    """Turns by the wall clock, in UTC. A clock that is set back repeats no turn."""

    def __init__(self, clock: Clock, cron: Cron) -> None:
        self._clock = clock
        self._cron = cron
        self._last = clock.now()

    async def next_turn(self) -> bool:
        self._last = max(self._last, self._clock.now())
        due = self._cron.next_after(self._last)
        if due is None:
            return False
        while (left := (due - self._clock.now()).total_seconds()) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))
        self._last = due
        return True


Timetable = OneTime | FixedRate | Calendar


def following(due: float, period: float, *, now: float) -> float:
    """The next turn after `due` that has not passed, on the grid of `due`."""
    missed = max(0, int((now - due) // period))
    return due + (missed + 1) * period


async def sleep_until(due: float, clock: Clock) -> None:
    await asyncio.sleep(0)  # a turn that is always due must not block the loop
    while (left := due - clock.monotonic()) > 0:
        await asyncio.sleep(min(left, _LOOK_SECONDS))


def _within(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise _refused(field, f"{value} is not between {low} and {high}")


def _refused(field: str, why: str) -> Rejected:
    return Rejected(Code.INVALID_FIELD, f"{field}: {why}", field=field)
