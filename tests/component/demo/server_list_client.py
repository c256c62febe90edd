"""The server-list ping as a game client makes it, written from the protocol's description."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any


def varint(value: int) -> bytes:
    packed = b""
    while True:
        value, low = value >> 7, value & 0x7F
        packed += bytes([low | (0x80 if value else 0)])
        if not value:
            return packed


def packet(id: int, body: bytes = b"") -> bytes:
    content = varint(id) + body
    return varint(len(content)) + content


def text(value: str) -> bytes:
    return varint(len(value.encode())) + value.encode()


def handshake(port: int, *, protocol: int, next_state: int) -> bytes:
    return packet(0, varint(protocol) + text("localhost") + struct.pack(">H", port) + varint(next_state))


class Connection:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def receive(self) -> tuple[int, bytes]:
        """Id and body of the next packet; EOFError when the server hung up."""
        content = self._exactly(self._varint())
        id, rest = _split_varint(content)
        return id, rest

    def _varint(self) -> int:
        raw = b""
        while not raw or raw[-1] & 0x80:
            raw += self._exactly(1)
        return _split_varint(raw)[0]

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            chunk = self._socket.recv(count - len(got))
            if not chunk:
                raise EOFError
            got += chunk
        return got


def _split_varint(content: bytes) -> tuple[int, bytes]:
    value = 0
    for position, byte in enumerate(content):
        value |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            return value, content[position + 1 :]
    raise EOFError


def read_text(body: bytes) -> str:
    length, rest = _split_varint(body)
    assert len(rest) == length
    return rest.decode()


def status(port: int, *, protocol: int = 765) -> dict[str, Any]:
    """What the server list would show."""
    with Connection(port) as connection:
        connection.send(handshake(port, protocol=protocol, next_state=1) + packet(0))
        id, body = connection.receive()
        assert id == 0
        connection.send(packet(1, struct.pack(">q", -42)))
        assert connection.receive() == (1, struct.pack(">q", -42))
        found: dict[str, Any] = json.loads(read_text(body))
        return found
