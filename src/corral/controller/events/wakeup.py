"""A wake-up shared by all tasks that wait for the same condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Wakeup:
    """Wakes all waiting tasks; carries no data, so a slow waiter holds nothing and delays no other.

    A task that checks a condition and waits in the same step of the loop cannot miss a wake-up. A task that
    awaits in between takes `turn` first and passes it as `since`.
    """

    def __init__(self) -> None:
        self.turn = 0
        self._waiting: set[asyncio.Future[bool]] = set()
        self._chained: set[Callable[[], None]] = set()

    def chain(self, call: Callable[[], None]) -> None:
        """`call` is called at each wake-up, before any waiting task runs, until `unchain`. It must not raise."""
        self._chained.add(call)

    def unchain(self, call: Callable[[], None]) -> None:
        self._chained.discard(call)

    def wake(self) -> None:
        self.turn += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _settle(future, True)
        for call in self._chained:
            call()

    async def wait(self, *, timeout: float, since: int | None = None) -> bool:
        """True when woken (or already woken after `since`), False after the timeout."""
        if since is not None and since != self.turn:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(timeout, _settle, future, False)
        self._waiting.add(future)
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def __len__(self) -> int:
        return len(self._waiting)


def _settle(future: asyncio.Future[bool], woken: bool) -> None:
    if not future.done():
        future.set_result(woken)
