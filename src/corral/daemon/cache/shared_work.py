"""The same work asked for several times at once is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from corral.system.aio.tasks import Tasks, cancel_and_wait

V = TypeVar("V")


class _Work(Generic[V]):
    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0
        self.ending = False
        """Nobody waits for it any more: it was cancelled, and may need a moment."""


class Joined(Generic[V]):
    """Whoever comes while something is under way waits for its end and shares its result. When nobody
    waits any more, it is cancelled; and not begun again before it has come to its end."""

    def __init__(self) -> None:
        self._tasks = Tasks()
        self._under_way: dict[Hashable, _Work[V]] = {}

    async def run(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, V]], *, name: str) -> V:
        while (work := self._under_way.get(key)) is not None and work.ending:
            await asyncio.wait([work.task])
        if work is None:
            work = self._under_way[key] = _Work(self._tasks.spawn(begin(), name=name, awaited=True))
            work.task.add_done_callback(lambda _: self._under_way.pop(key, None))
        work.waiting += 1
        try:
            return await asyncio.shield(work.task)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.task.done():
                await self._end(work)

    async def close(self) -> None:
        """End all that is under way; whoever waits for it is cancelled."""
        await asyncio.gather(*(self._end(work) for work in list(self._under_way.values())))

    @staticmethod
    async def _end(work: _Work[V]) -> None:
        work.ending = True
        await cancel_and_wait(work.task)
