"""Waiting for descriptors on the event loop: a pidfd becomes readable when its process ends."""

from __future__ import annotations

import asyncio


async def readable(descriptor: int) -> None:
    """Wait until the descriptor is readable; at most one wait per descriptor at a time."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _arrive, arrived)
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
