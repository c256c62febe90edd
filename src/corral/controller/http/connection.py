"""uvicorn's connections, with what they lack: a limit for the head of a request, and a way to cut a
connection from within."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request as UpgradeRequest

ABORT: Final = "corral.abort"
"""In a request's scope: a function that drops the connection and what is buffered for it."""

HEAD_LIMIT: Final = 64 * 1024

Abort = Callable[[], None]


class Connection(HttpToolsProtocol):
    """A peer that has stopped reading cannot be told goodbye; its connection can be dropped. One that
    never stops sending headers is dropped before they fill our memory."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._in_head = True
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # ASGI allows more keys

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self.send_400_response("The head of the request is too large.")


class SocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket. A client that leaves pings unanswered is dropped with what is buffered for it: one
    that has stopped reading would keep it for as long as it likes."""

    def handle_connect(self, event: UpgradeRequest) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]  # ASGI allows more keys

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()
