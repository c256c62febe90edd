"""One connection to the keeper: its request, and the descriptors that come with it."""

from __future__ import annotations

import os
import socket
from typing import Any

from corral.runtimes.keeper import keeper_protocol

LOCK = "lock"
CONSOLE = "console"
TERMINAL = "terminal"
PROCESS = "process"
MINDER = "minder"
"""Names of descriptors: the run's lock, the read end of its FIFO, the master of its terminal, and pidfds of its
main process and of its shim or rescue."""
_REQUEST_BYTES = 1 << 18


class Caller:
    """A connection whose request is still coming in. Owns its descriptors until they are taken."""

    __slots__ = ("_descriptors", "_named", "connection", "frames")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = keeper_protocol.Frames()
        self._descriptors: list[int] = []
        self._named: dict[str, int] = {}

    def read(self) -> bytes:
        """What has come, empty at the end."""
        try:
            piece, descriptors = keeper_protocol.receive_some(self.connection, _REQUEST_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            return b""
        self._descriptors += descriptors
        while len(self._descriptors) > keeper_protocol.MOST_DESCRIPTORS:
            os.close(self._descriptors.pop())
        return piece

    def name_descriptors(self, request: dict[str, Any]) -> None:
        """As the request names them, in their order; without names, one is the lock."""
        for name in request.get("descriptors", [LOCK]):
            if self._descriptors and str(name) not in self._named:
                self._named[str(name)] = self._descriptors.pop(0)

    def peek(self, name: str) -> int:
        """-1 when none of this name came. It stays ours."""
        return self._named.get(name, -1)

    def take(self, name: str) -> int:
        """From now on whose who asks; -1 when none of this name came."""
        return self._named.pop(name, -1)

    def close(self) -> None:
        self.connection.close()
        for descriptor in (*self._descriptors, *self._named.values()):
            os.close(descriptor)
        self._descriptors.clear()
        self._named.clear()
