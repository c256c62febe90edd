"""Starts that are cut short: cancelled at one of the places where they wait, and what they leave open."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Literal, TypeVar

from corral.testing.leaks import Census, difference, lingering_tasks, take_census
from corral.testing.survivors import now_in_ticks, survivors
from corral.testing.waiting import eventually

T = TypeVar("T")

Moment = Literal["before", "after"]
"""Of a cancellation: before what the start waits for can happen, or just after it has happened."""

END_SECONDS = 30.0
_MACHINERY_TASKS = ("AioServer.",)
"""Of a gRPC server in this process: it waits for the next call of a kind in a task of its own."""


class CutShort:
    """Cancels the task that runs in it at its n-th suspension, counted from 1; `reached` says whether it came to it."""

    def __init__(self, number: int, moment: Moment) -> None:
        self._number = number
        self._moment = moment
        self._suspended = 0

    @property
    def reached(self) -> bool:
        return self._suspended >= self._number

    @types.coroutine
    def run(self, work: Awaitable[Any]) -> Generator[Any, Any, Any]:
        steps = work.__await__()
        resume: Callable[[], Any] = lambda: next(steps)  # noqa: E731 - the first of several
        while True:
            try:
                awaited = resume()
            except StopIteration as done:
                return done.value
            self._suspend(awaited)
            try:
                value = yield awaited
            except BaseException as error:  # also a cancellation: it belongs to the work
                resume = _thrown(steps, error)
            else:
                resume = _sent(steps, value)

    def _suspend(self, awaited: Any) -> None:
        self._suspended += 1
        if self._suspended != self._number:
            return
        task = asyncio.current_task()
        assert task is not None
        if self._moment == "before" or awaited is None:
            task.cancel()
        else:  # called before the task is woken: what it has waited for is there, and lost to it
            awaited.add_done_callback(lambda _: task.cancel())

    async def main(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.run(work)


def _thrown(steps: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


def _sent(steps: Any, value: Any) -> Callable[[], Any]:
    return lambda: steps.send(value)


@contextlib.asynccontextmanager
async def cut_tasks(qualname: str, cut: CutShort) -> AsyncIterator[None]:
    """Meanwhile the first task that runs this coroutine function is cut short."""
    loop = asyncio.get_running_loop()
    found = False

    def make(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        nonlocal found
        if not found and getattr(work, "__qualname__", "") == qualname:
            found, work = True, cut.main(work)
        return asyncio.Task(work, loop=loop, **options)

    loop.set_task_factory(make)  # type: ignore[arg-type]  # as asyncio calls it
    try:
        yield
    finally:
        loop.set_task_factory(None)


async def over(start: Coroutine[Any, Any, T]) -> T | None:
    """What the start yields, None when it is cancelled; it does not hang."""
    task = asyncio.create_task(start)
    done, _ = await asyncio.wait({task}, timeout=END_SECONDS)
    assert done, f"the start hangs at {task.get_stack()}"
    return None if task.cancelled() else task.result()


class OpenThings:
    """What is open now; `left` compares later. Processes count when they belong to the directory."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self._since = now_in_ticks()
        self._census: Census = take_census()
        self._watched = _pidfds()
        self._tasks = set(lingering_tasks())

    async def left(self) -> list[str]:
        """Tasks, threads, children, descriptors and watched processes that are new, after a moment for what closes
        late."""
        try:
            await eventually(lambda: not self._now(), deadline=5)
        except AssertionError:
            return self._now()
        return []

    def _now(self) -> list[str]:
        tasks = [name for name in lingering_tasks() if not any(word in name for word in _MACHINERY_TASKS)]
        new = [f"task {name}" for name in tasks if name not in self._tasks]
        new += difference(self._census, take_census())
        if (watched := _pidfds()) > self._watched:
            new.append(f"{watched - self._watched} descriptors of processes")
        return new + [str(each) for each in survivors([self._directory], since=self._since)]


def _pidfds() -> int:
    found = 0
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            found += "pidfd" in str(entry.readlink())
        except OSError:
            continue
    return found
