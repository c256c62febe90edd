"""Connections of uvicorn with the limits that uvicorn lacks: bytes beside a body, time for a head, number of
connections, and a way for a handler to drop its connection."""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import Any, Final, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request as UpgradeRequest
from websockets.http11 import Response as UpgradeResponse
from websockets.server import ServerProtocol

from corral.controller.http.messages.request import ABORT
from corral.controller.http.messages.responses import JSON, SECURITY_HEADERS, refusal
from corral.controller.http.server.open_connections import Cut, OpenConnections
from corral.errors import Code, Rejected

HEAD_LIMIT: Final = 64 * 1024
"""Of everything that is not the content of a body: the head, trailers, lengths and extensions of chunks."""

MOST_PIPELINED: Final = 64
"""Requests that may wait for the answer to one before them. Each read may bring thousands."""

_OF_CLIENTS: Final = ("Invalid UTF-8", "ASGI callable returned without completing handshake")
"""Beginnings of what uvicorn logs as errors although a client is the cause; the second is logged of every refused upgrade."""
_LOG: Final = logging.getLogger("uvicorn.error.peers")
_LOG.setLevel(logging.ERROR)
_LOG.addFilter(lambda record: not str(record.msg).startswith(_OF_CLIENTS))
"""Protocol errors of clients are counted, not logged a line each: they would push out everything else. Nor are upgrades,
which uvicorn logs with their query: a ticket may be in it."""

_FRAGMENTS: Final = 1024
_SWITCHED: Final = 101
_OVERLONG: Final = "The head of the request is too large."
_SEVERAL_HOSTS: Final = "The request has more than one Host."
_TOO_MANY: Final = "Too many requests were sent before their answers were read."


class BoundedConfig(Config):
    """uvicorn's configuration, and the register that every connection of the server is in."""

    def __init__(self, app: Any, *, connections: OpenConnections, **options: Any) -> None:
        super().__init__(app, **options)
        self.connections = connections


class _Bounded(Protocol):
    config: Config


def _register(protocol: _Bounded) -> OpenConnections:
    config = protocol.config
    assert isinstance(config, BoundedConfig), "the server is made with one"
    return config.connections


class _Phase(enum.Enum):
    """Where in a request the next byte belongs."""

    BETWEEN = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    """Trailers included."""


