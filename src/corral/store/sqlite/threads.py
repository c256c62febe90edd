"""A thread that owns a database connection, and the hand-over between it and the event loop.

SQLite calls block, so they never run on the loop; a pool with a hop per call costs more than the call. One
thread per connection, one hop there and one back per piece of work.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from corral.store.store_errors import StoreUnavailable

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], Any]


class DatabaseThread:
    """Runs work on its own connection, one piece after the other, in the order of the calls."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, name: str) -> None:
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[Work, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._closed = False

    async def open(self) -> None:
        """Start the thread and connect; raises what `connect` raises, and leaves no thread then."""
        self._thread.start()
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close()
            raise

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection. A cancelled caller does not stop work that was handed over."""
        if self._closed:
            raise StoreUnavailable("it was closed")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, answer))
        return await answer

    async def close(self) -> None:
        """Finish the queued work, close the connection, end the thread."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()  # it has nothing left to do but to return

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:
            self._post(self._opened, None, error)
        else:
            self._post(self._opened, None, None)
            self._serve(connection)
            connection.close()
        self._post(self._ended, None, None)

    def _serve(self, connection: sqlite3.Connection) -> None:
        while (job := self._jobs.get()) is not None:
            work, answer = job
            try:
                result = work(connection)
            except BaseException as error:
                self._post(answer, None, error)
            else:
                self._post(answer, result, None)
                del result
            # No reference to the last job may stay alive during the wait for the next one.
            del job, work, answer

    def _post(self, answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, answer, result, error)


def _settle(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
