"""Connections of the client that blocks: sockets with deadlines, kept for the next request. Safe to use from several threads."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from corral.client.addresses import Address
from corral.client.bodies import BLOCK, Body, BodyCount
from corral.client.errors import InvalidAnswer, Unreachable
from corral.client.failures import broken_off, invalid, unreachable
from corral.client.http1 import AnswerFault, AnswerParser, Head
from corral.client.outgoing import Outgoing

_READ: Final = 256 * 1024
_WHOLE: Final = 10
"""So many times the longest pause of an answer it may take as a whole."""
_KEPT: Final = 8
"""Connections that wait for the next request."""

Opener = Callable[[float], socket.socket]
"""Connects within so many seconds."""


class SyncTransport:
    """Sends requests to one controller, and to no other host."""

    def __init__(
        self,
        address: Address,
        *,
        token: str | None,
        context: ssl.SSLContext | None,
        opener: Opener | None = None,
    ) -> None:
        self.address = address
        self._token = token
        self._opener = opener or (lambda seconds: connected(address, context, seconds))
        self._kept: list[_Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    def open(self, request: Outgoing, *, seconds: float) -> SyncAnswer:
        """Send a request and read the head of its answer, within so many seconds of the last block that was sent.

        It is sent once: a second time, over a fresh connection, only when the kept one did not take its head, so that nobody can
        have acted on it."""
        kept = self._take()
        if kept is not None:
            try:
                return self._ask(kept, request, seconds)
            except Unreachable as failure:
                if kept.begun or not failure.passing:
                    raise  # else it was closed while it was kept: that is no failure of the controller
        started = time.monotonic()
        try:
            fresh = _Connection(self._opener(seconds))
        except OSError as error:
            raise unreachable(self.address.url, error, sent=False, changes=False) from error
        return self._ask(fresh, request, max(0.1, seconds - (time.monotonic() - started)))

    def close(self) -> None:
        """For good."""
        self._closed = True
        self.drop_kept()

    def drop_kept(self) -> None:
        """End the connections that wait for a request."""
        with self._lock:
            kept, self._kept = self._kept, []
        for each in kept:
            each.close()

    def _ask(self, connection: _Connection, request: Outgoing, seconds: float) -> SyncAnswer:
        try:
            connection.exchange(request.head(self.address, self._token), request.body, seconds)
        except (OSError, AnswerFault) as error:
            connection.close()
            failure = unreachable(self.address.url, error, sent=connection.begun, changes=not request.reads)
            raise failure from error
        except BaseException:
            connection.close()
            raise
        return SyncAnswer(connection, self, changes=not request.reads)

    def _take(self) -> _Connection | None:
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError("the client is closed; make a new one")
                if not self._kept:
                    return None
                connection = self._kept.pop()
            if not connection.has_input():  # input without a question is the end
                return connection
            connection.close()

    def give_back(self, connection: _Connection) -> None:
        if connection.parser.reusable and not connection.spoiled:
            with self._lock:
                if not self._closed and len(self._kept) < _KEPT:
                    self._kept.append(connection)
                    return
        connection.close()


class SyncAnswer:
    """An answer whose head has come. `close` it: the connection is used again when all of the body was read."""

    def __init__(self, connection: _Connection, transport: SyncTransport, *, changes: bool) -> None:
        self._changes = changes
        self._connection: _Connection | None = connection
        self._transport = transport
        assert connection.parser.head is not None, "the head was read"
        self.head: Head = connection.parser.head

    def piece(self, seconds: float) -> bytes:
        """What came of the body, at least a byte; empty: that was all. `Unreachable` when it breaks off."""
        connection = self._connection
        if connection is None:
            return b""
        parser, deadline = connection.parser, time.monotonic() + seconds
        try:
            while not parser.buffered and not parser.complete:
                connection.receive(deadline)
        except (OSError, AnswerFault) as error:
            self.close()
            raise broken_off(self._transport.address.url, error, changes=self._changes) from error
        return parser.take()

    def whole(self, *, limit: int, seconds: float) -> bytes:
        """The body, if it has no more than `limit` bytes, never pauses for so many seconds, and takes ten times as long at most."""
        deadline = time.monotonic() + _WHOLE * seconds
        if int(self.head.get("content-length") or 0) > limit:
            raise self._too_long(limit)
        found = bytearray()
        while piece := self.piece(min(seconds, deadline - time.monotonic())):
            found += piece
            if len(found) > limit:
                raise self._too_long(limit)
        return bytes(found)

    def _too_long(self, limit: int) -> InvalidAnswer:
        self.close()
        what = f"an answer of more than {limit} bytes"
        return invalid(self._transport.address.url, what, in_doubt=self._changes)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(connection)


class _Connection:
    """A socket and the answer that is read from it."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self.parser = AnswerParser()
        self.spoiled = False
        """The request was not sent as a whole."""
        self.begun = False
        """The head of the request was sent as a whole: from there on it may have an effect."""

    def exchange(self, head: bytes, body: Body | None, seconds: float) -> None:
        """Send, and read until the head of the answer is here. An answer that comes before everything was sent ends the sending."""
        self.parser, self.begun = AnswerParser(), False
        try:
            self._send(head, time.monotonic() + seconds)
            self.begun = True
            if body is not None and body.size != 0:
                self._send_body(body, seconds)
        except (BrokenPipeError, ConnectionResetError):
            self.spoiled = True  # it does not want the rest, and perhaps the reason is in its answer
        deadline = time.monotonic() + seconds
        while self.parser.head is None:
            self.receive(deadline)

    def receive(self, deadline: float) -> None:
        self._wire.settimeout(_left(deadline))
        data = self._wire.recv(_READ)
        if data:
            self.parser.feed(data)
        else:
            self.parser.end()

    def has_input(self) -> bool:
        """Whether something can be read, the end included."""
        poll = select.poll()
        poll.register(self._wire, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        self._wire.close()

    def _send(self, data: bytes, deadline: float) -> None:
        self._wire.settimeout(_left(deadline))
        self._wire.sendall(data)

    def _send_body(self, body: Body, seconds: float) -> None:
        chunked, count = body.size is None, BodyCount(body)
        for segment in body.segments:
            for block in _blocks(segment):
                if self._is_answered(time.monotonic() + seconds):
                    self.spoiled = True
                    return
                count.sending(block)
                data = b"%x\r\n%b\r\n" % (len(block), block) if chunked else block
                self._send(data, time.monotonic() + seconds)
        count.complete()
        if chunked:
            self._send(b"0\r\n\r\n", time.monotonic() + seconds)

    def _is_answered(self, deadline: float) -> bool:
        """On TLS the other side also sends what is no answer, so there the whole is sent."""
        if not isinstance(self._wire, ssl.SSLSocket) and self.has_input():
            self.receive(deadline)
        return self.parser.head is not None


def _blocks(segment: Any) -> Iterator[bytes]:
    if isinstance(segment, bytes):
        yield from (segment[start : start + BLOCK] for start in range(0, len(segment), BLOCK))
    elif isinstance(segment, os.PathLike):
        with open(segment, "rb") as file:  # noqa: PTH123 - pathlib would be one more import
            while block := file.read(BLOCK):
                yield block
    elif hasattr(segment, "read"):
        while block := segment.read(BLOCK):
            yield block
    else:
        pieces: Iterable[bytes] = segment
        yield from (piece for piece in pieces if piece)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def connected(address: Address, context: ssl.SSLContext | None, seconds: float) -> socket.socket:
    """A connection to a controller; with a context an encrypted one."""
    wire = socket.create_connection((address.host, address.port), timeout=seconds)
    try:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return wire if context is None else context.wrap_socket(wire, server_hostname=address.host)
    except BaseException:
        wire.close()
        raise
