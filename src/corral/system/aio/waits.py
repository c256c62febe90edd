"""Waiting for an event with a time limit."""

from __future__ import annotations

import asyncio


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
