"""Worker threads for blocking code: hooks that are plain `def`, and the HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")
MAX_WORKERS: Final = 16
"""Most concurrent jobs; further ones wait."""
RESERVED: Final = 4
"""Threads beside them for hooks and health checks: a late one makes the module FAILED."""
_STACK: Final = 2 * 1024 * 1024
"""Stacks count towards the module's memory limit; eight megabytes each would soon be half of it."""


class _WorkerJob:
    def __init__(self, label: str, run: Callable[[], object], done: Callable[[object, object], None]) -> None:
        self.label = label
        self.run = run
        self.done = done


class Workers:
    """Threads are made when needed, kept, and do not keep the process from ending. A job cannot be
    interrupted: a cancelled caller stops waiting, and the thread goes on until the job returns."""

    def __init__(
        self, prefix: str = "corral/worker", *, most: int = MAX_WORKERS, reserved: int = RESERVED
    ) -> None:
        self._prefix = prefix
        self._most = most
        self._reserve = Workers(f"{prefix}-reserved", most=reserved, reserved=0) if reserved else None
        self._jobs: queue.SimpleQueue[_WorkerJob | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._busy: dict[threading.Thread, str] = {}

    @property
    def threads(self) -> set[threading.Thread]:
        return set(self._threads) | (self._reserve.threads if self._reserve else set())

    def busy(self) -> dict[threading.Thread, str]:
        """Labels of the jobs that run now."""
        return self._busy | (self._reserve.busy() if self._reserve else {})

    async def run_urgent(self, label: str, function: Callable[..., T], *arguments: object) -> T:
        """Like `run`, on a reserved thread when all others are taken."""
        full = self._unfinished >= self._most
        workers = self._reserve if full and self._reserve else self
        return await workers.run(label, function, *arguments)

    async def run(self, label: str, function: Callable[..., T], *arguments: object) -> T:
        """Raises whatever the function raises, SystemExit and the like included."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[T, BaseException | None]] = loop.create_future()

        def settle(value: object, error: object) -> None:
            self._unfinished -= 1
            if not future.done():
                # As a value: a future refuses some exceptions, and others would end the loop.
                future.set_result((value, error))  # type: ignore[arg-type]  # what `function` returned

        def done(value: object, error: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed; no caller waits
                loop.call_soon_threadsafe(settle, value, error)

        context = contextvars.copy_context()
        self._start_thread_if_needed()
        self._unfinished += 1

        def work() -> object:
            # A job that was cancelled while it waited for a thread must not run later, after others.
            return None if future.done() else context.run(function, *arguments)

        self._jobs.put(_WorkerJob(label, work, done))
        value, error = await future
        if error is not None:
            raise error
        return value

    def close(self, seconds: float = 1.0) -> None:
        """Let the threads end; one that is still at work after so many seconds is abandoned."""
        until = time.monotonic() + seconds
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self._reserve is not None:
            self._reserve.close(max(0.0, until - time.monotonic()))

    def _start_thread_if_needed(self) -> None:
        if self._unfinished < len(self._threads) or len(self._threads) >= self._most:
            return
        thread = threading.Thread(
            target=self._work, name=f"{self._prefix}-{len(self._threads) + 1}", daemon=True
        )
        usual = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
        self._threads.append(thread)

    def _work(self) -> None:
        this = threading.current_thread()
        while (job := self._jobs.get()) is not None:
            self._busy[this] = job.label
            try:
                outcome: tuple[object, object] = (job.run(), None)
            except BaseException as error:
                outcome = (None, error)
            del self._busy[this]
            job.done(*outcome)
            del job, outcome
