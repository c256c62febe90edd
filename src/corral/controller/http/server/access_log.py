"""The access log: one record a request, once its answer is given; of a stream, once it has ended.

It is off unless `http.access_log` is set, and then not in the way of any request. A record holds what a request was
about and how it ended, and nothing that may be secret: no query, no header but the request's id, no body.

Records are bounded, so that a flood of requests does not push all others out of the log: ten a second for a principal,
one for the callers without one at an address, ten for all of these. `access_log.skipped` counts those that are left
out, and names whose they were.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Callable
from typing import Final

import structlog

from corral.controller.http.messages.request import (
    CLIENT_CLOSED,
    PAGE_MODULE,
    PRINCIPAL,
    REQUEST_ID,
    AsgiApp,
    Message,
    Receive,
    Scope,
    Send,
    shown_path,
)
from corral.errors import short_list
from corral.system.aio.token_bucket import TokenBucket, TokenBuckets

_SWITCHED: Final = 101
_LONGEST_METHOD: Final = 32
_REPORT_SECONDS: Final = 5.0
_MOST_LISTED: Final = 10
_MOST_KEPT: Final = 1000
_OTHERS: Final = "others"
_log = structlog.get_logger("corral.http.access")


class AccessLog:
    """Logs what passes through it to an application."""

    def __init__(self, app: AsgiApp, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._quota = AccessQuota(monotonic=monotonic)
        self._report: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        answer = _Answer(send, counts_body=scope.get("method") != "HEAD")
        try:
            await self._app(scope, receive, answer.send)
        finally:
            client = scope.get("client")
            address = client[0] if client else ""
            principal = scope.get(PRINCIPAL, "")
            if self._quota.admit(principal=principal, address=address):
                _log.info(
                    "http_request.ended",
                    method="WEBSOCKET" if scope["type"] == "websocket" else scope["method"][:_LONGEST_METHOD],
                    path=shown_path(scope["path"]),
                    status=answer.status,
                    bytes=answer.bytes,
                    seconds=round(time.perf_counter() - began, 4),
                    principal=principal,
                    request=scope.get(REQUEST_ID, ""),
                    address=address,
                    page=scope.get(PAGE_MODULE, ""),
                )
            elif self._report is None:
                self._report = asyncio.get_running_loop().call_later(_REPORT_SECONDS, self.close)

    def close(self) -> None:
        """Log what was left out since the last time."""
        if self._report is not None:
            self._report.cancel()
            self._report = None
        if skipped := self._quota.take_skipped():
            named = [f"{name} ({count})" for name, count in skipped.most_common()]
            _log.warning(
                "access_log.skipped",
                count=skipped.total(),
                callers=short_list(named, _MOST_LISTED),
                request="",
            )


class AccessQuota:
    """How many records each caller may have, and whose were left out."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._principals: TokenBuckets[str] = TokenBuckets(burst=50, per_second=10, monotonic=monotonic)
        self._addresses: TokenBuckets[str] = TokenBuckets(burst=20, per_second=1, monotonic=monotonic)
        self._unknown = TokenBucket(burst=50, per_second=10, monotonic=monotonic)
        self._skipped: collections.Counter[str] = collections.Counter()

    def admit(self, *, principal: str, address: str) -> bool:
        """Whether a record may be made now; otherwise it is counted. Callers without a principal share that of
        their address."""
        if principal:
            admitted = self._principals.take(principal)
        else:
            admitted = self._addresses.take(address) and self._unknown.take()
        if not admitted:
            name = principal or address
            self._skipped[name if name in self._skipped or len(self._skipped) < _MOST_KEPT else _OTHERS] += 1
        return admitted

    def take_skipped(self) -> collections.Counter[str]:
        """How many records were left out since the last time, by principal or address."""
        taken, self._skipped = self._skipped, collections.Counter()
        return taken


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
