"""Ports for servers that a test stops and starts again.

They lie below the range from which the kernel takes ports for outgoing connections: one that is free for a
moment while its server restarts is not taken by another process.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_FIRST: Final = 20_000
_LAST: Final = 29_900
"""Below 30,000, where the groups of copied documents begin."""


def free_addresses(count: int) -> list[str]:
    """Different loopback addresses without a listener right now."""
    with contextlib.ExitStack() as held:
        found: list[str] = []
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            port = random.randrange(_FIRST, _LAST)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(f"127.0.0.1:{port}")
        return found


def free_range(count: int) -> tuple[int, int]:
    """The first and last of so many consecutive ports that are free right now, TCP or UDP."""
    while True:
        first = random.randrange(_FIRST, _LAST - count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    held.enter_context(socket.socket(type=kind)).bind(("127.0.0.1", port))
            return first, first + count - 1
