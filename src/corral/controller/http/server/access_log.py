"""The access log: one record a request, once its answer is given; of a stream, once it has ended.

It is off unless `http.access_log` is set, and then not in the way of any request. A record holds what a request was
about and how it ended, and nothing that may be secret: no query, no header but the request's id, no body.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from corral.controller.http.messages.request import (
    CLIENT_CLOSED,
    PRINCIPAL,
    REQUEST_ID,
    AsgiApp,
    Message,
    Receive,
    Scope,
    Send,
    shown_path,
)

_SWITCHED: Final = 101
_LONGEST_METHOD: Final = 32
_log = structlog.get_logger("corral.http.access")


class AccessLog:
    """Logs what passes through it to an application."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        answer = _Answer(send, counts_body=scope.get("method") != "HEAD")
        try:
            await self._app(scope, receive, answer.send)
        finally:
            client = scope.get("client")
            _log.info(
                "http.request_ended",
                method="WEBSOCKET" if scope["type"] == "websocket" else scope["method"][:_LONGEST_METHOD],
                path=shown_path(scope["path"]),
                status=answer.status,
                bytes=answer.bytes,
                seconds=round(time.perf_counter() - began, 4),
                principal=scope.get(PRINCIPAL, ""),
                request=scope.get(REQUEST_ID, ""),
                address=client[0] if client else "",
            )


class _Answer:
    """Counts what is sent."""

    def __init__(self, send: Send, *, counts_body: bool) -> None:
        self._send = send
        self._counts_body = counts_body
        self.status = CLIENT_CLOSED
        self.bytes = 0

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self.status = message["status"]
            case "http.response.body" | "websocket.http.response.body":
                self.bytes += len(message.get("body", b"")) if self._counts_body else 0
            case "websocket.accept":
                self.status = _SWITCHED
            case "websocket.send":
                self.bytes += len(message.get("bytes") or (message.get("text") or "").encode())
        await self._send(message)
