"""Ports for servers that a test stops and starts again.

They lie below the range from which the kernel takes ports for outgoing connections: one that is
free for a moment while its server restarts is not taken by a stranger.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_FIRST: Final = 20_000
_LAST: Final = 32_000


def free_addresses(count: int) -> list[str]:
    """Different loopback addresses that nobody listens on right now."""
    with contextlib.ExitStack() as held:
        found: list[str] = []
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            port = random.randrange(_FIRST, _LAST)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(f"127.0.0.1:{port}")
        return found
