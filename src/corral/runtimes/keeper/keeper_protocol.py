"""The protocol between daemon, keeper and shim: frames of a 4-byte length and a JSON object over a unix
socket.

The first bytes of a request may carry descriptors, of which the first is the run's lock unless the request
names them otherwise: while the request is in transit, even in a socket buffer, the lock is held.
`RequestConnection` is the keeper's end of one request. Standard library only.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from typing import Any

PROTOCOL = 5
"""Raised when an older keeper could misunderstand a request of this version. 2: it executes programs beside
runs. 3: it supervises companions of runs. 4: it is handed runs that it did not start. 5: it forks spare shims. A
keeper of another protocol is left alone as long as it holds a run."""
MAX_FRAME = 16 << 20
MOST_DESCRIPTORS = 5

_LENGTH = struct.Struct("!I")


class Damaged(ValueError):
    """The other side does not follow the protocol."""


def socket_name(protocol: int) -> str:
    """The socket's name; keepers of different protocols exist side by side."""
    return "keeper.sock" if protocol == 1 else f"keeper-{protocol}.sock"


def lock_name(socket: str) -> str:
    """The file locked by the keeper that listens there; its content is that keeper's pid."""
    return f"{socket}.lock"


def pack(message: dict[str, Any]) -> bytes:
    """ASCII JSON, so that undecodable bytes of a path or argument are transferred as lone surrogates."""
    body = json.dumps(message).encode("ascii")
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Reassembles messages from received pieces."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def missing(self) -> int:
        """How many bytes the next message needs before more can be known of it."""
        if len(self._buffer) < _LENGTH.size:
            return _LENGTH.size - len(self._buffer)
        (length,) = _LENGTH.unpack_from(self._buffer)
        return int(_LENGTH.size + length - len(self._buffer))

    def feed(self, piece: bytes) -> dict[str, Any] | None:
        """The next message, once it is complete."""
        self._buffer += piece
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME:
            raise Damaged(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        message = json.loads(body)
        if not isinstance(message, dict):
            raise Damaged("not an object")
        return message


def send(connection: socket.socket, message: dict[str, Any], *descriptors: int) -> bool:
    """Blocking; False when the other side is gone. A descriptor of -1 is left out."""
    given = [descriptor for descriptor in descriptors if descriptor >= 0]
    try:
        data = pack(message)
        if given:
            data = data[connection.sendmsg([data], rights(*given)) :]
        if data:  # to send nothing fails when the other side has read everything and closed
            connection.sendall(data)
    except OSError:
        return False
    return True


def rights(*descriptors: int) -> list[tuple[int, int, bytes]]:
    """Descriptors as ancillary data of a socket message."""
    packed = struct.pack(f"{len(descriptors)}i", *descriptors)
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if descriptors else []


def receive_some(connection: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """The received bytes, and the descriptors that came with them, which are the caller's now. Raises
    OSError."""
    room = socket.CMSG_LEN(MOST_DESCRIPTORS * 4)
    piece, control, _, _ = connection.recvmsg(most, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for _, _, data in control:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return piece, list(descriptors)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Blocking; None when the other side is gone."""
    return receive_with_descriptors(connection)[0]


def receive_with_descriptors(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Blocking; a message, None when the other side is gone, and the descriptors that came with it. Nothing behind
    the message is read: it may be for another reader."""
    frames = Frames()
    found: list[int] = []
    while True:
        try:
            piece, descriptors = receive_some(connection, min(frames.missing(), 65536))
        except OSError:
            return None, found
        found += descriptors
        if not piece:
            return None, found
        message = frames.feed(piece)
        if message is not None:
            return message, found


LOCK = "lock"
CONSOLE = "console"
TERMINAL = "terminal"
PROCESS = "process"
MINDER = "minder"
"""Names of descriptors: the run's lock, the read end of its FIFO, the master of its terminal, and pidfds of its
main process and of its shim or rescue."""
_REQUEST_BYTES = 1 << 18


class RequestConnection:
    """A connection whose request is still being received. Owns its descriptors until they are taken."""

    __slots__ = ("_descriptors", "_named", "connection", "frames")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames()
        self._descriptors: list[int] = []
        self._named: dict[str, int] = {}

    def read(self) -> bytes:
        """The received bytes, empty at the end."""
        try:
            piece, descriptors = receive_some(self.connection, _REQUEST_BYTES)
        except BlockingIOError:
            raise
        except OSError:
            return b""
        self._descriptors += descriptors
        while len(self._descriptors) > MOST_DESCRIPTORS:
            os.close(self._descriptors.pop())
        return piece

    def name_descriptors(self, request: dict[str, Any]) -> None:
        """Name the descriptors as the request does, in their order; without names, a single one is the lock."""
        for name in request.get("descriptors", [LOCK]):
            if self._descriptors and str(name) not in self._named:
                self._named[str(name)] = self._descriptors.pop(0)

    def peek(self, name: str) -> int:
        """The descriptor of this name, -1 when none came. The connection still owns it."""
        return self._named.get(name, -1)

    def take(self, name: str) -> int:
        """The descriptor of this name, -1 when none came. The caller owns it from now on."""
        return self._named.pop(name, -1)

    def close(self) -> None:
        self.connection.close()
        for descriptor in (*self._descriptors, *self._named.values()):
            os.close(descriptor)
        self._descriptors.clear()
        self._named.clear()
