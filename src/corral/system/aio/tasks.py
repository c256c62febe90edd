"""Tasks with an owner, a name and an end; waits for the first of several things; and a wait with a time
limit.

A task belongs to a `Tasks`, which ends it at the latest when its owner closes. Its name is `room/verb/id`, as
shown in log records and in a dump of all tasks. A wait in here that is cancelled first waits for the end of
the tasks that it had begun: none of them goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Self, TypeAlias, TypeVar, overload

import structlog

from corral.errors import CorralError
from corral.system.log_context import context_apart

T = TypeVar("T")

Others: TypeAlias = tuple[asyncio.Future[Any] | None, ...]
Condition: TypeAlias = Coroutine[Any, Any, Any] | asyncio.Future[Any] | asyncio.Event

_log = structlog.get_logger("corral.system")


class Tasks:
    """The tasks of one owner. Those that have ended are forgotten; `close`, or leaving `async with`, ends the rest.
    It may be used again afterwards."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        """How many are under way."""
        return sum(not task.done() for task in self._tasks)

    def spawn(
        self,
        work: Coroutine[Any, Any, T],
        *,
        name: str,
        awaited: bool = False,
        keeps_ids: bool = False,
    ) -> asyncio.Task[T]:
        """Run `work` beside its owner. A failure is logged once, at its end; not if the task is `awaited`:
        then its outcome is the caller's to take.

        An awaited task is a part of the work that spawns it, and its log records carry the ids of that work.
        Any other may outlive it, and carries none, unless it `keeps_ids`: then it ends with the request.
        """
        context = None if awaited or keeps_ids else context_apart()
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._forget_awaited if awaited else self._forget)
        return task

    def cancel(self) -> None:
        """Cancel the running ones without waiting for their end."""
        for task in self._tasks:
            task.cancel()

    async def wait(self, *, timeout: float | None = None) -> None:
        """Return when none but the caller's own is running, or the time is up. Nothing is cancelled, also not
        when this is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while under_way := self._others():
                    await asyncio.wait(under_way)

    async def close(self) -> None:
        """End the running ones but the caller's own, also those that begin meanwhile, and wait for them.
        Idempotent."""
        while under_way := self._others():
            await cancel_and_wait(*under_way)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _others(self) -> list[asyncio.Task[Any]]:
        own = asyncio.current_task()
        return [task for task in self._tasks if task is not own and not task.done()]

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = failure_of(task)
        if isinstance(error, CorralError):
            _log.warning("task.failed", task=task.get_name(), reason=str(error))
        elif error is not None:
            _log.error("task.failed", task=task.get_name(), exc_info=error)

    def _forget_awaited(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        failure_of(task)  # marked as retrieved: the caller has the task


async def cancel_and_wait(*futures: asyncio.Future[Any]) -> None:
    """Cancel these, and return when each of them is over, whatever its outcome."""
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


async def to_completion(work: Coroutine[Any, Any, T], *, name: str) -> T:
    """Run `work` to its end also when the caller is cancelled meanwhile: the cancellation comes afterwards. For short
    work of a library that nothing could clean up after if it ended halfway."""
    task = asyncio.create_task(work, name=name)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        failure_of(task)  # marked as retrieved
        raise


@overload
async def first_of(
    first: Coroutine[Any, Any, T], /, *others: Condition, name: str = ..., timeout: float | None = ...
) -> tuple[asyncio.Future[T] | None, *Others]: ...


@overload
async def first_of(
    first: asyncio.Future[T], /, *others: Condition, name: str = ..., timeout: float | None = ...
) -> tuple[asyncio.Future[T] | None, *Others]: ...


@overload
async def first_of(
    first: asyncio.Event, /, *others: Condition, name: str = ..., timeout: float | None = ...
) -> Others: ...


async def first_of(
    *conditions: Condition, name: str = "aio/first-of", timeout: float | None = None
) -> tuple[asyncio.Future[Any] | None, ...]:
    """Wait until one of these is over (an event: set) or the time is up; of each the future if it is over, else None.

    Coroutines run as tasks with this name; on return they have ended, those that were not over by cancellation. Tasks
    and futures that are handed in belong to the caller and stay as they are. All that are over at once are given back.
    What a coroutine yields after its cancellation is dropped; so is a `CorralError`, any other failure is logged.
    """
    own: list[asyncio.Task[Any]] = []
    futures = [_future_of(each, name, own) for each in conditions]
    over: set[asyncio.Future[Any]] = set()
    try:
        try:
            over, _ = await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(*own)
    except BaseException:
        over = set()
        raise
    finally:
        for task in own:
            if task not in over:
                _log_dropped(task)
    return tuple(future if future in over else None for future in futures)


def _future_of(condition: Condition, name: str, own: list[asyncio.Task[Any]]) -> asyncio.Future[Any]:
    if isinstance(condition, asyncio.Future):
        return condition
    if isinstance(condition, asyncio.Event):
        if condition.is_set():
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done.set_result(True)
            return done
        condition = condition.wait()
    task = asyncio.create_task(condition, name=name)
    own.append(task)
    return task


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """The exception that ended a task; None when it returned or was cancelled."""
    return None if task.cancelled() else task.exception()


def _log_dropped(task: asyncio.Task[Any]) -> None:
    error = failure_of(task)
    if error is not None and not isinstance(error, CorralError):
        _log.error("task.failed", task=task.get_name(), exc_info=error)


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event is set before the time is up; None: wait for as long as it takes.

    Not `asyncio.wait_for`, which forgets a cancellation that comes together with the event.
    """
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
