"""Blocking work on a thread, which is over when the caller goes on, also a cancelled one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run it on a worker of the loop. A cancelled caller leaves only when the work is done: files that
    it reads may then be closed. So the work is short, some MiB at most."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen, and of no interest to anybody now
        raise
