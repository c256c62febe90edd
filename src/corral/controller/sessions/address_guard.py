"""Connection limit per address on the gRPC ports, which gRPC itself does not have.

gRPC accepts in threads of its own without a callback; but its sockets are descriptors of this process. They
are inspected once a second, more often while an address has too many, and connections of an address beyond
its limit are shut down, the newest first: gRPC then sees the end of the connection. Limits of all connections
and the deadline of handshakes are gRPC's own (`server_options`).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from corral.system.addresses import counted_as, share_of
from corral.system.clock import Clock
from corral.system.logger import LogQuota

log = structlog.get_logger("corral.controller.sessions")

SWEEP_SECONDS: Final = 1.0
_MORE_OFTEN: Final = 4
"""The factor of the sweep rate after a sweep that found too many: a peer that redials at once must not fill
the port before the next."""
_QUIET_SECONDS: Final = 60.0
"""The shortest interval between two log lines about failing sweeps, which fail in series."""

_PER_ADDRESS: Final = "raise grpc.connections_per_address if many nodes share one address"
_ALL: Final = (
    "open connections stay, new ones are closed: raise grpc.connections, or the limit of file descriptors"
    " (LimitNOFILE, ulimit -n), of which daemons may have a quarter"
)


class Bound(NamedTuple):
    """The limit of a port."""

    per_address: int
    most: int


class _Peer(NamedTuple):
    port: int
    address: str


_OTHER: Final = _Peer(0, "")
"""A descriptor that is no connection to a watched port."""


class AddressGuard:
    """Watches ports of this process. `sweep` blocks shortly and may run in any thread, one at a time."""

    def __init__(
        self, ports: Mapping[int, Bound], *, clock: Clock, every_seconds: float = SWEEP_SECONDS
    ) -> None:
        self._ports = ports
        self._every = every_seconds
        self._quota = LogQuota(clock=clock, seconds=_QUIET_SECONDS)
        self._known: dict[tuple[int, int], _Peer | None] = {}
        """By descriptor and inode, in the order in which they were first seen. None: the peer could not be
        determined yet, and is looked up again."""

    async def run(self) -> None:
        """Sweep until cancelled. Descriptors may run out, most likely when the guard is needed most: failures
        do not end it."""
        shut = 0
        while True:
            await asyncio.sleep(self._every / _MORE_OFTEN if shut else self._every)
            try:
                shut = await asyncio.to_thread(self.sweep)
            except Exception as error:
                if (unsaid := self._quota.admit("link_guard.failed")) is not None:
                    log.error("link_guard.failed", error=repr(error), unsaid=unsaid)

    def sweep(self) -> int:
        """Shut down excess connections; returns their number."""
        self._look()
        counts: collections.Counter[_Peer] = collections.Counter()
        cut: collections.Counter[_Peer] = collections.Counter()
        for key, peer in self._known.items():
            if peer is None or peer is _OTHER:
                continue
            bound = self._ports[peer.port]
            share = share_of(peer.address, per_address=bound.per_address, most=bound.most)
            counts[peer] += 1
            if share and counts[peer] > share and _shut(*key):
                cut[peer] += 1
        for peer, number in cut.items():
            if (unsaid := self._quota.admit("link_connection.refused", peer.address)) is not None:
                log.warning(
                    "link_connection.refused",
                    address=peer.address,
                    port=peer.port,
                    refused=number,
                    unsaid=unsaid,
                    hint=_PER_ADDRESS,
                )
        self._report_full(counts)
        return cut.total()

    def _report_full(self, counts: Mapping[_Peer, int]) -> None:
        """Log that a port has all connections that it may have: gRPC closes new ones without a word."""
        for port, bound in self._ports.items():
            present = sum(number for peer, number in counts.items() if peer.port == port)
            if (
                bound.most
                and present >= bound.most
                and self._quota.admit("link_port.blocked", str(port)) is not None
            ):
                log.error("link_port.blocked", port=port, most=bound.most, hint=_ALL)

    def _look(self) -> None:
        """Update the known sockets. Each socket has its own inode, so a reused descriptor number is noticed."""
        present: dict[tuple[int, int], None] = {}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - thousands, each second
            with contextlib.suppress(OSError):  # closed in the meantime
                found = os.fstat(int(name))
                if stat.S_ISSOCK(found.st_mode):
                    present[int(name), found.st_ino] = None
        self._known = {key: peer for key, peer in self._known.items() if key in present}
        for key in present:
            if self._known.get(key) is None:
                self._known[key] = self._peer(*key)

    def _peer(self, descriptor: int, inode: int) -> _Peer | None:
        """The peer of a socket. None: unknown for now, for lack of a free descriptor, or before it is
        connected."""
        with contextlib.suppress(OSError), _held(descriptor, inode) as connection:
            if connection is None:
                return None
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return _OTHER
            port = connection.getsockname()[1]
            return _Peer(port, counted_as(connection.getpeername()[0])) if port in self._ports else _OTHER
        return None


@contextlib.contextmanager
def _held(descriptor: int, inode: int) -> Iterator[socket.socket | None]:
    """A duplicate of the socket, so that it cannot be closed meanwhile; None when the descriptor is another
    socket by now."""
    copy = os.dup(descriptor)
    try:
        found = os.fstat(copy)
        if not stat.S_ISSOCK(found.st_mode) or found.st_ino != inode:
            yield None
            return
        connection = socket.socket(fileno=copy)
        try:
            yield connection
        finally:
            connection.detach()
    finally:
        os.close(copy)


def _shut(descriptor: int, inode: int) -> bool:
    with contextlib.suppress(OSError), _held(descriptor, inode) as connection:
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False
