"""SSE streams and downloads: a pump writes the pieces, and a heartbeat after `HEARTBEAT_SECONDS` of silence.

A stream that has to end is ended at once, even when the reader has stopped reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

import structlog

from corral.controller.events.frames import comment_frame
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import EVENT_STREAM, SECURITY_HEADERS, Headers, attachment
from corral.controller.http.pipeline.caller_limits import OpenStream
from corral.system.aio.tasks import Tasks, failure_of, first_of

log = structlog.get_logger("corral.controller.http")

HEARTBEAT_SECONDS: Final = 15.0
"""An event stream or a console that has been silent this long sends a heartbeat with its position."""
_GOODBYE_SECONDS: Final = 0.25
_RETRY_MS: Final = 1000

Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a stream; waits as long as the reader is slow."""

Pump = Callable[[Write], Coroutine[Any, Any, None]]
"""Writes a stream piece by piece. It is cancelled when the stream has to end."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """The body of a download. A pump that fails cuts the connection: half a file never looks whole."""

    pump: Pump
    content_type: bytes
    filename: str
    """Any text; the header is made safe."""
    length: int | None = None
    """Where it is known before."""
    digest: str = ""
    """The SHA-256 of all of it, which is its entity tag; empty: it has none."""
    headers: Headers = ()
    """As its route describes them."""
    close: Callable[[], Awaitable[None]] | None = None
    """Called when it was sent, broke off, or is not wanted."""


async def serve_stream(*, request: HttpRequest, stream: OpenStream, pump: Pump, headers: Headers) -> None:
    """Run a pump until it ends, the reader goes, or `stream` is closed; nothing is left running."""
    await request.send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", EVENT_STREAM),
                (b"x-accel-buffering", b"no"),  # a proxy that collects would turn live into late
                *SECURITY_HEADERS,
                *headers,
            ],
        }
    )

    async def write(piece: bytes) -> None:
        await request.send({"type": "http.response.body", "body": piece, "more_body": True})

    await write(b"retry: %d\n\n" % _RETRY_MS)
    await _run(request, stream, pump, write)
    await _send_closing(request, stream)


async def serve_download(
    *, request: HttpRequest, stream: OpenStream, content: Content, headers: Headers
) -> None:
    """Send bytes; for HEAD, their headers alone. A body that could not be sent whole ends as a broken connection."""
    try:
        await _send_download(request, stream, content, headers)
    finally:
        if content.close is not None:
            await content.close()


async def _send_download(
    request: HttpRequest, stream: OpenStream, content: Content, headers: Headers
) -> None:
    if content.length is not None:
        headers = ((b"content-length", b"%d" % content.length), *headers)
    if content.digest:
        headers = ((b"etag", f'"{content.digest}"'.encode()), *headers)
    await request.send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", content.content_type),
                (b"content-disposition", attachment(content.filename)),
                *content.headers,
                *SECURITY_HEADERS,
                *headers,
            ],
        }
    )

    async def write(piece: bytes) -> None:
        await request.send({"type": "http.response.body", "body": piece, "more_body": True})

    if request.method == "HEAD" or await _run(request, stream, content.pump, write):
        await request.send({"type": "http.response.body", "body": b"", "more_body": False})
    else:
        await cut(request)


async def cut(request: HttpRequest) -> None:
    """Drop the connection: what was sent so far is not all of it."""
    request.abort()
    await asyncio.sleep(0)  # the server learns of it in its next step, and must before we return


async def _run(request: HttpRequest, stream: OpenStream, pump: Pump, write: Write) -> bool:
    """Run a pump until something ends it; True when it ended by itself, without an error."""
    async with Tasks() as tasks:
        writing = tasks.spawn(pump(write), name="http/stream", awaited=True)
        written, *_ = await first_of(writing, until_gone(request), stream.closing, name="http/until-gone")
        whole = written is not None and not stream.closing.done()
    failure = failure_of(writing)
    if failure is not None:
        log.warning("http_stream.failed", path=request.shown_path, error=str(failure), exc_info=failure)
    return whole and failure is None and not writing.cancelled()


async def until_gone(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _send_closing(request: HttpRequest, stream: OpenStream) -> None:
    """End the answer properly if the reader takes it; one who has stopped reading is cut off."""
    reason = stream.closing.result() if stream.closing.done() else "the stream has ended"
    try:
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await request.send(
                {"type": "http.response.body", "body": comment_frame(reason), "more_body": False}
            )
    except TimeoutError:
        await cut(request)
