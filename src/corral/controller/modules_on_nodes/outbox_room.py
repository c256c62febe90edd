"""Room in a node's outbox for traffic about modules: commands and pings go first."""

from __future__ import annotations

import asyncio
from typing import Final

from corral.controller.sessions.node_links import ModuleLink
from corral.system.aio.backoff import Backoff

QUEUED_BYTES: Final = 1024 * 1024
QUEUED_MESSAGES: Final = 2000
"""Messages waiting for a node above which no traffic about modules is added: an overflow ends the stream."""
_FIRST_LOOK: Final = 0.005
_LAST_LOOK: Final = 0.25


def has_room(link: ModuleLink) -> bool:
    return link.outbox.waiting_bytes <= QUEUED_BYTES and len(link.outbox) <= QUEUED_MESSAGES


async def room(link: ModuleLink) -> None:
    """Wait until the outbox has room again, or the session is over. An outbox has no drained event, so it is
    polled."""
    backoff = Backoff(first=_FIRST_LOOK, longest=_LAST_LOOK)
    while not has_room(link) and not link.over.is_set():
        await asyncio.sleep(backoff.delay())
