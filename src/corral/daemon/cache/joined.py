"""The same work asked for several times at once is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class _Work(Generic[V]):
    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0


class Joined(Generic[V]):
    """Whoever comes while something is under way waits for its end and shares its result. When nobody
    waits any more, it is cancelled."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, _Work[V]] = {}

    async def run(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, V]], *, name: str) -> V:
        work = self._under_way.get(key)
        if work is None:
            work = _Work(asyncio.create_task(begin(), name=name))
            self._under_way[key] = work
            work.task.add_done_callback(lambda _: self._done(key, work))
        work.waiting += 1
        try:
            return await asyncio.shield(work.task)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.task.done():
                self._done(key, work)
                work.task.cancel()
                await asyncio.gather(work.task, return_exceptions=True)

    def _done(self, key: Hashable, work: _Work[V]) -> None:
        if self._under_way.get(key) is work:
            del self._under_way[key]
