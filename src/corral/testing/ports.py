"""Ports for servers that a test stops and starts again.

They lie below the range from which the kernel takes ports for outgoing connections, and every process gives out
ports of its own: one that is free for a moment, because its server has not started yet or restarts, is not
taken by another process or by another test that runs at the same time.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_FIRST: Final = 20_000
_LAST: Final = 29_900
"""Below 30,000, where the groups of copied documents begin."""
_SIZE: Final = 100


class _OwnPorts:
    """A block of ports that no other process of this host (or of this network namespace) gives out meanwhile."""

    def __init__(self) -> None:
        self._claim: socket.socket | None = None
        self._first = 0
        self._next = 0

    def claim(self) -> None:
        """Idempotent. An abstract socket is the claim: the kernel gives it up with the process, however it ends."""
        blocks = list(range(_FIRST, _LAST, _SIZE))
        random.shuffle(blocks)
        while self._claim is None:
            self._first = blocks.pop()
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0corral-testing-ports-{self._first}")
            except OSError:
                claim.close()
                if not blocks:
                    raise
            else:
                self._claim = claim

    def take(self, count: int) -> range:
        """So many consecutive ports, others than in the calls before, until all had their turn. The last of the
        block is left: who listens on a port for gRPC also takes the next one."""
        assert 0 < count < _SIZE, f"between 1 and {_SIZE - 1} ports, not {count}"
        self.claim()
        if self._next + count >= _SIZE:
            self._next = 0
        start = self._first + self._next
        self._next += count
        return range(start, start + count)


_own = _OwnPorts()
claim_ports = _own.claim
"""Done by the first request for a port, too; before that, where a descriptor that stays open would be a leak."""


def free_addresses(count: int) -> list[str]:
    """Different loopback addresses without a listener right now."""
    found: list[str] = []
    while len(found) < count:
        (port,) = _own.take(1)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(f"127.0.0.1:{port}")
    return found


def free_range(count: int) -> tuple[int, int]:
    """The first and last of so many consecutive ports that are free right now, TCP or UDP."""
    while True:
        ports = _own.take(count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in ports:
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    held.enter_context(socket.socket(type=kind)).bind(("127.0.0.1", port))
            return ports[0], ports[-1]
