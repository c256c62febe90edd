"""Abortable work in threads.

A thread cannot be cancelled: it checks its `Abort` between two files and between two blocks of a large one. A cancelled
wait still waits until the thread has seen it: after that nothing is written any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Aborted(Exception):
    """The caller gave up waiting for this work."""


class Abort:
    """Set by the loop, checked by threads."""

    def __init__(self) -> None:
        self._set = threading.Event()

    def set(self) -> None:
        self._set.set()

    @property
    def is_set(self) -> bool:
        return self._set.is_set()

    def check(self) -> None:
        """Raises `Aborted` once it is set."""
        if self._set.is_set():
            raise Aborted


async def in_thread(work: Callable[[Abort], T], *, threads: concurrent.futures.Executor | None = None) -> T:
    """The result of `work` in a thread, one of `threads` if it can take long: the loop's own are few, and whatever supervises
    instances needs them. Cancelled, however often, it sets the abort and waits for the thread's end: a
    timeout during a stop must not abandon a thread that still writes."""
    abort = Abort()
    future = asyncio.get_running_loop().run_in_executor(threads, work, abort)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        abort.set()
        while not future.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({future})
        with contextlib.suppress(BaseException):  # the result is no longer needed
            future.result()
        raise