class HttpConnection(HttpToolsProtocol):
    """A connection that cannot hold memory or a place for longer than it makes progress.

    - Bytes that are no content of a body are counted as they come: a header or trailer that never ends reaches
      no callback of the parser, which keeps it all.
    - A head has to be whole in time, from the first connect or from its first byte; so has the rest of a body
      that was answered already. Between requests the server's own timer runs.
    - Few requests may wait behind the one that is being answered.
    - A peer that has stopped reading cannot be closed in an orderly way; its connection is dropped after a while.
      Before that it may be closed to make room.
    """

    _phase = _Phase.BETWEEN
    _outside = 0
    _delivered = False
    _ended = False
    _timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.logger = _LOG
        self._bounds = _register(self)
        if self._bounds.enter(transport):
            self._arm(self._bounds.limits.head_seconds)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_stall_timer()
        self.pipeline.clear()
        self._bounds.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._delivered = self._ended = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._ended:
            return  # most of this read belonged to requests that are whole
        if self._phase is _Phase.BETWEEN and self._timer is None and not self._answering:
            self._arm(self._bounds.limits.head_seconds)  # something came that does not begin a request
        if self._delivered and self._phase is _Phase.BODY:
            self._outside = 0
            return
        self._outside += len(data)
        if self._outside > HEAD_LIMIT:
            self.send_400_response(_OVERLONG)

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None before the first request, against uvicorn's annotation
        return cycle is not None and not cycle.response_complete

    @property
    def _unanswered(self) -> bool:
        """Whether the request whose body comes is the only one, and nothing of its answer was sent."""
        return self._answering and not self.pipeline and not self.cycle.response_started

    def send_400_response(self, msg: str) -> None:
        self._bounds.cut[Cut.MALFORMED] += 1
        if msg != _OVERLONG and self._phase is _Phase.BODY and self._unanswered:
            self.cycle.disconnected = True  # the 400 is its answer
            self.cycle.message_event.set()
        elif self._phase is _Phase.BODY or self._answering:
            self.transport.abort()  # an answer is on its way, or was given
            return
        body = refusal(Rejected(Code.BAD_REQUEST, msg)).body
        headers = (
            *self.server_state.default_headers,
            *SECURITY_HEADERS,
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        )
        head = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + body)
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = _Phase.HEAD
        self._outside = 0
        self._arm(self._bounds.limits.head_seconds)
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # ASGI allows more keys

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head. Fields after a body are counted and dropped: they would be merged with those of the head,
        past everything before us that looks at heads (RFC 9110, 6.5.1)."""
        if self._phase is _Phase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_LIMIT:
            raise ValueError(_OVERLONG)  # the parser's caller refuses the request
        if sum(name == b"host" for name, _ in self.headers) > 1:
            raise ValueError(_SEVERAL_HOSTS)
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError(_TOO_MANY)
        self._phase = _Phase.BODY
        self._disarm()
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self._disarm()
        super().handle_websocket_upgrade()

    def on_body(self, body: bytes) -> None:
        self._delivered = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._phase = _Phase.BETWEEN
        self._ended = True
        self._outside = 0
        if not self._answering:
            self._arm(self._bounds.limits.idle_seconds)  # the server's timer was stopped by these bytes

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()  # each answer would let in another read full of requests
        if self._phase is _Phase.BODY and not self.pipeline:
            self._arm(
                self._bounds.limits.idle_seconds
            )  # answered before it was whole: the rest is thrown away
        elif not self._answering:
            self._bounds.waits(self.transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._bounds.waits(self.transport)
        self._watch_stall(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()
        if self._answering:
            self._bounds.works(self.transport)

    def _watch_stall(self, unsent: int) -> None:
        """Look again after a while whether the peer has taken any of what is buffered for it."""
        self._stop_stall_timer()
        self._stall_timer = self.loop.call_later(self._bounds.limits.stall_seconds, self._end_stall, unsent)

    def _end_stall(self, unsent: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < unsent:
            self._watch_stall(left)
        else:
            self._expire()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._expire)
        if not self._answering:  # what begins behind a request that is worked on does not take its place away
            self._bounds.waits(self.transport)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._bounds.works(self.transport)

    def _expire(self) -> None:
        self._bounds.cut[Cut.EXPIRED] += 1
        self.transport.abort()


class _Handshake(ServerProtocol):
    """Of a WebSocket: one that is malformed is refused with the headers of every other answer."""

    def accept(self, request: UpgradeRequest) -> UpgradeResponse:
        response = super().accept(request)
        if response.status_code != _SWITCHED:
            for name, value in SECURITY_HEADERS:
                response.headers[name.decode()] = value.decode()
        return response


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket. A client that leaves pings unanswered is dropped with what is buffered for it: one
    that has stopped reading would keep it for as long as it likes. The number of fragments of a message is bounded
    as its length is, and while answers to pings wait to be written no further ones are read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pongs_wait = False
        self.logger = _LOG
        self.conn = _Handshake(max_size=self.config.ws_max_size, logger=_LOG)
        self.conn.debug = False  # it would format every frame

    def connection_lost(self, exc: Exception | None) -> None:
        _register(self).leave(self.transport)
        super().connection_lost(exc)

    def handle_connect(self, event: UpgradeRequest) -> None:
        super().handle_connect(event)
        if self.response.status_code == _SWITCHED:
            self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # ASGI allows more keys

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) >= _FRAGMENTS and not event.fin:
            self.frames = []
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message of more than {_FRAGMENTS} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        super().handle_ping()
        if not self.writable.is_set():
            self._pongs_wait = True
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pongs_wait:
            self._pongs_wait = False
            if not self.read_paused:
                self.transport.resume_reading()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()
